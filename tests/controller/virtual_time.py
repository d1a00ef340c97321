"""An event loop whose clock jumps to the next timer when nothing else can run: hours pass in no time.

Only for code without sockets and processes: what comes from outside would never be waited for. What is meant for
another thread runs at once.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Instead of waiting, moves the clock by the time that would have been waited."""

    def __init__(self, loop: "VirtualLoop") -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self._loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`now` is its clock, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """At once: another thread would never be waited for."""

        async def called() -> T:
            return func(*args)

        return self.create_task(called())


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
