"""Waiting for a condition, with a pause and a limit."""

import time
from collections.abc import Callable

from devcluster.errors import StartFailed

POLL_SECONDS = 0.05


def wait_until(
    condition: Callable[[], bool], what: str, timeout_seconds: float = 30.0, pause_seconds: float = POLL_SECONDS
) -> None:
    """Poll until the condition holds. Raises StartFailed naming what was waited for."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise StartFailed(f"waited {timeout_seconds:.0f} s in vain for {what}")
        time.sleep(pause_seconds)
