"""Monotonic time and sleeping, injected so that tests turn the clock by hand. No calendar, no decisions."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time. Its seconds mean nothing outside this process."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


class SystemClock:
    """The machine's monotonic clock."""

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)
