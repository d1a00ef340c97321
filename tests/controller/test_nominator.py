"""Waiting pods are woken when something fits, within limits, and a quiet cluster stays quiet."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, index_of, ledger_of, node, pending
from tests.controller.virtual_time import run_virtually
from vgpu.controller import answered as answered_module
from vgpu.controller.consumer import Consumer
from vgpu.controller.fence import Fence
from vgpu.controller.nominator import Deciders, Nominator
from vgpu.controller.offers import Offers, OffersByAge
from vgpu.controller.room_search import VIEWS
from vgpu.core.facts import PodFact, Taint
from vgpu.core.filtering import FilterAnswer, NodeFilter
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.nomination import Nomination, nominate
from vgpu.core.placement import Policies
from vgpu.core.views import NodeView
from vgpu.errors import ApiUnavailable
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings


@dataclass
class Sink:
    """Remembers nominations; fails while `down`."""

    written: list[tuple[str, str | None]] = field(default_factory=list)
    down: bool = False

    async def nominate(self, pod: Key, node: str | None, wake: int) -> None:
        if self.down:
            raise ApiUnavailable(503, "", "down")
        self.written.append((pod.name, node))


@dataclass
class Bench:
    ledger: Ledger
    sink: Sink
    nominator: Nominator
    consumer: Consumer
    filter: NodeFilter
    fence: Fence

    def ask(self, name: str, *nodes: str) -> list[str]:
        pod = self.ledger.find_pod("team", name)
        assert pod is not None
        self.nominator.before_answer(pod)
        answer = self.filter.filter(pod, nodes)
        self.nominator.answered(pod, answer)
        return answer.nodes

    async def settle(self) -> None:
        """Drain the ledger until the nominator has nothing left to do."""
        for _ in range(20):
            self.consumer.drain()
            await asyncio.sleep(0.005)


@asynccontextmanager
async def bench(
    *nodes: str, sink: Sink | None = None, offers: Offers | None = None, **settings: float
) -> AsyncIterator[Bench]:
    sink = sink or Sink()
    ledger, fence = ledger_of(*nodes), Fence(10, 4, asyncio.get_running_loop().time)
    fence.renewed(asyncio.get_running_loop().time())
    quick = {"nominations_per_second": 1000, "nomination_settle_seconds": 0}
    chosen = OperatorSettings(**{**quick, **settings})
    consumer = Consumer(ledger, 0)
    deciders = Deciders(ledger, index_of(ledger), Policies(), offers or OffersByAge())
    nominator = Nominator(deciders, sink, fence, chosen, consumer)
    consumer.add(nominator)
    consumer.drain()
    tasks = [asyncio.ensure_future(work) for work in (nominator.run(), nominator.expire(), consumer.run())]
    try:
        yield Bench(ledger, sink, nominator, consumer, NodeFilter(deciders.index, ledger, 32), fence)
    finally:
        assert not any(task.done() for task in tasks), "one has ended by itself"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_refused_pod_is_sent_to_the_card_that_becomes_free() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        assert it.ask("new", "node-a") == []
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == [("new", "node-a")]
        assert it.ledger.nomination("uid-new") is not None


async def test_as_many_pods_are_woken_as_fit_and_no_more() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        for name in ("one", "two", "three"):
            it.ledger.put_pod(pending(name, memory_mib=CARD_MIB // 2, created=f"2026-01-01T00:00:0{len(name)}Z"))
        await it.settle()
        for name in ("one", "two", "three"):
            assert it.ask(name, "node-a") == []
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert [name for name, _ in it.sink.written] == ["one", "two"]


async def test_a_pod_that_only_other_filters_refuse_is_not_woken() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a"))
        it.ledger.put_pod(pending("never-asked"))
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == []


async def test_a_sample_that_missed_the_fitting_node_costs_one_nomination() -> None:
    async with bench("node-a", "node-b") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        assert it.ask("new", "node-a") == []
        await it.settle()
        assert it.sink.written == [("new", "node-b")]
        assert it.ask("new", "node-b") == ["node-b"]


def test_a_pod_is_sent_only_when_it_has_not_been_asked_about_for_a_moment() -> None:
    """An attempt of kube-scheduler that began before the nomination came would clear it."""

    async def scenario() -> None:
        async with bench("node-a", "node-b", nomination_settle_seconds=0.2) as it:
            it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
            it.ledger.put_pod(pending("new"))
            for _ in range(3):
                assert it.ask("new", "node-a") == []
                await asyncio.sleep(0.19)
                assert it.sink.written == []
            await asyncio.sleep(0.02)
            assert it.sink.written == [("new", "node-b")]

    run_virtually(scenario())


def test_a_pod_that_is_asked_about_without_pause_is_sent_all_the_same() -> None:
    async def scenario() -> None:
        async with bench("node-a", "node-b", nomination_settle_seconds=0.2) as it:
            it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
            it.ledger.put_pod(pending("new"))
            for _ in range(40):
                assert it.ask("new", "node-a") == []
                await asyncio.sleep(0.05)
            assert it.sink.written == [("new", "node-b")]

    run_virtually(scenario())


async def test_a_nomination_that_kube_scheduler_clears_is_made_again_at_once() -> None:
    async with bench("node-a", "node-b") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        assert it.ask("new", "node-a") == []
        await it.settle()
        it.ledger.put_pod(pending("new", nominated_node="node-b"))
        await it.settle()
        assert it.sink.written == [("new", "node-b")]
        it.ledger.put_pod(pending("new"))
        await it.settle()
        assert it.sink.written == [("new", "node-b")] * 2


async def test_a_sample_that_held_the_node_costs_none() -> None:
    async with bench("node-a", "node-b") as it:
        it.ledger.put_pod(pending("new"))
        await it.settle()
        assert it.ask("new", "node-a", "node-b") != []
        await it.settle()
        assert it.sink.written == []


async def test_a_pod_that_keeps_being_refused_is_left_alone_after_three_tries() -> None:
    async with bench("node-a", nomination_seconds=0.02) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        for name in ("one", "two"):
            it.ledger.put_pod(pending(name, memory_mib=CARD_MIB))
        await it.settle()
        assert it.ask("one", "node-a") + it.ask("two", "node-a") == []
        it.ledger.drop_pod("uid-old")
        for _ in range(10):
            await it.settle()
        assert sorted(name for name, _ in it.sink.written) == ["one"] * 3 + ["two"] * 3


async def test_whom_his_queue_lets_start_no_more_is_not_sent() -> None:
    class Queue(OffersByAge):
        full = True

        def admits(self, pod: PodFact) -> bool:
            return not self.full

    queue = Queue()
    async with bench("node-a", offers=queue) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        assert it.ask("new", "node-a") == []
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == []
        queue.full = False
        it.nominator.changed(Changes(freed=frozenset({"node-a"})))
        await it.settle()
        assert it.sink.written == [("new", "node-a")]


async def test_a_pod_that_its_queue_refused_has_all_its_tries_afterwards() -> None:
    async with bench("node-a", nomination_seconds=0.02) as it:
        new = pending("new")
        it.ledger.put_pod(new)
        await it.settle()
        it.nominator.start_over()
        for _ in range(5):
            await it.settle()
        assert it.sink.written == [("new", "node-a")] * 3
        it.nominator.answered(new, FilterAnswer([], no_fit_anywhere=True, barred=True))
        it.nominator.changed(Changes(freed=frozenset({"node-a"})))
        for _ in range(5):
            await it.settle()
        assert it.sink.written == [("new", "node-a")] * 6


async def test_a_new_answer_gives_new_tries() -> None:
    async with bench("node-a", nomination_seconds=0.02) as it:
        for round_ in range(2):
            it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
            it.ledger.put_pod(pending("new"))
            await it.settle()
            assert it.ask("new", "node-a") == []
            it.ledger.drop_pod("uid-old")
            for _ in range(5):
                await it.settle()
            assert len(it.sink.written) == 3 * (round_ + 1)


async def test_a_pod_with_preferences_is_woken_without_a_node() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        new = pending("new")
        it.ledger.put_pod(replace(new, scheduling=replace(new.scheduling, soft_preferences=True)))
        await it.settle()
        assert it.ask("new", "node-a") == []
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == [("new", None)]


async def test_a_new_leader_wakes_what_fits_already() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(pending("new"))
        await it.settle()
        it.nominator.start_over()
        await it.settle()
        assert it.sink.written == [("new", "node-a")]


async def test_a_failed_write_gives_the_cards_back_after_the_time_out() -> None:
    async with bench("node-a", nomination_seconds=0.02) as it:
        it.sink.down = True
        it.ledger.put_pod(pending("new"))
        await it.settle()
        it.nominator.start_over()
        held = []
        for _ in range(60):
            it.consumer.drain()
            await asyncio.sleep(0.005)
            held.append(it.ledger.nomination("uid-new") is not None)
        assert True in held
        assert False in held[held.index(True) :]


async def test_a_pod_is_sent_once_the_api_server_takes_writes_again() -> None:
    async with bench("node-a", nomination_seconds=0.02) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        assert it.ask("new", "node-a") == []
        it.sink.down = True
        it.ledger.drop_pod("uid-old")
        for _ in range(10):
            await it.settle()
        it.sink.down = False
        for _ in range(10):
            await it.settle()
        assert it.sink.written == [("new", "node-a")]


async def test_freed_nodes_beyond_the_first_barred_ones_are_looked_at_too() -> None:
    names_ = [f"node-{number:03d}" for number in range(VIEWS + 3)]
    async with bench(*names_) as it:
        for name in names_[:-1]:
            it.ledger.put_node(node(name, taints=frozenset({Taint("held", "", "NoSchedule")})))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        it.nominator.start_over()
        await it.settle()
        assert it.sink.written == [("new", names_[-1])]


async def test_a_pod_that_cannot_be_judged_keeps_no_other_from_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(views: Sequence[NodeView], waiting: Sequence[PodFact], *rest: Any) -> list[Nomination]:
        if any(pod.name == "sick" for pod in waiting):
            raise ValueError("nobody foresaw this")
        return nominate(views, waiting, *rest)

    monkeypatch.setattr(answered_module, "nominate", poisoned)
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        for name in ("sick", "well"):
            it.ledger.put_pod(pending(name))
        await it.settle()
        for name in ("sick", "well"):
            assert it.ask(name, "node-a") == []
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == [("well", "node-a")]


async def test_a_nomination_that_raises_ends_nothing() -> None:
    class Poisoned(Sink):
        async def nominate(self, pod: Key, node: str | None, wake: int) -> None:
            if pod.name == "sick":
                raise ValueError("nobody foresaw this")
            await super().nominate(pod, node, wake)

    async with bench("node-a", sink=Poisoned()) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        for name in ("sick", "well"):
            it.ledger.put_pod(pending(name))
        await it.settle()
        for name in ("sick", "well"):
            assert it.ask(name, "node-a") == []
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == [("well", "node-a")]
