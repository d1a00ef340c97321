"""kube-scheduler's own preemption never deletes a pod that has GPUs, and goes on where it may."""

from collections.abc import Iterator

import pytest

from devcluster import Cluster
from devcluster.operators import gpu_pod, inventory_document
from tests.cluster.stage import EVENTS, Json, Stage, slots_shape, staged, wait_all_ready
from vgpu import names

pytestmark = pytest.mark.cluster
NODES = 2
SLOTS = 2
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LOW, HIGH = "low", "high"


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[Stage]:
    """Two nodes of one card with two slots and 4 CPUs each."""
    cluster.clear()
    nodes = cluster.create_nodes(NODES, slots_shape(SLOTS, cpu="4"))
    for name, value in ((LOW, 10), (HIGH, 1000)):
        cluster.api.post(CLASSES, {"metadata": {"name": name}, "value": value})
    try:
        with staged(cluster, [inventory_document(node, 1, slots=SLOTS) for node in nodes]) as stage:
            wait_all_ready(stage, nodes)
            yield stage
    finally:
        for name in (LOW, HIGH):
            cluster.api.delete(f"{CLASSES}/{name}")


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    yield shared
    shared.remove_pods()


def pod_of(priority: str, name: str, *, cpu: str = "", gpu: bool = True) -> Json:
    pod = gpu_pod(name, memory_mib=1000)
    container = pod["spec"]["containers"][0]
    if not gpu:
        container["resources"] = {}
    if cpu:
        container["resources"]["requests"] = {"cpu": cpu}
    pod["spec"]["priorityClassName"] = priority
    return pod


def snapshot(stage: Stage) -> dict[str, tuple[str, bool]]:
    """uid of every pod, and whether it is being deleted."""
    pods = stage.cluster.api.get("/api/v1/namespaces/default/pods")["items"]
    return {p["metadata"]["name"]: (p["metadata"]["uid"], "deletionTimestamp" in p["metadata"]) for p in pods}


def preempt_answers(stage: Stage) -> float:
    [replica] = stage.operators.replicas.values()
    return sum(
        float(line.rpartition(" ")[2])
        for line in replica.get("/metrics")[1].splitlines()
        if line.startswith('vgpu_extender_seconds_count{verb="preempt"}')
    )


def said_of_preemption(stage: Stage, name: str) -> str:
    """The newest words of kube-scheduler about the pod, once it has looked for victims."""

    def words() -> list[str]:
        uid = stage.pod(name)["metadata"]["uid"]
        events = stage.cluster.api.get(EVENTS)["items"]
        found = [e["message"] for e in events if e["involvedObject"].get("uid") == uid]
        return [message for message in found if "preemption:" in message]

    stage.cluster.wait_until(lambda: bool(words()), f"kube-scheduler to have looked for victims of {name}")
    return str(words()[-1])


def deletions(stage: Stage, since: int) -> list[str]:
    """Pods that kube-scheduler or we have deleted or evicted."""
    events = stage.cluster.audit_events(since).events
    return [
        event.name
        for event in events
        if event.resource == "pods"
        and ((event.verb == "delete") or (event.verb, event.subresource) == ("create", "eviction"))
        and event.user.startswith(f"system:serviceaccount:{names.NAMESPACE}:")
    ]


def test_slots_taken_by_low_priority_pods_are_not_freed_by_deleting_them(stage: Stage) -> None:
    low = [pod_of(LOW, f"low-{number}") for number in range(NODES * SLOTS)]
    stage.create(*low)
    stage.wait_bound(*(pod["metadata"]["name"] for pod in low))
    before, since = snapshot(stage), stage.position()
    stage.create(pod_of(HIGH, "high"))
    assert "Preemption is not helpful" in said_of_preemption(stage, "high")
    stage.wait_told("high", "InsufficientSlots")
    assert deletions(stage, since) == []
    after = snapshot(stage)
    assert {name: after[name] for name in before} == before
    assert stage.node_of("high") == ""
    assert not stage.pod("high")["status"].get("nominatedNodeName")


def test_cpu_taken_by_pods_with_gpus_is_not_freed_by_deleting_them(stage: Stage) -> None:
    """Slots and cards are free: only the CPU is short, and in-tree preemption would free it."""
    low = [pod_of(LOW, f"low-{number}", cpu="3") for number in range(NODES)]
    stage.create(*low)
    stage.wait_bound(*(pod["metadata"]["name"] for pod in low))
    before, asked, since = snapshot(stage), preempt_answers(stage), stage.position()
    stage.create(pod_of(HIGH, "high", cpu="3"))
    assert "preemption: no candidate node for preemption" in said_of_preemption(stage, "high")
    message = stage.wait_told("high", "OtherFilters")
    assert "Insufficient cpu" in message
    assert preempt_answers(stage) > asked
    assert deletions(stage, since) == []
    after = snapshot(stage)
    assert {name: after[name] for name in before} == before


def test_cpu_taken_by_a_pod_without_gpus_is_freed_for_a_pod_whose_cards_fit(stage: Stage) -> None:
    """The veto is no more than a veto: where no GPU is touched, in-tree preemption does its work."""
    plain = [pod_of(LOW, f"plain-{number}", cpu="3", gpu=False) for number in range(NODES)]
    stage.create(*plain)
    stage.wait_bound(*(pod["metadata"]["name"] for pod in plain))
    since = stage.position()
    stage.create(pod_of(HIGH, "high", cpu="3"))
    stage.wait_bound("high")
    assert len(deletions(stage, since)) == 1
    assert deletions(stage, since)[0].startswith("plain-")


def test_a_mixture_of_victims_is_refused_where_one_has_gpus(stage: Stage) -> None:
    """On node-0000 the CPU is held by a GPU pod, on node-0001 by a plain one: only the latter may go."""
    holder = pod_of(LOW, "holder", cpu="3")
    stage.create(holder)
    stage.wait_bound("holder")
    stage.create(pod_of(LOW, "plain", cpu="3", gpu=False))
    stage.wait_bound("plain")
    since = stage.position()
    stage.create(pod_of(HIGH, "high", cpu="3"))
    stage.wait_bound("high")
    assert deletions(stage, since) == ["plain"]
    assert "holder" in snapshot(stage)
