"""Capacity frees and waiting pods are bound: exactly as many are sent as fit, and none on a quiet cluster.

kube-scheduler itself is woken by pods and nodes; by an inventory it is not, and its own flush of hopeless pods
comes after five minutes, so a wait here is shorter than that.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy

import pytest

from devcluster import Cluster
from devcluster.operators import gpu_pod, inventory_document
from tests.cluster.stage import Json, Stage, slots_shape, staged, wait_all_ready

pytestmark = pytest.mark.cluster
CARDS = 4
NODE = "node-0000"
WAITING = 6


def document(cards: int = CARDS) -> Json:
    return inventory_document(NODE, cards)


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[Stage]:
    cluster.clear()
    nodes = cluster.create_nodes(1, slots_shape())
    with staged(cluster, [document()]) as stage:
        wait_all_ready(stage, nodes)
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    shared.publish(document())
    wait_all_ready(shared, [NODE])
    yield shared
    shared.remove_pods()


def whole(name: str) -> Json:
    return gpu_pod(name, memory_mib=None)


def fill(stage: Stage, cards: int = CARDS) -> list[str]:
    """Take every card, and make more pods wait for one than will fit."""
    runners = [f"runs-{number}" for number in range(cards)]
    stage.create(*(whole(name) for name in runners))
    stage.wait_bound(*runners)
    waiting = [f"waits-{number}" for number in range(WAITING)]
    stage.create(*(whole(name) for name in waiting))
    for name in waiting:
        stage.wait_told(name, "ExclusiveHolder")
    return waiting


def wait_count(stage: Stage, waiting: list[str], want: int) -> list[str]:
    """Wait until so many of the waiting pods are bound; hands back their names."""
    stage.cluster.wait_until(lambda: len(stage.bound().keys() & {*waiting}) >= want, f"{want} to be bound", 60)
    return sorted(stage.bound().keys() & {*waiting})


def quiet(stage: Stage, waiting: list[str]) -> None:
    """Wait until an ordinary pod, created now, has been refused and told so: what came before it is done."""
    stage.create(whole("last"))
    stage.wait_told("last", "ExclusiveHolder")
    assert waiting


def with_lost_card(change: Callable[[Json], None]) -> Json:
    changed = deepcopy(document())
    change(changed)
    return changed


def fall_ill(changed: Json) -> None:
    changed["spec"]["gpus"][3] |= {"health": "Unhealthy", "healthReason": "XID-79"}


def lose(changed: Json) -> None:
    changed["spec"]["gpus"].pop()


def fail_to_read(changed: Json) -> None:
    changed["spec"]["readError"] = "driver not loaded"


@pytest.mark.parametrize(
    ("change", "runners", "reason"),
    [(lose, 3, "ExclusiveHolder"), (fall_ill, 3, "ExclusiveHolder"), (fail_to_read, 0, "ReadError")],
    ids=["a card is added", "a card recovers", "the cards can be read again"],
)
def test_an_inventory_that_frees_cards_wakes_exactly_as_many_pods_as_fit(
    stage: Stage, change: Callable[[Json], None], runners: int, reason: str
) -> None:
    fits = CARDS - runners
    running = [f"runs-{number}" for number in range(runners)]
    stage.publish(with_lost_card(change))
    stage.create(*(whole(name) for name in running))
    stage.wait_bound(*running)
    waiting = [f"waits-{number}" for number in range(WAITING)]
    stage.create(*(whole(name) for name in waiting))
    for name in waiting:
        stage.wait_told(name, reason)
    since = stage.position()
    stage.publish(document())
    bound = wait_count(stage, waiting, fits)
    quiet(stage, waiting)
    assert wait_count(stage, waiting, fits) == bound
    sent = stage.nominations(since)
    # The first of several is always sent; its binding wakes kube-scheduler, which may be first with the next.
    assert sent.keys() <= {*bound}
    assert set(sent.values()) == {1}
    assert len({uuid for name in [*running, *bound] for uuid in stage.cards(name)}) == CARDS


def test_pods_that_end_let_as_many_in_without_waiting(stage: Stage) -> None:
    """kube-scheduler sees these too; whoever is first, nobody is sent in vain."""
    waiting = fill(stage)
    since = stage.position()
    stage.delete("runs-1", "runs-2")
    bound = wait_count(stage, waiting, 2)
    quiet(stage, waiting)
    assert wait_count(stage, waiting, 2) == bound
    sent = stage.nominations(since)
    assert len(bound) == 2
    assert sent.keys() <= {*bound}
    assert all(count == 1 for count in sent.values())


def test_the_pod_of_higher_priority_is_sent_first(stage: Stage) -> None:
    priority_class = {"metadata": {"name": "urgent"}, "value": 1000, "preemptionPolicy": "Never"}
    api = stage.cluster.api
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.post(path, priority_class)
    try:
        stage.publish(with_lost_card(fail_to_read))
        ordinary, urgent = whole("ordinary"), whole("urgent")
        urgent["spec"]["priorityClassName"] = "urgent"
        for pod in (ordinary, urgent):
            pod["spec"]["containers"][0]["resources"]["limits"] |= {"volcano.sh/vgpu-number": str(CARDS)}
            stage.create(pod)
            stage.wait_told(pod["metadata"]["name"], "ReadError")
        since = stage.position()
        stage.publish(document())
        stage.wait_bound("urgent")
        stage.wait_told("ordinary", "ExclusiveHolder")
        assert stage.nominations(since) == {"urgent": 1}
    finally:
        api.delete(f"{path}/urgent")


def test_nobody_is_sent_on_a_quiet_cluster(stage: Stage) -> None:
    waiting = fill(stage)
    since = stage.position()
    for beat in range(20):
        stage.cluster.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {"beat": str(beat)}}})
    quiet(stage, waiting)
    assert stage.nominations(since) == {}
    assert wait_count(stage, waiting, 0) == []
