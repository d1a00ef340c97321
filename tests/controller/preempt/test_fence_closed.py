"""A fence that is closed for a moment costs no write; one that stays closed leaves them to whoever leads next."""

from collections.abc import Awaitable, Callable

import pytest

from tests.controller.preempt.planner_world import Api, World
from tests.controller.virtual_time import run_virtually
from vgpu.controller.fence import Fence
from vgpu.core.preempt.facts import PlanPhase

CLOSED = 7.0
"""The fence's clock within the margin: the Lease is held, and no write may start."""
LOST = 11.0


class OnceClosed(Fence):
    """Closed for the first write of a kind that it is asked about, and open from the next on."""

    def __init__(self, kind: str) -> None:
        self.at = 0.0
        super().__init__(10, 4, lambda: self.at)
        self.renewed(0.0)
        self._kind = kind
        self.refused = 0

    def admit(self, write: str) -> None:
        self.at = CLOSED if write == self._kind and not self.refused else 0.0
        self.refused += self.at == CLOSED
        super().admit(write)


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    """Run it on a virtual clock."""

    async def story() -> None:
        world = World(Api(nodes={"n1": 1}))
        try:
            await scenario(world)
        finally:
            await world.close()

    run_virtually(story())


@pytest.mark.parametrize("kind", ["create", "evict", "status", "nominate", "delete", "event"])
def test_each_write_is_made_when_the_fence_opens_again(kind: str) -> None:
    async def scenario(world: World) -> None:
        process = await world.begin()
        process.writer.fence = fence = OnceClosed(kind)
        world.low("low")
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "the pod runs")
        await world.until(lambda: not world.api.plans, "the plan's object is gone")
        assert fence.refused == 1
        assert world.api.evictions == ["uid-low"]
        assert world.api.writes["create"] == 1
        assert {event.reason for event in world.api.events} >= {"Preempted", "Preempting"}

    play(scenario)


def test_words_of_a_plan_are_not_lost() -> None:
    async def scenario(world: World) -> None:
        process = await world.begin()
        process.writer.fence = OnceClosed("status")
        world.victims_end = False
        world.low("low")
        world.high("h")
        await world.until(
            lambda: [plan.phase for plan in world.api.facts()] == [PlanPhase.DRAINING], "its phase is told"
        )

    play(scenario)


def test_nothing_is_repeated_once_another_may_lead() -> None:
    async def scenario(world: World) -> None:
        process = await world.begin()
        world.low("low")
        process.writer.fence_clock = LOST
        world.high("h")
        await world.pass_time(30)
        assert not world.api.writes

    play(scenario)
