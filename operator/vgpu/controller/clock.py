"""The operator's time: the shared clock, and the calendar for what outsiders read."""

import time
from typing import Protocol

from vgpu import clock


class Clock(clock.Clock, Protocol):
    """Monotonic seconds for waiting, and the calendar for what outsiders read."""

    def unix_seconds(self) -> int:
        """Seconds since 1970, for annotations that other systems read; never for decisions."""


class SystemClock(clock.SystemClock):
    """The machine's clocks."""

    def unix_seconds(self) -> int:
        """Seconds since 1970."""
        return int(time.time())


def wake_count() -> int:
    """What a nomination writes so that it changes something: a value that no earlier patch wrote, of this process
    or one before it. Milliseconds of the wall clock."""
    return time.time_ns() // 1_000_000
