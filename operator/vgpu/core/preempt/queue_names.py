"""Which queue each pod belongs to, with its namespace's word and what was settled when it was bound.

Enters: namespaces, pods. Leaves: names of queues. Whether there is such a queue is asked elsewhere.
"""

from vgpu.core.facts import PodFact
from vgpu.core.preempt.queues import DEFAULT_QUEUE


class QueueNames:
    """Mutable, with one owner."""

    def __init__(self) -> None:
        self._of_namespace: dict[str, str] = {}
        self._fixed: dict[str, str] = {}
        self._complete = False

    def put_namespace(self, name: str, queue: str) -> bool:
        """The namespace names this queue for its pods, "" = none. True when that is new."""
        if self._of_namespace.get(name, "") == queue:
            return False
        if queue:
            self._of_namespace[name] = queue
        else:
            del self._of_namespace[name]
        return True

    def complete(self) -> bool:
        """Every namespace has been seen: from now on a pod keeps the queue that it was bound in. True the first
        time."""
        first, self._complete = not self._complete, True
        return first

    def of(self, pod: PodFact) -> str:
        """The queue it was bound in, else the one it names, else its namespace's, else the default one."""
        fixed = self._fixed.get(pod.uid)
        return fixed or pod.queue or self._of_namespace.get(pod.namespace) or DEFAULT_QUEUE

    def settle(self, pod: PodFact) -> str:
        """The same; and that is it from now on, if the pod is bound."""
        queue = self.of(pod)
        if pod.node and self._complete:
            self._fixed[pod.uid] = queue
        return queue

    def drop(self, uid: str) -> None:
        """The pod is gone."""
        self._fixed.pop(uid, None)
