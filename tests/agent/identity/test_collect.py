"""Files go when their pod is gone for certain, and never one that may be in use (R34)."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent.identity.bench import Bench, assign, make_cards, make_pod, settle
from tests.agent.identity.kubelet_model import Running
from tests.agent.samples import HandClock
from vgpu.agent.identity.pod_watch import PodWatch

POD = make_pod("p", assign("uid-p", main=[("card-0", 1000)]))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def started(bench: Bench) -> Running:
    running = bench.run(POD)
    await bench.start(running)
    return running


def cache(bench: Bench) -> Path:
    return bench.library.parent / "containers" / "uid-p_main"


async def test_a_pod_that_is_gone_leaves_nothing(bench: Bench) -> None:
    running = await started(bench)
    (cache(bench) / "x.cache").write_text("counts")
    bench.delete("p")
    bench.kubelet.remove("p")
    assert await bench.collector.collect()
    assert bench.cards_of(running) is None
    assert not cache(bench).exists()
    assert (bench.log.entries, dict(bench.log.grants)) == ((), {})


async def test_a_pod_that_the_watch_shows_keeps_its_files(bench: Bench) -> None:
    running = await started(bench)
    bench.kubelet.remove("p")
    assert await bench.collector.collect()
    assert bench.cards_of(running) == "card-0"
    assert cache(bench).exists()


async def test_a_pod_that_kubelet_still_shows_keeps_its_files(bench: Bench) -> None:
    running = await started(bench)
    bench.delete("p")
    assert not await bench.collector.collect()
    assert bench.cards_of(running) == "card-0"


async def test_nothing_goes_while_kubelet_does_not_answer(bench: Bench) -> None:
    running = await started(bench)
    bench.delete("p")
    bench.kubelet.remove("p")
    bench.kubelet_away = True
    assert not await bench.collector.collect()
    assert bench.cards_of(running) == "card-0"


async def test_nothing_goes_before_the_first_list_is_complete(bench: Bench) -> None:
    """An agent that has just started knows no pod yet."""
    running = await started(bench)
    bench.kubelet.remove("p")
    bench.watch = PodWatch()
    bench.restart()
    assert await bench.collector.collect()
    assert bench.cards_of(running) == "card-0"
    bench.watch.synced()
    assert await bench.collector.collect()
    assert bench.cards_of(running) is None


async def test_a_later_pod_of_the_same_name_does_not_keep_the_earlier_ones_files(bench: Bench) -> None:
    earlier = await started(bench)
    bench.delete("p")
    bench.kubelet.remove("p")
    bench.kubelet.free.clear()  # the later one gets other slots
    bench.kubelet.free |= {"slot-90"}
    later = bench.run(make_pod("p", assign("uid-2", main=[("card-1", 1000)]), uid="uid-2"))
    await bench.start(later)
    assert await bench.collector.collect()
    assert bench.cards_of(earlier) is None
    assert bench.cards_of(later) == "card-1"


async def test_a_file_of_a_pod_of_which_no_record_is_left_goes_too(bench: Bench) -> None:
    running = await started(bench)
    (bench.places.state / "allocations.jsonl").unlink()
    bench.restart()
    bench.identity.cards_changed(make_cards())
    assert await bench.collector.collect()
    assert bench.cards_of(running) == "card-0"
    bench.delete("p")
    assert await bench.collector.collect()
    assert bench.cards_of(running) is None


async def test_files_of_others_in_the_folder_are_left_alone(bench: Bench) -> None:
    await started(bench)
    other = bench.places.cdi / "nvidia.json"
    other.write_text("{}")
    bench.delete("p")
    bench.kubelet.remove("p")
    await bench.collector.collect()
    assert list(bench.places.cdi.iterdir()) == [other]


async def test_it_looks_again_until_kubelet_has_let_go(tmp_path: Path) -> None:
    clock = HandClock()
    bench = Bench(tmp_path, clock=clock)
    running = await started(bench)
    work = asyncio.create_task(bench.collector.run())
    bench.delete("p")
    await settle()
    assert bench.cards_of(running) == "card-0"
    bench.kubelet.remove("p")
    await settle()
    clock.advance(1)
    await settle()
    assert bench.cards_of(running) is None
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work
