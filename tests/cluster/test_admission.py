"""Who may write what, tried with real tokens of each account on the real API server."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from devcluster import ApiRefused, Cluster
from devcluster.api import ApiClient
from devcluster.product import install, remove_policies
from vgpu import names

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"
INVENTORIES = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
ASSIGNED = {"metadata": {"annotations": {names.ASSIGNMENT_ANNOTATION: "{}"}}}
FORGED = (
    "only the vgpu operator may set, change or remove annotations under vgpu.dev/, "
    "and this request touches vgpu.dev/assignment"
)
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Product:
    """A cluster with our policies in force, and the accounts that meet there."""

    cluster: Cluster
    admin: ApiClient
    operator: ApiClient
    intruder: ApiClient
    """A service account with every right that RBAC can give."""
    node: str


@pytest.fixture(scope="module")
def product(cluster: Cluster) -> Iterator[Product]:
    cluster.clear()
    install(cluster)
    [node] = cluster.create_nodes(1, prefix="admission-")
    operator = cluster.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    intruder = cluster.token_for_service_account("default", "intruder")
    cluster.kubectl(
        "create",
        "clusterrolebinding",
        "intruder",
        "--clusterrole=cluster-admin",
        "--serviceaccount=default:intruder",
    )
    yield Product(cluster, cluster.api, cluster.client(operator), cluster.client(intruder), node)
    cluster.kubectl("delete", "clusterrolebinding", "intruder")
    remove_policies(cluster)
    cluster.clear()


def make_pod(
    limits: dict[str, Any] | None = None, *, init: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """A pod that no scheduler takes unless `changes` of its spec say otherwise."""
    spec: dict[str, Any] = {
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits or {}}}],
        **changes,
    }
    if init is not None:
        spec["initContainers"] = [{"name": "first", "image": "none", "resources": {"limits": init}}]
    return {"metadata": {"name": f"pod-{next(_numbers)}", "annotations": {"team": "blue"}}, "spec": spec}


def make_binding(name: str, node: str, **annotations: str) -> dict[str, Any]:
    """A Binding of the pod `name` that carries `annotations`."""
    return {"metadata": {"name": name, "annotations": annotations}, "target": {"kind": "Node", "name": node}}


@pytest.fixture
def pod(product: Product) -> str:
    """The path of a pending pod that carries an assignment of the operator's."""
    name: str = product.admin.post(PODS, make_pod())["metadata"]["name"]
    product.operator.patch(f"{PODS}/{name}/status", ASSIGNED)
    return f"{PODS}/{name}"


def annotations_of(product: Product, path: str) -> dict[str, str]:
    found: dict[str, str] = product.admin.get(path)["metadata"]["annotations"]
    return found


def test_nobody_creates_a_pod_with_our_annotations(product: Product) -> None:
    body = make_pod()
    body["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION] = "{}"
    with pytest.raises(ApiRefused, match=FORGED) as refused:
        product.intruder.post(PODS, body)
    assert refused.value.code == 403


@pytest.mark.parametrize("value", ["{}x", None], ids=["changed", "removed"])
@pytest.mark.parametrize("subresource", ["", "/status"])
def test_nobody_changes_or_removes_our_annotations(
    product: Product, pod: str, subresource: str, value: str | None
) -> None:
    with pytest.raises(ApiRefused, match=FORGED):
        product.intruder.patch(
            pod + subresource, {"metadata": {"annotations": {names.ASSIGNMENT_ANNOTATION: value}}}
        )
    assert annotations_of(product, pod)[names.ASSIGNMENT_ANNOTATION] == "{}"


@pytest.mark.parametrize("subresource", ["", "/status"])
def test_nobody_adds_our_annotations(product: Product, subresource: str) -> None:
    name = product.admin.post(PODS, make_pod())["metadata"]["name"]
    with pytest.raises(ApiRefused, match=FORGED):
        product.intruder.patch(f"{PODS}/{name}{subresource}", ASSIGNED)


@pytest.mark.parametrize("collection", ["pods/{}/binding", "bindings"])
def test_nobody_binds_with_our_annotations(product: Product, collection: str) -> None:
    name = product.admin.post(PODS, make_pod())["metadata"]["name"]
    binding = make_binding(name, product.node, **{names.ASSIGNMENT_ANNOTATION: "{}"})
    with pytest.raises(ApiRefused, match=FORGED):
        product.intruder.post(f"/api/v1/namespaces/default/{collection.format(name)}", binding)
    assert "nodeName" not in product.admin.get(f"{PODS}/{name}")["spec"]


def test_everybody_else_goes_on_as_before(product: Product, pod: str) -> None:
    """Ordinary changes, what users may set, and bindings by other schedulers."""
    own = {"team": "red", names.POLICY_SCORE: "spread"}
    product.intruder.patch(pod, {"metadata": {"annotations": own, "labels": {names.POLICY_QUEUE: "q"}}})
    product.intruder.patch(f"{pod}/status", {"status": {"message": "m"}})
    product.intruder.post(f"{pod}/binding", make_binding(pod.rpartition("/")[2], product.node))
    assert annotations_of(product, pod) == {**own, names.ASSIGNMENT_ANNOTATION: "{}"}
    product.intruder.delete(pod)


def test_the_operator_binds_and_nominates_with_its_annotations(product: Product) -> None:
    name = product.admin.post(PODS, make_pod())["metadata"]["name"]
    wake = {
        "metadata": {"annotations": {names.WAKE_ANNOTATION: "1"}},
        "status": {"nominatedNodeName": product.node},
    }
    product.operator.patch(f"{PODS}/{name}/status", wake)
    binding = make_binding(name, product.node, **{names.ASSIGNMENT_ANNOTATION: "{}"})
    product.operator.post(f"{PODS}/{name}/binding", binding)
    want = {"team": "blue", names.WAKE_ANNOTATION: "1", names.ASSIGNMENT_ANNOTATION: "{}"}
    assert annotations_of(product, f"{PODS}/{name}") == want


def make_inventory(name: str) -> dict[str, Any]:
    spec = {"slotResource": names.VOLCANO_NUMBER, "identity": "exact", "plugin": "vgpu", "gpus": []}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.INVENTORY_KIND,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture
def agent(product: Product) -> ApiClient:
    """The agent of `product.node`: the bearer of a token bound to its pod."""
    body = make_pod(serviceAccountName=names.AGENT_ACCOUNT, nodeName=product.node)
    name = product.admin.post(f"/api/v1/namespaces/{names.NAMESPACE}/pods", body)["metadata"]["name"]
    token = product.cluster.token_for_service_account(names.NAMESPACE, names.AGENT_ACCOUNT, name)
    return product.cluster.client(token)


def apply_inventory(client: ApiClient, name: str) -> dict[str, Any]:
    """As an agent does it."""
    path = f"{INVENTORIES}/{name}?fieldManager={names.AGENT_FIELD_MANAGER}&force=true"
    applied: dict[str, Any] = client.request("PATCH", path, make_inventory(name), "application/apply-patch+yaml")
    return applied


def test_an_agent_writes_the_inventory_of_its_node(product: Product, agent: ApiClient) -> None:
    apply_inventory(agent, product.node)
    agent.patch(f"{INVENTORIES}/{product.node}", {"spec": {"bootId": "b"}})
    assert product.admin.get(f"{INVENTORIES}/{product.node}")["spec"]["bootId"] == "b"


def test_an_agent_writes_no_other_inventory(product: Product, agent: ApiClient) -> None:
    want = f"the agent of node {product.node} may write only the inventory of that name, not other"
    with pytest.raises(ApiRefused, match=want):
        apply_inventory(agent, "other")
    product.admin.post(INVENTORIES, make_inventory("other-2"))
    with pytest.raises(ApiRefused, match=f"{want}-2"):
        agent.patch(f"{INVENTORIES}/other-2", {"spec": {"readError": "x"}})
    with pytest.raises(ApiRefused, match=f"{want}-3"):
        agent.post(INVENTORIES, make_inventory("other-3"))


def test_an_agents_token_that_names_no_node_writes_nothing(product: Product) -> None:
    token = product.cluster.token_for_service_account(names.NAMESPACE, names.AGENT_ACCOUNT)
    with pytest.raises(ApiRefused, match=r"an agent's token must be bound to its pod"):
        apply_inventory(product.cluster.client(token), product.node)


def test_only_the_operator_writes_status(product: Product, agent: ApiClient) -> None:
    apply_inventory(agent, product.node)
    path = f"{INVENTORIES}/{product.node}/status"
    status = {"status": {"summary": {"cards": "0/0"}}}
    with pytest.raises(ApiRefused, match="only the vgpu operator writes the status of this kind"):
        product.intruder.patch(path, status)
    with pytest.raises(ApiRefused, match="cannot patch resource"):
        agent.patch(path, status)
    product.operator.patch(path, status)
    assert product.admin.get(path)["status"] == status["status"]


ONE = "1"
ROUTED = {
    "hami number": ({names.HAMI_NUMBER: "2"}, {names.HAMI_NUMBER: "2"}),
    "volcano number": ({names.VOLCANO_NUMBER: "2"}, {names.VOLCANO_NUMBER: "2"}),
    "hami memory alone": ({names.HAMI_MEMORY: "3000"}, {names.HAMI_MEMORY: "3k", names.HAMI_NUMBER: ONE}),
    "hami percent alone": (
        {names.HAMI_MEMORY_PERCENT: "50"},
        {names.HAMI_MEMORY_PERCENT: "50", names.HAMI_NUMBER: ONE},
    ),
    "hami cores alone": ({names.HAMI_CORES: "30"}, {names.HAMI_CORES: "30", names.HAMI_NUMBER: ONE}),
    "volcano memory alone": (
        {names.VOLCANO_MEMORY: "3000", "cpu": "1"},
        {names.VOLCANO_MEMORY: "3k", "cpu": "1", names.VOLCANO_NUMBER: ONE},
    ),
    "volcano percent alone": (
        {names.VOLCANO_MEMORY_PERCENT: "50"},
        {names.VOLCANO_MEMORY_PERCENT: "50", names.VOLCANO_NUMBER: ONE},
    ),
    "volcano cores alone": ({names.VOLCANO_CORES: "30"}, {names.VOLCANO_CORES: "30", names.VOLCANO_NUMBER: ONE}),
    "unset memory of the other": (
        {names.VOLCANO_MEMORY: "0", names.HAMI_MEMORY: "3000"},
        {names.VOLCANO_MEMORY: "0", names.HAMI_MEMORY: "3k", names.HAMI_NUMBER: ONE},
    ),
    "number beside the other's memory": (
        {names.HAMI_NUMBER: "2", names.VOLCANO_MEMORY: "3000"},
        {names.HAMI_NUMBER: "2", names.VOLCANO_MEMORY: "3k"},
    ),
}


@pytest.mark.parametrize(("limits", "want"), ROUTED.values(), ids=ROUTED.keys())
@pytest.mark.parametrize("place", ["app", "init"])
@pytest.mark.parametrize("scheduler", [None, names.SCHEDULER_NAME], ids=["default", "ours"])
def test_a_pod_that_asks_for_gpus_is_routed(
    product: Product, scheduler: str | None, place: str, limits: dict[str, str], want: dict[str, str]
) -> None:
    """And gets one card where it names none; limits and requests stay equal, as the API server demands."""
    body = make_pod(limits) if place == "app" else make_pod(init=limits)
    body["spec"]["schedulerName"] = scheduler
    spec = product.admin.post(f"{PODS}?dryRun=All", body)["spec"]
    assert spec["schedulerName"] == names.SCHEDULER_NAME
    container = spec["containers" if place == "app" else "initContainers"][0]
    assert container["resources"] == {"limits": want, "requests": want}


def test_containers_without_gpus_are_left_alone(product: Product) -> None:
    body = make_pod({names.HAMI_MEMORY: "3000"}, schedulerName=None)
    body["spec"]["containers"].append({"name": "log", "image": "none", "env": [{"name": "A", "value": "b"}]})
    containers = product.admin.post(f"{PODS}?dryRun=All", body)["spec"]["containers"]
    assert [container["name"] for container in containers] == ["main", "log"]
    assert containers[1]["resources"] == {}
    assert containers[1]["env"] == [{"name": "A", "value": "b"}]


@pytest.mark.parametrize(
    ("limits", "scheduler"),
    [
        ({"cpu": "1"}, "default-scheduler"),
        ({names.HAMI_NUMBER: "0"}, "default-scheduler"),
        ({names.VOLCANO_MEMORY: "0"}, "default-scheduler"),
        ({names.HAMI_PRIORITY: "1"}, "default-scheduler"),
        ({names.VOLCANO_MEMORY: "3000"}, "volcano"),
        ({names.HAMI_NUMBER: "1"}, "hami-scheduler"),
    ],
    ids=str,
)
def test_other_pods_are_left_alone(product: Product, limits: dict[str, str], scheduler: str) -> None:
    spec = product.admin.post(f"{PODS}?dryRun=All", make_pod(limits, schedulerName=scheduler))["spec"]
    assert spec["schedulerName"] == scheduler
    assert spec["containers"][0]["resources"]["limits"].keys() == limits.keys()


def test_a_namespace_can_opt_out_of_routing(product: Product) -> None:
    namespace = {"metadata": {"name": "route-off", "labels": {names.POLICY_ROUTE: "off"}}}
    product.admin.post("/api/v1/namespaces", namespace)
    body = make_pod({names.HAMI_MEMORY: "3000"}, schedulerName=None)
    spec = product.admin.post("/api/v1/namespaces/route-off/pods?dryRun=All", body)["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["containers"][0]["resources"]["limits"].keys() == {names.HAMI_MEMORY}
    product.admin.delete("/api/v1/namespaces/route-off")


def test_without_the_policies_the_forgery_goes_through(product: Product, pod: str) -> None:
    """What the tests above refuse is refused by the policies and by nothing else."""
    remove_policies(product.cluster)
    product.intruder.patch(pod, {"metadata": {"annotations": {names.ASSIGNMENT_ANNOTATION: "forged"}}})
    assert annotations_of(product, pod)[names.ASSIGNMENT_ANNOTATION] == "forged"
    install(product.cluster)
