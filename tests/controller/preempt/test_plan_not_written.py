"""A plan whose object the API server does not take: whoever waits is told why, and it is asked less and less."""

import pytest

from tests.controller.preempt.planner_world import World
from tests.controller.preempt.test_planner import fill, play
from vgpu.core.reasons import Reason
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject, OutcomeUnknown

QUOTA = "exceeded quota: few, requested: count/gpupreemptions.vgpu.dev=1"


def told(world: World) -> list[str]:
    return [event.message for event in world.api.events if event.object_name == "h" and QUOTA in event.message]


@pytest.mark.parametrize(
    "error",
    [
        ApiRefused(403, "Forbidden", QUOTA),
        ApiUnavailable(500, "InternalError", QUOTA),
        OutcomeUnknown(QUOTA),
        MalformedObject(QUOTA),
    ],
    ids=["refused", "failing", "no answer", "more than an object takes"],
)
def test_the_pod_is_told_what_the_api_says(error: Exception) -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        world.api.raises["create"] = [error for _ in range(5000)]
        world.high("h")
        await world.until(lambda: bool(told(world)), "h to be told", 15)
        await world.pass_time(600)
        refusal = process.preemption.planner.refusal("uid-h")
        assert refusal is not None
        assert refusal.reason is Reason.PLAN_NOT_WRITTEN
        assert QUOTA in refusal.message
        assert world.api.evictions == []
        assert len(told(world)) <= 3, "once, and again only after event_repeat_seconds"
        del world.api.raises["create"]
        await world.until(lambda: world.bound("uid-h"), "h to be bound", 600)
        assert process.preemption.planner.refusal("uid-h") is None

    play(scenario)


def test_a_refused_plan_is_tried_again_less_and_less_often() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.api.raises["create"] = [ApiRefused(403, "Forbidden", QUOTA) for _ in range(1000)]
        world.high("h")
        await world.pass_time(1800)
        assert world.api.writes["create"] < 15

    play(scenario)


def test_a_moment_without_an_answer_is_no_news() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.api.raises["create"] = [OutcomeUnknown(QUOTA)]
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        await world.pass_time(5)
        assert told(world) == []

    play(scenario)
