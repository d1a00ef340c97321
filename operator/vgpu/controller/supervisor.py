"""Keeps the operator's endless tasks running: one that ends is started again after a growing pause.

Enters: named coroutine functions that should never end. Leaves: running tasks, and the names of those that are
down, for readiness. May not live here: what a task does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

LOG = logging.getLogger(__name__)
FIRST_SECONDS = 0.5
STEADY_SECONDS = 60.0
MOST_SECONDS = 30.0


class Supervisor:
    """Starts tasks, restarts those that end, stops them all."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._down: dict[str, str] = {}

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Keep `work` running under `name` until stop."""
        self._tasks.append(asyncio.create_task(self._keep(name, work), name=name))

    def problems(self) -> list[str]:
        """What is down and why, in words; empty while everything runs."""
        return [f"{name}: stopped, starts again soon ({why})" for name, why in sorted(self._down.items())]

    async def stop(self) -> None:
        """Cancel everything and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()

    async def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        pause_seconds = FIRST_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            task = asyncio.ensure_future(work())
            try:
                await asyncio.wait({task})
            finally:
                task.cancel()
                if not task.done():
                    await asyncio.wait({task})
            self._note(name, task)
            if loop.time() - began >= STEADY_SECONDS:
                pause_seconds = FIRST_SECONDS
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, MOST_SECONDS)
            del self._down[name]

    def _note(self, name: str, task: "asyncio.Future[None]") -> None:
        error = None if task.cancelled() else task.exception()
        self._down[name] = f"{type(error).__name__}: {error}" if error else "it ended"
        LOG.error("task ended unexpectedly name=%s", name, exc_info=error)
