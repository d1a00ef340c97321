"""When a child is started, when it counts as hanging, and when its end is the end of all. Pure.

Moments of one monotonic clock and exit statuses enter, answers leave. No processes, no signals, no clock.
"""

from dataclasses import dataclass
from enum import StrEnum

NOTHING_TO_DO_STATUS = 3
"""The exit status of a child that is not needed on this node: it is not started again."""
CONFIGURATION_STATUS = 2
"""A child that ends so before it ever beat was started with a wrong setting, which a restart does not mend."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All in seconds."""

    first_beat: float = 30
    """From the start to the first beat: imports, and reading the settings."""
    beat: float = 5
    """Between two beats."""
    first_pause: float = 1
    longest_pause: float = 30
    calm: float = 60
    """A child that ran so long starts with the first pause again."""
    drain: float = 8
    """From SIGTERM to SIGKILL for a child that goes on serving for a while."""


class After(StrEnum):
    """What follows a child's end."""

    RESTART = "restart"
    DONE = "done"
    GIVE_UP = "give up"


@dataclass(slots=True)
class ChildLife:
    """What is remembered of one child, through all its processes."""

    limits: Limits
    runs: bool = False
    start_at: float = 0
    started_at: float = 0
    last_beat: float | None = None
    ever_beat: bool = False
    done: bool = False
    failures: int = 0

    def starts(self, now: float) -> bool:
        """Is it time to start the child?"""
        return not self.runs and not self.done and now >= self.start_at

    def started(self, now: float) -> None:
        """A process of the child runs."""
        self.runs, self.started_at, self.last_beat = True, now, None

    def beaten(self, now: float) -> None:
        """A beat was read."""
        self.last_beat, self.ever_beat = now, True

    def excuse(self, seconds: float) -> None:
        """The supervisor itself stood still so long: the child's silence meanwhile does not count."""
        self.started_at += seconds
        if self.last_beat is not None:
            self.last_beat += seconds

    @property
    def silent_at(self) -> float:
        """The moment from which silence means that the child hangs."""
        if self.last_beat is None:
            return self.started_at + self.limits.first_beat
        return self.last_beat + self.limits.beat

    def hangs(self, now: float) -> bool:
        """Has a running child been silent for too long?"""
        return self.runs and now >= self.silent_at

    def ended(self, status: int, now: float) -> After:
        """The child's process is gone; `status` below 0 is the signal that ended it."""
        self.runs = False
        if status == NOTHING_TO_DO_STATUS:
            self.done = True
            return After.DONE
        if status == CONFIGURATION_STATUS and not self.ever_beat:
            return After.GIVE_UP
        self.failures = 1 if now - self.started_at >= self.limits.calm else self.failures + 1
        pause = self.limits.first_pause * 2 ** min(self.failures - 1, 16)
        self.start_at = now + min(pause, self.limits.longest_pause)
        return After.RESTART
