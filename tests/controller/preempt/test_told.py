"""Each reason code is told to a pod by one reporter, and once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.controller.preempt.planner_world import Api, Process, World
from tests.controller.virtual_time import run_virtually
from vgpu import names
from vgpu.controller.answers import Answers
from vgpu.controller.events import EventReporter, pod_event
from vgpu.controller.preempt.told import Told, event_about
from vgpu.controller.writes import EventWrite
from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.placement import Policies
from vgpu.core.preempt.facts import Limits, QueueFact
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.terms import GroupName, GroupSource
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

SETTINGS = OperatorSettings(events_per_second=1000, event_settle_seconds=0.2)
CAPABILITY = Reason.QUEUE_CAPABILITY
GANG = GroupName(GroupSource.LABEL, "team", "g")
POD = Key("team", "p", "uid-p")
NO = Refusal(CAPABILITY, "too many")


def capped(cards: int) -> Api:
    """One node of so many cards, and a queue that may use no more."""
    return Api(nodes={"n1": cards}, queues=[QueueFact("default", capability=Limits(cards * 1000))])


@asynccontextmanager
async def both_reporters(process: Process) -> AsyncIterator[None]:
    """Beside preemption runs who tells why pods wait, as in the operator."""
    answers = Answers(
        process.ledger,
        FitIndex(process.ledger, Policies()),
        names.SCHEDULER_NAME,
        lambda pod: QueueGate(process.roster).refusal(pod) or process.preemption.gangs.desk.refusal(pod),
    )
    reporter = EventReporter(process.ledger, answers, process.writer, process.writer.fence, SETTINGS)
    reporter.codes = process.preemption.told.codes
    process.consumer.add(reporter)
    reporter.changed()
    tasks = [asyncio.ensure_future(work()) for work in (reporter.watch, reporter.tell)]
    try:
        yield
    finally:
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def play(scenario: Callable[[World], Awaitable[None]], api: Api) -> None:
    """Run a scenario on a virtual clock."""

    async def run() -> None:
        world = World(api)
        await scenario(world)
        await world.close()

    run_virtually(run())


def told(world: World, pod: str, reason: Reason = CAPABILITY) -> list[str]:
    return [one.message for one in world.api.events if one.object_name == pod and one.reason == reason.value]


def test_what_its_queue_has_against_a_pod_is_told_by_who_tells_why_it_waits() -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            world.low(f"l{number}")
        async with both_reporters(await world.begin()):
            world.pod("h")
            await world.pass_time(10)
            refusal = world.process.preemption.told.refusal("uid-h") if world.process else None
            assert refusal is not None
            assert refusal.reason is CAPABILITY, "the planner has found out the same"
            [message] = told(world, "h")
            assert message.startswith("wants 1 whole card")
            assert "queue default would use 5 cards of 4" in message

    play(scenario, capped(4))


def test_members_that_only_together_are_too_many_are_told_so_once_whatever_they_are_alone_later() -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            world.low(f"l{number}")
        async with both_reporters(await world.begin()):
            for name in ("g0", "g1"):
                world.pod(name, group=GANG, group_minimum=2)
            await world.pass_time(10)
            assert [len(told(world, name)) for name in ("g0", "g1")] == [1, 1]
            world.low("l4")
            await world.pass_time(60)
            assert [len(told(world, name)) for name in ("g0", "g1")] == [1, 1]
            await world.pass_time(SETTINGS.event_repeat_seconds)
            assert [len(told(world, name)) for name in ("g0", "g1")] == [2, 2]
            assert len({one.name for one in world.api.events if one.reason == CAPABILITY.value}) == 2

    play(scenario, capped(5))


def test_a_code_that_somebody_else_has_told_is_not_told_again() -> None:
    async def run() -> None:
        written: list[EventWrite] = []

        class Sink:
            async def write_event(self, event: EventWrite) -> None:
                written.append(event)

        made = Told(Sink(), SETTINGS, lambda _: None)
        tasks = [asyncio.ensure_future(work()) for work in (made.write_events, made.write_refusals)]
        made.refused(POD, NO)
        made.refused(Key("team", "q", "uid-q"), NO)
        made.codes.tell("uid-p", CAPABILITY.value, asyncio.get_running_loop().time())
        await asyncio.sleep(10)
        assert [(one.object_name, one.reason) for one in written] == [("q", "QueueCapability")]
        for task in tasks:
            task.cancel()

    run_virtually(run())


def test_an_event_without_a_plan_is_the_same_whoever_tells_it() -> None:
    plain = event_about(POD, "QueueCapability", "one text")
    waits = PodFact(uid="uid-p", namespace="team", name="p")
    assert plain.name == pod_event(waits, CAPABILITY, "another text").name
    assert plain.name != event_about(POD, "QueueCapability", "one text", about="team/plan-1").name
