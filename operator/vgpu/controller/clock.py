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
