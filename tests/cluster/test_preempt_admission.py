"""What happens to Jobs and gangs at creation, and what the optional rights of the operator allow, tried with real
tokens on the real API server."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster import ApiRefused, Cluster
from devcluster.api import ApiClient
from devcluster.product import install, remove_policies
from tests.cluster.components import install_components, remove_rights, render
from vgpu import names
from vgpu.controller.fence import Fence
from vgpu.controller.writer import Writer
from vgpu.errors import ApiRefused as Refused
from vgpu.kube.client import ApiClient as KubeClient
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
GATE = {"name": names.GANG_GATE}
OTHER = {"name": "example.com/other"}
ONE_GPU = {names.HAMI_NUMBER: "1"}
COMPONENTS = ("routing", "jobs", "gangs", "bare-pods")
STRANGER = "00000000-0000-0000-0000-000000000000"
IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Product:
    """A cluster with the policies and rights of every component."""

    cluster: Cluster
    admin: ApiClient
    operator: ApiClient
    token: str


@pytest.fixture(scope="module")
def product(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    cluster.clear()
    install(cluster)
    install_components(cluster, tmp_path_factory.mktemp("components"), *COMPONENTS)
    token = cluster.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    product = Product(cluster, cluster.api, cluster.client(token), token)
    cluster.wait_until(lambda: _in_force(product), "the components' policies to be in force")
    yield product
    remove_rights(cluster, "gangs", "bare-pods")
    remove_policies(cluster)
    cluster.clear()


def _in_force(product: Product) -> bool:
    """All of them act, asked by requests that change nothing."""
    gated = product.admin.post(f"{PODS}?dryRun=All", make_pod(gang="2"))["spec"].get("schedulingGates") == [GATE]
    told = "podFailurePolicy" in product.admin.post(f"{JOBS}?dryRun=All", make_job())["spec"]
    try:
        product.operator.post(f"{PODS}?dryRun=All", make_pod())
    except ApiRefused as refusal:
        narrowed = "may create only pods" in refusal.message
    else:
        narrowed = False
    return gated and told and narrowed


def make_pod(gang: str | None = None, limits: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """A pod with one GPU unless `limits` say otherwise, of a gang with this minimum if one is named; `changes` of
    its metadata (labels, annotations), the others of its spec."""
    asked = ONE_GPU if limits is None else limits
    metadata: dict[str, Any] = {"name": f"pod-{next(_numbers)}"}
    metadata.update({key: changes.pop(key) for key in ("labels", "annotations") if key in changes})
    if gang is not None:
        labels = {names.POLICY_GANG: "g", names.POLICY_GANG_MIN: gang}
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
    container = {"name": "main", "image": "none", "resources": {"limits": asked}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **changes}
    return {"metadata": metadata, "spec": spec}


def make_job(
    limits: dict[str, str] | None = None,
    *,
    labels: dict[str, str] | None = None,
    init: bool = False,
    **changes: Any,
) -> dict[str, Any]:
    """A Job whose pod has one GPU and is never restarted unless said otherwise; `changes` of its spec."""
    asked = {"name": "main", "image": "none", "resources": {"limits": ONE_GPU if limits is None else limits}}
    plain = {"name": "plain", "image": "none"}
    spec = {"restartPolicy": changes.pop("restartPolicy", "Never"), "containers": [plain if init else asked]}
    if init:
        spec["initContainers"] = [asked]
    metadata = {"name": f"job-{next(_numbers)}", "labels": labels or {}}
    return {"metadata": metadata, "spec": {"template": {"spec": spec}, "suspend": True, **changes}}


def created(product: Product, body: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    """The spec of a Job as it would be stored."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All"
    spec: dict[str, Any] = product.admin.post(path, body)["spec"]
    return spec


JOBS_TOLD: dict[str, dict[str, Any]] = {
    "one card": make_job(),
    "memory alone": make_job({names.VOLCANO_MEMORY: "3000"}),
    "an init container asks": make_job(init=True),
    "indexed, with limits of its own": make_job(completionMode="Indexed", completions=3, backoffLimitPerIndex=1),
    "the default written out": make_job(podReplacementPolicy="TerminatingOrFailed"),
    "the other one written out": make_job(podReplacementPolicy="Failed"),
    "no retries": make_job(backoffLimit=0),
}


@pytest.mark.parametrize("body", JOBS_TOLD.values(), ids=JOBS_TOLD.keys())
def test_s82_an_eviction_does_not_count_against_a_gpu_job(product: Product, body: dict[str, Any]) -> None:
    spec = created(product, body)
    assert spec["podFailurePolicy"] == {"rules": [IGNORE]}
    assert spec["podReplacementPolicy"] == "Failed"
    kept = ("completionMode", "completions", "backoffLimitPerIndex", "backoffLimit")
    assert {key: spec[key] for key in kept if key in body["spec"]} == {
        key: body["spec"][key] for key in kept if key in body["spec"]
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


OWN = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
JOBS_LEFT: dict[str, dict[str, Any]] = {
    "no cards": make_job({"cpu": "1"}),
    "no limits": make_job({}),
    "none of the cards": make_job({names.HAMI_NUMBER: "0"}),
    "restarted in place": make_job(restartPolicy="OnFailure"),
    "opted out": make_job(labels={names.POLICY_POD_FAILURE: "off"}),
}


@pytest.mark.parametrize("body", JOBS_LEFT.values(), ids=JOBS_LEFT.keys())
def test_other_jobs_are_left_alone(product: Product, body: dict[str, Any]) -> None:
    spec = created(product, body)
    assert "podFailurePolicy" not in spec
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"


def test_a_job_with_a_policy_of_its_own_keeps_it(product: Product) -> None:
    policy = created(product, make_job(podFailurePolicy=OWN))["podFailurePolicy"]
    assert [rule["action"] for rule in policy["rules"]] == ["FailJob"]


def test_a_job_in_a_namespace_that_is_left_alone_stays_as_it_is(product: Product) -> None:
    namespace = {"metadata": {"name": "jobs-off", "labels": {names.POLICY_ROUTE: "off"}}}
    product.admin.post("/api/v1/namespaces", namespace)
    assert "podFailurePolicy" not in created(product, make_job(), "jobs-off")
    product.admin.delete("/api/v1/namespaces/jobs-off")


def test_a_wrong_job_is_refused_with_the_api_servers_own_words(product: Product) -> None:
    with pytest.raises(ApiRefused, match=r"spec\.template\.spec\.containers: Required value"):
        created(
            product, {"metadata": {"name": "empty"}, "spec": {"template": {"spec": {"restartPolicy": "Never"}}}}
        )


def test_the_same_job_may_be_applied_again(product: Product) -> None:
    """What was added at creation is no change of the user's, and no conflict with it."""
    body = {"apiVersion": "batch/v1", "kind": "Job", **make_job()}
    for _ in range(2):
        product.cluster.kubectl("apply", "-f", "-", input=json.dumps(body))
    assert "podFailurePolicy" in product.admin.get(f"{JOBS}/{body['metadata']['name']}")["spec"]


def gates(product: Product, body: dict[str, Any]) -> list[dict[str, str]]:
    """The gates of a pod as it would be stored."""
    spec = product.admin.post(f"{PODS}?dryRun=All", body)["spec"]
    found: list[dict[str, str]] = spec.get("schedulingGates", [])
    return found


def in_group(key: str, where: str = "annotations", **changes: Any) -> dict[str, Any]:
    """A pod that names a PodGroup of Volcano's."""
    return make_pod(**{where: {key: "g"}}, **changes)


GATED: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "a minimum": (make_pod(gang="2"), [GATE]),
    "a large minimum": (make_pod(gang="512"), [GATE]),
    "the minimum as an annotation": (
        make_pod(labels={names.POLICY_GANG: "g"}, annotations={names.POLICY_GANG_MIN: "2"}),
        [GATE],
    ),
    "routed to us": (make_pod(gang="2", schedulerName="default-scheduler"), [GATE]),
    "memory alone": (make_pod(gang="2", limits={names.HAMI_MEMORY: "3000"}), [GATE]),
    "a PodGroup of Volcano's": (in_group(names.VOLCANO_GROUP_KEYS[0]), [GATE]),
    "by its other name": (in_group(names.VOLCANO_GROUP_KEYS[1]), [GATE]),
    "as a label": (in_group(names.VOLCANO_GROUP_KEYS[1], "labels"), [GATE]),
    "beside another gate": (make_pod(gang="2", schedulingGates=[OTHER]), [OTHER, GATE]),
    "written by the user": (make_pod(gang="2", schedulingGates=[GATE]), [GATE]),
    "no gang": (make_pod(), []),
    "another gate and no gang": (make_pod(schedulingGates=[OTHER]), [OTHER]),
    "no minimum": (make_pod(labels={names.POLICY_GANG: "g"}), []),
    "a minimum of one": (make_pod(gang="1"), []),
    "no number": (make_pod(gang="two"), []),
    "a minimum beyond all": (make_pod(gang="100001"), []),
    "no cards": (make_pod(gang="2", limits={"cpu": "1"}), []),
    "another scheduler": (make_pod(gang="2", schedulerName="volcano"), []),
    "a node named by hand": (make_pod(gang="2", nodeName="n"), []),
}


@pytest.mark.parametrize(("body", "want"), GATED.values(), ids=GATED.keys())
def test_a_pod_of_a_gang_waits_behind_the_gate(
    product: Product, body: dict[str, Any], want: list[dict[str, str]]
) -> None:
    assert gates(product, body) == want


async def as_operator(product: Product, pod: Key, gate: str = names.GANG_GATE) -> None:
    """Take a gate off as the operator does."""
    fence = Fence(10, 4, lambda: 0.0)
    fence.renewed(0.0)
    kubeconfig = product.cluster.kubeconfig(product.token)
    async with await KubeClient.connect(kubeconfig=kubeconfig, user_agent="vgpu-tests") as client:
        await Writer(client, fence, OperatorSettings()).remove_gate(pod, gate)


@pytest.fixture
def member(product: Product) -> Key:
    """A gated pod that another controller holds back, too."""
    made = product.admin.post(PODS, make_pod(gang="2", schedulingGates=[OTHER]))["metadata"]
    return Key("default", made["name"], made["uid"])


def test_the_operator_takes_its_gate_off_and_leaves_those_of_others(product: Product, member: Key) -> None:
    asyncio.run(as_operator(product, member))
    assert product.admin.get(f"{PODS}/{member.name}")["spec"]["schedulingGates"] == [OTHER]
    version = product.admin.get(f"{PODS}/{member.name}")["metadata"]["resourceVersion"]
    asyncio.run(as_operator(product, member))
    assert product.admin.get(f"{PODS}/{member.name}")["metadata"]["resourceVersion"] == version


def test_the_operator_takes_it_off_exactly_this_pod(product: Product, member: Key) -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(as_operator(product, Key("default", member.name, STRANGER)))
    assert refused.value.status in (409, 422)
    assert len(product.admin.get(f"{PODS}/{member.name}")["spec"]["schedulingGates"]) == 2


def test_the_last_gate_goes_too(product: Product) -> None:
    made = product.admin.post(PODS, make_pod(gang="2"))["metadata"]
    asyncio.run(as_operator(product, Key("default", made["name"], made["uid"])))
    assert not product.admin.get(f"{PODS}/{made['name']}")["spec"].get("schedulingGates")


CHANGES: dict[str, dict[str, Any]] = {
    "a label": {"metadata": {"labels": {"x": "y"}}},
    "an annotation": {"metadata": {"annotations": {"x": "y"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/x"]}},
    "another's gate": {"spec": {"schedulingGates": [GATE]}},
    "a time limit": {"spec": {"activeDeadlineSeconds": 1}},
    "a node selector": {"spec": {"nodeSelector": {"x": "y"}}},
    "a toleration": {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}},
    "the gate and a label": {"metadata": {"labels": {"x": "y"}}, "spec": {"schedulingGates": [OTHER]}},
}
NOTHING_BUT = "may change nothing but take the gate vgpu.dev/gang off"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_operator_changes_nothing_else_of_a_pod(product: Product, member: Key, change: dict[str, Any]) -> None:
    with pytest.raises(ApiRefused, match=NOTHING_BUT):
        product.operator.patch(f"{PODS}/{member.name}", change)


def test_the_operator_changes_no_image(product: Product, member: Key) -> None:
    change = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]
    with pytest.raises(ApiRefused, match=NOTHING_BUT):
        product.operator.request("PATCH", f"{PODS}/{member.name}", change, "application/json-patch+json")


def test_users_may_take_the_gate_off_their_own_pods(product: Product, member: Key) -> None:
    product.admin.patch(f"{PODS}/{member.name}", {"spec": {"schedulingGates": [OTHER]}})
    assert product.admin.get(f"{PODS}/{member.name}")["spec"]["schedulingGates"] == [OTHER]


OPTED_IN = {names.POLICY_EVICT_BARE: "true"}


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_the_operator_creates_a_bare_pod_that_allows_it(product: Product, where: str) -> None:
    product.operator.post(f"{PODS}?dryRun=All", make_pod(**{where: OPTED_IN}))


FORBIDDEN: dict[str, tuple[dict[str, Any], str]] = {
    "not opted in": (make_pod(), "say policy.vgpu.dev/evict-bare=true"),
    "opted out": (make_pod(annotations={names.POLICY_EVICT_BARE: "false"}), "say policy.vgpu.dev/evict-bare=true"),
    "no cards": (make_pod(limits={"cpu": "1"}, annotations=OPTED_IN), "ask for GPUs"),
    "a node named": (make_pod(annotations=OPTED_IN, nodeName="n"), "not bound and hold no cards"),
    "cards given": (
        make_pod(annotations={**OPTED_IN, names.ASSIGNMENT_ANNOTATION: "{}"}),
        "not bound and hold no cards",
    ),
}


@pytest.mark.parametrize(("body", "want"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_the_operator_creates_no_other_pod(product: Product, body: dict[str, Any], want: str) -> None:
    with pytest.raises(ApiRefused, match=want):
        product.operator.post(f"{PODS}?dryRun=All", body)


def test_everybody_else_creates_pods_as_before(product: Product) -> None:
    product.admin.post(f"{PODS}?dryRun=All", make_pod())


def test_the_components_switch_their_settings_on(product: Product, tmp_path: Path) -> None:
    """And the base leaves them off."""

    def environment(*components: str) -> dict[str, str]:
        documents = render(product.cluster, tmp_path, *components)
        [operator] = [
            item
            for item in documents
            if item["kind"] == "Deployment" and item["metadata"]["name"] == names.OPERATOR_ACCOUNT
        ]
        [container] = operator["spec"]["template"]["spec"]["containers"]
        return {entry["name"]: entry.get("value", "") for entry in container["env"]}

    switches = {"VGPU_UNGATE_GANGS", "VGPU_RECREATE_BARE_PODS"}
    assert not switches & environment("routing").keys()
    on = environment("gangs", "bare-pods")
    assert {name: on[name] for name in switches} == dict.fromkeys(switches, "true")


def test_only_what_was_asked_for_is_given(product: Product) -> None:
    """Without the rights the same writes are refused by RBAC."""
    remove_rights(product.cluster, "gangs", "bare-pods")
    try:
        product.cluster.wait_until(lambda: _is_refused(product), "the rights to be gone")
    finally:
        folder = Path(product.cluster.site.folder) / "rights-again"
        folder.mkdir(exist_ok=True)
        install_components(product.cluster, folder, *COMPONENTS)


def _is_refused(product: Product) -> bool:
    try:
        product.operator.post(f"{PODS}?dryRun=All", make_pod(annotations=OPTED_IN))
    except ApiRefused as refusal:
        return "cannot create resource" in refusal.message
    return False
