"""What each queue uses, lends and waits for.

Enters: workloads and who of them is entitled. Leaves: QueueUsage per queue. Amounts of running pods are those of
the cards that they hold, of waiting ones the claim. May not live here: limits.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from vgpu.core.preempt.facts import NOTHING, Amounts, Workload


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """One queue's sums. `used`: of pods that hold cards, leaving ones included. `leaving`: the part of it that is
    being deleted. `promised`: of waiting pods for whom a plan holds cards. `entitled`: the part of `used` that
    nobody may take back."""

    used: Amounts = NOTHING
    leaving: Amounts = NOTHING
    promised: Amounts = NOTHING
    entitled: Amounts = NOTHING
    pending: Amounts = NOTHING
    pending_pods: int = 0

    @property
    def borrowed(self) -> Amounts:
        """The part of `used` that others may take back."""
        return self.used - self.entitled

    @property
    def staying(self) -> Amounts:
        """What the queue keeps when all who are being deleted have gone."""
        return self.used - self.leaving

    def after(self, added: Amounts, freed: Amounts = NOTHING) -> Amounts:
        """What the queue will use with `added` more and without `freed`, everything promised kept."""
        return self.staying + self.promised + added - freed

    def __add__(self, other: "QueueUsage") -> "QueueUsage":
        return QueueUsage(
            self.used + other.used,
            self.leaving + other.leaving,
            self.promised + other.promised,
            self.entitled + other.entitled,
            self.pending + other.pending,
            self.pending_pods + other.pending_pods,
        )

    def __sub__(self, other: "QueueUsage") -> "QueueUsage":
        return QueueUsage(
            self.used - other.used,
            self.leaving - other.leaving,
            self.promised - other.promised,
            self.entitled - other.entitled,
            self.pending - other.pending,
            self.pending_pods - other.pending_pods,
        )


UNUSED = QueueUsage()


def usage_by_queue(
    workloads: Iterable[Workload], entitled: Collection[str] = (), promised: Collection[str] = ()
) -> dict[str, QueueUsage]:
    """Usage of every queue that a workload names. `entitled`, `promised`: uids of workloads."""
    by_queue: defaultdict[str, list[QueueUsage]] = defaultdict(list)
    for workload in workloads:
        one = usage_of(workload, entitled=workload.uid in entitled, promised=workload.uid in promised)
        by_queue[workload.queue].append(one)
    return {name: sum_of_usages(usages) for name, usages in by_queue.items()}


def usage_of(workload: Workload, *, entitled: bool, promised: bool) -> QueueUsage:
    """What one workload adds to its queue's usage."""
    if workload.running:
        amounts = workload.amounts
        return QueueUsage(
            used=amounts,
            leaving=amounts if workload.terminating else NOTHING,
            entitled=amounts if entitled else NOTHING,
        )
    claim = workload.claim
    return QueueUsage(promised=claim if promised else NOTHING, pending=claim, pending_pods=1)


def sum_of_usages(usages: Sequence[QueueUsage]) -> QueueUsage:
    """All of them together."""
    return QueueUsage(
        _sum([usage.used for usage in usages]),
        _sum([usage.leaving for usage in usages]),
        _sum([usage.promised for usage in usages]),
        _sum([usage.entitled for usage in usages]),
        _sum([usage.pending for usage in usages]),
        sum(usage.pending_pods for usage in usages),
    )


def _sum(amounts: Sequence[Amounts]) -> Amounts:
    """Dimension by dimension: thousands are summed at once when a queue is counted anew."""
    return Amounts(
        sum(a.cards_thousandths for a in amounts),
        sum(a.memory_mib for a in amounts),
        sum(a.cores for a in amounts),
    )
