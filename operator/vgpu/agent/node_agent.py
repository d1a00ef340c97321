"""One node's agent: reads its source, folds health, and tells the publisher what the inventory should say.

Readings and events enter from a GpuSource, a wanted inventory leaves to the publisher. Nothing here talks to the
API server or to NVML. A failing source is tried again after 1 to 30 seconds; the last good list stays meanwhile.
A source that hangs is given up after a few tries, once its readError is published: another process may get on.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from vgpu.agent.canonical import observations, resolve_lost, spec_of, unreadable
from vgpu.agent.clock import Clock, wait_for_event
from vgpu.agent.config import NodeSettings
from vgpu.agent.health import HealthBook
from vgpu.agent.publisher import Publisher
from vgpu.agent.source import CardReading, GpuSource, LostCard, NothingToRead, SourceHangs
from vgpu.api.inventory import InventorySpec
from vgpu.core.facts import Plugin
from vgpu.errors import SourceError

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 30.0
LIBRARY_LOOK_SECONDS = 30.0
HANGS_AT_MOST = 5


class NodeAgent:
    """Keeps what one publisher wants in step with one source."""

    def __init__(
        self,
        source: GpuSource,
        settings: NodeSettings,
        publisher: Publisher,
        clock: Clock,
        isolation_fault: Callable[[str], str] | None = None,
    ) -> None:
        """`isolation_fault`: why the library at this path holds nobody to a share, "" when it does.

        None: nobody looks.
        """
        self._source = source
        self._isolation_fault = isolation_fault
        self._settings = settings
        self._publisher = publisher
        self._clock = clock
        self._health = HealthBook(policy=settings.xids.policy)
        self._wake = asyncio.Event()
        self._failures = 0
        self._problem = ""
        self._library_problem = ""
        self._adopted = False
        self._lost: frozenset[LostCard] = frozenset()

    def apply_settings(self, settings: NodeSettings) -> None:
        """Other settings from now on."""
        if settings != self._settings:
            self._settings = settings
            self._health = replace(self._health, policy=settings.xids.policy)
            self._wake.set()

    async def run(self) -> None:
        """Read and publish until cancelled. Raises SourceHangs (in a group) when the source hangs for good."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._publisher.run())
                tasks.create_task(self._listen())
                tasks.create_task(self._read_always())
        finally:
            await self._source.close()

    async def _listen(self) -> None:
        async for event in self._source.health_events():
            if event.xid is not None:
                LOG.warning("card event gpu=%s kind=%s xid=%d", event.uuid or "unknown", event.kind, event.xid)
            self._health = self._health.after_event(event, self._clock.monotonic())
            self._wake.set()

    async def _read_always(self) -> None:
        await self._publisher.synced_once.wait()
        while True:
            self._wake.clear()
            self._publisher.want(await self._read_once())
            await wait_for_event(self._wake, self._clock, self._next_look_seconds())

    async def _read_once(self) -> InventorySpec | None:
        previous = self._publisher.last_good
        try:
            reading = await self._source.read()
            spec = None if reading is None else self._fold(reading, previous)
        except SourceError as error:
            self._failures += 1
            if str(error) != self._problem:
                # Cards that were published and show no sign any more are a fault; none ever is a CPU node.
                usual = isinstance(error, NothingToRead) and previous is None
                level, what = (logging.INFO, "no cards here") if usual else (logging.ERROR, "cards cannot be read")
                LOG.log(level, "%s node=%s problem=%s", what, self._publisher.node, error)
            self._problem = str(error)
            if isinstance(error, SourceHangs) and self._failures >= HANGS_AT_MOST:
                raise
            return unreadable(str(error), previous)
        self._failures, self._problem = 0, ""
        return spec

    def _fold(self, reading: CardReading, previous: InventorySpec | None) -> InventorySpec | None:
        for lost in set(reading.lost) - self._lost:
            place = lost.pci_bus_id if lost.index is None else lost.index
            LOG.error("card lost index=%s gpu=%s reason=%s", place, lost.uuid or "unknown", lost.reason)
        self._lost = frozenset(reading.lost)
        now = self._clock.monotonic()
        if not self._adopted:
            self._adopt(reading, previous, now)
        seen = observations(reading, resolve_lost(reading, previous))
        before = self._health
        self._health = before.after_reading(seen, now)
        for uuid in seen:
            old, new = before.of(uuid), self._health.of(uuid)
            if (old.fault is None) != (new.fault is None):
                LOG.warning("card health gpu=%s healthy=%s reason=%s", uuid, new.fault is None, new.reason)
        return spec_of(reading, self._settings, self._health, previous, self._look_at_library())

    @property
    def _library(self) -> str:
        """The library that is to be looked at; "" for none. Another's plugin mounts its own."""
        ours = self._isolation_fault is not None and self._settings.plugin is Plugin.VGPU
        return self._settings.isolation_library if ours else ""

    def _look_at_library(self) -> str:
        """Why nobody would be held to a share, told once; "" when all would, or need not be."""
        problem = self._isolation_fault(self._library) if self._isolation_fault and self._library else ""
        if problem and problem != self._library_problem:
            LOG.warning("node takes nothing new node=%s problem=%s", self._publisher.node, problem)
        elif self._library_problem and not problem:
            LOG.warning("the isolation library is there node=%s", self._publisher.node)
        self._library_problem = problem
        return problem

    def _adopt(self, reading: CardReading, previous: InventorySpec | None, now: float) -> None:
        """Take over what the last process published, once the machine itself says which start of it this is."""
        self._adopted = True
        if previous is not None:
            rebooted = "" not in (previous.boot_id, reading.boot_id) and previous.boot_id != reading.boot_id
            self._health = self._health.adopt(previous.gpus, now, rebooted=rebooted)

    def _next_look_seconds(self) -> float | None:
        retry = min(2.0 ** min(self._failures - 1, 10), RETRY_SECONDS) if self._failures else None
        library = LIBRARY_LOOK_SECONDS if self._library else None
        looks = (self._source.recheck_seconds, retry, library, self._health.next_look(self._clock.monotonic()))
        return min((look for look in looks if look is not None), default=None)
