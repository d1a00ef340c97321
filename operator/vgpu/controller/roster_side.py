"""Puts together what knows queues, gangs and budgets: the roster, its watches, the queues' status, who waits for a
queue.

Enters: the shared parts of the process. Leaves: one object with those, the tasks to run, and a place to hear of
changes that no change of the ledger shows. May not live here: what any of them does.
"""

from collections.abc import Awaitable, Callable

from vgpu.controller.fence import Fence
from vgpu.controller.queue_status import QueueStatusPublisher
from vgpu.controller.queue_waiters import QueueWaiters
from vgpu.controller.roster_watches import RosterParts, RosterWatches
from vgpu.controller.writer import Writer
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.preempt.roster import Roster
from vgpu.kube.client import ApiClient
from vgpu.settings import OperatorSettings


class RosterSide:
    """See the module."""

    def __init__(self, client: ApiClient, settings: OperatorSettings, ledger: Ledger, writer: Writer) -> None:
        self._ledger = ledger
        self._fence: Fence = writer.fence
        self.roster = Roster(ledger, settings.scheduler_name)
        self.gate = QueueGate(self.roster)
        self.status = QueueStatusPublisher(self.roster, writer, self._fence, settings)
        self.watches = RosterWatches(RosterParts(client, settings, self.roster, self.status), self._told)
        self._listeners: list[Callable[[], None]] = [self.status.look_soon]
        self.roster.gangs.others_changed = self._told

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after a queue, a namespace's queue, a budget or a group changed."""
        self._listeners.append(listener)

    def waiters(self, wake: Callable[[Changes], None]) -> QueueWaiters:
        """Who waits for a queue; `wake` is called when it lets them start."""
        made = QueueWaiters(self._ledger, self.gate, self._fence, wake)
        self.on_change(made.queues_changed)
        return made

    def tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What is to run, by name, beside the watches that are always there."""
        optional = {f"watch of {name}": watch.run for name, watch in self.watches.optional.items()}
        return {"queue status": self.status.run, **optional}

    def _told(self) -> None:
        for listener in self._listeners:
            listener()
