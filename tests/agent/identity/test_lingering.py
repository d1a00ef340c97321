"""What the collector says of pods that are gone from the API and not from the node (R08)."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.agent.identity.bench import APP, INIT, Bench, assign, make_pod, settle
from tests.agent.identity.test_deleted_by_force import FIRST, start_and_delete
from tests.agent.samples import HandClock
from vgpu.agent.identity import collect
from vgpu.agent.identity.allocation_log import Grant, GrantedContainer
from vgpu.agent.identity.lingering import LingeringBoard, lingering_pods
from vgpu.agent.identity.matching import SlotContainer
from vgpu.agent.identity.pod_watch import PodWatch
from vgpu.api.lingering import MAX_LINGERING, Lingering, LingeringCard, LingeringPod
from vgpu.kube.objects import Key

GONE = LingeringPod(
    namespace="ns",
    name="a",
    uid="uid-a",
    cards=(LingeringCard(uuid="card-0", slots=1, memory_mib=60_000, cores=10),),
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def follow(board: LingeringBoard) -> list[Lingering]:
    """All that a follower is told from now on."""
    told: list[Lingering] = []
    board.follow(told.append)
    return told


def grant(uid: str, **cards: Iterable[tuple[str, int]]) -> Grant:
    rows = {name: list(given) for name, given in cards.items()}
    containers = tuple(GrantedContainer(nonce="0" * 16, name=name) for name in rows)
    return Grant(uid=uid, namespace="ns", name=uid, assignment=assign(uid, **rows), containers=containers)


async def test_a_pod_deleted_by_force_is_told_with_its_cards_until_its_processes_end(bench: Bench) -> None:
    told = follow(bench.lingering)
    await start_and_delete(bench)
    await bench.collector.collect()
    await bench.collector.collect()
    bench.with_processes.clear()
    await bench.collector.collect()
    assert told == [(GONE,), ()]


async def test_it_is_told_while_kubelet_does_not_answer(bench: Bench) -> None:
    """kubelet that is away is the very reason why processes stay."""
    await start_and_delete(bench)
    bench.kubelet_away = True
    await bench.collector.collect()
    assert bench.lingering.pods == (GONE,)
    bench.with_processes.clear()
    await bench.collector.collect()
    assert bench.lingering.pods == ()


async def test_a_pod_that_the_api_shows_does_not_linger_whatever_processes_it_has(bench: Bench) -> None:
    await bench.start(bench.run(FIRST))
    bench.with_processes.add("uid-a")
    await bench.collector.collect()
    assert bench.lingering.pods == ()


async def test_a_pod_without_a_process_does_not_linger_whatever_kubelet_shows(bench: Bench) -> None:
    await bench.start(bench.run(FIRST))
    bench.delete("a")
    assert not await bench.collector.collect()
    assert bench.lingering.pods == ()


async def test_nothing_is_told_before_the_list_of_pods_is_complete(bench: Bench) -> None:
    """Else an agent that has just started would say that none lingers, and its cards would be given on."""
    await start_and_delete(bench)
    bench.watch = PodWatch()
    bench.restart()
    told = follow(bench.lingering)
    await bench.collector.collect()
    assert told == []
    bench.watch.synced()
    await bench.collector.collect()
    assert told == [(GONE,)]


async def test_a_follower_that_comes_later_is_told_at_once(bench: Bench) -> None:
    await start_and_delete(bench)
    await bench.collector.collect()
    assert follow(bench.lingering) == [(GONE,)]


async def test_without_the_rule_nobody_would_be_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "alive", lambda *_: frozenset())
    await start_and_delete(bench)
    await bench.collector.collect()
    assert bench.lingering.pods == ()


async def test_it_is_looked_at_often_while_a_pod_lingers(tmp_path: Path) -> None:
    clock = HandClock()
    bench = Bench(tmp_path, clock=clock)
    await start_and_delete(bench)
    work = asyncio.create_task(bench.collector.run())
    for _ in range(100):
        await settle()
        assert clock.sleeping
        assert max(clock.sleeping) <= collect.LINGERING_PAUSE_SECONDS
        clock.advance(1)
    bench.with_processes.clear()
    clock.advance(collect.LINGERING_PAUSE_SECONDS)
    await settle()
    assert bench.lingering.pods == ()
    work.cancel()
    await asyncio.wait({work})


async def test_a_pod_that_the_watch_shows_again_does_not_linger(bench: Bench) -> None:
    await bench.start(bench.run(FIRST))
    bench.with_processes.add("uid-a")
    bench.watch.drop(Key("ns", "a", "uid-a"))
    await bench.collector.collect()
    assert bench.lingering.pods == (GONE,)
    bench.watch.put(FIRST)
    await bench.collector.collect()
    assert bench.lingering.pods == ()


async def test_containers_count_as_they_did_while_the_pod_was_known(bench: Bench) -> None:
    """A plain init container never runs beside the app container."""
    containers = (SlotContainer("i", INIT, 1), SlotContainer("main", APP, 1))
    pod = make_pod("a", assign("uid-a", i=[("card-0", 20_000)], main=[("card-0", 60_000)]), containers)
    running = bench.run(pod)
    for container in ("i", "main"):
        await bench.start(running, container)
    bench.with_processes.add("uid-a")
    bench.kubelet.remove("a")
    bench.delete("a")
    await bench.collector.collect()
    assert bench.lingering.pods == (GONE,)


def test_cards_are_merged_and_whole_ones_are_said_to_be() -> None:
    [pod] = lingering_pods([grant("u", one=[("card-1", 1000), ("card-0", 80_000)], two=[("card-1", 500)])])
    assert pod.cards == (
        LingeringCard(uuid="card-0", slots=1, memory_mib=80_000, cores=0, whole=True),
        LingeringCard(uuid="card-1", slots=2, memory_mib=1500, cores=20),
    )


def test_order_is_by_uid_and_a_grant_that_cannot_be_read_is_left_out() -> None:
    broken = grant("c", main=[("card-0", 1)]).model_copy(update={"assignment": "{"})
    found = lingering_pods([grant("b", main=[("card-0", 1)]), broken, grant("a", main=[("card-0", 1)])])
    assert [pod.uid for pod in found] == ["a", "b"]


def test_no_more_are_told_than_an_inventory_may_name() -> None:
    many = [grant(f"uid-{number:04}", main=[("card-0", 1)]) for number in range(MAX_LINGERING + 1)]
    assert len(lingering_pods(many)) == MAX_LINGERING
