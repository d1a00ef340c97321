"""Whether its queue lets a pod start now: it must exist, not be on hold, and not have used up its capability.

Enters: a roster, pods. Leaves: Refusals. Asked by filter, by the binder just before it books, and of waiting pods
when their queue changed. What holds cards already is not asked: a queue that is put on hold stops nobody.
"""

from collections.abc import Iterable

from vgpu.core.facts import PodFact
from vgpu.core.preempt.facts import NOTHING, Amounts
from vgpu.core.preempt.queues import may_start
from vgpu.core.preempt.roster import Roster
from vgpu.core.reasons import Refusal

Kind = tuple[str, Amounts]
"""Queue and claim: all that the answer depends on."""


class QueueGate:
    """Asks the roster; keeps nothing."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def refusal(self, pod: PodFact) -> Refusal | None:
        """Why the pod's queue does not let it start now, or None."""
        known = self._roster.workloads.get(pod.uid)
        if pod.request is None or pod.node or (known is not None and known.running):
            return None
        # Where no card can take it, its nodes say so.
        claim = self._roster.claim(pod.request) or NOTHING
        name = self._roster.queue_of(pod)
        return may_start(name, self._roster.queues, self._roster.usage(name, without_promise=pod.uid), claim)

    def open_kinds(self, uids: Iterable[str]) -> frozenset[Kind]:
        """Of these waiting pods, of which there may be thousands: the kinds that are let start now."""
        workloads = self._roster.workloads
        waiting = (workload for uid in uids if (workload := workloads.get(uid)) is not None)
        kinds = {(workload.queue, workload.claim) for workload in waiting if not workload.running}
        return frozenset(kind for kind in kinds if self._lets(*kind))

    def _lets(self, queue: str, claim: Amounts) -> bool:
        return may_start(queue, self._roster.queues, self._roster.usage(queue), claim) is None
