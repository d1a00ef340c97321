"""Who is never a victim, and until when one that could be is safe (preemption.md 4.1).

Enters: one workload, its queue, the moment. Leaves: a No, or None. What the preemptor may do is not asked here,
nor are disruption budgets.
"""

from dataclasses import dataclass
from enum import StrEnum

from vgpu.core.preempt.facts import QueueFact, Workload
from vgpu.core.reasons import Reason, Refusal

SYSTEM_NAMESPACE = "kube-system"
LOWEST_CRITICAL_PRIORITY = 2_000_000_000
"""Value of the class system-cluster-critical, the lower of the two critical ones; no user class reaches it."""


class Right(StrEnum):
    """By which right one workload may evict another; a plan names it."""

    PREEMPT = "WithinQueue"
    RECLAIM = "ReclaimAcrossQueues"
    BORROW = "BorrowAcrossQueues"


@dataclass(frozen=True, slots=True)
class No:
    """A "no" to an eviction. `until_seconds`: it holds no longer than that, if nothing else changes."""

    refusal: Refusal
    until_seconds: int | None = None

    @property
    def reason(self) -> Reason:
        """Its reason."""
        return self.refusal.reason


def no(reason: Reason, message: str, until_seconds: int | None = None) -> No:
    """A No in one breath."""
    return No(Refusal(reason, message), until_seconds)


def never_victim(victim: Workload) -> No | None:
    """Why nobody may evict this pod whatever his right, or None (S12, S29, S81)."""
    why = (
        (not victim.running and "holds no cards")
        or (victim.terminating and "is being deleted already")
        or (victim.legacy and "holds cards that another system gave out")
        or (victim.daemonset_or_mirror and "is a DaemonSet or static pod")
        or (victim.namespace == SYSTEM_NAMESPACE and f"is in {SYSTEM_NAMESPACE}")
        or (victim.priority >= LOWEST_CRITICAL_PRIORITY and "is of a system-critical class")
        or (not victim.preemptable and "says that it is not preemptable")
        or (victim.bare and not victim.evict_opt_in and _BARE)
    )
    return no(Reason.NEVER_A_VICTIM, f"{victim.pod} {why}") if why else None


def protected(victim: Workload, queue: QueueFact, right: Right, now_seconds: int) -> No | None:
    """Why the pod may not be evicted yet, or None: the minRuntime of its queue, its own cooldown (S75).

    One that has not started yet counts as started now.
    """
    runtime = queue.min_runtime_reclaim_seconds if right is Right.RECLAIM else queue.min_runtime_preempt_seconds
    started = now_seconds if victim.started_seconds is None else victim.started_seconds
    until = started + max(runtime, victim.cooldown_seconds)
    if until <= now_seconds:
        return None
    rule = f"minRuntime of queue {queue.name}" if runtime >= victim.cooldown_seconds else "its own cooldown"
    return no(
        Reason.PROTECTED,
        f"{victim.pod} has run {now_seconds - started} s and is safe for {until - now_seconds} s more by {rule}",
        until,
    )


_BARE = "has no controller that would bring it back, and its owner has not agreed, or component bare-pods is off"
