"""What was freed for the owner of a plan that is over stays his until he is decided on anew."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.controller.preempt.planner_world import Api, Process, World, whole
from tests.controller.virtual_time import run_virtually
from vgpu.controller.preempt.left_over import LEFT_SECONDS, LeftOver
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import PlanPhase
from vgpu.core.preempt.plan import End, PlanEnd
from vgpu.core.terms import GroupName, GroupSource

MEMBERS = ("m0", "m1", "m2", "m3")
GANG = GroupName(GroupSource.LABEL, "team", "g")
Story = Callable[[World, Process], Awaitable[None]]


def play(story: Story) -> None:
    """Six pods of the lowest class run on two nodes of three cards; nobody is bound but by ask()."""

    async def run() -> None:
        world = World(Api(nodes={"n0": 3, "n1": 3}))
        for number in range(6):
            world.low(f"l{number}", node_name=f"n{number % 2}")
        world.schedules = False
        await story(world, await world.begin())
        await world.close()

    run_virtually(run())


async def freed_for_a_gang(world: World, members: int = 4) -> None:
    """The four cards of its members are free and held, and pods of the lowest class wait."""
    for number in range(members):
        cards = whole(4 // members)
        world.pod(f"m{number}", cards, priority=50, owner="g", group=GANG, group_minimum=members)
    await freed(world, 4)


async def freed_for_a_pod(world: World) -> None:
    world.pod("m0", whole(2), priority=50)
    await freed(world, 2)


async def freed(world: World, cards: int) -> None:
    await world.until(lambda: len(world.api.evictions) == cards, "evictions")
    world.end_leaving()
    for number in range(4):
        world.pod(f"p{number}", whole(1))
    await world.pass_time(1)


def ask(world: World, process: Process) -> list[str]:
    """kube-scheduler asks about those of the lowest class, and binds whoever fits somewhere."""
    started = []
    pods = [pod for name in ("p0", "p1", "p2", "p3") if (pod := world.api.pods.get(f"uid-{name}")) is not None]
    for pod in (pod for pod in pods if not pod.node and process.ledger.pod(pod.uid) is not None):
        for node in world.api.nodes:
            view = process.ledger.view(node)
            found = place(view, pod.request, pod.uid, Policies()) if view and pod.request else None
            if isinstance(found, Placement):
                world._bind(pod, found)
                started.append(pod.name)
                process.hear()
                break
    return started


async def asked_all_the_time(world: World, process: Process, seconds: float) -> list[str]:
    """Those of the lowest class who started meanwhile."""
    started: list[str] = []
    process.meanwhile = lambda answer: started.extend(ask(world, process))
    for _ in range(round(seconds / 0.001)):
        await asyncio.sleep(0.001)
        world.end_leaving()
        process.hear()
        started += ask(world, process)
    process.meanwhile = lambda answer: None
    return started


def loses_a_member(world: World, process: Process) -> None:
    """While the next decision is worked out a member of the gang goes."""

    def goes(answer: object) -> None:
        world.api.pods.pop("uid-m1", None)
        process.hear()

    process.meanwhile = goes


async def all_start(world: World, *names: str) -> None:
    world.schedules = True
    await world.until(lambda: all(world.bound(f"uid-{name}") for name in names), f"{names} to start")


def test_a_gang_that_loses_one_card_keeps_the_others() -> None:
    async def story(world: World, process: Process) -> None:
        await freed_for_a_gang(world)
        world.pod("more", whole(1), priority=60)
        assert await asked_all_the_time(world, process, 1) == []
        await all_start(world, *MEMBERS, "more")
        assert len(world.api.evictions) == 5

    play(story)


def test_a_pod_that_loses_one_card_keeps_the_other_while_it_is_decided_on() -> None:
    async def story(world: World, process: Process) -> None:
        await freed_for_a_pod(world)
        world.pod("more", whole(1), priority=60)
        assert await asked_all_the_time(world, process, 1) == []
        await all_start(world, "m0", "more")
        assert len(world.api.evictions) == 3

    play(story)


@pytest.mark.parametrize("freed_for", [freed_for_a_gang, freed_for_a_pod])
def test_without_the_rule_the_lowest_class_starts_there_and_is_evicted_again(
    monkeypatch: pytest.MonkeyPatch, freed_for: Callable[[World], Awaitable[None]]
) -> None:
    monkeypatch.setattr(LeftOver, "keep", lambda *given: None)

    async def story(world: World, process: Process) -> None:
        await freed_for(world)
        before = len(world.api.evictions)
        world.pod("more", whole(1), priority=60)
        assert await asked_all_the_time(world, process, 1)
        await all_start(world, *(pod.name for pod in world.api.pods.values() if pod.priority))
        assert len(world.api.evictions) > before + 1

    play(story)


def test_whoever_ranks_higher_takes_what_is_kept_and_evicts_nobody() -> None:
    async def story(world: World, process: Process) -> None:
        await freed_for_a_gang(world)
        world.pod("more", whole(1), priority=60)
        world.pod("also", whole(1), priority=55)
        assert await asked_all_the_time(world, process, 1) == []
        assert [plan.victims for name in ("more", "also") for plan in world.api.of_owner(f"uid-{name}")] == [
            (),
            (),
        ]
        await all_start(world, *MEMBERS, "more", "also")
        assert len(world.api.evictions) == 6

    play(story)


def test_of_equal_rank_nobody_takes_it() -> None:
    async def story(world: World, process: Process) -> None:
        await freed_for_a_gang(world)
        world.pod("more", whole(1), priority=60)
        world.pod("equal", whole(1), priority=50)
        assert await asked_all_the_time(world, process, 1) == []
        assert all(plan.victims for plan in world.api.of_owner("uid-equal"))
        await all_start(world, *MEMBERS, "more", "equal")
        assert len(world.api.evictions) == 6

    play(story)


def test_what_is_kept_for_a_gang_that_is_whole_no_more_is_free_after_a_while() -> None:
    async def story(world: World, process: Process) -> None:
        await freed_for_a_gang(world)
        world.pod("more", whole(1), priority=60)
        loses_a_member(world, process)
        await world.pass_time(1)
        assert process.ledger.plans.left()
        assert ask(world, process) == ["p0"]
        await world.pass_time(LEFT_SECONDS)
        assert not process.ledger.plans.left()
        assert ask(world, process) == ["p1", "p2"]
        assert len(world.api.evictions) == 4

    play(story)


def test_nothing_is_kept_for_those_who_cannot_start_any_more() -> None:
    async def story(world: World, process: Process) -> None:
        await freed_for_a_gang(world, members=2)
        for name in ("more", "also"):
            world.pod(name, whole(1), priority=60)
        assert len(await asked_all_the_time(world, process, 1)) == 2
        assert not process.ledger.plans.left()
        assert not world.bound("uid-m0")
        assert len(world.api.evictions) == 4

    play(story)


def test_nothing_is_written_for_it_and_a_new_leader_knows_of_none() -> None:
    async def story(world: World, process: Process) -> None:
        await freed_for_a_gang(world)
        world.pod("more", whole(1), priority=60)
        loses_a_member(world, process)
        await world.pass_time(1)
        [kept] = process.ledger.plans.left()
        assert len(kept.cards) == 3
        living = [plan for plan in world.api.facts() if plan.phase not in (PlanPhase.CLOSED, PlanPhase.ABORTED)]
        assert [plan.owner_name for plan in living] == ["more"]
        process.preemption.start_over()
        assert not process.ledger.plans.left()

    play(story)


def test_an_end_after_which_nobody_is_decided_on_keeps_nothing() -> None:
    async def story(world: World, process: Process) -> None:
        await freed_for_a_pod(world)
        [plan] = world.api.of_owner("uid-m0")
        hold = process.ledger.plans.get(f"{plan.namespace}/{plan.name}")
        process.preemption.planner.left.keep(hold, End(PlanEnd.HOLD_EXPIRED, "over"))
        assert not process.ledger.plans.left()
        process.preemption.planner.left.keep(hold, End(PlanEnd.CARDS_LOST, "over", replan=True))
        assert process.ledger.plans.left()

    play(story)
