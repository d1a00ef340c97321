"""Empties queues that are on HoldAndDrain: their running pods are evicted, at most maxInFlight at a time.

Enters: the roster. Leaves: orders for the eviction queue, which respects disruption budgets. Who nobody may evict
(system pods, pods that nothing would bring back) stays. May not live here: the calls, gangs' minimum: all go.
"""

from collections.abc import Callable
from functools import partial

from vgpu.controller.preempt.evictions import Evictions, Order
from vgpu.controller.preempt.told import QUEUE_DRAINS, Told, event_about
from vgpu.core.preempt.facts import QueueFact, StopPolicy, Workload
from vgpu.core.preempt.protection import never_victim
from vgpu.core.preempt.roster import Roster
from vgpu.kube.objects import Key

DRAIN = "queue "
"""Begins the orderer's name."""


class QueueDrains:
    """See the module. `look_at`: look again at this moment; `now_seconds` (since 1970)."""

    def __init__(
        self,
        roster: Roster,
        evictions: Evictions,
        told: Told,
        look_at: Callable[[int], None],
        now_seconds: Callable[[], int],
    ) -> None:
        self._roster = roster
        self._evictions = evictions
        self._told = told
        self._look_at = look_at
        self._now_seconds = now_seconds

    def look(self) -> None:
        """Order what is to go now."""
        for queue in self._roster.queues.values():
            if queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
                self._drain(queue)

    def _still(self, name: str, uid: str) -> bool:
        workload, queue = self._roster.workloads.get(uid), self._roster.queues.get(name)
        drains = queue is not None and queue.stop_policy is StopPolicy.HOLD_AND_DRAIN
        return drains and workload is not None and never_victim(workload) is None

    def _drain(self, queue: QueueFact) -> None:
        mine = [one for one in self._roster.workloads.values() if one.queue == queue.name and one.running]
        in_flight = sum(one.terminating or self._goes(queue, one.uid) for one in mine)
        ready = [one for one in mine if never_victim(one) is None and not self._asked(one.uid)]
        ready.sort(key=lambda one: (one.priority, -one.created_seconds, one.uid))
        room = len(ready) if queue.max_in_flight is None else max(0, queue.max_in_flight - in_flight)
        for workload in ready:
            if room <= 0:
                break
            asked = self._evictions.get(workload.uid)
            if asked is not None and asked.retry_seconds:
                self._look_at(asked.retry_seconds)
            self._evictions.ask(self._order(queue, workload))
            room -= self._asked(workload.uid)

    def _asked(self, uid: str) -> bool:
        return self._evictions.leaving(uid) or self._evictions.under_way(uid)

    def _goes(self, queue: QueueFact, uid: str) -> bool:
        """One whose eviction keeps failing is asked for on and on, and keeps nobody else."""
        asked = self._evictions.get(uid)
        if asked is None or asked.fails_since is None:
            return self._asked(uid)
        fails_until = asked.fails_since + queue.stuck_timeout_seconds
        if self._now_seconds() < fails_until:
            self._look_at(fails_until)
            return True
        return False

    def _order(self, queue: QueueFact, workload: Workload) -> Order:
        pod = Key(workload.namespace, workload.name, workload.uid)
        message = f"evicted: queue {queue.name} has stopPolicy {queue.stop_policy}"
        event = event_about(pod, QUEUE_DRAINS, message, about=queue.name, warning=True, if_absent=True)
        still, tell = partial(self._still, queue.name, workload.uid), partial(self._told.now, event)
        return Order(f"{DRAIN}{queue.name}", pod, workload.node or "", QUEUE_DRAINS, still, tell)
