"""Which plans go on when something is freed: those that gain by it, and no others."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.controller.preempt.planner_world import Api, Process, World, note_steps, whole
from tests.controller.virtual_time import run_virtually
from vgpu.core.preempt.facts import QueueFact
from vgpu.core.preempt.plan import key_of

NODES, CARDS = 6, 2


def play(scenario: Callable[[World], Awaitable[None]], *queues: QueueFact) -> None:
    """On a cluster full of low pods whose victims do not end by themselves."""

    async def run() -> None:
        world = World(Api(nodes={f"n{number}": CARDS for number in range(NODES)}))
        world.api.queues = list(queues) or world.api.queues
        for node in range(NODES):
            for card in range(CARDS):
                world.low(f"l{node}-{card}", node_name=f"n{node}")
        world.victims_end = world.schedules = False
        await scenario(world)
        await world.close()

    run_virtually(run())


async def plan_on_each_node(world: World) -> tuple[Process, list[str]]:
    """A plan for two cards on each node, every victim asked; and a list that takes down each step of a plan."""
    process = await world.begin()
    for number in range(NODES):
        world.high(f"h{number}", whole(CARDS))
    await world.until(lambda: len(world.api.evictions) == NODES * CARDS, "all victims to be asked")
    await world.pass_time(5)
    steps: list[str] = []
    note_steps(process, steps)
    return process, steps


def test_a_victim_that_ends_is_the_business_of_its_own_plan_alone() -> None:
    async def scenario(world: World) -> None:
        process, steps = await plan_on_each_node(world)
        plan = process.preemption.book.all_living()[2]
        del world.api.pods[plan.victims[0].uid]
        await world.pass_time(1)
        assert set(steps) == {key_of(plan)}

    play(scenario)


def test_room_that_comes_elsewhere_while_victims_leave_is_taken() -> None:
    async def scenario(world: World) -> None:
        stay = [f"uid-l0-{card}" for card in range(CARDS)]
        for uid in stay:
            world.api.pods[uid] = replace(world.api.pods[uid], priority=1000)
        await world.begin()
        world.high("h", whole(CARDS))
        await world.until(lambda: len(world.api.evictions) == CARDS, "the victims to be asked")
        await world.pass_time(1)
        for uid in stay:
            del world.api.pods[uid]
        world.schedules = True
        await world.until(lambda: world.bound("uid-h"), "h to be bound", 20)
        assert world.api.pods["uid-h"].node == "n0"

    play(scenario)


def test_plans_of_a_queue_that_evicts_one_at_a_time_take_turns_across_nodes() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        for number in range(3):
            world.high(f"h{number}", whole(CARDS))
        await world.pass_time(5)
        assert len(world.api.evictions) == 1
        world.victims_end = world.schedules = True
        await world.until(lambda: all(world.bound(f"uid-h{number}") for number in range(3)), "all to be bound", 20)
        assert len(set(world.api.evictions)) == 3 * CARDS

    play(scenario, QueueFact("default", max_in_flight=1))
