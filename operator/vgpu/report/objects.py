"""GpuPreemptions and GpuQueues, as the API server lists them, as tables; with what the operator says is owed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vgpu.api.preemption import ENDED, PARTIAL, GpuPreemption
from vgpu.api.queue import Amounts, GpuQueue, QueueStatus
from vgpu.core.preempt.facts import PlanPhase
from vgpu.core.preempt.plan_step import OVER
from vgpu.report.sections import Section

NAMED = 2
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Owed:
    """What only the operator knows of plans (NS/NAME). Still owed: pods by plan and uid of the workload; None =
    nobody knows. `note`: what is to be known of that. `waits`: what each plan waits for now, `asked`: how many
    pods were asked to go for it; of one that is not in them only what its object said once is known."""

    pods: Mapping[tuple[str, str], int] | None = None
    note: str = ""
    waits: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, int] = field(default_factory=dict)

    def waits_for(self, plan: GpuPreemption) -> str:
        """What this plan waits for; "" for one that is over."""
        status = plan.status
        if status is not None and status.phase in OVER:
            return ""
        return self.waits.get(_name(plan), status.waits_for if status is not None else "")

    def asked_to_go(self, plan: GpuPreemption) -> int:
        """How many of this plan's victims were asked to go."""
        said = len(plan.status.evictions_sent) if plan.status is not None else 0
        return max(said, self.asked.get(_name(plan), 0))

    def words(self, plan: str, uid: str) -> str:
        """How many pods this plan owes to this workload."""
        return UNKNOWN if self.pods is None else str(self.pods.get((plan, uid), 0))


def plan_sections(plans: Iterable[GpuPreemption], owed: Owed) -> list[Section]:
    """One table of plans, those that wait first, and one of what must come back."""
    ordered = sorted(plans, key=lambda plan: (plan.status is not None and bool(plan.status.debts), _name(plan)))
    rows = tuple(_plan_row(plan, owed) for plan in ordered)
    head = ("PLAN", "PHASE", "FOR", "NODES", "EVICTS", "ASKED TO GO", "WAITS FOR", "RULE", "LEAST")
    lines = () if rows else ("No plan exists: nobody waits for an eviction, and nothing has to come back.",)
    if owed.pods is None and any(owed.waits_for(plan) for plan in ordered):
        lines = ("WAITS FOR is what plans said last: what they wait for now only the operator can tell.",)
    return [Section("Plans", lines, head, rows), _debts(ordered, owed)]


def plan_values(plans: Iterable[GpuPreemption], owed: Owed) -> list[dict[str, Any]]:
    """The plans as JSON values; each debt with the pods that are still owed (`stillOwed`), where that is known."""
    values = [plan.model_dump(mode="json", by_alias=True, exclude_none=True) for plan in plans]
    if owed.pods is None:
        return values
    for plan in values:
        name = f"{plan['metadata']['namespace']}/{plan['metadata']['name']}"
        if name in owed.waits:
            plan.setdefault("status", {})["waitsForNow"] = owed.waits[name]
        if name in owed.asked:
            plan.setdefault("status", {})["askedNow"] = owed.asked[name]
        for debt in plan.get("status", {}).get("debts", ()):
            debt["stillOwed"] = owed.pods.get((name, debt["uid"]), 0)
    return values


def queue_sections(queues: Iterable[GpuQueue]) -> list[Section]:
    """One table: what each queue may use, uses and waits for, in cards."""
    rows = tuple(_queue_row(queue) for queue in sorted(queues, key=lambda queue: queue.metadata.name))
    head = (
        "QUEUE", "PRIORITY", "GUARANTEE", "DESERVED", "CAPABILITY",
        "USED", "ENTITLED", "BORROWED", "PENDING", "PODS WAITING", "STOP",
    )  # fmt: skip
    lines = () if rows else ("There is no GpuQueue; manifests/ holds one named default.",)
    return [Section("Queues, in cards", lines, head, rows)]


def _name(plan: GpuPreemption) -> str:
    return f"{plan.metadata.namespace}/{plan.metadata.name}"


def _plan_row(plan: GpuPreemption, owed: Owed) -> tuple[str, ...]:
    spec, sent = plan.spec, owed.asked_to_go(plan)
    nodes = sorted({one.node for one in spec.reservations})
    return (
        _name(plan),
        _phase(plan, sent),
        f"{spec.owner.kind.value} {spec.owner.name}",
        _some(nodes),
        spec.victim_names or "-",
        f"{sent} of {len(spec.victims)}",
        owed.waits_for(plan) or "-",
        spec.rule,
        "proven" if spec.exact else "not proven",
    )


def _phase(plan: GpuPreemption, sent: int) -> str:
    """With the reason, where it has ended otherwise than it should, or its gang is bound in part. The first phase
    that an object says is Draining."""
    status = plan.status
    if status is None:
        return (PlanPhase.EVICTING if sent else PlanPhase.PLANNED).value
    telling = ENDED if status.phase is PlanPhase.ABORTED else PARTIAL
    why = [one.reason for one in status.conditions if one.type == telling]
    return f"{status.phase.value}: {why[0]}" if why else status.phase.value


def _debts(plans: Iterable[GpuPreemption], owed: Owed) -> Section:
    rows = tuple(
        (
            f"{debt.namespace}/{debt.name}",
            debt.kind,
            debt.queue or "-",
            str(debt.pods),
            owed.words(_name(plan), debt.uid),
            debt.rank or "-",
            _name(plan),
        )
        for plan in plans
        if plan.status is not None
        for debt in plan.status.debts
    )
    head = ("WORKLOAD", "KIND", "QUEUE", "PODS LOST", "STILL OWED", "RANK", "LOST THEM TO PLAN")
    lines = (owed.note,) if rows and owed.note else ()
    return Section("What must come back", lines, head, rows)


def _queue_row(queue: GpuQueue) -> tuple[str, ...]:
    spec, status = queue.spec, queue.status or QueueStatus()
    return (
        queue.metadata.name,
        str(spec.priority),
        _cards(spec.guarantee),
        _cards(spec.deserved),
        _cards(spec.capability),
        _cards(status.used),
        _cards(status.entitled),
        _cards(status.borrowed),
        _cards(status.pending),
        str(status.pending_pods),
        "-" if spec.stop_policy.value == "None" else spec.stop_policy.value,
    )


def _cards(amounts: Amounts) -> str:
    return "-" if amounts.cards is None else amounts.cards


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
