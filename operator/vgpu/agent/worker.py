"""One daemon thread for calls that may never return, each with a time limit.

A driver call cannot be interrupted. When one hangs, the caller gets SourceHangs after the limit, and so does
everyone after it until the hanging call returns: no second thread is started, so threads never pile up. The
thread is a daemon: a hanging driver does not keep the process from ending.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from vgpu.agent.source import SourceHangs

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[[], None]


class Worker:
    """Runs calls one after the other in its own thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._busy = False
        self._thread: threading.Thread | None = None

    async def run(self, function: Callable[[], ResultT], timeout_seconds: float) -> ResultT:
        """What `function` returns or raises. Raises SourceHangs past the limit, or while a past call hangs."""
        if self._busy:
            raise SourceHangs(f"the {self._name} does not answer")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT] = loop.create_future()
        self._busy = True
        self._start()
        self._calls.put(_Call(lambda: self._carry_out(function, future, loop)))
        try:
            return await asyncio.wait_for(future, timeout_seconds)
        except TimeoutError as error:
            # The same words as above: the text is published, and must not change while nothing else does.
            raise SourceHangs(f"the {self._name} does not answer") from error

    def stop(self) -> None:
        """End the thread after the call that it is in."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.function()

    def _carry_out(
        self, function: Callable[[], ResultT], future: "asyncio.Future[ResultT]", loop: asyncio.AbstractEventLoop
    ) -> None:
        result: ResultT | None = None
        failure: Exception | None = None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001  # handed to the caller, whatever it is
            failure = error
        self._busy = False

        def deliver() -> None:
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # a ResultT when nothing was raised

        # A loop that ended while the call hung has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver)
