"""A gang that was given idle room loses a member before it runs: its cards wait for who replaces it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.controller.cluster_facts import CARD_MIB, pending
from tests.controller.test_gangs import GATE, HOLD_SECONDS, Bench, bench, member, runs
from tests.controller.virtual_time import run_virtually
from vgpu.controller.preempt import gangs
from vgpu.controller.preempt.gang_rooms import GangRooms
from vgpu.controller.preempt.gangs import Gangs
from vgpu.controller.preempt.promises import Promises
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Booking
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import Amounts, Limits, QueueFact
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.preempt.reservations import PlanHolds
from vgpu.core.reasons import Reason
from vgpu.core.terms import GroupFact, GroupName, GroupSource, PodTerms

VOLCANO = GroupName(GroupSource.VOLCANO, "team", "g")
WHOLE_CARD = Amounts(1000, CARD_MIB)
Story = Callable[[], Awaitable[None]]


def fits(it: Bench, name: str = "thief", node: str = "n0") -> bool:
    """Whether a pod of one whole card would be placed there now."""
    pod, view = pending(name, CARD_MIB), it.ledger.view(node)
    assert pod.request is not None
    assert view is not None
    return isinstance(place(view, pod.request, pod.uid, Policies()), Placement)


async def lost(it: Bench, *there: PodFact) -> None:
    """Both members are sent, and the second goes."""
    await it.see(*(there or (member("a1"), member("a2"))))
    assert it.sent()
    await it.lose("a2")


async def keeps_the_cards() -> None:
    async with bench(2) as it:
        await lost(it)
        assert (it.held(), it.refusal("a1")) == ({"gang team/g": {"uid-a1", "uid-a2"}}, Reason.GANG_INCOMPLETE)
        assert (fits(it), it.sent()) == (False, {})


async def the_successor_gets_them() -> None:
    async with bench(2) as it:
        await lost(it)
        assert not fits(it)
        await it.see(member("a3"))
        assert it.held() == {"gang team/g": {"uid-a1", "uid-a3"}}
        assert it.sent() == {"a1": ["n0"], "a3": ["n0"]}
        assert (it.refusal("a1"), it.refusal("a3"), fits(it)) == (None, None, False)
        await it.see(runs(member("a1"), "n0", 0), runs(member("a3"), "n0", 1))
        assert it.held() == {}


async def for_so_long_and_no_longer() -> None:
    async with bench(2) as it:
        await lost(it)
        await asyncio.sleep(HOLD_SECONDS - 10)
        assert not fits(it)
        await asyncio.sleep(20)
        await it.settle()
        assert (it.held(), fits(it)) == ({}, True)


async def the_time_begins_anew_with_the_successor() -> None:
    async with bench(2) as it:
        await lost(it)
        await asyncio.sleep(HOLD_SECONDS - 10)
        await it.see(member("a3"))
        await asyncio.sleep(HOLD_SECONDS - 10)
        assert not fits(it)
        await asyncio.sleep(20)
        assert fits(it)


async def nobody_left_holds_nothing() -> None:
    async with bench(2) as it:
        await lost(it)
        await it.see(replace(member("a1"), terminating=True))
        assert (it.held(), fits(it)) == ({}, True)


async def others_who_are_enough_are_offered_room_of_their_own() -> None:
    async with bench(2) as it:
        await lost(it)
        await it.see(member("a3", memory_mib=CARD_MIB // 2))
        assert it.held() == {"gang team/g": {"uid-a1", "uid-a3"}}
        assert sorted(it.sent()) == ["a1", "a3"]
        view = it.ledger.view("n0")
        assert view is not None
        assert sorted(one.memory_mib for one in view.reservations) == [CARD_MIB // 2, CARD_MIB]


async def a_gate_is_lifted_when_the_gang_is_whole_again() -> None:
    async with bench(3) as it:
        await it.see(*(member(f"a{n}", "g", 3, GATE) for n in range(3)))
        assert it.sent() == {f"a{n}": ["n0", GATE] for n in range(3)}
        await it.lose("a1", "a2")
        await it.see(member("b1", "g", 3, GATE))
        assert (it.sent(), it.held()) == ({}, {"gang team/g": {"uid-a0", "uid-a2", "uid-b1"}})
        await it.see(member("b2", "g", 3, GATE))
        assert it.sent() == {"a0": ["n0"], "b1": ["n0", GATE], "b2": ["n0", GATE]}


RULES: dict[str, tuple[Callable[[], Awaitable[None]], object, str, object]] = {
    "cards stay held": (keeps_the_cards, PlanHolds, "_is_empty", lambda *given: False),
    "a successor takes them": (the_successor_gets_them, gangs, "refilled", lambda *given: None),
    "not for ever": (for_so_long_and_no_longer, Gangs, "_time_is_over", lambda *given: None),
    "the time begins anew": (
        the_time_begins_anew_with_the_successor,
        Gangs,
        "_end_in_time",
        lambda self, key, pod: self._ends.add(key, asyncio.get_running_loop().time() + HOLD_SECONDS),
    ),
    "nobody is left": (nobody_left_holds_nothing, Gangs, "_drop_hold", lambda *given: False),
    "others are enough": (
        others_who_are_enough_are_offered_room_of_their_own,
        gangs,
        "refilled",
        lambda hold, *given: hold,
    ),
    "gates": (a_gate_is_lifted_when_the_gang_is_whole_again, gangs, "starts_with", lambda *given: True),
}


@pytest.mark.parametrize("rule", RULES)
def test_while_a_member_is_replaced(rule: str) -> None:
    run_virtually(RULES[rule][0]())


@pytest.mark.parametrize("rule", RULES)
def test_each_of_these_rules_is_missed_when_it_is_off(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    story, where, name, off = RULES[rule]
    monkeypatch.setattr(where, name, off)
    with pytest.raises(AssertionError):
        run_virtually(story())


def test_a_member_that_waits_without_cards_takes_the_seat() -> None:
    async def story() -> None:
        async with bench(2) as it:
            there = [member(f"a{n}", created=f"2026-01-01T00:00:0{n}Z") for n in range(1, 4)]
            await lost(it, *there)
            assert it.held() == {"gang team/g": {"uid-a1", "uid-a3"}}
            assert it.sent() == {"a1": ["n0"], "a3": ["n0"]}

    run_virtually(story())


def test_a_gang_that_needs_fewer_now_starts_with_those_who_are_left() -> None:
    async def story() -> None:
        async with bench(2) as it:
            it.roster.put_group(GroupFact(VOLCANO, 2))
            await lost(it, in_podgroup("a1"), in_podgroup("a2"))
            it.roster.put_group(GroupFact(VOLCANO, 1))
            it.gangs.rules_changed()
            await it.settle()
            assert fits(it), "the empty seat"
            assert it.refusal("a1") is None

    run_virtually(story())


def test_a_seat_that_is_not_needed_goes_and_the_others_are_sent_again() -> None:
    async def story() -> None:
        async with bench(3) as it:
            it.roster.put_group(GroupFact(VOLCANO, 3))
            await lost(it, *(in_podgroup(f"a{n}") for n in range(3)))
            assert (it.refusal("a0"), fits(it)) == (Reason.GANG_INCOMPLETE, False)
            it.roster.put_group(GroupFact(VOLCANO, 2))
            it.gangs.rules_changed()
            await it.settle()
            assert it.sent() == {"a0": ["n0"], "a1": ["n0"]}
            assert (it.refusal("a0"), fits(it)) == (None, True)

    run_virtually(story())


def test_a_gang_whose_podgroup_is_deleted_keeps_no_empty_seat() -> None:
    async def story() -> None:
        async with bench(2) as it:
            it.roster.put_group(GroupFact(VOLCANO, 2))
            await lost(it, in_podgroup("a1"), in_podgroup("a2"))
            assert not fits(it)
            it.roster.drop_group(VOLCANO.key)
            it.gangs.rules_changed()
            await it.settle()
            assert fits(it)

    run_virtually(story())


def in_podgroup(name: str) -> PodFact:
    return replace(member(name), terms=PodTerms(group=VOLCANO))


def test_the_seat_of_a_member_that_was_bound_is_not_kept() -> None:
    """Who made it go may have its cards by now."""

    async def story() -> None:
        async with bench(2, 1) as it:
            await it.see(*(member(f"a{n}", "g", 3) for n in range(3)))
            await it.see(runs(member("a1", "g", 3), "n0", 1))
            await it.lose("a1")
            assert (it.held(), fits(it)) == ({}, True)

    run_virtually(story())


def test_who_is_being_bound_is_not_sent_again() -> None:
    async def story() -> None:
        async with bench(2) as it:
            await it.see(member("a1"), member("a2"))
            it.sent()
            containers = runs(member("a1"), "n0", 0).assignment
            assert containers is not None
            placement = Placement("n0", containers.containers, 0)
            it.ledger.book(Booking("uid-a1", "team", "a1", "n0", "nonce", placement))
            await it.lose("a2")
            await it.see(member("a3"))
            assert it.sent() == {"a3": ["n0"]}

    run_virtually(story())


def test_a_gang_with_seats_is_offered_no_other_room() -> None:
    """What its own seats hold would stand in its way."""

    async def story() -> None:
        async with bench(2) as it:
            there = [member(f"a{n}", created=f"2026-01-01T00:00:0{n}Z") for n in range(4)]
            await it.see(*there)
            assert sorted(it.sent()) == ["a0", "a1"]
            for name in ("a0", "a1"):
                it.ledger.drop_pod(f"uid-{name}")
                it.roster.drop_pod(f"uid-{name}")
            await it.gangs._offer()
            assert it.short == []
            await it.settle()
            assert (sorted(it.sent()), it.held()) == (["a2", "a3"], {"gang team/g": {"uid-a2", "uid-a3"}})

    run_virtually(story())


def test_a_seat_that_changes_hands_wakes_no_gang_that_rests() -> None:
    async def story() -> None:
        async with bench(2, 2) as it:
            await it.see(member("b1", "b"), member("b2", "b"))
            await asyncio.sleep(HOLD_SECONDS + 1)
            await it.see(member("a1"), member("a2"))
            assert {*it.held()} == {"gang team/g"}
            it.sent()
            await it.lose("a2")
            await it.see(member("a3"))
            assert sorted(it.sent()) == ["a1", "a3"]

    run_virtually(story())


def test_nothing_more_is_written_while_a_seat_is_empty() -> None:
    async def story() -> None:
        async with bench(2) as it:
            await lost(it)
            for number in range(5):
                await it.see(replace(member("a1"), unschedulable_message=f"0/{number} nodes"))
            assert it.sent() == {}

    run_virtually(story())


# What is held counts in the queue.


def promised(it: Bench) -> Amounts:
    return it.roster.usage("default").promised


def barred(it: Bench, pod: PodFact) -> bool:
    return QueueGate(it.roster).refusal(pod) is not None


async def what_a_gang_holds_is_promised_in_its_queue() -> None:
    async with bench(3, queue=QueueFact("default", capability=Limits(2000))) as it:
        other = pending("other", CARD_MIB)
        await it.see(member("a1"), member("a2"), other)
        assert (promised(it), barred(it, other)) == (WHOLE_CARD + WHOLE_CARD, True)
        assert not barred(it, member("a1"))
        await asyncio.sleep(HOLD_SECONDS + 1)
        assert (promised(it), it.held(), barred(it, other)) == (Amounts(), {}, False)


async def an_empty_seat_is_promised_too() -> None:
    async with bench(3, queue=QueueFact("default", capability=Limits(2000))) as it:
        other = pending("other", CARD_MIB)
        await lost(it, member("a1"), member("a2"), other)
        Promises(it.ledger, it.roster).note()
        assert (promised(it), barred(it, other)) == (WHOLE_CARD + WHOLE_CARD, True)
        await it.see(member("a3"))
        assert (promised(it), barred(it, other)) == (WHOLE_CARD + WHOLE_CARD, True)
        assert (barred(it, member("a3")), sorted(it.sent())) == (False, ["a1", "a3"])


async def a_second_gang_of_the_queue_finds_it_full() -> None:
    async with bench(4, queue=QueueFact("default", capability=Limits(2000))) as it:
        await it.see(member("a1"), member("a2"))
        await it.see(member("b1", "b"), member("b2", "b"))
        assert (sorted(it.sent()), it.refusal("b1")) == (["a1", "a2"], Reason.GANG_WAITS)


PROMISES = (what_a_gang_holds_is_promised_in_its_queue, an_empty_seat_is_promised_too)


@pytest.mark.parametrize(
    "story", [*PROMISES, a_second_gang_of_the_queue_finds_it_full], ids=lambda it: it.__name__
)
def test_the_queue_counts(story: Story) -> None:
    run_virtually(story())


@pytest.mark.parametrize(
    "story", [*PROMISES, a_second_gang_of_the_queue_finds_it_full], ids=lambda it: it.__name__
)
def test_it_is_missed_when_the_queue_does_not_count_it(monkeypatch: pytest.MonkeyPatch, story: Story) -> None:
    monkeypatch.setattr(Promises, "note", lambda self: None)
    with pytest.raises(AssertionError):
        run_virtually(story())


def test_an_empty_seat_is_missed_when_only_pods_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlanHolds, "empty", lambda *given: [])
    with pytest.raises(AssertionError):
        run_virtually(an_empty_seat_is_promised_too())


def test_rooms_are_looked_for_beside_what_is_promised() -> None:
    """Nothing of what is held is counted a second time."""

    async def story() -> None:
        async with bench(4, queue=QueueFact("default", capability=Limits(4000))) as it:
            await it.see(member("a1"), member("a2"))
            await it.see(member("b1", "b"), member("b2", "b"))
            assert sorted(it.sent()) == ["a1", "a2", "b1", "b2"]

    run_virtually(story())
    assert GangRooms.find.__code__.co_argcount == 2
