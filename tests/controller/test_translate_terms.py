"""What a GPU pod says of its own eviction, its gang and its owner; what cannot be read is named and left out."""

from typing import Any

import pytest

from tests.controller.kubernetes_json import assignment_json, container_json, encode, pod_json
from vgpu.controller.preempt.bodies import preemption_status
from vgpu.controller.translate import Translator
from vgpu.controller.translate.terms import go_boolean, go_duration_seconds, group_minimum, moment_seconds
from vgpu.core.facts import PodFact, Scheduling
from vgpu.core.preempt.facts import Debt, Gang, PlanPhase
from vgpu.core.preempt.gang_state import GangState, why_not_alone
from vgpu.core.terms import GroupName, GroupSource, OwnerRef, PodTerms
from vgpu.errors import MalformedObject
from vgpu.settings import OperatorSettings


def fact_of(**fields: Any) -> PodFact:
    settings = OperatorSettings(recreate_bare_pods=True)
    return Translator(settings, lambda _: None).decode_pod(encode(pod_json(**fields))).fact


def terms_of(**fields: Any) -> PodTerms:
    terms = fact_of(**fields).terms
    assert terms is not None
    return terms


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5m", 30),
        ("1500ms", 2),
        ("+10m", 600),
        ("0", 0),
        ("1h0m0.1s", 3601),
    ],
)
def test_a_cooldown_is_a_go_duration(text: str, want: int) -> None:
    assert go_duration_seconds(text) == want


@pytest.mark.parametrize("text", ["", "10", "10 m", "-5m", "5d", "m", ".", "1h-5m", "9" * 30 + "h", "1m" * 40])
def test_what_is_no_go_duration_is_refused(text: str) -> None:
    with pytest.raises(MalformedObject):
        go_duration_seconds(text)


def test_a_boolean_is_read_as_go_reads_it() -> None:
    assert [go_boolean(text) for text in ("1", "t", "TRUE", "0", "f", "False")] == [True] * 3 + [False] * 3
    with pytest.raises(MalformedObject):
        go_boolean("no")


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00.75+01:00"])
def test_a_checkpoint_is_a_moment(text: str) -> None:
    assert moment_seconds(text) == 1_769_860_800


@pytest.mark.parametrize(
    "text", ["now", "2026-01-31", "2026-01-31T12:00:00", "2026-02-31T12:00:00Z", "20260131T12Z"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(MalformedObject):
        moment_seconds(text)


@pytest.mark.parametrize("text", ["0", "-1", "many", "1e3", "99999999", "²"])
def test_what_is_no_minimum_is_refused(text: str) -> None:
    with pytest.raises(MalformedObject):
        group_minimum(text)


def test_everything_that_a_pod_may_say_is_read() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1", "controller": True}
    terms = terms_of(
        creationTimestamp="2026-01-31T12:00:00Z",
        deletionTimestamp="2026-01-31T12:10:00Z",
        ownerReferences=[{"kind": "Other", "uid": "x"}, owner],
        labels={"policy.vgpu.dev/gang": "ring", "policy.vgpu.dev/gang-min": "3", "app": "a"},
        annotations={
            "policy.vgpu.dev/checkpoint": "2026-01-31T12:05:00Z",
            "policy.vgpu.dev/evict-bare": "true",
            "volcano.sh/preemptable": "false",
            "volcano.sh/cooldown-time": "10m",
        },
        spec={"preemptionPolicy": "Never", "schedulingGates": [{"name": "vgpu.dev/gang"}]},
        status={"startTime": "2026-01-31T12:01:00Z"},
    )
    noon = 1_769_860_800
    assert terms == PodTerms(
        owner=OwnerRef("job-1", "Job", "train", "batch/v1"),
        group=GroupName(GroupSource.LABEL, "team", "ring"),
        group_minimum=3,
        preempt_never=True,
        created_seconds=noon,
        started_seconds=noon + 60,
        deletion_seconds=noon + 600,
        checkpoint_seconds=noon + 300,
        preemptable=False,
        cooldown_seconds=600,
        evict_opt_in=True,
        labels=frozenset({("policy.vgpu.dev/gang", "ring"), ("policy.vgpu.dev/gang-min", "3"), ("app", "a")}),
        gates=frozenset({"vgpu.dev/gang"}),
    )


def test_an_owner_that_is_no_controller_brings_nothing_back() -> None:
    assert terms_of(ownerReferences=[{"kind": "Other", "uid": "x", "name": "y"}]).owner == OwnerRef()


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1", "controller": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "n" * 254},
        {"name": "../../secrets/all"},
        {"name": ".."},
        {"name": "a\x00b"},
        {"name": ""},
        {"uid": "u" * 129},
        {"kind": "K" * 254},
        {"apiVersion": f"batch/{'v' * 1020}"},
    ],
    ids=lambda changes: str(changes)[:30],
)
def test_a_controller_that_no_object_can_be_brings_nothing_back(changes: dict[str, str]) -> None:
    assert terms_of(ownerReferences=[OWNER]).owner == OwnerRef("job-1", "Job", "train", "batch/v1")
    assert terms_of(ownerReferences=[OWNER | changes]).owner == OwnerRef()


def test_every_controller_that_is_taken_can_be_owed_something() -> None:
    most = {"name": "n" * 253, "uid": "u" * 128, "kind": "K" * 253, "apiVersion": "v" * 1024}
    owner = terms_of(ownerReferences=[OWNER | most]).owner
    debt = Debt(owner.uid, owner.kind, "team", owner.name, "q" * 5000, pods=1, api_version=owner.api_version)
    said = preemption_status(PlanPhase.DRAINING, debts=[debt])["debts"]
    assert (said[0]["name"], said[0]["queue"]) == (most["name"], "q" * 1024)


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"annotations": {"scheduling.k8s.io/group-name": "pg"}}, "team/pg (Volcano PodGroup)"),
        ({"annotations": {"scheduling.volcano.sh/group-name": "pg"}}, "team/pg (Volcano PodGroup)"),
        ({"labels": {"scheduling.k8s.io/group-name": "pg"}}, "team/pg (Volcano PodGroup)"),
        ({"spec": {"schedulingGroup": {"podGroupName": "pg"}}}, "team/pg (PodGroup)"),
        (
            {
                "labels": {"policy.vgpu.dev/gang": "own"},
                "annotations": {"scheduling.k8s.io/group-name": "pg"},
                "spec": {"schedulingGroup": {"podGroupName": "pg"}},
            },
            "team/own",
        ),
        ({"spec": {"schedulingGroup": {}}}, None),
        ({}, None),
    ],
)
def test_a_pods_group_is_the_one_that_it_names(fields: dict[str, Any], want: str | None) -> None:
    group = terms_of(**fields).group
    assert (group.key if group is not None else None) == want


def test_a_member_is_told_of_its_gang_as_people_write_it() -> None:
    group = terms_of(labels={"policy.vgpu.dev/gang": "ring"}).group
    assert group is not None
    state = GangState(Gang(group.key, 2), waiting=(PodFact("u", "team", "p"),))
    refusal = why_not_alone(state, (), "u")
    assert refusal is not None
    assert refusal.message == "gang team/ring starts with 2 pods at once, and only 1 are there"


def test_what_cannot_be_read_counts_as_not_said_and_is_named() -> None:
    terms = terms_of(
        labels={"policy.vgpu.dev/gang": "ring", "policy.vgpu.dev/gang-min": "all"},
        annotations={"volcano.sh/preemptable": "no", "volcano.sh/cooldown-time": "soon"},
    )
    assert (terms.group_minimum, terms.preemptable, terms.cooldown_seconds) == (None, True, 0)
    assert [problem.split(" must")[0] for problem in terms.problems] == [
        "its label policy.vgpu.dev/gang-min",
        "its annotation volcano.sh/preemptable",
        "its annotation volcano.sh/cooldown-time",
    ]
    assert terms.problems[1].endswith("must be true or false, not 'no': it counts as not said")


def test_volcano_reads_a_cooldown_from_the_label_first_and_preemptable_from_the_annotation_first() -> None:
    terms = terms_of(
        labels={"volcano.sh/preemptable": "true", "volcano.sh/cooldown-time": "1m"},
        annotations={"volcano.sh/preemptable": "false", "volcano.sh/cooldown-time": "1h"},
    )
    assert (terms.preemptable, terms.cooldown_seconds) == (False, 60)


def test_a_pod_without_gpus_has_no_terms_and_shares_what_it_asks_of_its_node() -> None:
    plain = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    one, other = (fact_of(name=name, spec={"nodeName": "n1", "containers": [plain]}) for name in "ab")
    assert one.terms is None
    assert one.scheduling == Scheduling(cpu_millicores=500, memory_mib=1024)
    assert one.scheduling is other.scheduling


def test_a_bound_gpu_pod_keeps_all_that_the_scheduler_looks_at() -> None:
    spec = {"nodeName": "n1", "nodeSelector": {"pool": "gpu"}, "containers": [container_json(number="1")]}
    annotations = {"vgpu.dev/assignment": assignment_json("uid-p1", "n1")}
    fact = fact_of(spec=spec, annotations=annotations)
    assert fact.scheduling.node_selector == frozenset({("pool", "gpu")})
    assert fact.terms is not None


def test_a_pod_without_gpus_has_terms_only_where_it_is_of_a_group() -> None:
    spec = {"containers": [{"name": "main"}]}
    grouped = fact_of(spec=spec, labels={"policy.vgpu.dev/gang": "g", "policy.vgpu.dev/gang-min": "3"})
    assert (grouped.wants_gpus, grouped.terms and grouped.terms.group) == (
        False,
        GroupName(GroupSource.LABEL, grouped.namespace, "g"),
    )
    assert fact_of(spec=spec, labels={"app": "web"}).terms is None


def test_leave_to_evict_a_bare_pod_is_of_no_effect_where_nothing_would_create_it_again() -> None:
    raw = encode(pod_json(annotations={"policy.vgpu.dev/evict-bare": "true"}))
    agreed = [
        Translator(OperatorSettings(recreate_bare_pods=switch), lambda node: None).decode_pod(raw).fact.terms
        for switch in (True, False)
    ]
    assert [terms is not None and terms.evict_opt_in for terms in agreed] == [True, False]
