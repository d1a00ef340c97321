"""Starting a child, with a pipe for its beats, so that it never outlives its supervisor. Linux only.

A command enters, a process id and the pipe's reading end leave. What happens to the process is decided elsewhere.
"""

import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from vgpu.agent.supervise.beat import BEAT_VARIABLE

PR_SET_PDEATHSIG = 1
NOT_STARTED_STATUS = 127
_C = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child: what it is called, its command, and what its environment has beside the supervisor's."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


def start_child(spec: ChildSpec) -> tuple[int, int]:
    """Process id and pipe. The caller has one thread only: nothing else may hold a lock while this forks."""
    beats, pipe = os.pipe()
    os.set_blocking(beats, False)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(spec, supervisor, pipe)
        finally:
            os._exit(NOT_STARTED_STATUS)
    os.close(pipe)
    return pid, beats


def _become(spec: ChildSpec, supervisor: int, pipe: int) -> NoReturn:
    """A group of its own, so that a terminal's Ctrl-C reaches the supervisor alone."""
    os.setpgid(0, 0)
    _C.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it ended before the line above
        os._exit(NOT_STARTED_STATUS)
    os.set_inheritable(pipe, True)
    environment = {**os.environ, **spec.environment, BEAT_VARIABLE: str(pipe)}
    os.execve(spec.command[0], list(spec.command), environment)


def read_beats(pipe: int) -> bool:
    """Was there at least one? Empties the pipe."""
    beaten = False
    try:
        while os.read(pipe, 65536):
            beaten = True
    except BlockingIOError:
        pass
    return beaten
