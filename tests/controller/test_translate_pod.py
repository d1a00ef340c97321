"""Pods: request, refusal, assignment, life, and what kube-scheduler's own filters look at."""

from typing import Any

import pytest

from tests.controller.cluster_facts import ledger_of
from tests.controller.kubernetes_json import assignment_json, container_json, encode, node_json, pod_json
from vgpu import names
from vgpu.controller.translate import Translator
from vgpu.core.facts import AssignmentSource, LabelRequirement, Phase, PodFact, Scheduling, Toleration
from vgpu.core.reasons import Reason
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest
from vgpu.settings import OperatorSettings

RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
ENDED = {"state": {"terminated": {"exitCode": 1}}}


def pod(document: dict[str, Any]) -> PodFact:
    return Translator(OperatorSettings(), lambda node: None).decode_pod(encode(document)).fact


def test_limits_win_over_requests_and_the_quantity_grammar_is_read() -> None:
    container = container_json(number="2", memory="1k", cores="30")
    container["resources"]["requests"] = {names.VOLCANO_NUMBER: "2", names.VOLCANO_MEMORY: "7"}
    fact = pod(pod_json(spec={"containers": [container]}))
    want = ContainerRequest("main", ContainerKind.APP, 2, CardRequest(memory_mib=1000, cores=30))
    assert fact.wants_gpus
    assert fact.request is not None
    assert fact.request.containers == (want,)


def test_requests_alone_count_too() -> None:
    container = {"name": "main", "resources": {"requests": {names.HAMI_NUMBER: 1}}}
    fact = pod(pod_json(spec={"containers": [container]}))
    assert fact.request is not None
    assert fact.request.slot_resource == names.HAMI_NUMBER


def test_containers_are_in_spec_order_with_their_kinds() -> None:
    sidecar = {**container_json("side", number="1"), "restartPolicy": "Always"}
    fact = pod(
        pod_json(
            spec={
                "initContainers": [sidecar, container_json("prepare", number="1")],
                "containers": [{"name": "plain"}, container_json("main", number="1")],
            }
        )
    )
    assert fact.request is not None
    assert [(c.name, c.kind) for c in fact.request.containers] == [
        ("side", ContainerKind.SIDECAR),
        ("prepare", ContainerKind.INIT),
        ("main", ContainerKind.APP),
    ]


def test_memory_factors_come_from_the_settings() -> None:
    translator = Translator(OperatorSettings(volcano_memory_factor=10), lambda node: None)
    document = pod_json(spec={"containers": [container_json(number="1", memory="3")]})
    request = translator.decode_pod(encode(document)).fact.request
    assert request is not None
    assert request.containers[0].card.memory_mib == 30


@pytest.mark.parametrize("number", ["-1", "1500m", "99999999999999999999", "abc"])
def test_an_unreadable_request_is_the_pods_own_refusal(number: str) -> None:
    fact = pod(pod_json(spec={"containers": [container_json(number=number)]}))
    assert fact.wants_gpus
    assert fact.request is None
    assert fact.refusal is not None
    assert names.VOLCANO_NUMBER in fact.refusal.message


def test_memory_without_number_is_refused_by_name() -> None:
    fact = pod(pod_json(spec={"containers": [container_json(memory="1000")]}))
    assert fact.refusal is not None
    assert fact.refusal.reason is Reason.NUMBER_MISSING


@pytest.mark.parametrize(
    "containers",
    [None, [], [{"name": "plain"}], [container_json(number="0")], [{"name": "a", "resources": None}]],
    ids=["null", "none", "plain", "zero", "null resources"],
)
def test_a_pod_that_asks_for_nothing_wants_no_gpus(containers: object) -> None:
    fact = pod(pod_json(spec={"containers": containers}))
    assert (fact.wants_gpus, fact.request, fact.refusal) == (False, None, None)


def bound(name: str = "p1", node: str = "n1", annotation: str | None = None, **status: Any) -> dict[str, Any]:
    text = assignment_json(f"uid-{name}", node) if annotation is None else annotation
    annotations = {names.ASSIGNMENT_ANNOTATION: text}
    return pod_json(name, spec={"nodeName": node}, status=status, annotations=annotations)


def test_an_own_assignment_is_read_with_the_kind_from_the_spec() -> None:
    document = bound()
    document["spec"]["initContainers"] = document["spec"]["containers"]
    document["spec"]["containers"] = [container_json("app")]
    fact = pod(document)
    assert fact.assignment is not None
    assert fact.assignment_problem == ""
    assert (fact.assignment.source, fact.assignment.node) == (AssignmentSource.VGPU, "n1")
    assert fact.assignment.nonce == "0123456789abcdef"
    container = fact.assignment.containers[0]
    assert (container.name, container.kind, container.cards[0].uuid) == ("main", ContainerKind.INIT, "GPU-a")


@pytest.mark.parametrize(
    ("annotation", "want"),
    [
        (assignment_json("uid-other", "n1"), "uid-other"),
        (assignment_json("uid-p1", "n2"), "made for node n2"),
        (assignment_json("uid-p1", "n1", container="ghost"), "ghost"),
        ("{", "vgpu.dev/assignment"),
        ("", "vgpu.dev/assignment"),
        ("[1]", "vgpu.dev/assignment"),
        (assignment_json("uid-p1", "n1").replace("1000", "-1000"), "memoryMiB"),
        (assignment_json("uid-p1", "n1").replace("1000", "1" + "0" * 40), "memoryMiB"),
        ("[" * 100_000, "vgpu.dev/assignment"),
        ("x" * 300_000, "at most"),
    ],
    ids=["uid", "node", "container", "no json", "empty", "list", "negative", "huge", "deep", "long"],
)
def test_an_assignment_that_is_not_the_pods_own_is_ignored_with_a_reason(annotation: str, want: str) -> None:
    fact = pod(bound(annotation=annotation))
    assert fact.assignment is None
    assert want in fact.assignment_problem
    assert len(fact.assignment_problem) < 1024
    assert fact.request is not None, "the rest of the pod is still read"


def test_a_copied_assignment_on_an_unbound_pod_is_ignored() -> None:
    document = bound()
    document["spec"]["nodeName"] = ""
    fact = pod(document)
    assert fact.assignment is None
    assert "not bound" in fact.assignment_problem


def test_a_foreign_assignment_of_another_system_is_counted() -> None:
    annotations = {names.VOLCANO_NODE: "n1", names.VOLCANO_IDS: "GPU-a,NVIDIA,1000,10:", names.VOLCANO_TIME: "1"}
    fact = pod(pod_json(spec={"nodeName": "n1"}, annotations=annotations))
    assert fact.assignment is not None
    assert fact.assignment.source is AssignmentSource.VOLCANO
    assert fact.assignment.containers[0].cards[0].uuid == "GPU-a"


def test_a_broken_own_assignment_does_not_hide_what_another_system_gave() -> None:
    document = bound(annotation="{")
    document["metadata"]["annotations"].update(
        {names.VOLCANO_NODE: "n1", names.VOLCANO_IDS: "GPU-a,NVIDIA,1000,10:", names.VOLCANO_TIME: "1"}
    )
    fact = pod(document)
    assert fact.assignment is not None
    assert fact.assignment_problem != ""


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, (Phase.PENDING, False, False, False)),
        ({"startTime": "2026-01-01T00:00:00Z"}, (Phase.PENDING, True, False, False)),
        ({"phase": "Running", "containerStatuses": [RUNNING]}, (Phase.RUNNING, False, True, True)),
        ({"phase": "Failed", "initContainerStatuses": [RUNNING]}, (Phase.FAILED, False, True, True)),
        ({"phase": "Failed", "containerStatuses": [ENDED]}, (Phase.FAILED, False, False, True)),
        ({"containerStatuses": [{"restartCount": 2}]}, (Phase.PENDING, False, False, True)),
        ({"containerStatuses": [{"lastState": {"terminated": {}}}]}, (Phase.PENDING, False, False, True)),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "x"}}}]}, (Phase.PENDING, False, False, False)),
        ({"phase": "Strange"}, (Phase.UNKNOWN, False, False, False)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_life_of_a_pod_is_read(status: dict[str, Any], want: tuple[object, ...]) -> None:
    fact = pod(pod_json(status=status))
    assert (fact.phase, fact.admitted, fact.container_running, fact.ever_ran) == want


def test_marks_of_deletion_gates_and_refused_admission() -> None:
    fact = pod(pod_json(deletionTimestamp="2026-01-01T00:00:00Z", spec={"schedulingGates": [{"name": "wait"}]}))
    assert (fact.terminating, fact.gated) == (True, True)
    refused = pod(pod_json(status={"phase": "Failed", "reason": "UnexpectedAdmissionError"}))
    assert refused.unexpected_admission
    assert refused.ended


def test_the_schedulers_own_no_is_read() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    fact = pod(pod_json(status={"conditions": [condition], "nominatedNodeName": "n7"}))
    assert (fact.unschedulable, fact.unschedulable_message, fact.nominated_node) == (True, "0/3 nodes", "n7")
    gated = {**condition, "reason": "SchedulingGated"}
    assert not pod(pod_json(status={"conditions": [gated]})).unschedulable
    failed = pod(pod_json(status={"conditions": [{**condition, "reason": "SchedulerError"}]}))
    marks = [(one.unschedulable, one.attempt_failed) for one in (fact, failed)]
    assert marks == [(True, False), (False, True)]


def test_owner_queue_and_kind_of_owner() -> None:
    owners = [{"kind": "Job", "uid": "job"}, {"kind": "DaemonSet", "uid": "daemons", "controller": True}]
    fact = pod(pod_json(ownerReferences=owners, labels={"kueue.x-k8s.io/queue-name": "research"}))
    assert (fact.owner_uid, fact.daemonset_or_mirror, fact.queue) == ("daemons", True, "research")
    assert pod(pod_json(annotations={names.MIRROR_POD_ANNOTATION: "x"})).daemonset_or_mirror
    assert not pod(pod_json()).daemonset_or_mirror


def test_only_pods_with_the_agents_label_in_our_namespace_are_agents() -> None:
    label, value = names.AGENT_POD_LABEL
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    ours = pod_json(namespace=names.NAMESPACE, labels={label: value}, status=ready)
    assert pod(ours).agent_pod_ready is True
    ours["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod(ours).agent_pod_ready is False
    assert pod(pod_json(labels={label: value}, status=ready)).agent_pod_ready is None
    assert pod(pod_json(namespace=names.NAMESPACE, status=ready)).agent_pod_ready is None


def scheduling(spec: dict[str, Any]) -> Scheduling:
    return pod(pod_json(spec=spec)).scheduling


def test_selectors_affinity_and_tolerations_are_read() -> None:
    required = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]
    }
    fact = scheduling(
        {
            "nodeSelector": {"pool": "gpu"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            "tolerations": [{"key": "gpu", "operator": "Exists"}, {}],
        }
    )
    assert fact.node_selector == {("pool", "gpu")}
    assert fact.required_terms == (
        (LabelRequirement("zone", "In", ("a", "b")),),
        (LabelRequirement("metadata.name", "In", ("n1",)),),
    )
    assert fact.tolerations == (Toleration("gpu", "Exists"), Toleration())
    assert not fact.soft_preferences


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
    ],
    ids=["spread", "node", "pod", "anti"],
)
def test_preferences_that_in_tree_scoring_weighs_are_seen(spec: dict[str, Any]) -> None:
    assert scheduling(spec).soft_preferences


def sized(name: str, cpu: str, **fields: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {names.VOLCANO_NUMBER: "1"}}
    return {"name": name, "resources": resources, **fields}


@pytest.mark.parametrize(
    ("spec", "want_millicores", "want_mib"),
    [
        ({"containers": [sized("a", "500m"), sized("b", "1")]}, 1500, 2048),
        ({"containers": [sized("a", "500m")], "initContainers": [sized("i", "3")]}, 3000, 1024),
        (
            {
                "containers": [sized("a", "1")],
                "initContainers": [sized("s", "2", restartPolicy="Always"), sized("i", "2")],
            },
            4000,
            2048,
        ),
        ({"containers": [sized("a", "1")], "overhead": {"cpu": "250m"}}, 1250, 1024),
        ({"containers": [sized("a", "1")], "resources": {"requests": {"cpu": "7"}}}, 7000, 1024),
        ({"containers": [sized("a", "nonsense")]}, 0, 1024),
    ],
    ids=["sum", "init peak", "sidecar before init", "overhead", "pod level", "unreadable"],
)
def test_cpu_and_memory_are_counted_as_kube_scheduler_does(
    spec: dict[str, Any], want_millicores: int, want_mib: int
) -> None:
    fact = scheduling(spec)
    assert (fact.cpu_millicores, fact.memory_mib) == (want_millicores, want_mib)


def test_annotations_and_conditions_that_we_do_not_use_leave_the_fact_equal() -> None:
    other = pod_json(annotations={"seen": "yes"}, status={"conditions": [{"type": "Initialized"}], "podIP": "::1"})
    assert pod(pod_json()) == pod(other)


def test_a_node_object_given_as_pod_is_read_as_a_pod_without_gpus() -> None:
    assert not pod(node_json()).wants_gpus


VOLCANO_DP = {"containers": [{"name": "main", "resources": {"limits": {names.VOLCANO_DP_MEMORY: "1"}}}]}


@pytest.mark.parametrize("annotations", [{}, {names.VOLCANO_DP_INDEX: "0,one"}], ids=["missing", "malformed"])
def test_a_bound_pod_of_volcano_dp_whose_cards_are_not_known_closes_its_node(annotations: dict[str, str]) -> None:
    ledger = ledger_of("n1")
    ledger.put_pod(pod(pod_json(spec={**VOLCANO_DP, "nodeName": "n1"}, annotations=annotations)))
    view = ledger.view("n1")
    assert view is not None
    assert view.closed is not None
    assert view.closed.reason is Reason.UNKNOWN_HOLDER


def test_a_pod_of_volcano_dp_that_is_not_bound_is_none_of_ours() -> None:
    assert not pod(pod_json(spec=VOLCANO_DP)).wants_gpus


@pytest.mark.parametrize(
    "annotations",
    [
        {names.VOLCANO_DP_INDEX: "0"},
        {names.HAMI_NODE: "n1", names.HAMI_ALLOCATED: "GPU-n1-0,NVIDIA,9007199254740992,0:;"},
        {names.VOLCANO_NODE: "n1", names.VOLCANO_IDS: "GPU-n1-0,NVIDIA,0,0:"},
    ],
    ids=["volcano-dp", "hami", "volcano"],
)
def test_annotations_alone_hold_no_card(annotations: dict[str, str]) -> None:
    ledger = ledger_of("n1")
    ledger.put_pod(
        pod(pod_json(spec={"containers": [{"name": "main"}], "nodeName": "n1"}, annotations=annotations))
    )
    view = ledger.view("n1")
    assert view is not None
    assert (view.closed, view.cards[0].holders) == (None, ())
