"""Metrics of preemption: what was decided, who went by which right, what it cost, how plans ended.

Enters: counts, raised where things happen, and a PreemptionState taken at the scrape. Leaves: Prometheus families.
Labels are stable words of the core (reasons, rights, phases), never names of pods. May not live here: decisions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.facts import PlanPhase, Workload
from vgpu.core.preempt.plan import PlanEnd
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.victims import lost_work

DECISION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class EvictionOutcome(StrEnum):
    """What the API server said to an eviction."""

    ACCEPTED = "accepted"
    BUDGET = "budget"
    """429: a disruption budget is against it now."""
    GONE = "gone"
    """404, or 409 for another uid: the pod that was meant is not there any more."""
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    """5xx, no connection, or no answer: the same victim is asked again."""


@dataclass(frozen=True, slots=True)
class PreemptionState:
    """How preemption stands at one moment. `plans` by phase; `waiting`: pods for which nobody may be evicted now,
    by the planner's reason; `debts`: workloads, and pods of them, that must come back."""

    plans: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    debts: int = 0
    debt_pods: int = 0


IDLE = PreemptionState()


class PreemptionMetrics:
    """Counters in the operator's own registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Histogram(
            "vgpu_preemption_decision_seconds",
            "Time to decide whom to evict for one owner",
            ["answer"],
            buckets=DECISION_BUCKETS,
            registry=registry,
        )
        self._inexact = Counter(
            "vgpu_preemption_inexact_searches",
            "Plans whose search was cut short: irredundant, not proven least",
            registry=registry,
        )
        self._ended = Counter("vgpu_preemption_plans_ended", "Plans that ended", ["reason"], registry=registry)
        self._victims = Counter("vgpu_preemption_victims", "Pods evicted for others", ["rule"], registry=registry)
        self._lost = Counter(
            "vgpu_preemption_lost_gpu_seconds",
            "Work of evicted pods since their last checkpoint or start, in seconds of a whole card",
            ["queue"],
            registry=registry,
        )
        self._evictions = Counter(
            "vgpu_preemption_evictions", "Calls of the Eviction API", ["outcome"], registry=registry
        )
        self._frozen = Counter(
            "vgpu_preemption_swap_freezes",
            "Pairs held apart because they evicted each other in turn: a bug or a second scheduler",
            registry=registry,
        )
        for reason in PlanEnd:
            self._ended.labels(reason.value)
        for outcome in EvictionOutcome:
            self._evictions.labels(outcome.value)

    def decided(self, answer: Plan | No, seconds: float) -> None:
        """One decision and how long it took."""
        said = "no" if isinstance(answer, No) else "plan" if answer.victims else "room"
        self._decisions.labels(said).observe(seconds)
        if isinstance(answer, Plan) and not answer.exact:
            self._inexact.inc()

    def evicted(self, victim: Workload, rule: str, now_seconds: int) -> None:
        """An eviction was accepted; `rule` is the right by which it goes."""
        self._victims.labels(rule).inc()
        self._lost.labels(victim.queue).inc(lost_work(victim, now_seconds) / 1000)

    def eviction_answered(self, outcome: EvictionOutcome) -> None:
        """One call of the Eviction API was answered, or was not."""
        self._evictions.labels(outcome.value).inc()

    def plan_ended(self, reason: PlanEnd) -> None:
        """A plan is over."""
        self._ended.labels(reason.value).inc()

    def swap_frozen(self) -> None:
        """Two workloads may not evict each other for a while."""
        self._frozen.inc()


def state_families(state: PreemptionState) -> Iterator[Metric]:
    """What is read at the scrape; every phase is shown, so that a graph has no gaps."""
    plans = GaugeMetricFamily("vgpu_preemption_plans", "Plans that exist, by phase", labels=["phase"])
    for phase in PlanPhase:
        plans.add_metric([phase.value], state.plans.get(phase.value, 0))
    waiting = GaugeMetricFamily(
        "vgpu_preemption_waiting_pods",
        "Pods for which nobody is evicted, by the planner's reason",
        labels=["reason"],
    )
    for reason, count in sorted(state.waiting.items()):
        waiting.add_metric([reason], count)
    yield from (plans, waiting)
    yield GaugeMetricFamily(
        "vgpu_preemption_debts", "Workloads that lost pods and must come back", value=state.debts
    )
    yield GaugeMetricFamily("vgpu_preemption_debt_pods", "Pods that must come back", value=state.debt_pods)
