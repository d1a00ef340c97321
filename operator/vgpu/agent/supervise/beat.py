"""A child's beat: one byte a second from its event loop, so that a stuck loop is seen as silence.

The number of a pipe's writing end enters by the environment; bytes leave into the pipe, and nothing else. A child
that nobody supervises has no pipe and does not beat.
"""

import contextlib
import os
from collections.abc import Mapping

from vgpu.clock import Clock

BEAT_VARIABLE = "VGPU_BEAT_FD"
BEAT_SECONDS = 1.0


def beat_pipe(environment: Mapping[str, str] = os.environ) -> int | None:
    """The pipe's number; None where nobody supervises."""
    number = environment.get(BEAT_VARIABLE, "")
    return int(number) if number.isdecimal() else None


async def beat(pipe: int | None, clock: Clock) -> None:
    """Beat until cancelled. Raises BrokenPipeError when the supervisor is gone: then nobody needs this process."""
    if pipe is None:
        return
    os.set_blocking(pipe, False)
    while True:
        # A full pipe means that the supervisor does not read now; it will find enough beats when it does.
        with contextlib.suppress(BlockingIOError):
            os.write(pipe, b".")
        await clock.sleep(BEAT_SECONDS)
