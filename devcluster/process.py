"""One child process: started with a log file and no input, watched, paused, ended hard.

Enters: a command line. Leaves: a running process group. May not live here: which programs a cluster needs.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import StartFailed

LEASH = Path(__file__).with_name("leash.py")
LOG_TAIL_LINES = 15
END_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process takes: resident memory, and processor time since its start."""

    rss_bytes: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: a name for people, the command line, its log, additions to the environment."""

    name: str
    arguments: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    leashed: bool = True


class Process:
    """A running child, leader of its own process group."""

    def __init__(self, command: Command) -> None:
        self.name = command.name
        self.log = command.log
        self._popen = _launcher.run(lambda: _spawn(command))

    @property
    def pid(self) -> int:
        """The process id, also the id of the group."""
        return self._popen.pid

    def alive(self) -> bool:
        """Whether it still runs (a paused process does)."""
        return self._popen.poll() is None

    def require_alive(self) -> None:
        """Raise StartFailed with the end of the log when the process has ended."""
        if not self.alive():
            raise StartFailed(f"{self.name} ended with {self._popen.returncode}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def kill(self) -> None:
        """End the whole group at once and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._popen.wait(END_TIMEOUT_SECONDS)

    def terminate(self, timeout_seconds: float) -> None:
        """Ask the process to end, and end it hard after the time-out."""
        self.signal(signal.SIGTERM)
        try:
            self._popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; a group that is gone already is no error."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def usage(self) -> Usage:
        """Memory and processor time now. Raises StartFailed when the process has ended."""
        self.require_alive()
        return usage_of(self.pid)


def usage_of(pid: int) -> Usage:
    """Memory and processor time of a process now. Raises OSError when there is none."""
    # The fields after the parenthesised name; utime and stime are numbers 14 and 15 of proc(5).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    ticks = int(fields[11]) + int(fields[12])
    return Usage(pages * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK"))


def _spawn(command: Command) -> "subprocess.Popen[bytes]":
    leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())] if command.leashed else []
    with command.log.open("ab") as log:
        return subprocess.Popen(
            [*leash, *command.arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, **command.environment}, start_new_session=True,
        )  # fmt: skip


@dataclass(slots=True)
class _Launch:
    task: Callable[[], "subprocess.Popen[bytes]"]
    answer: "queue.Queue[subprocess.Popen[bytes] | OSError]"


class _Launcher:
    """Starts children from one thread that lives as long as the process.

    The kernel's death signal follows the thread that forked, not the process: a child started from a worker
    thread would be ended with that thread.
    """

    def __init__(self) -> None:
        self._launches: queue.Queue[_Launch] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, task: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
        """Run the task in the launching thread and hand back its child; raises what the start raised."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="devcluster-launcher", daemon=True)
                self._thread.start()
        launch = _Launch(task, queue.Queue(1))
        self._launches.put(launch)
        answer = launch.answer.get()
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _serve(self) -> None:
        while True:
            launch = self._launches.get()
            try:
                launch.answer.put(launch.task())
            except OSError as error:
                launch.answer.put(error)


_launcher = _Launcher()
