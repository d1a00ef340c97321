"""A child that runs inside a node's namespaces, behind the nsenter that brought it there.

Signals have two addressees: what ends or stops hard goes to both, what asks goes to the program alone, since
nsenter would end at once and leave nobody to wait for.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from devcluster.errors import StartFailed
from devcluster.process import END_TIMEOUT_SECONDS, Process, Usage, usage_of

FOR_BOTH = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT})
POLL_SECONDS = 0.01


class InsideProcess(Process):
    """Process with the program's own id, as the rest of the machine knows it."""

    @property
    def inner_pid(self) -> int | None:
        """The program's process id outside its namespaces; None before it was started and after its end."""
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return int(children[0]) if children else None

    def usage(self) -> Usage:
        """Memory and processor time of the program now. Raises StartFailed when it has ended."""
        self.require_alive()
        inner = self.inner_pid
        if inner is None:
            raise StartFailed(f"{self.name} is not running")
        return usage_of(inner)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a program that is gone already is no error."""
        inner = self.inner_pid
        if number in FOR_BOTH or inner is None:
            super().signal(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(inner, number)

    def kill(self) -> None:
        """End the whole group at once and wait until the program is gone, its ports and files with it."""
        inner = self.inner_pid
        super().kill()
        deadline = time.monotonic() + END_TIMEOUT_SECONDS
        while inner is not None and Path(f"/proc/{inner}").exists():
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.name, END_TIMEOUT_SECONDS)
            time.sleep(POLL_SECONDS)
