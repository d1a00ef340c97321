"""Which pods an event about something else concerns: those of a node, a queue, a namespace, an owner."""

from dataclasses import dataclass, field

from vgpu.core.booking import Booking
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.uid_index import UidIndex


@dataclass(slots=True)
class PodIndexes:
    """Mutable, with one owner."""

    on_node: UidIndex = field(default_factory=UidIndex)
    in_queue: UidIndex = field(default_factory=UidIndex)
    in_namespace: UidIndex = field(default_factory=UidIndex)
    of_owner: UidIndex = field(default_factory=UidIndex)

    def put(self, workload: Workload) -> None:
        """A workload is there, like this."""
        self.on_node.put(workload.uid, workload.node or "")
        self.in_queue.put(workload.uid, workload.queue)
        self.in_namespace.put(workload.uid, workload.namespace)
        self.of_owner.put(workload.uid, workload.owner.uid)

    def drop(self, uid: str) -> None:
        """A workload is gone."""
        for index in (self.on_node, self.in_queue, self.in_namespace, self.of_owner):
            index.drop(uid)


class BookingChanges:
    """Bookings come and go without an event of a pod. Few live at one time, so they are simply compared."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._version = -1
        self._known: dict[str, Booking] = {}

    def take(self) -> set[str]:
        """Uids of pods that were booked or unbooked since the last call."""
        if self._version == self._ledger.version:
            return set()
        self._version = self._ledger.version
        before, self._known = self._known, {booking.uid: booking for booking in self._ledger.bookings()}
        return {uid for uid in before.keys() | self._known if before.get(uid) is not self._known.get(uid)}
