"""What must come back: a record of each workload that lost pods to a plan, kept until it has them again.

Enter: the victims as workloads, their ranks, and later what their owners have. Leave: debts, as a plan's status
carries them. They outlive the preemptor. Who is offered what is core.preempt.recovery.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from vgpu.core.preempt.facts import Debt, PreemptedAction, QueueFact, Workload
from vgpu.core.preempt.rank import Rank
from vgpu.core.terms import OwnerRef

BARE_POD = "Pod"
"""Kind of a debt whose pod has no controller: it comes back only if it is created again (opted in)."""


@dataclass(frozen=True, slots=True)
class OwnerNow:
    """How many pods the owner of a debt lacks: wanted, and not bound. 0 = all are back."""

    missing_pods: int


def is_owed(victim: Workload, queue: QueueFact | None) -> bool:
    """False where the queue says onPreempted Fail: its work is not brought back by us."""
    return queue is None or queue.on_preempted is PreemptedAction.REQUEUE


def creditor_of(debt: Debt) -> str:
    """To whom it is owed: the owner's uid, or NS/NAME of a bare pod, which comes back under another uid."""
    return creditor(debt.namespace, debt.name, "" if debt.kind == BARE_POD else debt.uid)


def creditor(namespace: str, name: str, owner_uid: str) -> str:
    """The same for a pod; `owner_uid` "" = it is bare."""
    return owner_uid or f"{namespace}/{name}"


def debts_of(victims: Iterable[Workload], ranks: Mapping[str, Rank], now_seconds: int) -> tuple[Debt, ...]:
    """One debt for each owner that loses pods, in the order in which the victims name them.

    `ranks` by uid of the victim. Lost work is counted since each pod's last checkpoint, or its start.
    """
    found: dict[str, Debt] = {}
    for victim in victims:
        owner = _owner(victim)
        before = found.get(owner.uid) or _first_debt(owner, victim, ranks.get(victim.uid))
        found[owner.uid] = replace(
            before, pods=before.pods + 1, lost_seconds=before.lost_seconds + _lost_seconds(victim, now_seconds)
        )
    return tuple(found.values())


def open_debts(debts: Iterable[Debt], owners: Mapping[str, OwnerNow]) -> tuple[Debt, ...]:
    """The debts that are still owed; an owner that is not in `owners` is gone, and nothing is owed to it."""
    left = [replace(debt, pods=min(debt.pods, _missing(owners.get(debt.uid)))) for debt in debts]
    return tuple(debt for debt in left if debt.pods > 0)


def running_since(workloads: Iterable[Workload], now_seconds: int) -> dict[str, list[int]]:
    """By creditor: since when each pod that is bound and stays runs. One that has not started yet: from now."""
    found: dict[str, list[int]] = {}
    for workload in workloads:
        if workload.running and not workload.terminating:
            whose = creditor(workload.namespace, workload.name, workload.owner.uid)
            started = now_seconds if workload.started_seconds is None else workload.started_seconds
            found.setdefault(whose, []).append(started)
    return found


def merged(debts: Iterable[Debt], more: Iterable[Debt]) -> tuple[Debt, ...]:
    """Debts of one plan with those of its later evictions."""
    found = {debt.uid: debt for debt in debts}
    for debt in more:
        known = found.get(debt.uid)
        found[debt.uid] = debt if known is None else _sum(known, debt)
    return tuple(found.values())


def _lost_seconds(victim: Workload, now_seconds: int) -> int:
    moments = [at for at in (victim.started_seconds, victim.checkpoint_seconds) if at is not None]
    return max(0, now_seconds - max(moments, default=now_seconds))


def _owner(victim: Workload) -> OwnerRef:
    return OwnerRef(victim.uid, BARE_POD, victim.name) if victim.bare else victim.owner


def _first_debt(owner: OwnerRef, victim: Workload, rank: Rank | None) -> Debt:
    return Debt(
        owner.uid,
        owner.kind,
        victim.namespace,
        owner.name,
        victim.queue,
        _words(rank),
        pods=0,
        api_version=owner.api_version,
    )


def _words(rank: Rank | None) -> str:
    if rank is None:
        return ""
    return f"{'entitled' if rank.entitled else 'not entitled'}, priority {rank.priority}"


def _missing(owner: OwnerNow | None) -> int:
    return 0 if owner is None else owner.missing_pods


def _sum(one: Debt, other: Debt) -> Debt:
    return replace(one, pods=one.pods + other.pods, lost_seconds=one.lost_seconds + other.lost_seconds)
