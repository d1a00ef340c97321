"""A gang whose victims leave loses a member, in one process and across restarts: one plan, one set of victims."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.controller.preempt.planner_world import Api, Last, World, percent, whole
from tests.controller.preempt.test_planner import play
from tests.controller.virtual_time import run_virtually
from vgpu.controller.preempt.keeper import PlanKeeper
from vgpu.controller.preempt.plan_book import PlanBook
from vgpu.controller.preempt.plan_objects import PlanObjects
from vgpu.controller.preempt.promises import Promises
from vgpu.controller.preempt.relevance import concerns
from vgpu.core.facts import PodFact
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import Limits, PlanFact, PlanPhase, QueueFact
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.preempt.reservations import PlanHolds
from vgpu.core.terms import GroupFact, GroupName, GroupSource

LABEL = GroupName(GroupSource.LABEL, "team", "g")
VOLCANO = GroupName(GroupSource.VOLCANO, "team", "g")
MOST_WRITES = 60


def member(world: World, name: str, group: GroupName = LABEL, **changes: object) -> PodFact:
    minimum = 2 if group is LABEL else None
    return world.high(name, whole(2), owner="g", group=group, group_minimum=minimum, **changes)


def scene(world: World, group: GroupName = LABEL) -> list[PodFact]:
    """Four cards with a pod on each, and a gang of two that wants two cards for each member."""
    for number in range(4):
        world.low(f"l{number}")
    return [member(world, "m0", group), member(world, "m1", group)]


def plan_of(world: World) -> PlanFact:
    [plan] = world.api.facts()
    return plan


async def draining(world: World, group: GroupName = LABEL) -> None:
    """All four leave, and the second member is deleted meanwhile."""
    world.victims_end = False
    scene(world, group)
    process = await world.begin()
    if group is VOLCANO:
        process.roster.put_group(GroupFact(VOLCANO, 2))
        process.preemption.rules_changed()
    await world.until(lambda: len(world.api.evictions) == 4, "evictions")
    await world.until(lambda: plan_of(world).phase is PlanPhase.DRAINING, "the phase")
    await lose(world, "m1")


async def lose(world: World, *pods: str) -> None:
    for name in pods:
        del world.api.pods[f"uid-{name}"]
    await world.pass_time(2)


def fits(world: World) -> bool:
    """Whether some other pod of one card would be let onto the node."""
    assert world.process is not None
    view = world.process.ledger.view("n1")
    assert view is not None
    return isinstance(place(view, whole(1), "uid-thief", Policies()), Placement)


async def both_run(world: World, *names: str) -> None:
    await world.until(lambda: all(world.bound(f"uid-{name}") for name in names), "the gang to run")
    await world.pass_time(5)
    assert sorted(world.api.evictions) == [f"uid-l{n}" for n in range(4)]
    assert world.api.made == 1, "one plan"


def test_the_cards_stay_held_and_the_successor_gets_them() -> None:
    async def story(world: World) -> None:
        await draining(world)
        world.end_leaving()
        await world.pass_time(2)
        assert (fits(world), plan_of(world).phase) == (False, PlanPhase.DRAINING)
        member(world, "m2")
        before = world.api.writes["status"]
        await world.until(lambda: bool(plan_of(world).successors), "the seat to be taken")
        assert plan_of(world).successors == (("uid-m1", "uid-m2"),)
        assert world.api.writes["status"] == before + 1, "one write"
        await both_run(world, "m0", "m2")

    play(story)


def test_nobody_goes_for_a_gang_that_is_not_whole() -> None:
    """One eviction at a time: those that were not asked to go yet stay until the gang is whole again."""

    async def story(world: World) -> None:
        world.victims_end = False
        scene(world)
        await world.begin()
        await world.until(lambda: len(world.api.evictions) == 1, "one eviction")
        await lose(world, "m1")
        world.end_leaving()
        await world.pass_time(5)
        assert (len(world.api.evictions), world.api.made, fits(world)) == (1, 1, False)
        world.victims_end = True
        member(world, "m2")
        await both_run(world, "m0", "m2")

    play(story, Api(queues=[QueueFact("default", max_in_flight=1)]))


def test_a_gang_that_needs_more_than_is_held_is_decided_on_anew_when_the_last_one_comes() -> None:
    async def story(world: World) -> None:
        world.victims_end = False
        scene(world)
        await world.begin()
        await world.until(lambda: len(world.api.evictions) == 4, "evictions")
        world.high("m2", whole(2), owner="g", group=LABEL, group_minimum=4)
        world.end_leaving()
        await world.pass_time(45)
        assert not plan_is_over(world)
        assert (world.bound("uid-m0"), world.bound("uid-m1")) == (False, False)
        world.high("m3", whole(2), owner="g", group=LABEL, group_minimum=4)
        await world.until(lambda: plan_is_over(world), "its plan to end", 1)

    play(story)


def test_seats_that_are_taken_at_once_are_noted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gang of hundreds all may be made anew in a moment: each note looks at the whole plan."""
    noted: list[int] = []
    real = PlanBook.succeed

    def succeed(book: PlanBook, plan: str, taken: Mapping[str, str]) -> PlanFact | None:
        noted.append(len(taken))
        return real(book, plan, taken)

    monkeypatch.setattr(PlanBook, "succeed", succeed)

    async def story(world: World) -> None:
        world.victims_end = False
        scene(world)
        await world.begin()
        await world.until(lambda: len(world.api.evictions) == 4, "evictions")
        for name in ("m2", "m3"):
            member(world, name)
        await lose(world, "m0", "m1")
        world.end_leaving()
        await both_run(world, "m2", "m3")
        assert noted == [2]

    play(story)


def test_a_plan_that_nobody_completes_in_time_lets_go() -> None:
    async def story(world: World) -> None:
        await draining(world)
        world.end_leaving()
        await world.pass_time(55)
        assert not fits(world)
        await world.pass_time(10)
        assert fits(world)
        assert [plan.phase for plan in world.api.facts()] in ([], [PlanPhase.ABORTED])

    play(story, Api(queues=[QueueFact("default", hold_timeout_seconds=60)]))


def test_a_gang_of_which_nobody_is_left_lets_go_at_once() -> None:
    async def story(world: World) -> None:
        await draining(world)
        world.end_leaving()
        await lose(world, "m0")
        assert fits(world)

    play(story)


def test_a_gang_of_which_the_last_one_without_a_seat_goes_lets_go_at_once() -> None:
    async def story(world: World) -> None:
        await draining(world)
        world.high("small", percent(25), owner="g", group=LABEL, group_minimum=3)
        await lose(world, "m0")
        world.end_leaving()
        await world.pass_time(2)
        assert (fits(world), plan_is_over(world)) == (False, False)
        await lose(world, "small")
        assert (fits(world), plan_is_over(world)) == (True, True)

    play(story)


def test_a_gang_whose_podgroup_is_deleted_lets_go_at_once() -> None:
    async def story(world: World) -> None:
        await draining(world, VOLCANO)
        world.end_leaving()
        await world.pass_time(2)
        assert not fits(world)
        assert world.process is not None
        world.process.roster.drop_group(VOLCANO.key)
        world.process.preemption.rules_changed()
        await world.pass_time(2)
        assert plan_is_over(world)

    play(story)


def test_a_restart_that_has_not_seen_the_podgroup_yet_keeps_what_is_held() -> None:
    async def story(world: World) -> None:
        await draining(world, VOLCANO)
        world.end_leaving()
        process = await world.begin()
        await world.pass_time(2)
        assert (fits(world), plan_is_over(world)) == (False, False)
        process.roster.put_group(GroupFact(VOLCANO, 2))
        process.preemption.rules_changed()
        member(world, "m2", VOLCANO)
        await both_run(world, "m0", "m2")

    play(story)


def plan_is_over(world: World) -> bool:
    return not any(plan.phase in (PlanPhase.PLANNED, PlanPhase.DRAINING) for plan in world.api.facts())


def test_a_member_that_is_replaced_twice() -> None:
    async def story(world: World) -> None:
        await draining(world)
        member(world, "m2")
        await world.until(lambda: bool(plan_of(world).successors), "the seat to be taken")
        await lose(world, "m2")
        assert world.process is not None
        await world.begin()
        await world.pass_time(1)
        world.end_leaving()
        await world.pass_time(1)
        assert not fits(world)
        member(world, "m3")
        await both_run(world, "m0", "m3")

    play(story)


def test_a_successor_is_not_decided_on_apart() -> None:
    async def story(world: World) -> None:
        await draining(world)
        member(world, "m2")
        await world.until(lambda: bool(plan_of(world).successors), "the seat to be taken")
        assert world.process is not None
        assert {"uid-m0", "uid-m2"} <= world.process.preemption.book.planned_for()
        decisions = world.process.decisions
        await world.pass_time(5)
        assert world.process.decisions == decisions

    play(story)


def test_an_older_event_of_the_plan_does_not_unseat_the_successor() -> None:
    async def story(world: World) -> None:
        await draining(world)
        assert world.process is not None
        old, book = plan_of(world), world.process.preemption.book
        member(world, "m2")
        await world.until(lambda: bool(plan_of(world).successors), "the seat to be taken")
        book.put(replace(old, evictions_sent=frozenset()))
        assert [plan.successors for plan in book.all_living()] == [(("uid-m1", "uid-m2"),)]
        world.victims_end = True
        await both_run(world, "m0", "m2")

    play(story)


def test_what_a_lost_member_was_sent_to_is_its_successor_s() -> None:
    """A finalizer keeps the lost one: what it was nominated to would stand in the way of who has its seat."""

    async def story(world: World) -> None:
        scene(world)
        world.schedules = False
        process = await world.begin()
        await world.until(lambda: process.ledger.nomination("uid-m1") is not None, "the members to be sent")
        world.victims_end = False
        world.api.pods["uid-m1"] = replace(world.api.pods["uid-m1"], terminating=True)
        await world.pass_time(1)
        assert not plan_of(world).successors
        member(world, "m2")
        await world.until(lambda: bool(plan_of(world).successors), "the seat to be taken")
        assert process.ledger.nomination("uid-m1") is None

    play(story)


def test_a_seat_that_is_not_needed_any_more_is_free() -> None:
    async def story(world: World) -> None:
        world.schedules = False
        await draining(world, VOLCANO)
        world.end_leaving()
        await world.pass_time(1)
        assert not fits(world)
        assert world.process is not None
        world.process.roster.put_group(GroupFact(VOLCANO, 1))
        world.process.preemption.rules_changed()
        await world.pass_time(1)
        assert (fits(world), plan_is_over(world)) == (True, False)

    play(story)


def test_who_leads_again_believes_what_another_leader_wrote() -> None:
    async def story(world: World) -> None:
        await draining(world)
        assert world.process is not None
        book = world.process.preemption.book
        member(world, "m2")
        await world.until(lambda: bool(plan_of(world).successors), "the seat to be taken")
        [body] = world.api.plans.values()
        body["status"]["successors"] = [{"lost": "uid-m1", "uid": "uid-m9"}]
        world.process.hear()
        book.start_over()
        book.put(replace(plan_of(world), evictions_sent=frozenset()))
        assert [plan.owner_uids for plan in book.all_living()] == [("uid-m0", "uid-m9")]

    play(story)


def test_the_queue_has_room_for_who_is_yet_to_come() -> None:
    async def story(world: World) -> None:
        await draining(world)
        world.end_leaving()
        other = world.pod("other", whole(1))
        await world.pass_time(1)
        assert world.process is not None
        gate = QueueGate(world.process.roster)
        assert gate.refusal(other) is not None
        assert gate.refusal(member(world, "m2")) is not None, "before it has its seat"
        await world.until(lambda: bool(plan_of(world).successors), "the seat to be taken")
        await both_run(world, "m0", "m2")

    play(story, Api(nodes={"n1": 4}, queues=[QueueFact("default", capability=Limits(4000))]))


RULES: dict[str, tuple[Callable[[], None], object, str, object]] = {
    "the seat is written": (
        test_a_member_that_is_replaced_twice,
        PlanObjects,
        "say",
        lambda self, plan, waits_for: None,
    ),
    "it is told to the plan": (
        test_the_cards_stay_held_and_the_successor_gets_them,
        PlanKeeper,
        "_succeed",
        lambda *given: None,
    ),
    "events are older": (
        test_an_older_event_of_the_plan_does_not_unseat_the_successor,
        PlanBook,
        "_forward",
        lambda self, known, fact: fact,
    ),
    "a new pod wakes the plan": (
        test_the_cards_stay_held_and_the_successor_gets_them,
        "vgpu.controller.preempt.planner",
        "concerns",
        lambda plan, changes, holds: concerns(plan, changes, PlanHolds(bool, list, lambda uid: None)),
    ),
    "the gang is looked at": (
        test_the_cards_stay_held_and_the_successor_gets_them,
        GangDesk,
        "now",
        lambda *given: None,
    ),
    "the queue counts it": (
        test_the_queue_has_room_for_who_is_yet_to_come,
        Promises,
        "note",
        lambda self: None,
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_missed_when_it_is_off(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    story, where, name, off = RULES[rule]
    if isinstance(where, str):
        monkeypatch.setattr(f"{where}.{name}", off)
    else:
        monkeypatch.setattr(where, name, off)
    with pytest.raises((AssertionError, ValueError)):
        story()


async def replaced(dies_at: int, last: Last) -> tuple[list[str], int]:
    """A member is lost once all victims leave, and replaced; the process dies at one of its writes."""
    world = World(Api())
    world.victims_end = False
    scene(world)
    first = await world.begin(dies_at, last)

    async def on(condition: Callable[[], bool], what: str) -> None:
        """Until it holds, in the process that lives."""
        await world.until(lambda: condition() or first.writer.dead.is_set(), what)
        if not condition():
            await world.pass_time(3)
            await world.begin()
            await world.until(condition, what)

    await on(lambda: len(world.api.evictions) == 4, "evictions")
    await lose(world, "m1")
    world.victims_end = True
    await world.pass_time(1)
    member(world, "m2")
    await on(lambda: world.bound("uid-m0") and world.bound("uid-m2"), "the gang to run")
    await world.pass_time(3)
    if first.writer.dead.is_set():
        await world.begin()
        await world.pass_time(3)
    await world.close()
    assert plan_is_over(world)
    assert world.api.made == 1
    return sorted(world.api.evictions), first.writer.count


@pytest.mark.parametrize("last", Last, ids=lambda last: last.name.lower())
def test_s42_whatever_write_is_the_last_the_same_pods_go_and_the_gang_runs(last: Last) -> None:
    evicted, writes = run_virtually(replaced(0, last))
    assert 0 < writes < MOST_WRITES
    for dies_at in range(1, writes + 1):
        again, _ = run_virtually(replaced(dies_at, last))
        assert again == evicted, f"write {dies_at} was the last one"
