"""Pods of a group that starts one by one are decided on one by one, each of them in every round."""

from typing import Any

import pytest

from tests.controller.preempt.planner_world import Api, World, now, whole
from tests.controller.preempt.test_planner import fill, play
from vgpu.core.preempt.facts import QueueFact
from vgpu.core.reasons import Reason
from vgpu.core.terms import GroupName, GroupSource

WAIT_SECONDS = 5
GROUP: dict[str, Any] = {"owner": "g", "group": GroupName(GroupSource.LABEL, "team", "g")}


@pytest.mark.parametrize("minimum", [None, 1])
def test_each_gets_its_room_when_the_moment_has_come(minimum: int | None) -> None:
    """The first evicts nobody, which is no reason for the others."""

    async def scenario(world: World) -> None:
        fill(world, 4)
        await world.begin()
        for number in range(3):
            first = number == 0
            world.high(f"m{number}", group_minimum=minimum, created_seconds=now(), preempt_never=first, **GROUP)
        await world.until(lambda: world.bound("uid-m1") and world.bound("uid-m2"), "both to be bound")
        assert (len(world.api.evictions), world.bound("uid-m0")) == (2, False)

    play(scenario, Api(queues=[QueueFact("default", wait_before_seconds=WAIT_SECONDS)]))


def test_each_is_told_why_it_waits_also_by_a_new_leader() -> None:
    async def scenario(world: World) -> None:
        fill(world, 4)
        await world.begin()
        for number in range(3):
            world.pod(f"m{number}", whole(1), group_minimum=1, **GROUP)
        for _ in range(2):
            await world.pass_time(10)
            assert world.process is not None
            refusals = [world.process.preemption.planner.refusal(f"uid-m{n}") for n in range(3)]
            assert [refusal and refusal.reason for refusal in refusals] == [Reason.NO_LOWER_RANK] * 3
            await world.begin()

    play(scenario)
