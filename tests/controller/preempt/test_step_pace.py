"""A plan whose look takes long is looked at less often, however much happens; one whose look is short, at once."""

import pytest

from tests.controller.preempt.planner_world import World
from tests.controller.preempt.test_gang_plan import both_run, scene
from tests.controller.preempt.test_planner import play
from vgpu.controller.preempt import planner
from vgpu.controller.preempt.keeper import PlanKeeper
from vgpu.controller.preempt.step_pace import StepPace


def test_a_plan_rests_by_the_length_of_a_look_and_for_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepPace, "now", lambda _: 100.0)
    pace = StepPace()
    found = []
    for took in (0.001, 0.1, 30.0, 0.001):
        pace.note("team/plan", took)
        found.append(pace.until("team/plan"))
    assert found == [0.0, 100.4, 101.0, 0.0]


@pytest.mark.parametrize(("look_seconds", "most"), [(0.0, 1000), (0.2, 8)], ids=["short", "long"])
def test_what_happens_while_a_plan_rests_calls_for_one_look(
    monkeypatch: pytest.MonkeyPatch, look_seconds: float, most: int
) -> None:
    looks, real, note = [0], PlanKeeper.step, StepPace.note

    def step(keeper: PlanKeeper, name: str) -> None:
        looks[0] += 1
        real(keeper, name)

    monkeypatch.setattr(PlanKeeper, "step", step)
    monkeypatch.setattr(planner, "concerns", lambda *_: True)
    monkeypatch.setattr(StepPace, "note", lambda pace, plan, _: note(pace, plan, look_seconds))

    async def story(world: World) -> None:
        world.victims_end = False
        scene(world)
        await world.begin()
        await world.until(lambda: len(world.api.evictions) == 4, "evictions")
        await world.pass_time(3)
        looks[0] = 0
        for number in range(40):
            world.pod(f"new{number}")
            await world.pass_time(0.05)
        assert 1 <= looks[0] <= most
        assert look_seconds or looks[0] > 20
        world.end_leaving()
        await both_run(world, "m0", "m1")

    play(story)
