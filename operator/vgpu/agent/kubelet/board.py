"""The slots as they are now, and everyone who waits for a change of them.

Slots enter by `put`, and leave to each stream that kubelet has open. A slow stream misses what lay in between,
never the last state. Nothing is decided here.
"""

import asyncio
from collections.abc import AsyncIterator

from vgpu.agent.kubelet.slots import Slots


class SlotBoard:
    """Holds the current slots; None until the cards are known for the first time."""

    def __init__(self) -> None:
        self._slots: Slots | None = None
        self._next = asyncio.Event()

    @property
    def slots(self) -> Slots | None:
        """The slots now."""
        return self._slots

    def put(self, slots: Slots) -> None:
        """These are the slots from now on."""
        if slots != self._slots:
            self._slots = slots
            told, self._next = self._next, asyncio.Event()
            told.set()

    async def watch(self) -> AsyncIterator[Slots]:
        """The slots now, once they are known, and after each change. Endless."""
        last = None
        while True:
            change, slots = self._next, self._slots
            if slots is not None and slots != last:
                yield slots
                last = slots
            else:
                await change.wait()

    async def known(self) -> None:
        """Return as soon as the slots are known."""
        async for _ in self.watch():
            return
