"""Writes that nobody else repeats: held back while the fence is closed for a moment, made when it is open again.

Enters: a write. Leaves: its outcome, or NotLeading once it is not ours to make any more. May not live here:
repeats for what the API server said.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from vgpu.errors import LeaseRunsOut

T = TypeVar("T")
MOMENT_SECONDS = 0.5
"""Between two looks at the fence. It opens or falls within write_margin_seconds."""


async def when_open(write: Callable[[], Awaitable[T]]) -> T:
    """Make this write as soon as the fence lets it through. Raises what the writer raises, but LeaseRunsOut."""
    while True:
        try:
            return await write()
        except LeaseRunsOut:
            await asyncio.sleep(MOMENT_SECONDS)
