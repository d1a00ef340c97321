"""A pod gone from the API keeps its cards while it has a process (invariant I3, R08)."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.identity.bench import APP, INIT, Bench, assign, make_cards, make_pod, settle
from tests.agent.identity.kubelet_model import Running
from tests.agent.identity.test_deferred import DeferredBench
from tests.agent.samples import HandClock
from vgpu.agent.identity.matching import SlotContainer
from vgpu.agent.identity.pod_watch import PodSeen, PodWatch
from vgpu.agent.identity.port import CardsNow, PreStartRefused

FIRST = make_pod("a", assign("uid-a", main=[("card-0", 60_000)]))
LATE = make_pod("b", assign("uid-b", main=[("card-0", 30_000)]))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def start_and_delete(bench: Bench, pod: PodSeen = FIRST) -> Running:
    """It runs and is deleted by force: API and kubelet know it no more, its process runs on."""
    running = bench.run(pod)
    await bench.start(running)
    bench.with_processes.add(pod.uid)
    bench.kubelet.remove(pod.name)
    bench.delete(pod.name)
    return running


async def refusal(bench: Bench, running: Running) -> str:
    with pytest.raises(PreStartRefused) as caught:
        await bench.start(running)
    return str(caught.value)


async def test_its_cards_start_nobody_else_and_the_message_says_what_to_do(bench: Bench) -> None:
    await start_and_delete(bench)
    late = bench.run(LATE)
    message = await refusal(bench, late)
    assert message.startswith("ns/b: card card-0 has no room for it beside ns/a; it starts when they are gone; ")
    assert "ns/a (uid uid-a) was deleted and still has processes on this node" in message
    assert "end them by hand" in message
    assert bench.cards_of(late) is None
    bench.with_processes.clear()
    await bench.start(late)
    assert bench.cards_of(late) == "card-0"


async def test_without_the_rule_two_pods_would_be_on_more_than_the_card(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switched off: nobody looks for processes."""
    monkeypatch.setattr(Bench, "alive", lambda *_: frozenset())
    await start_and_delete(bench)
    late = bench.run(LATE)
    await bench.start(late)
    assert bench.cards_of(late) == "card-0"


async def test_a_waiting_container_starts_within_the_call_in_which_the_processes_end(tmp_path: Path) -> None:
    clock = HandClock()
    bench = Bench(tmp_path, clock=clock)
    await start_and_delete(bench)
    late = bench.run(LATE)
    starting = asyncio.create_task(bench.start(late))
    await settle()
    assert not starting.done()
    bench.with_processes.clear()
    clock.advance(1)
    await starting
    assert bench.cards_of(late) == "card-0"


async def test_what_it_leaves_of_the_card_and_other_cards_may_be_used(bench: Bench) -> None:
    await start_and_delete(bench)
    beside = bench.run(make_pod("c", assign("uid-c", main=[("card-0", 20_000)])))
    elsewhere = bench.run(make_pod("d", assign("uid-d", main=[("card-1", 80_000)])))
    for running, card in ((beside, "card-0"), (elsewhere, "card-1")):
        await bench.start(running)
        assert bench.cards_of(running) == card


async def test_it_counts_with_those_that_the_api_shows(bench: Bench) -> None:
    await start_and_delete(bench)
    await bench.start(bench.run(make_pod("c", assign("uid-c", main=[("card-0", 15_000)]))))
    late = bench.run(make_pod("d", assign("uid-d", main=[("card-0", 10_000)])))
    assert "no room for it beside ns/a, ns/c; it starts when they are gone; ns/a (uid" in await refusal(
        bench, late
    )


async def test_a_whole_card_waits_for_the_smallest_of_its_shares(bench: Bench) -> None:
    await start_and_delete(bench, make_pod("a", assign("uid-a", main=[("card-0", 1)])))
    whole = bench.run(make_pod("b", assign("uid-b", main=[("card-0", 80_000)])))
    assert "ns/a (uid uid-a) was deleted" in await refusal(bench, whole)


async def test_a_pod_of_the_same_name_waits_for_its_predecessor(bench: Bench) -> None:
    """A StatefulSet's pod that somebody deleted by force."""
    await start_and_delete(bench)
    again = bench.run(make_pod("a", assign("uid-2", main=[("card-0", 60_000)]), uid="uid-2"))
    assert "ns/a: card card-0 has no room for it beside ns/a; " in await refusal(bench, again)
    bench.with_processes.clear()
    await bench.start(again)
    assert bench.cards_of(again) == "card-0"


async def test_its_init_containers_count_as_they_did_while_it_was_known(bench: Bench) -> None:
    """They never run beside the app container: together they would be 80,000 MiB."""
    containers = (SlotContainer("i", INIT, 1), SlotContainer("main", APP, 1))
    pod = make_pod("a", assign("uid-a", i=[("card-0", 20_000)], main=[("card-0", 60_000)]), containers)
    running = bench.run(pod)
    for container in ("i", "main"):
        await bench.start(running, container)
    bench.with_processes.add(pod.uid)
    bench.kubelet.remove("a")
    bench.delete("a")
    await bench.start(bench.run(make_pod("b", assign("uid-b", main=[("card-0", 20_000)]))))


async def test_an_agent_that_restarts_remembers_it(bench: Bench) -> None:
    await start_and_delete(bench)
    bench.restart()
    bench.identity.cards_changed(make_cards())
    assert await bench.collector.collect() is False
    assert "ns/a (uid uid-a) was deleted" in await refusal(bench, bench.run(LATE))


async def test_a_container_that_ran_is_not_held_back_when_it_starts_again(bench: Bench) -> None:
    """Not even where the card has become too small for both meanwhile."""
    running = bench.run(LATE)
    await bench.start(running)
    await start_and_delete(bench, make_pod("a", assign("uid-a", main=[("card-0", 50_000)])))
    bench.identity.cards_changed(CardsNow((replace(make_cards().cards[0], memory_mib=50_000),), 2))
    await bench.start(running)
    assert bench.cards_of(running) == "card-0"


async def test_its_files_and_record_stay_until_the_last_process_has_ended(bench: Bench) -> None:
    running = await start_and_delete(bench)
    cache = bench.library.parent / "containers" / "uid-a_main"
    assert not await bench.collector.collect()
    assert bench.cards_of(running) == "card-0"
    assert cache.exists()
    assert set(bench.log.grants) == {"uid-a"}
    bench.with_processes.clear()
    assert await bench.collector.collect()
    assert bench.cards_of(running) is None
    assert not cache.exists()
    assert dict(bench.log.grants) == {}


async def test_without_the_rule_its_files_and_record_would_go(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "alive", lambda *_: frozenset())
    running = await start_and_delete(bench)
    assert await bench.collector.collect()
    assert bench.cards_of(running) is None
    assert dict(bench.log.grants) == {}


async def test_a_file_without_a_record_stays_as_long(bench: Bench) -> None:
    running = await start_and_delete(bench)
    (bench.places.state / "allocations.jsonl").unlink()
    bench.restart()
    assert not await bench.collector.collect()
    assert bench.cards_of(running) == "card-0"
    bench.with_processes.clear()
    assert await bench.collector.collect()
    assert bench.cards_of(running) is None


async def test_it_is_collected_without_any_other_change(tmp_path: Path) -> None:
    """Nothing tells of the end of a process: it is looked for again and again while one such pod is there."""
    clock = HandClock()
    bench = Bench(tmp_path, clock=clock)
    await start_and_delete(bench)
    work = asyncio.create_task(bench.collector.run())
    await settle()
    assert set(bench.log.grants) == {"uid-a"}
    bench.with_processes.clear()
    clock.advance(1)
    await settle()
    assert dict(bench.log.grants) == {}
    work.cancel()
    await asyncio.wait({work})


async def test_a_list_that_is_not_complete_yet_gives_no_cards_on(bench: Bench) -> None:
    """An agent that has just started: the pod is not deleted, it is only not listed yet."""
    await bench.start(bench.run(FIRST))
    bench.with_processes.add("uid-a")
    bench.watch = PodWatch()
    bench.restart()
    bench.identity.cards_changed(make_cards())
    assert "no room for it beside ns/a" in await refusal(bench, bench.run(LATE))


class TestDeferred:
    """Where the cards stand in Allocate's answer already, the container waits in the same way."""

    @pytest.fixture
    def bench(self, tmp_path: Path) -> DeferredBench:
        return DeferredBench(tmp_path)

    async def delete_started(self, bench: DeferredBench) -> None:
        running = bench.run(bench.bind(FIRST))
        assert await bench.begin(running) == "card-0"
        bench.with_processes.add("uid-a")
        bench.kubelet.remove("a")
        bench.delete("a")

    async def test_its_cards_start_nobody_else_until_the_last_process_has_ended(
        self, bench: DeferredBench
    ) -> None:
        await self.delete_started(bench)
        late = bench.run(bench.bind(LATE))
        with pytest.raises(
            PreStartRefused, match=r"ns/b: card card-0 has no room .* ns/a \(uid uid-a\) was deleted"
        ):
            await bench.begin(late)
        bench.with_processes.clear()
        assert await bench.begin(late) == "card-0"

    async def test_without_the_rule_it_would_start(
        self, bench: DeferredBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Bench, "alive", lambda *_: frozenset())
        await self.delete_started(bench)
        assert await bench.begin(bench.run(bench.bind(LATE))) == "card-0"

    async def test_a_pod_that_has_run_starts_again_whatever_the_agent_forgot(self, bench: DeferredBench) -> None:
        late = bench.run(bench.bind(LATE))
        await bench.begin(late)
        bench.show(replace(LATE, started=True))
        bench.restart()
        bench.run(bench.bind(FIRST))
        bench.with_processes.add("uid-a")
        bench.kubelet.remove("a")
        bench.delete("a")
        assert await bench.begin(late) == "card-0"
