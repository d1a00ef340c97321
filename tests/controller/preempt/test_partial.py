"""A gang of which too few are bound says so on its plan, from when it is so until it is not."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.controller.preempt.planner_world import Api, World
from tests.controller.virtual_time import run_virtually
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.terms import GroupName, GroupSource

GANG = GroupName(GroupSource.LABEL, "team", "ring")
SAID = (
    "{} of the 3 pods that gang team/ring needs are bound; these are evicted unless the others follow within 300 s"
)


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    """Run a scenario on a virtual clock, on one node of three cards that are taken."""

    async def run() -> None:
        world = World(Api(nodes={"n1": 3}))
        for number in range(3):
            world.low(f"l{number}")
        await world.begin()
        world.schedules = False
        for number in range(3):
            world.high(f"g{number}", group=GANG, group_minimum=3)
        await world.until(lambda: all(sent(world, f"uid-g{n}") for n in range(3)), "all members to be sent")
        await scenario(world)
        await world.close()

    run_virtually(run())


def sent(world: World, uid: str) -> bool:
    return world.process is not None and world.process.ledger.nomination(uid) is not None


def bind_only(world: World, *uids: str) -> None:
    """kube-scheduler binds these; the binding of others is refused."""
    away = {uid: world.api.pods.pop(uid) for uid in list(world.api.pods) if uid not in uids}
    world.bind_sent()
    world.api.pods.update(away)


def conditions(world: World) -> list[tuple[Any, ...]]:
    [plan] = world.api.plans.values()
    found = plan.get("status", {}).get("conditions", [])
    return [(one["type"], one["status"], one["reason"], one["message"]) for one in found]


def partial(bound: int) -> list[tuple[Any, ...]]:
    return [("Partial", "True", "GangPartial", SAID.format(bound))]


def test_the_plan_of_a_gang_that_is_bound_in_part_says_so_and_is_right_about_how_many() -> None:
    async def scenario(world: World) -> None:
        assert conditions(world) == []
        bind_only(world, "uid-g0")
        await world.pass_time(3)
        assert conditions(world) == partial(1)
        bind_only(world, "uid-g1")
        await world.pass_time(3)
        assert conditions(world) == partial(2)
        [plan] = world.api.facts()
        assert plan.partial == SAID.format(2)
        world.schedules = True
        await world.until(lambda: all(world.bound(f"uid-g{n}") for n in range(3)), "all members to be bound")
        await world.pass_time(3)
        assert "Partial" not in [one[0] for one in conditions(world)]

    play(scenario)


def test_it_is_written_once() -> None:
    async def scenario(world: World) -> None:
        bind_only(world, "uid-g0")
        await world.pass_time(3)
        writes = world.api.writes["status"]
        await world.pass_time(30)
        assert world.api.writes["status"] == writes
        await world.begin()
        await world.pass_time(3)
        assert conditions(world) == partial(1)
        assert world.api.writes["status"] == writes, "whoever leads next finds it said"

    play(scenario)


def test_who_leads_next_takes_back_what_is_not_so_any_more() -> None:
    async def scenario(world: World) -> None:
        [plan] = world.api.plans.values()
        stale = {"type": "Partial", "status": "True", "reason": "GangPartial", "message": "once"}
        stale["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        plan["status"] = {**plan["status"], "conditions": [stale]}
        facts: list[PlanFact] = world.api.facts()
        assert facts[0].partial == "once"
        await world.begin()
        await world.pass_time(3)
        assert conditions(world) == []

    play(scenario)
