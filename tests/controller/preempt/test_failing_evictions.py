"""Calls that keep failing: others go, it is told what fails, and only what would be asked anew is repeated."""

from collections import Counter
from typing import Any

import pytest

from tests.controller.preempt.planner_world import Api, World, now, percent, whole
from tests.controller.preempt.test_planner import fill, play
from vgpu.core.preempt.facts import QueueFact, StopPolicy, WithinQueue
from vgpu.core.preempt.plan import Progress
from vgpu.core.preempt.plan_waits import waits_for
from vgpu.core.preempt.situation import situation_of
from vgpu.errors import ApiRefused, ApiUnavailable, OutcomeUnknown
from vgpu.kube.objects import Key

WEBHOOK = "failed calling webhook pods.example"
FAILURES = [
    OutcomeUnknown(WEBHOOK),
    ApiUnavailable(500, "InternalError", WEBHOOK),
    ApiUnavailable(503, "ServiceUnavailable", WEBHOOK),
    ApiUnavailable(429, "TooManyRequests", WEBHOOK),
]
KINDS = ["no answer", "500", "503", "429"]


def fail_for(world: World, error: Exception, uids: set[str] | None = None) -> set[str]:
    """Evictions of these pods fail, or of the first one that is asked for."""
    assert world.process is not None
    writer: Any = world.process.writer
    real, failing = writer._evict, uids if uids is not None else set()

    def evict(pod: Key) -> None:
        if not failing and uids is None:
            failing.add(pod.uid)
        if pod.uid in failing:
            raise error
        real(pod)

    writer._evict = evict
    return failing


def waits_of(world: World) -> list[str]:
    """What living plans say they wait for."""
    assert world.process is not None
    preemption = world.process.preemption
    plans = preemption.book.all_living()
    return [
        waits_for(situation_of(plan, preemption.worlds.of(plan), Progress(), now()), str, str) for plan in plans
    ]


def told(world: World, name: str) -> str:
    return " | ".join(event.message for event in world.api.events if event.object_name == name)


@pytest.mark.parametrize("error", FAILURES, ids=KINDS)
def test_somebody_else_goes_for_one_whose_eviction_fails_for_ever(error: Exception) -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        failing = fail_for(world, error)
        world.high("h")
        await world.pass_time(55)
        assert set(world.api.asked) == failing, "stuckTimeout is not over"
        assert WEBHOOK in " ".join(waits_of(world))
        await world.until(lambda: world.bound("uid-h"), "h to be bound", 20)
        assert len(world.api.evictions) == 1
        assert len(failing) == 1
        assert world.api.evictions[0] not in failing
        assert Counter(world.api.asked)[next(iter(failing))] < 40, "calls back off"
        assert WEBHOOK in told(world, "h")

    play(scenario)


def test_one_that_is_refused_is_told_with_what_the_api_says() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        failing = fail_for(world, ApiRefused(403, "Forbidden", "admission denied it"))
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound", 20)
        assert world.api.evictions[0] not in failing
        assert "admission denied it" in told(world, "h")
        assert "EvictionRefused" in told(world, "h")

    play(scenario)


def test_changed_rules_bring_back_one_that_was_refused() -> None:
    async def scenario(world: World) -> None:
        fill(world, 1)
        process = await world.begin()
        world.api.raises["evict"] = [ApiRefused(403, "Forbidden", "admission denied it")]
        world.high("h")
        await world.until(lambda: "admission denied it" in told(world, "h"), "h to be told")
        await world.pass_time(20)
        assert len(world.api.asked) == 1
        process.preemption.rules_changed()
        await world.until(lambda: world.bound("uid-h"), "h to be bound", 20)

    play(scenario, Api(nodes={"n1": 1}))


def test_changed_rules_do_not_bring_back_one_whose_eviction_fails() -> None:
    async def scenario(world: World) -> None:
        world.low("a")
        world.low("b", percent(60))
        process = await world.begin()
        failing = fail_for(world, FAILURES[1], {"uid-a", "uid-b"})
        world.high("h")
        for _ in range(7):
            await world.pass_time(10)
            process.preemption.rules_changed()
        await world.pass_time(65)
        process.preemption.rules_changed()
        before = len(world.api.asked)
        assert set(world.api.asked) == failing
        for _ in range(15):
            await world.pass_time(10)
            process.preemption.rules_changed()
        assert len(world.api.asked) == before, "both are left alone for a while"
        failing.clear()
        failing.add("nobody")
        await world.until(lambda: world.bound("uid-h"), "h to be bound", 600)
        assert len(world.api.evictions) == 1

    play(scenario, Api(nodes={"n1": 2}))


@pytest.mark.parametrize("error", FAILURES, ids=KINDS)
def test_a_call_is_repeated_only_if_it_would_be_made_anew(error: Exception) -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()

        def never() -> None:
            process.change_queue(QueueFact("default", within_queue=WithinQueue.NEVER))

        world.api.raises["evict"] = [error for _ in range(10)]
        world.api.on_write = lambda kind: never() if kind == "evict" else None
        world.high("h")
        await world.until(lambda: bool(world.api.asked), "a call")
        await world.pass_time(60)
        assert len(world.api.asked) == 1
        assert world.api.evictions == []

    play(scenario)


def test_a_call_that_may_have_been_carried_out_takes_one_place_of_max_in_flight() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.victims_end = False
        world.api.raises["evict"] = [OutcomeUnknown("no answer") for _ in range(3)]
        world.high("h", whole(2))
        await world.pass_time(20)
        assert len(world.api.asked) == 4
        assert len(set(world.api.asked)) == len(world.api.evictions) == 1
        world.end_leaving()
        world.victims_end = True
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(world.api.evictions) == 2

    play(scenario, Api(queues=[QueueFact("default", max_in_flight=1)]))


def test_a_queue_is_emptied_beside_one_whose_eviction_fails() -> None:
    async def scenario(world: World) -> None:
        fill(world, 3)
        await world.begin()
        failing = fail_for(world, FAILURES[1])
        await world.pass_time(55)
        assert set(world.api.asked) == failing
        await world.pass_time(20)
        assert len(world.api.evictions) == 2
        assert not failing & set(world.api.evictions)

    draining = QueueFact("default", stop_policy=StopPolicy.HOLD_AND_DRAIN, max_in_flight=1)
    play(scenario, Api(queues=[draining]))


def test_one_that_left_after_a_call_without_an_answer_is_owed() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2)
        process = await world.begin()
        world.api.raises["evict"] = [OutcomeUnknown("no answer") for _ in range(100)]
        world.high("h", whole(2))
        await world.until(lambda: len(world.api.asked) >= 4, "calls")
        for uid in set(world.api.asked):
            del world.api.pods[uid]
        process.hear()
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        [plan] = process.preemption.book.all()
        assert sorted(debt.uid for debt in process.preemption.recovery.debts(plan)) == ["job-l0", "job-l1"]

    play(scenario, Api(nodes={"n1": 2}))
