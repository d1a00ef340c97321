"""Room is held for evicted pods that are to be created, in their turn, until the created pod has it."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, pending
from tests.controller.test_nominator import Bench, bench
from tests.controller.test_nominator_owed import Owing
from tests.controller.virtual_time import run_virtually
from vgpu.core.facts import PodFact

HELD_SECONDS = 5
GHOST = pending("ghost", memory_mib=CARD_MIB, uid="uid-evicted")


@dataclass
class Slow(Owing):
    """Creates when it is let, and leaves the pod to be seen later."""

    let: asyncio.Event = field(default_factory=asyncio.Event)

    async def create(self, pod: PodFact) -> bool:
        await self.let.wait()
        return await super().create(pod)


@dataclass
class Unknown(Owing):
    """Nobody knows whether it creates; it does not."""

    async def create(self, pod: PodFact) -> bool:
        self.created.append(pod.name)
        return True


def owing(kind: type[Owing] = Owing, first: str = "ghost", **changes: float | None) -> Owing:
    return kind(ghosts={GHOST.uid: GHOST}, first=first, **changes)


def low_waits(it: Bench) -> None:
    """A card is taken, and a pod was refused."""
    it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
    it.ledger.put_pod(pending("low", memory_mib=CARD_MIB))
    it.consumer.drain()
    assert it.ask("low", "node-a") == []


def room_comes(it: Bench) -> None:
    it.ledger.drop_pod("uid-old")
    it.consumer.poke()


async def test_s81_before_anybody_is_answered_it_is_held_for_who_comes_before() -> None:
    offers = owing()
    async with bench("node-a", offers=offers, nomination_settle_seconds=60) as it:
        low_waits(it)
        it.ledger.drop_pod("uid-old")
        assert it.ask("low", "node-a") == []
        assert it.ledger.nomination(GHOST.uid) is not None
        assert offers.created == [], "its turn comes"


async def test_s81_so_also_where_nobody_else_was_refused_yet() -> None:
    async with bench("node-a", offers=owing(), nomination_settle_seconds=60) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.consumer.drain()
        it.ledger.drop_pod("uid-old")
        it.ledger.put_pod(pending("low", memory_mib=CARD_MIB))
        assert it.ask("low", "node-a") == []


async def test_s81_what_was_held_before_its_turn_is_created_in_its_turn() -> None:
    offers = owing()
    async with bench("node-a", offers=offers) as it:
        low_waits(it)
        it.ledger.drop_pod("uid-old")
        assert it.ask("low", "node-a") == []
        await it.settle()
        assert offers.created == ["ghost"]
        assert it.sink.written == []


async def test_s81_nothing_is_held_for_one_who_comes_after() -> None:
    offers = owing(first="low")
    async with bench("node-a", offers=offers, nomination_settle_seconds=60) as it:
        low_waits(it)
        it.ledger.drop_pod("uid-old")
        assert it.ask("low", "node-a") == ["node-a"]
        assert it.ledger.nomination(GHOST.uid) is None


async def test_s81_while_it_is_created_nobody_else_gets_its_room() -> None:
    offers = owing(Slow)
    async with bench("node-a", offers=offers) as it:
        assert isinstance(offers, Slow)
        low_waits(it)
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.ask("low", "node-a") == []
        offers.let.set()
        await it.settle()
        assert offers.created == ["ghost"]
        assert it.ask("low", "node-a") == [], "created, and not seen yet"


@pytest.mark.parametrize("answer_first", [True, False], ids=["answer first", "watch first"])
async def test_s81_the_hold_passes_to_the_created_pod_without_a_gap(answer_first: bool) -> None:
    offers = owing(Slow)
    async with bench("node-a", offers=offers) as it:
        assert isinstance(offers, Slow)
        low_waits(it)
        it.ledger.drop_pod("uid-old")
        await it.settle()
        if answer_first:
            offers.let.set()
            await it.settle()
        it.ledger.put_pod(replace(GHOST, uid="uid-again"))
        assert it.ask("low", "node-a") == []
        await it.settle()
        assert it.ledger.nomination("uid-again") is not None
        assert it.ledger.nomination(GHOST.uid) is None
        assert it.ask("low", "node-a") == []
        offers.let.set()
        await it.settle()
        assert it.ask("ghost", "node-a") == ["node-a"]


async def test_s81_kube_scheduler_may_ask_about_the_created_pod_before_we_have_seen_it() -> None:
    async with bench("node-a", offers=owing()) as it:
        low_waits(it)
        it.ledger.drop_pod("uid-old")
        await it.settle()
        created = replace(GHOST, uid="uid-again")
        it.nominator.before_answer(created)
        assert it.filter.filter(created, ["node-a"]).nodes == ["node-a"]
        assert it.ask("low", "node-a") == []
        it.ledger.put_pod(created)
        await it.settle()
        assert it.ledger.nomination("uid-again") is not None


@pytest.mark.parametrize("asked_first", [True, False], ids=["asked about first", "seen first"])
def test_s81_the_passing_of_a_hold_ends_nobodys_rest(asked_first: bool) -> None:
    offers = owing(rest=None)

    async def scenario() -> None:
        async with bench("node-a", offers=offers) as it:
            low_waits(it)
            room_comes(it)
            await asyncio.sleep(1)
            offers.resting.add("uid-other")
            created = replace(GHOST, uid="uid-again")
            if asked_first:
                it.nominator.before_answer(created)
                await asyncio.sleep(1)
            it.ledger.put_pod(created)
            it.consumer.poke()
            await asyncio.sleep(1)
            assert it.ledger.nomination("uid-again") is not None
            assert offers.resting == {"uid-other"}

    run_virtually(scenario())


def test_s81_a_created_pod_that_does_not_come_holds_no_longer_than_others() -> None:
    async def scenario() -> None:
        async with bench("node-a", offers=owing(), nomination_seconds=HELD_SECONDS) as it:
            low_waits(it)
            room_comes(it)
            await asyncio.sleep(1)
            it.ledger.put_pod(replace(GHOST, uid="uid-again", unschedulable=False))
            it.consumer.poke()
            await asyncio.sleep(HELD_SECONDS - 1)
            assert it.ledger.nomination("uid-again") is not None
            assert it.sink.written == []
            await asyncio.sleep(2)
            assert it.ledger.nomination("uid-again") is None
            assert it.sink.written == [("low", "node-a")]

    run_virtually(scenario())


def test_s81_one_that_may_have_been_created_holds_for_the_usual_time_and_then_rests() -> None:
    offers = owing(Unknown, rest=None)

    async def scenario() -> None:
        async with bench("node-a", offers=offers, nomination_seconds=HELD_SECONDS) as it:
            low_waits(it)
            it.ledger.drop_pod("uid-old")
            assert it.ask("low", "node-a") == []
            await asyncio.sleep(HELD_SECONDS - 1)
            assert it.sink.written == [] == offers.failures
            await asyncio.sleep(2)
            assert offers.failures == [GHOST.uid]
            assert it.sink.written == [("low", "node-a")]
            assert offers.created == ["ghost"], "tried once"

    run_virtually(scenario())


def test_s81_one_that_was_chosen_already_and_is_held_for_before_its_turn_is_created_once() -> None:
    ghosts = [pending(name, memory_mib=CARD_MIB) for name in ("ghost-a", "ghost-b")]
    offers = Unknown(ghosts={ghost.uid: ghost for ghost in ghosts})

    async def scenario() -> None:
        async with bench("node-a", "node-b", offers=offers, nominations_owed_per_second=1) as it:
            it.ledger.put_pod(bound("other", "node-b", memory_mib=CARD_MIB))
            low_waits(it)
            await asyncio.sleep(1)
            it.ledger.drop_pod("uid-other")
            room_comes(it)
            await asyncio.sleep(0.5)
            assert offers.created == ["ghost-a"], "the other has its turn in a second"
            assert it.ask("low", "node-a", "node-b") == []
            assert it.ledger.nomination("uid-ghost-b") is not None
            await asyncio.sleep(5)
            assert offers.created == ["ghost-a", "ghost-b"]

    run_virtually(scenario())


def test_s81_one_that_is_refused_gives_its_room_away_at_once_and_is_not_tried_in_a_loop() -> None:
    offers = owing(can_create=False, rest=None)

    async def scenario() -> None:
        async with bench("node-a", offers=offers, nomination_seconds=HELD_SECONDS) as it:
            low_waits(it)
            room_comes(it)
            await asyncio.sleep(1)
            assert it.ledger.nomination(GHOST.uid) is None
            assert it.sink.written == [("low", "node-a")]
            await asyncio.sleep(1000)
            assert offers.failures == [GHOST.uid]

    run_virtually(scenario())


def test_s81_a_debt_that_goes_away_holds_nothing_longer_than_the_usual_time() -> None:
    offers = owing()

    async def scenario() -> None:
        async with bench(
            "node-a", offers=offers, nomination_settle_seconds=1, nomination_seconds=HELD_SECONDS
        ) as it:
            low_waits(it)
            it.ledger.drop_pod("uid-old")
            assert it.ask("low", "node-a") == []
            offers.ghosts.clear()
            await asyncio.sleep(HELD_SECONDS - 1)
            assert it.sink.written == []
            await asyncio.sleep(3)
            assert it.sink.written == [("low", "node-a")]
            assert offers.created == [] == offers.failures

    run_virtually(scenario())


async def test_s81_a_new_leader_decides_on_it_anew() -> None:
    offers = owing()
    async with bench("node-a", offers=offers) as it:
        await it.settle()
        it.ledger.put_pod(pending("low", memory_mib=CARD_MIB))
        it.nominator.start_over()
        assert it.ask("low", "node-a") == []
        await it.settle()
        assert offers.created == ["ghost"]


def test_s81_after_it_is_back_nothing_is_left_to_wait_for() -> None:
    offers = owing()

    async def scenario() -> None:
        async with bench("node-a", offers=offers, nomination_seconds=HELD_SECONDS) as it:
            low_waits(it)
            room_comes(it)
            await asyncio.sleep(1)
            it.ledger.put_pod(replace(GHOST, uid="uid-again"))
            it.consumer.poke()
            await asyncio.sleep(0.5)
            it.ledger.put_pod(bound("ghost", "node-a", memory_mib=CARD_MIB, uid="uid-again"))
            it.consumer.poke()
            await asyncio.sleep(0.5)
            view = it.ledger.view("node-a")
            assert view is not None
            assert view.reservations == ()
            version = it.ledger.version
            await asyncio.sleep(1000)
            assert it.ledger.version == version
            assert it.sink.written == []

    run_virtually(scenario())
