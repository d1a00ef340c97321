"""Status of inventories: written when it differs from what our own watch shows, off the placement path.

Enters: names of nodes whose view changed, the status that the watch shows. Leaves: one server-side apply per
difference, through the writer, once the node's view rests. At most one write per node per interval and so many a
second in all; only the leader writes. May not live here: what a status says (core.inventory_status).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from vgpu.api.conditions import Condition, ConditionStatus
from vgpu.api.inventory_status import (
    MAX_SHOWN_CARDS,
    MAX_SHOWN_HOLDERS,
    GpuStatus,
    HolderStateName,
    HolderStatus,
    InventoryStatus,
    Summary,
    Totals,
)
from vgpu.controller.fence import Fence
from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys, Pace
from vgpu.core import inventory_status as core
from vgpu.core.ledger import Changes, Ledger
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.settings import OperatorSettings
from vgpu.units import MAX_COUNT

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 5.0
REFUSED_SECONDS = 60.0
NOT_FOUND = 404


class StatusSink(Protocol):
    """Where a status goes; the operator's writer."""

    async def apply_inventory_status(self, node: str, status: Mapping[str, Any]) -> None:
        """Apply the whole status. Raises ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""


class StatusPublisher:
    """Keeps the status of every inventory at what the ledger says."""

    def __init__(self, ledger: Ledger, sink: StatusSink, fence: Fence, settings: OperatorSettings) -> None:
        self._ledger = ledger
        self._sink = sink
        self._fence = fence
        self._interval_seconds = settings.status_interval_seconds
        self._settle_seconds = settings.status_settle_seconds
        self._pace = Pace(settings.status_writes_per_second)
        self._seen: dict[str, InventoryStatus] = {}
        self._written_at: dict[str, float] = {}
        self._marked_at: dict[str, float] = {}
        self._due: DueKeys[str] = DueKeys()

    def saw(self, node: str, status: InventoryStatus) -> None:
        """The watch shows `status` on this node's inventory."""
        self._seen[node] = status
        self.mark([node])

    def gone(self, node: str) -> None:
        """The node's inventory was deleted."""
        self._seen.pop(node, None)
        self._written_at.pop(node, None)
        self._marked_at.pop(node, None)
        self._due.discard(node)

    def mark(self, nodes: Iterable[str]) -> None:
        """The views of `nodes` may have changed. A node that goes on changing is written when it rests, or after
        the interval: while pods pour in, each write would be out of date at once and cost as much as a bind."""
        now = asyncio.get_running_loop().time()
        for node in nodes:
            if node in self._seen:
                since = self._marked_at.setdefault(node, now)
                rests = min(now + self._settle_seconds, since + self._interval_seconds)
                self._due.discard(node)
                self._due.add(node, max(rests, self._written_at.get(node, 0.0) + self._interval_seconds))

    def changed(self, changes: Changes) -> None:
        """The ledger changed."""
        self.mark(changes.nodes)

    def start_over(self) -> None:
        """This process has begun to lead: compare every inventory."""
        self.mark(list(self._seen))

    async def run(self) -> None:
        """Write what differs. Runs until cancelled."""
        while True:
            node = await self._due.next()
            self._marked_at.pop(node, None)
            with one_object("status", node):
                if self._fence.leading and self._wanted(node) is not None:
                    await self._pace.turn()
                    await self._write(node)

    def _wanted(self, node: str) -> InventoryStatus | None:
        """The status to write, or None when the object shows it already, or there is nothing to write to."""
        view = self._ledger.view(node)
        seen = self._seen.get(node)
        if view is None or view.inventory is None or seen is None:
            return None
        wanted = status_model(core.inventory_status(view))
        return None if wanted == without_times(seen) else wanted

    async def _write(self, node: str) -> None:
        wanted = self._wanted(node)
        if wanted is None:
            return
        dated = with_times(wanted, self._seen[node], now_text)
        now = asyncio.get_running_loop().time()
        try:
            await self._sink.apply_inventory_status(node, dated.dump())
        except ApiRefused as error:
            if error.status != NOT_FOUND:
                LOG.warning("status refused node=%s: %s", node, error)
                self._due.add(node, now + REFUSED_SECONDS)
            return
        except (ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            LOG.info("status put off node=%s: %s", node, error)
            self._due.add(node, now + RETRY_SECONDS)
            return
        self._written_at[node] = now
        if node in self._seen:
            self._seen[node] = dated


def status_model(status: core.InventoryStatus) -> InventoryStatus:
    """The core's value as the API's model, without times; what is more than an object may hold is cut off.

    The node's own cards come first in `status`, so only lost cards can be cut.
    """
    totals = Totals(**{name: _count(getattr(status.totals, name)) for name in core.Totals.__slots__})
    return InventoryStatus(
        conditions=tuple(_condition(condition) for condition in status.conditions),
        totals=totals,
        summary=Summary.of(totals),
        gpus=tuple(_gpu(card) for card in status.cards[:MAX_SHOWN_CARDS]),
    )


def without_times(status: InventoryStatus) -> InventoryStatus:
    """`status` as it is compared: a condition's time is no content."""
    bare = tuple(c.model_copy(update={"last_transition_time": ""}) for c in status.conditions)
    return status.model_copy(update={"conditions": bare})


def with_times(wanted: InventoryStatus, seen: InventoryStatus, now: Callable[[], str]) -> InventoryStatus:
    """`wanted` with a time on each condition: that of `seen` while its True or False stays, otherwise now."""
    known = {(c.type, c.status): c.last_transition_time for c in seen.conditions if c.last_transition_time}
    dated = tuple(
        c.model_copy(update={"last_transition_time": known.get((c.type, c.status)) or now()})
        for c in wanted.conditions
    )
    return wanted.model_copy(update={"conditions": dated})


def now_text() -> str:
    """The wall clock as Kubernetes writes it. Shown to people, never compared."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(condition: core.Condition) -> Condition:
    return Condition(
        type=condition.type,
        status=ConditionStatus.TRUE if condition.status else ConditionStatus.FALSE,
        reason=condition.reason.value,
        message=condition.message,
    )


def _gpu(card: core.CardStatus) -> GpuStatus:
    return GpuStatus(
        uuid=card.uuid,
        used_slots=_count(card.used_slots),
        used_memory_mib=_count(card.used_memory_mib),
        used_cores=_count(card.used_cores),
        holders=tuple(_holder(holder) for holder in card.holders[:MAX_SHOWN_HOLDERS]),
    )


def _holder(holder: core.HolderStatus) -> HolderStatus:
    return HolderStatus(
        namespace=holder.namespace,
        name=holder.name,
        uid=holder.uid,
        state=HolderStateName(holder.state.value),
        slots=_count(holder.slots),
        memory_mib=_count(holder.memory_mib),
        cores=_count(holder.cores),
    )


def _count(amount: int) -> int:
    """What pods hold together has no bound; what an object may say has one."""
    return min(amount, MAX_COUNT)
