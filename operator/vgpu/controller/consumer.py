"""The one consumer of the ledger's changes: takes them all, tells those who act on them, and rests a moment.

Enters: a poke after every change of the ledger. Leaves: changed nodes to the status publisher, "look again" to
the event reporter, changes to the nominator. Nothing runs here while nothing changes. May not live here: what
those parts do.
"""

import asyncio
from typing import Protocol

from vgpu.controller.guard import one_object
from vgpu.core.ledger import Changes, Ledger


class Listener(Protocol):
    """Who acts on changes."""

    def changed(self, changes: Changes) -> None:
        """Take note of `changes`; called in the event loop, must not block."""


class Consumer:
    """Drains the ledger's changes."""

    def __init__(self, ledger: Ledger, coalesce_seconds: float) -> None:
        self._ledger = ledger
        self._coalesce_seconds = coalesce_seconds
        self._listeners: list[Listener] = []
        self._poked = asyncio.Event()

    def add(self, listener: Listener) -> None:
        """Tell `listener` of every change from now on."""
        self._listeners.append(listener)

    def poke(self) -> None:
        """Something of the ledger may have changed."""
        self._poked.set()

    async def run(self) -> None:
        """Drain after each poke: the first after a quiet time at once, then as often as the time to coalesce in
        between allows. Runs until cancelled."""
        loop = asyncio.get_running_loop()
        rests_until = loop.time()
        while True:
            await self._poked.wait()
            # Where nothing is waited for, what else is ready now is still noted first.
            await asyncio.sleep(max(0.0, rests_until - loop.time()))
            self._poked.clear()
            self.drain()
            rests_until = loop.time() + self._coalesce_seconds

    def drain(self) -> None:
        """Take what has changed and tell the listeners, if anything has."""
        changes = self._ledger.take_changes()
        if changes.nodes or changes.pods or changes.freed:
            for listener in self._listeners:
                with one_object("consumer", type(listener).__name__):
                    listener.changed(changes)
