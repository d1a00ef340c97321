"""A node that cannot start pods takes none, says why, keeps what it has, and opens by itself."""

from collections.abc import Iterator

import pytest

from devcluster import Cluster
from devcluster.operators import gpu_pod, inventory_document
from tests.cluster.stage import INVENTORIES, Json, Stage, held, slots_shape, staged, wait_all_ready
from vgpu import names

pytestmark = pytest.mark.cluster
NODE = "node-0000"
CARDS = 4
SLOTS = 40
OPEN = "Ready"
AGENT_PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[Stage]:
    cluster.clear()
    cluster.create_nodes(1, slots_shape(SLOTS))
    with staged(cluster, [document()]) as stage:
        wait_all_ready(stage, [NODE])
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    shared.publish(document())
    shared.cluster.set_allocatable(NODE, names.VOLCANO_NUMBER, SLOTS)
    wait_all_ready(shared, [NODE])
    yield shared
    shared.remove_pods()


def document(**spec: str) -> Json:
    made = inventory_document(NODE, CARDS)
    made["spec"] |= spec
    return made


def place(stage: Stage, name: str) -> Json:
    """A small pod that runs; hands it back as it stands."""
    stage.create(gpu_pod(name))
    stage.wait_bound(name)
    return stage.pod(name)


def wait_closed(stage: Stage, reason: str, waiting: str = "waits") -> None:
    """The inventory shows the reason, and a pod created now waits and is told the same."""
    stage.wait_gate(NODE, reason)
    stage.create(gpu_pod(waiting))
    stage.wait_told(waiting, reason)
    assert stage.explain(waiting)["reason"] == reason
    assert stage.node_of(waiting) == ""


def wait_open(stage: Stage, waiting: str = "waits") -> None:
    """The inventory shows that the node is open, and the pod that waited is bound."""
    stage.wait_gate(NODE, OPEN)
    stage.wait_bound(waiting)


def stands(stage: Stage, before: Json) -> bool:
    """The pod is the one that it was, with the same cards, and runs."""
    now = stage.pod(before["metadata"]["name"])
    same = all(now["metadata"][key] == before["metadata"][key] for key in ("uid", "annotations"))
    return same and "deletionTimestamp" not in now["metadata"]


def test_allocatable_0_closes_and_its_return_opens(stage: Stage) -> None:
    """Nothing but allocatable changes: were slots kube-scheduler's to count, its queueing hint for node changes
    would skip a pod that names memory, which no node advertises, and the pod would sleep to the flush."""
    before = place(stage, "runs")
    stage.cluster.set_allocatable(NODE, names.VOLCANO_NUMBER, 0)
    wait_closed(stage, "NoAllocatable")
    assert stage.used_slots() == 1
    stage.cluster.set_allocatable(NODE, names.VOLCANO_NUMBER, SLOTS)
    wait_open(stage)
    assert stands(stage, before)


def test_an_agent_pod_that_is_not_ready_closes_and_its_recovery_opens(stage: Stage) -> None:
    before = place(stage, "runs")
    key, value = names.AGENT_POD_LABEL
    agent = {
        "metadata": {"name": "agent", "labels": {key: value}},
        "spec": {"nodeName": NODE, "containers": [{"name": "agent", "image": "none"}]},
    }
    api = stage.cluster.api
    api.post(AGENT_PODS, agent)
    try:
        stage.cluster.wait_until(lambda: bool(api.get(f"{AGENT_PODS}/agent")["status"].get("startTime")), "agent")
        set_agent_ready(stage, False)
        wait_closed(stage, "AgentDown")
        set_agent_ready(stage, True)
        wait_open(stage)
        assert stands(stage, before)
    finally:
        api.delete(f"{AGENT_PODS}/agent", {"gracePeriodSeconds": 0})


def set_agent_ready(stage: Stage, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    stage.cluster.api.patch(f"{AGENT_PODS}/agent/status", {"status": {"conditions": conditions}})


def test_r01_a_deleted_inventory_closes_its_node_and_its_pods_still_count_when_it_is_back(stage: Stage) -> None:
    stage.create(gpu_pod("runs", memory_mib=None, number=CARDS - 1))
    stage.wait_bound("runs")
    before = stage.pod("runs")
    stage.cluster.api.delete(f"{INVENTORIES}/{NODE}")
    stage.create(gpu_pod("waits", memory_mib=None), gpu_pod("waits-too", memory_mib=None))
    for name in ("waits", "waits-too"):
        stage.wait_told(name, "NoInventory")
    assert stands(stage, before)
    stage.publish(document())
    stage.wait_gate(NODE, OPEN)
    stage.cluster.wait_until(
        lambda: len(stage.bound().keys() & {"waits", "waits-too"}) == 1, "the one free card to be given"
    )
    [first] = stage.bound().keys() & {"waits", "waits-too"}
    [other] = {"waits", "waits-too"} - {first}
    stage.wait_told(other, "ExclusiveHolder")
    assert {*stage.cards(first)}.isdisjoint(stage.cards("runs"))
    assert stands(stage, before)


@pytest.mark.parametrize(("field", "reason"), [("readError", "ReadError"), ("isolationError", "IsolationError")])
def test_what_the_agent_finds_wrong_closes_and_keeps_what_is_there(stage: Stage, field: str, reason: str) -> None:
    before = place(stage, "runs")
    stage.publish(document(**{field: "not there yet"}))
    wait_closed(stage, reason)
    assert "not there yet" in stage.condition(NODE)["message"]
    stage.publish(document())
    wait_open(stage)
    assert stands(stage, before)


def test_16_pods_that_kubelet_does_not_admit_close_the_node_until_one_is_admitted(stage: Stage) -> None:
    hanging = [f"hangs-{number:02d}" for number in range(16)]
    for name in hanging:
        stage.create(held(gpu_pod(name, memory_mib=100)))
    stage.wait_bound(*hanging)
    wait_closed(stage, "TooManyUnadmitted")
    stage.admit(hanging[7])
    wait_open(stage)


def test_three_refusals_of_kubelet_in_a_row_close_the_node_until_it_changes(stage: Stage) -> None:
    before = place(stage, "runs")
    refuse(stage, "refused-0", "refused-1")
    place(stage, "admitted-in-between")
    refuse(stage, "refused-2", "refused-3")
    place(stage, "still-open")
    refuse(stage, "refused-4", "refused-5", "refused-6")
    wait_closed(stage, "AdmissionRefused")
    stage.cluster.set_allocatable(NODE, names.VOLCANO_NUMBER, SLOTS - 1)
    wait_open(stage)
    refuse(stage, "refused-7", "refused-8", "refused-9")
    wait_closed(stage, "AdmissionRefused", "waits-again")
    stage.publish(document(bootId="another"))
    wait_open(stage, "waits-again")
    assert stands(stage, before)


def refuse(stage: Stage, *pod_names: str) -> None:
    """Pods that are bound one after the other and fail at kubelet's admission."""
    for name in pod_names:
        stage.create(held(gpu_pod(name, memory_mib=100)))
        stage.wait_bound(name)
        stage.patch_status(
            name, phase="Failed", reason="UnexpectedAdmissionError", startTime="2026-01-01T00:00:00Z"
        )


def test_a_deferred_node_takes_one_unconfirmed_pod_at_a_time_and_each_confirmation_wakes_the_next(
    stage: Stage,
) -> None:
    """kube-scheduler's own flush of hopeless pods comes after five minutes; nobody waits for it."""
    stage.publish(document(identity="deferred", plugin="volcano"))
    stage.cluster.wait_until(lambda: stage.inventory(NODE)["spec"]["identity"] == "deferred", "deferred")
    queue = [f"turn-{number}" for number in range(4)]
    stage.create(held(gpu_pod(queue[0])))
    stage.wait_bound(queue[0])
    for name in queue[1:]:
        stage.create(held(gpu_pod(name)))
        message = stage.wait_told(name, "WaitsForAdmission")
        assert f"default/{queue[0]}" in message
    since = stage.position()
    for turn in range(1, len(queue)):
        before = stage.bound()
        assert len(before) == turn
        [unconfirmed] = [name for name in before if not stage.pod(name)["status"].get("startTime")]
        stage.admit(unconfirmed)
        stage.cluster.wait_until(lambda want=turn + 1: len(stage.bound()) == want, f"turn {turn}")  # type: ignore[misc]
    assert set(stage.nominations(since).values()) <= {1}
