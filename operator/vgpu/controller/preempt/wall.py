"""The clock of preemption: moments are seconds since 1970, as the API states them; waiting is the event loop's.

Policies rest on it, safety never does: a clock that is wrong makes a pause longer or shorter.
"""

import asyncio
import time
from collections.abc import Callable


class Wall:
    """`unix` answers the seconds since 1970."""

    def __init__(self, unix: Callable[[], float] = time.time) -> None:
        self._unix = unix

    def now_seconds(self) -> int:
        """Whole seconds since 1970."""
        return int(self._unix())

    def loop_time(self, moment_seconds: float) -> float:
        """When this moment is on the running loop's clock; a little later rather than earlier."""
        return asyncio.get_running_loop().time() + max(0.0, moment_seconds - self._unix()) + 0.005
