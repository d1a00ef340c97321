"""When something may be done: keys that become due, and a rate that is not passed.

Enters: keys with a time of the event loop's clock. Leaves: one key at a time, when it is due. May not live
here: what is done with a key. Nothing here runs while no key waits.
"""

import asyncio
import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class DueKeys(Generic[K]):
    """A set of keys, each with the time from which it may be taken. Adding twice keeps the earlier time."""

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: object) -> bool:
        return key in self._at

    def add(self, key: K, at: float) -> None:
        """Let `key` be taken from `at` on (seconds of the loop's clock)."""
        known = self._at.get(key)
        if known is not None and known <= at:
            return
        self._at[key] = at
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, key))
        self._changed.set()

    def discard(self, key: K) -> None:
        """Forget `key` if it waits."""
        self._at.pop(key, None)

    def clear(self) -> None:
        """Forget every key."""
        self._at.clear()
        self._heap.clear()

    def take(self, now: float) -> K | None:
        """Remove and give the key that is due the longest, or None when none is due at `now`."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._at[key]
        return key

    async def next(self) -> K:
        """Wait until a key is due, remove it and give it; the loop runs others before each key."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        while True:
            self._changed.clear()
            key = self.take(loop.time())
            if key is not None:
                return key
            await self._wait(loop)

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._heap:
            await self._changed.wait()
            return
        timer = loop.call_at(self._heap[0][0], self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    def _drop_stale(self) -> None:
        """Heap entries whose key was discarded or made earlier are left in place until they reach the top."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)


class Pace:
    """At most `per_second` passes, evenly spaced."""

    def __init__(self, per_second: float) -> None:
        self._gap_seconds = 1 / per_second
        self._free_at = 0.0

    async def turn(self) -> None:
        """Wait for the next free turn and take it."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._free_at)
        self._free_at = at + self._gap_seconds
        if at > now:
            await asyncio.sleep(at - now)
