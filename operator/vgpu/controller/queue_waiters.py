"""Pods that only their queue keeps from starting: they are asked about again when it lets them.

Enters: answers of the extender, changes of the ledger and of queues. Leaves: a call of the nominator, once each
time that pods of a kind may start that could not before: then every node is as good as freed for them. May not
live here: what a queue lets start, whose turn it is.
"""

from collections.abc import Callable

from vgpu.controller.fence import Fence
from vgpu.core.facts import PodFact
from vgpu.core.filtering import FilterAnswer
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.preempt.queue_gate import Kind, QueueGate
from vgpu.core.reasons import Reason


def queue_says(ledger: Ledger, gate: QueueGate, uid: str) -> Reason | None:
    """What its queue has against this pod alone, as the event tells that says why it waits; None for a pod that
    its queue would let start, and for one whose own gate is all that it is told of."""
    pod = ledger.pod(uid)
    refusal = None if pod is None or pod.gated else gate.refusal(pod)
    return None if refusal is None else refusal.reason


class QueueWaiters:
    """Knows who was barred. `wake` is told that something became free."""

    def __init__(self, ledger: Ledger, gate: QueueGate, fence: Fence, wake: Callable[[Changes], None]) -> None:
        self._ledger = ledger
        self._gate = gate
        self._fence = fence
        self._wake = wake
        self._barred: set[str] = set()
        self._open: frozenset[Kind] = frozenset()

    def answered(self, pod: PodFact, answer: FilterAnswer) -> None:
        """The extender has answered for this pod."""
        if answer.barred:
            self._barred.add(pod.uid)
        else:
            self._barred.discard(pod.uid)

    def changed(self, changes: Changes) -> None:
        """The ledger changed: queues may use less."""
        for uid in changes.pods & self._barred:
            pod = self._ledger.pod(uid)
            if pod is None or pod.node or pod.ended:
                self._barred.discard(uid)
        self.queues_changed()

    def queues_changed(self) -> None:
        """A queue, or which queue pods belong to, is another than before."""
        if not self._barred or not self._fence.leading:
            self._open = frozenset()
            return
        before, self._open = self._open, self._gate.open_kinds(self._barred)
        if self._open - before:
            self._wake(Changes(freed=frozenset(self._ledger.nodes())))

    def start_over(self) -> None:
        """This process has begun to lead: whom the one before it barred is not known."""
        waiting = self._ledger.pending()
        self._barred = {pod.uid for pod in waiting if self._gate.refusal(pod) is not None}
        self._open = frozenset()
