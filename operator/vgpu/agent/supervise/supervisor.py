"""The agent's first process: starts its children, ends what hangs, starts it anew. One thread, no dependencies.

Children enter, an exit status leaves. It knows nothing of cards, kubelet or the API server, and waits for nothing
but its children and signals, so that nothing of theirs can make it hang. It reaps whatever process is left to it.
"""

import contextlib
import logging
import os
import selectors
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpu.agent.supervise.policy import CONFIGURATION_STATUS, After, ChildLife, Limits
from vgpu.agent.supervise.process import ChildSpec, read_beats, start_child

LOG = logging.getLogger(__name__)
LONGEST_WAIT_SECONDS = 1.0
LATE_SECONDS = 1.0
UNKILLABLE_SECONDS = 2.0
ENDING = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class Child:
    """One child and its process, if it has one."""

    spec: ChildSpec
    life: ChildLife
    pid: int = 0
    pipe: int = -1
    told_to_end_at: float | None = None
    killed: bool = False


class Supervisor:
    """Runs children until SIGTERM or SIGINT; then ends them one after the other, in the order given."""

    def __init__(self, specs: Sequence[ChildSpec], limits: Limits) -> None:
        self._limits = limits
        self._children = [Child(spec, ChildLife(limits)) for spec in specs]
        self._ending = False
        self._status = 0
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """The exit status: 0 after a signal, 2 where a child was started with a wrong setting."""
        with self._signals() as signals:
            while True:
                now = time.monotonic()
                if self._ending:
                    self._end_next(now)
                else:
                    self._start_due(now)
                if not any(child.life.runs for child in self._children) and self._is_over():
                    return self._status
                wait_seconds = self._wait_seconds(now)
                self._selector.select(wait_seconds)
                self._take_signals(signals)
                self._look(now + wait_seconds)

    def _is_over(self) -> bool:
        return self._ending or all(child.life.done for child in self._children)

    def _look(self, planned: float) -> None:
        """Beats first, then ends, then judgement: what was written while this process stood still counts."""
        now = time.monotonic()
        late_seconds = now - planned
        for child in self._children:
            if child.pid and read_beats(child.pipe):
                child.life.beaten(now)
            if late_seconds > LATE_SECONDS:
                child.life.excuse(late_seconds)
        self._reap(now)
        for child in self._children:
            if child.life.hangs(now) and not child.killed:
                LOG.error("child hangs and is killed name=%s pid=%d", child.spec.name, child.pid)
                self._kill(child)

    def _start_due(self, now: float) -> None:
        for child in self._children:
            if child.life.starts(now):
                child.pid, child.pipe = start_child(child.spec)
                child.killed, child.told_to_end_at = False, None
                child.life.started(now)
                self._selector.register(child.pipe, selectors.EVENT_READ)
                LOG.info("child started name=%s pid=%d", child.spec.name, child.pid)

    def _reap(self, now: float) -> None:
        """Take every process that has ended, adopted ones included."""
        with contextlib.suppress(ChildProcessError):  # there is none at all
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found[0], os.waitstatus_to_exitcode(found[1])
                for child in self._children:
                    if child.pid == pid:
                        self._ended(child, status, now)

    def _ended(self, child: Child, status: int, now: float) -> None:
        self._selector.unregister(child.pipe)
        os.close(child.pipe)
        child.pid, child.pipe = 0, -1
        after = child.life.ended(status, now)
        if after is After.GIVE_UP:
            self._ending, self._status = True, CONFIGURATION_STATUS
        elif not self._ending:
            pause_seconds = child.life.start_at - now
            if after is After.DONE:
                LOG.info("child is not needed name=%s", child.spec.name)
            else:
                LOG.error(
                    "child ended name=%s status=%d again_in_seconds=%g", child.spec.name, status, pause_seconds
                )

    def _end_next(self, now: float) -> None:
        """Tell the first child that still runs to end; kill it when it takes too long."""
        for child in self._children:
            if not child.life.runs:
                continue
            if child.told_to_end_at is None:
                child.told_to_end_at = now
                os.kill(child.pid, signal.SIGTERM)
            waited_seconds = now - child.told_to_end_at
            if waited_seconds >= self._limits.drain and not child.killed:
                self._kill(child)
            if waited_seconds < self._limits.drain + UNKILLABLE_SECONDS:
                return
            # A process inside a driver call can outlive SIGKILL: it is left behind.
            child.life.runs = False

    @staticmethod
    def _kill(child: Child) -> None:
        child.killed = True
        os.kill(child.pid, signal.SIGKILL)

    def _wait_seconds(self, now: float) -> float:
        moments = [child.life.silent_at if child.life.runs else child.life.start_at for child in self._children]
        return max(0.01, min([LONGEST_WAIT_SECONDS, *(moment - now for moment in moments if moment > now)]))

    def _take_signals(self, signals: int) -> None:
        try:
            if set(os.read(signals, 4096)) & {int(number) for number in ENDING}:
                self._ending = True
        except BlockingIOError:
            return

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Signals arrive as bytes in a pipe, so that one wait sees them and the beats."""
        arrived, pipe = os.pipe()
        os.set_blocking(arrived, False)
        os.set_blocking(pipe, False)
        signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._selector.register(arrived, selectors.EVENT_READ)
        yield arrived
