"""Gangs whose pods name several queues: nobody goes for them, they are told so, and they start in free room."""

from typing import Any

import pytest

from tests.controller.preempt.planner_world import Api, World, whole
from tests.controller.preempt.test_planner import fill, play
from vgpu.core.preempt.facts import BorrowPolicy, Limits, QueueFact
from vgpu.core.terms import GroupName, GroupSource

GROUP: dict[str, Any] = {"owner": "g", "group": GroupName(GroupSource.LABEL, "team", "g"), "group_minimum": 2}
BORROWS: dict[str, Any] = {"borrow_across_queues": BorrowPolicy.LOWER_PRIORITY}


@pytest.mark.parametrize("b_runs", [0, 2])
def test_nobody_goes_in_vain_for_a_gang_in_two_queues(b_runs: int) -> None:
    """Whether or not the queue of the second one is full."""
    b = QueueFact("b", deserved=Limits(2000), capability=Limits(2000), **BORROWS)

    async def scenario(world: World) -> None:
        if b_runs:
            world.low("x", whole(b_runs), queue="b", priority=100)
        fill(world, 4 - b_runs)
        await world.begin()
        for name, queue in (("m0", ""), ("m1", "b")):
            world.high(name, whole(1), queue=queue, **GROUP)
        await world.pass_time(60)
        assert (world.api.evictions, world.api.made) == ([], 0)
        told = {event.object_name: event for event in world.api.events}
        assert {name: event.reason for name, event in told.items()} == {"m0": "QueuePolicy", "m1": "QueuePolicy"}
        assert "(team/m0 in default, team/m1 in b)" in told["m1"].message

    play(scenario, Api(queues=[QueueFact("default"), b]))


def test_once_all_its_pods_name_one_queue_it_gets_its_room() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("m0", whole(1), queue="a", **GROUP)
        world.high("m1", whole(1), queue="b", **GROUP)
        await world.pass_time(20)
        assert not world.api.evictions
        world.high("m1", whole(1), queue="a", **GROUP)
        await world.until(lambda: world.bound("uid-m0") and world.bound("uid-m1"), "both to be bound")
        assert len(world.api.evictions) == 2

    play(scenario, Api(queues=[QueueFact("default"), QueueFact("a", **BORROWS), QueueFact("b", **BORROWS)]))
