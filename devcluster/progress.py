"""Shows that a long step is alive: what it is, how long it has run, how far it came.

Enters: names of finished pieces. Leaves: lines on standard error. Steps shorter than QUIET_SECONDS print nothing.
"""

import sys
import threading
import time
from types import TracebackType
from typing import IO

QUIET_SECONDS = 2.0
TERMINAL_INTERVAL_SECONDS = 0.5
LOG_INTERVAL_SECONDS = 15.0


class Progress:
    """Context manager that reports every half second on a terminal and every 15 s into a log."""

    def __init__(self, title: str, stream: IO[str] | None = None) -> None:
        self._title = title
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._count = 0
        self._last = ""
        self._shown = False
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def step(self, name: str) -> None:
        """Count one finished piece."""
        self._count += 1
        self._last = name

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        if self._shown:
            self._write("failed" if kind else "done", final=True)

    def _report(self) -> None:
        wait_seconds = QUIET_SECONDS
        while not self._done.wait(wait_seconds):
            self._shown = True
            self._write(self._last, final=False)
            wait_seconds = TERMINAL_INTERVAL_SECONDS if self._terminal else LOG_INTERVAL_SECONDS

    def _write(self, detail: str, *, final: bool) -> None:
        elapsed_seconds = int(time.monotonic() - self._started)
        clock = f"{self._title}: {elapsed_seconds // 60}:{elapsed_seconds % 60:02d}"
        text = ", ".join(filter(None, (clock, f"{self._count} steps" if self._count > 1 else "", detail)))
        if self._terminal:
            self._stream.write(f"\r\x1b[K{text[:110]}" + ("\n" if final else ""))
        else:
            self._stream.write(f"devcluster: {text}\n")
        self._stream.flush()
