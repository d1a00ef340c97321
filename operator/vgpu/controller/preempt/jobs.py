"""Short pieces of work beside a loop: at most one for each key at a time, and none is left behind.

Enters: keys and coroutines. Leaves: running tasks. May not live here: what the work is, repeats.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from vgpu.controller.guard import one_object


class Jobs:
    """See the module. `part` names the work where an unexpected error is told."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._tasks

    def start(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Begin the work, unless some for this key is under way. False: it is."""
        if key in self._tasks:
            return False
        self._tasks[key] = asyncio.get_running_loop().create_task(self._run(key, work), name=f"{self._part} {key}")
        return True

    async def finished(self, keys: list[str]) -> None:
        """Come back when no work for these keys is under way."""
        tasks = [self._tasks[key] for key in keys if key in self._tasks]
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop everything and wait until it has stopped."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            with one_object(self._part, key):
                await work()
        finally:
            self._tasks.pop(key, None)
