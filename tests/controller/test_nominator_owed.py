"""Pods to which something is owed are offered room whatever refused them, and rest when they do not come."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tests.controller.cluster_facts import CARD_MIB, bound, pending
from tests.controller.test_nominator import bench
from tests.controller.virtual_time import run_virtually
from vgpu.controller.offers import OffersByAge
from vgpu.core.facts import PodFact
from vgpu.core.nomination import Turns


@dataclass
class Owing(OffersByAge):
    """Owes what it is told, and rests for `rest` seconds after a failure."""

    uids: set[str] = field(default_factory=set)
    ghosts: dict[str, PodFact] = field(default_factory=dict)
    rest: float | None = 3.0
    resting: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    can_create: bool = True
    first: str = ""

    def turns(self) -> Turns:
        return Turns(key=lambda pod: (pod.name != self.first, pod.name))

    def owed(self) -> Collection[str]:
        return self.uids

    def owes(self, uid: str) -> bool:
        return uid in self.uids or uid in self.ghosts

    def absent(self) -> Sequence[PodFact]:
        return list(self.ghosts.values())

    def rests(self, uid: str) -> bool:
        return uid in self.resting

    def failed(self, uid: str) -> float | None:
        self.failures.append(uid)
        self.resting.add(uid)
        if self.rest is not None:
            asyncio.get_running_loop().call_later(self.rest, self.resting.discard, uid)
        return self.rest

    def room_came(self) -> None:
        self.resting.clear()

    async def create(self, pod: PodFact) -> bool:
        if self.can_create:
            self.created.append(pod.name)
            del self.ghosts[pod.uid]
        return self.can_create


async def test_an_owed_pod_is_sent_though_the_extender_was_never_asked_about_it() -> None:
    async with bench("node-a", offers=Owing(uids={"uid-owed"})) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("owed"))
        await it.settle()
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == [("owed", "node-a")]


async def test_turns_and_not_age_decide_who_is_sent() -> None:
    async with bench("node-a", offers=Owing(first="b")) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        for name in ("a", "b"):
            it.ledger.put_pod(pending(name, memory_mib=CARD_MIB, priority=5 if name == "a" else 0))
        await it.settle()
        for name in ("a", "b"):
            assert it.ask(name, "node-a") == []
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == [("b", "node-a")]


def test_s76_an_owed_pod_that_does_not_come_rests_and_is_sent_again_to_the_same_node() -> None:
    offers = Owing(uids={"uid-owed"})

    async def scenario() -> None:
        async with bench("node-a", offers=offers, nomination_seconds=1) as it:
            it.ledger.put_pod(pending("owed"))
            it.nominator.start_over()
            await asyncio.sleep(3)
            assert it.sink.written == [("owed", "node-a")]
            assert offers.failures == ["uid-owed"]
            await asyncio.sleep(2)
            assert it.sink.written == [("owed", "node-a")] * 2

    run_virtually(scenario())


def test_s10_s76_room_that_comes_ends_the_rest() -> None:
    offers = Owing(uids={"uid-owed"}, rest=None)

    async def scenario() -> None:
        async with bench("node-a", "node-b", offers=offers, nomination_seconds=1) as it:
            it.ledger.put_pod(bound("old", "node-b", memory_mib=CARD_MIB))
            it.ledger.put_pod(pending("owed"))
            it.nominator.start_over()
            await asyncio.sleep(8)
            assert len(it.sink.written) == 1, "what its own nomination held is no room that comes"
            it.ledger.drop_pod("uid-old")
            it.consumer.poke()
            await asyncio.sleep(0.5)
            assert len(it.sink.written) == 2

    run_virtually(scenario())


def test_an_owed_pod_that_kube_scheduler_turns_down_again_and_again_rests_after_three_tries() -> None:
    offers = Owing(uids={"uid-owed"}, rest=None)

    async def scenario() -> None:
        async with bench("node-a", offers=offers) as it:
            it.ledger.put_pod(pending("owed"))
            it.nominator.start_over()
            for _ in range(20):
                await it.settle()
                it.ledger.put_pod(pending("owed", nominated_node="node-a"))
                await it.settle()
                it.ledger.put_pod(pending("owed"))
            assert it.sink.written == [("owed", "node-a")] * 3

    run_virtually(scenario())


async def test_s81_an_absent_pod_is_created_when_there_is_room_and_not_before() -> None:
    ghost = pending("ghost", memory_mib=CARD_MIB)
    offers = Owing(ghosts={ghost.uid: ghost})
    async with bench("node-a", offers=offers) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.nominator.start_over()
        await it.settle()
        assert offers.created == []
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert offers.created == ["ghost"]
        assert it.sink.written == []


def test_s81_an_absent_pod_that_cannot_be_created_is_tried_again_later() -> None:
    ghost = pending("ghost")
    offers = Owing(ghosts={ghost.uid: ghost}, can_create=False)

    async def scenario() -> None:
        async with bench("node-a", offers=offers) as it:
            it.nominator.start_over()
            await asyncio.sleep(1)
            assert offers.failures == ["uid-ghost"]
            offers.can_create = True
            await asyncio.sleep(5)
            assert offers.created == ["ghost"]

    run_virtually(scenario())


async def test_a_pod_that_nobody_owes_is_left_alone_as_before() -> None:
    async with bench("node-a", offers=Owing(uids={"uid-other"})) as it:
        it.ledger.put_pod(replace(pending("never-asked"), priority=9))
        it.nominator.start_over()
        await it.settle()
        written = len(it.sink.written)
        it.ledger.put_pod(pending("later"))
        await it.settle()
        assert len(it.sink.written) == written == 1
