"""Nobody goes in vain: not for a plan that is over, not again where the preemptor does not come."""

from typing import Any

import pytest

from tests.controller.preempt.planner_world import Api, World, whole
from tests.controller.preempt.test_planner import BUDGET, fill, play
from vgpu.controller.preempt.bodies import preemption_body
from vgpu.controller.preempt.plan_objects import write_of
from vgpu.core.preempt.budget_book import BudgetFact, LabelRule
from vgpu.core.preempt.facts import DisruptionBudget, PlanPhase, QueueFact, StopPolicy
from vgpu.core.preempt.plan_step import OVER
from vgpu.errors import ApiRefused, ApiUnavailable, OutcomeUnknown


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("no answer"), ApiUnavailable(503, "", "busy")], ids=["no answer", "busy"]
)
def test_an_eviction_without_an_answer_is_not_repeated_for_an_owner_that_is_gone(error: Exception) -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("h")
        world.api.raises["evict"] = [error for _ in range(6)]
        await world.until(lambda: len(world.api.asked) >= 2, "the eviction to be repeated")
        del world.api.pods["uid-h"]
        await world.pass_time(60)
        assert world.api.evictions == []
        assert not world.api.plans

    play(scenario)


def test_who_does_not_come_to_its_free_cards_costs_nobody_there_again_for_a_while() -> None:
    """What keeps it away is known to kube-scheduler alone: a host port, a volume, spreading."""

    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.schedules = False
        world.high("h")
        await world.until(lambda: len(world.api.evictions) == 1, "the eviction")
        await world.until(lambda: not world.api.facts() or ended(world), "the plan to end")
        world.low("again")
        await world.pass_time(150)
        assert len(world.api.evictions) == 1
        await world.pass_time(400)
        assert len(world.api.evictions) == 2, "later it is tried once more"

    play(scenario)


def test_equals_of_who_did_not_come_do_not_try_it_either() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.schedules = False
        world.high("h0", owner="h")
        await world.until(lambda: len(world.api.evictions) == 1, "the eviction")
        await world.until(lambda: not world.api.facts() or ended(world), "the plan to end")
        world.low("again")
        world.high("h1", owner="h")
        await world.pass_time(150)
        assert len(world.api.evictions) == 1

    play(scenario)


def test_whom_its_queue_stops_keeps_its_free_cards_until_it_may_start() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        world.victims_end = False
        world.high("h")
        await world.until(lambda: len(world.api.evictions) == 1, "the eviction")
        process.change_queue(QueueFact("default", stop_policy=StopPolicy.HOLD))
        world.victims_end = True
        await world.pass_time(60)
        assert world.api.writes["nominate"] == 0
        assert [plan.phase for plan in world.api.facts()] == [PlanPhase.DRAINING]
        process.change_queue(QueueFact("default"))
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(world.api.evictions) == 1

    play(scenario)


def test_a_plan_that_another_replica_made_while_it_is_decided_on_is_the_only_one() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()

        def made(answer: Any) -> None:
            write = write_of([process.roster.workloads["uid-h"]], answer, lambda *_: 7)
            body = preemption_body(write)
            body["metadata"] |= {"uid": "theirs", "creationTimestamp": "2026-01-01T00:00:00Z"}
            world.api.plans.setdefault((write.namespace, write.name), body)
            process.hear()

        process.meanwhile = made
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert world.api.made == 0
        assert len(world.api.evictions) == 1

    play(scenario)


def ended(world: World) -> bool:
    """Every plan is over."""
    return all(plan.phase in OVER for plan in world.api.facts())


@pytest.mark.parametrize("seen", ["gone", "404"])
def test_who_left_after_a_call_without_an_answer_is_owed_like_who_was_evicted(seen: str) -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("h")
        unknown, absent = OutcomeUnknown("no answer"), ApiRefused(404, "NotFound", "not found")
        world.api.raises["evict"] = [unknown, absent] if seen == "404" else [unknown] * 20
        await world.until(lambda: bool(world.api.asked), "the eviction to be asked for")
        if seen == "gone":
            del world.api.pods[world.api.asked[0]]
        await world.until(lambda: any(plan.debts for plan in world.api.facts()), "the debt to be written")

    play(scenario)


def test_whom_a_budget_may_keep_is_asked_first_so_that_nobody_else_goes_in_vain() -> None:
    async def scenario(world: World) -> None:
        covered = frozenset({("app", "db")})
        world.low("free")
        world.low("kept", labels=covered)
        await world.begin()
        world.high("h", whole(2))
        await world.pass_time(60)
        assert world.api.asked == ["uid-kept"] * 3
        assert world.api.evictions == []

    rule = LabelRule("app", "In", frozenset({"db"}))
    queue = QueueFact("default", disruption_budget=DisruptionBudget.BEST_EFFORT)
    refusals: list[Exception] = [ApiUnavailable(429, "TooManyRequests", BUDGET) for _ in range(3)]
    budget = BudgetFact("team", "b", 0, (rule,))
    play(scenario, Api(nodes={"n1": 2}, queues=[queue], budgets=[budget], raises={"evict": refusals}))
