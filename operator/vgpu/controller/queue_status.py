"""Status of GpuQueues: what each uses, is entitled to, borrows and waits for, and whether it takes pods.

Enters: queues as our watch shows them, changes of the ledger. Leaves: one server-side apply per difference,
through the writer, once things rest or the interval has passed; only the leader writes. May not live here: what a
queue is charged.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from vgpu.api.conditions import Condition, ConditionStatus
from vgpu.api.queue import Amounts, QueueStatus
from vgpu.controller.fence import Fence
from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys, Pace
from vgpu.controller.status import now_text
from vgpu.controller.translate.queue import SeenQueue
from vgpu.core.ledger import Changes
from vgpu.core.preempt import facts
from vgpu.core.preempt.limits import cards_words
from vgpu.core.preempt.queue_status import QueueReady, queue_ready
from vgpu.core.preempt.roster import Roster
from vgpu.core.preempt.usage import UNUSED, QueueUsage
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.settings import OperatorSettings

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 5.0
REFUSED_SECONDS = 60.0
NOT_FOUND = 404
READY = "Ready"
ALL = ""
"""The key, beside queues' names, of a look at all of them."""


class QueueStatusSink(Protocol):
    """Where a status goes; the operator's writer."""

    async def apply_queue_status(self, name: str, status: Mapping[str, Any]) -> None:
        """Apply the whole status. Raises ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""


@dataclass(slots=True)
class _Known:
    status: QueueStatus
    fault: str = ""
    written_at: float = float("-inf")


class QueueStatusPublisher:
    """Keeps the status of every queue at what the roster says."""

    def __init__(self, roster: Roster, sink: QueueStatusSink, fence: Fence, settings: OperatorSettings) -> None:
        self._roster = roster
        self._sink = sink
        self._fence = fence
        self._interval_seconds = settings.status_interval_seconds
        self._settle_seconds = settings.status_settle_seconds
        self._pace = Pace(settings.status_writes_per_second)
        self._queues: dict[str, _Known] = {}
        self._due: DueKeys[str] = DueKeys()
        self._restless_since: float | None = None

    def saw(self, queue: SeenQueue) -> None:
        """The watch shows this queue, after the roster has it."""
        known = self._queues.get(queue.name)
        if known is None:
            self._queues[queue.name] = _Known(queue.status, queue.fault)
        else:
            known.status, known.fault = queue.status, queue.fault
        self.look_soon()

    def gone(self, name: str) -> None:
        """The queue was deleted."""
        self._queues.pop(name, None)
        self._due.discard(name)

    def changed(self, changes: Changes) -> None:
        """The ledger changed."""
        del changes  # a pod's queue may be any
        self.look_soon()

    def start_over(self) -> None:
        """This process has begun to lead: compare every queue."""
        self.look_soon()

    def look_soon(self) -> None:
        """Compare all queues when nothing has changed for a moment, or after the interval."""
        if not self._queues or not self._fence.leading:
            return
        now = asyncio.get_running_loop().time()
        if self._restless_since is None:
            self._restless_since = now
        self._due.discard(ALL)
        self._due.add(ALL, min(now + self._settle_seconds, self._restless_since + self._interval_seconds))

    async def run(self) -> None:
        """Write what differs. Runs until cancelled."""
        while True:
            key = await self._due.next()
            with one_object("queue status", key or "all queues"):
                if key == ALL:
                    self._look()
                elif self._fence.leading and self._wanted(key) is not None:
                    await self._pace.turn()
                    await self._write(key)

    def _look(self) -> None:
        self._restless_since = None
        for name, known in self._queues.items():
            if self._wanted(name) is not None:
                self._due.add(name, known.written_at + self._interval_seconds)

    def _wanted(self, name: str) -> QueueStatus | None:
        """The status to write, or None when the object shows it already or is gone."""
        known = self._queues.get(name)
        if known is None:
            return None
        queue = self._roster.queues.get(name)
        usage = self._roster.standing().usage_of(name) if queue is not None else UNUSED
        wanted = queue_status(usage, queue_ready(queue, usage, known.fault))
        return None if wanted == _without_times(known.status) else wanted

    async def _write(self, name: str) -> None:
        wanted = self._wanted(name)
        if wanted is None:
            return
        known, now = self._queues[name], asyncio.get_running_loop().time()
        try:
            dated = _with_times(wanted, known.status)
            await self._sink.apply_queue_status(name, dated.dump())
        except ApiRefused as error:
            if error.status != NOT_FOUND:
                LOG.warning("status refused queue=%s: %s", name, error)
                self._due.add(name, now + REFUSED_SECONDS)
            return
        except (ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            LOG.info("status put off queue=%s: %s", name, error)
            self._due.add(name, now + RETRY_SECONDS)
            return
        known.written_at = now
        known.status = dated


def queue_status(usage: QueueUsage, ready: QueueReady) -> QueueStatus:
    """The API's model, without times."""
    condition = Condition(
        type=READY,
        status=ConditionStatus.TRUE if ready.ready else ConditionStatus.FALSE,
        reason=ready.reason.value,
        message=ready.message,
    )
    return QueueStatus(
        conditions=(condition,),
        used=_amounts(usage.used),
        entitled=_amounts(usage.entitled),
        borrowed=_amounts(usage.borrowed),
        pending=_amounts(usage.pending),
        pending_pods=usage.pending_pods,
    )


def _amounts(amounts: facts.Amounts) -> Amounts:
    return Amounts(
        cards=cards_words(amounts.cards_thousandths), memory_mib=amounts.memory_mib, cores=amounts.cores
    )


def _without_times(status: QueueStatus) -> QueueStatus:
    """As it is compared: a condition's time is no content."""
    bare = tuple(c.model_copy(update={"last_transition_time": ""}) for c in status.conditions)
    return status.model_copy(update={"conditions": bare})


def _with_times(wanted: QueueStatus, seen: QueueStatus) -> QueueStatus:
    """`wanted` with a time on each condition: that of `seen` while its True or False stays, otherwise now."""
    known = {(c.type, c.status): c.last_transition_time for c in seen.conditions if c.last_transition_time}
    dated = tuple(
        c.model_copy(update={"last_transition_time": known.get((c.type, c.status)) or now_text()})
        for c in wanted.conditions
    )
    return wanted.model_copy(update={"conditions": dated})
