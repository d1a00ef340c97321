"""Whose turn it is in the planner: many plans that go on keep nobody waiting for a plan of his own."""

from tests.controller.preempt.planner_world import Api, Process, World, note_steps
from tests.controller.virtual_time import run_virtually
from vgpu.core.preempt.plan import key_of

PLANS, CARDS = 10, 20
DECIDED = "decided"


async def many_plans(world: World) -> tuple[Process, list[str]]:
    """So many plans whose victims do not end; and a list that takes down each step of a plan and each decision."""
    for number in range(CARDS):
        world.low(f"l{number}")
    world.victims_end = world.schedules = False
    process = await world.begin()
    for number in range(PLANS):
        world.high(f"h{number}")
    await world.until(lambda: len(world.api.evictions) == PLANS, "all victims to be asked")
    await world.pass_time(5)
    turns: list[str] = []
    note_steps(process, turns)
    process.meanwhile = lambda _: turns.append(DECIDED)
    return process, turns


def test_who_comes_waits_for_one_step_and_not_for_every_plan() -> None:
    async def scenario() -> None:
        world = World(Api(nodes={"n1": CARDS}))
        _, turns = await many_plans(world)
        del world.api.pods[world.api.evictions[0]]
        for number in range(3):
            world.high(f"late{number}")
        await world.until(lambda: turns.count(DECIDED) >= 3, "the late ones to be decided on")
        decided = [position for position, turn in enumerate(turns) if turn == DECIDED]
        assert len(turns[: decided[2]]) < PLANS, turns
        await world.until(lambda: len({turn for turn in turns if turn != DECIDED}) >= PLANS, "all to go on")
        await world.close()

    run_virtually(scenario())


def test_a_plan_that_was_just_created_asks_its_victims_before_others_go_on() -> None:
    async def scenario() -> None:
        world = World(Api(nodes={"n1": CARDS}))
        process, turns = await many_plans(world)
        planner, (*others, created) = process.preemption.planner, process.preemption.book.all_living()
        for plan in others:
            planner.wake(key_of(plan), 0)
        planner.created(created)
        await world.pass_time(1)
        assert turns[0] == key_of(created)
        assert set(turns) >= {key_of(plan) for plan in others}
        await world.close()

    run_virtually(scenario())
