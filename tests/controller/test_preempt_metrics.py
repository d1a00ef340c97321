"""Metrics of preemption: each thing that happens raises its own counter; the state is read at the scrape."""

from prometheus_client.parser import text_string_to_metric_families

from vgpu.controller.metrics import Metrics, Snapshot
from vgpu.controller.preempt_metrics import IDLE, EvictionOutcome, PreemptionState
from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.facts import Amounts, Victim, Workload
from vgpu.core.preempt.plan import PlanEnd
from vgpu.core.preempt.protection import no
from vgpu.core.reasons import Reason

VICTIM = Workload(
    "u", "team", "v", "low", 0, Amounts(250), Amounts(250), created_seconds=0, running=True, started_seconds=100
)


def plan(*, exact: bool = True) -> Plan:
    return Plan((), (Victim("u", "team", "v", "n1"),), "WithinQueue", exact, Cost(), {})


def samples(metrics: Metrics, state: PreemptionState = IDLE) -> dict[tuple[str, str], float]:
    """Value by name and first label."""
    snapshot = Snapshot((), {}, {}, {}, 0, 0, leading=True, serving=True, preemption=state)
    families = text_string_to_metric_families(metrics.render(snapshot).decode())
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("vgpu_preemption_")
    }


def test_decisions_are_timed_by_their_answer_and_inexact_ones_counted() -> None:
    metrics = Metrics()
    metrics.preemption.decided(plan(), 0.01)
    metrics.preemption.decided(plan(exact=False), 0.02)
    metrics.preemption.decided(no(Reason.NO_LOWER_RANK, "nobody"), 0.03)
    found = samples(metrics)
    assert found["vgpu_preemption_decision_seconds_count", "plan"] == 2
    assert found["vgpu_preemption_decision_seconds_count", "no"] == 1
    assert found["vgpu_preemption_inexact_searches_total", ""] == 1


def test_a_victim_counts_by_its_rule_and_its_lost_work_by_its_queue() -> None:
    """S84: a quarter of a card for 100 s is 25 s of a card."""
    metrics = Metrics()
    metrics.preemption.evicted(VICTIM, "WithinQueue", 200)
    found = samples(metrics)
    assert found["vgpu_preemption_victims_total", "WithinQueue"] == 1
    assert found["vgpu_preemption_lost_gpu_seconds_total", "low"] == 25


def test_evictions_endings_and_freezes_are_counted_and_shown_before_they_happen() -> None:
    metrics = Metrics()
    before = samples(metrics)
    assert all(before["vgpu_preemption_plans_ended_total", end.value] == 0 for end in PlanEnd)
    assert all(before["vgpu_preemption_evictions_total", outcome.value] == 0 for outcome in EvictionOutcome)
    metrics.preemption.eviction_answered(EvictionOutcome.BUDGET)
    metrics.preemption.plan_ended(PlanEnd.TAKEN_OVER)
    metrics.preemption.swap_frozen()
    found = samples(metrics)
    assert found["vgpu_preemption_evictions_total", "budget"] == 1
    assert found["vgpu_preemption_plans_ended_total", "TakenOver"] == 1
    assert found["vgpu_preemption_swap_freezes_total", ""] == 1


def test_plans_waiting_pods_and_debts_are_those_of_the_moment() -> None:
    state = PreemptionState({"Draining": 2}, {"NoLowerRank": 3}, debts=1, debt_pods=4)
    found = samples(Metrics(), state)
    assert found["vgpu_preemption_plans", "Draining"] == 2
    assert found["vgpu_preemption_plans", "Planned"] == 0
    assert found["vgpu_preemption_waiting_pods", "NoLowerRank"] == 3
    assert found["vgpu_preemption_debts", ""] == 1
    assert found["vgpu_preemption_debt_pods", ""] == 4
