"""Whether this process may write, and decide, now. Enters: the times of Lease renewals. Leaves: yes or no.

Pure but for the clock that it is given. May not live here: requests, waiting.
"""

import time
from collections.abc import Callable

from vgpu.errors import LeaseRunsOut, NotLeading


class Fence:
    """Open from a renewal until `margin_seconds` before the renew deadline, judged by a monotonic clock alone.

    Needs nobody to close it: a process that hangs, or whose requests hang, finds it closed. A write that starts
    while it is open has ended (by its own time-out) before another process can hold the Lease.
    """

    def __init__(
        self,
        renew_deadline_seconds: float,
        margin_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renew_deadline_seconds = renew_deadline_seconds
        self._margin_seconds = margin_seconds
        self._clock = clock
        self._renewed_at: float | None = None
        self._took_over = True

    def now(self) -> float:
        """The time of the clock that this fence judges by."""
        return self._clock()

    @property
    def deadline(self) -> float | None:
        """The time of the clock at which leadership ends without a further renewal; None when not leading."""
        return None if self._renewed_at is None else self._renewed_at + self._renew_deadline_seconds

    @property
    def holds_lease(self) -> bool:
        """Whether the Lease was renewed within the renew deadline."""
        return self.deadline is not None and self._clock() < self.deadline

    @property
    def leading(self) -> bool:
        """Whether this process holds the Lease and decides: not while it still takes over, as what it knows may be
        older than the last leader's writes."""
        return self.holds_lease and self._took_over

    def takes_over(self) -> None:
        """From now on nothing is decided, until took_over()."""
        self._took_over = False

    def took_over(self) -> None:
        """What is known agrees with the API server, and everybody who decides has begun anew."""
        self._took_over = True

    def may_write(self) -> bool:
        """Whether a write may start now."""
        return self.deadline is not None and self._clock() < self.deadline - self._margin_seconds

    def admit(self, write: str) -> None:
        """Let this write start. Raises LeaseRunsOut where it may start a moment later, NotLeading where it is not
        ours to make any more."""
        if self.may_write():
            return
        if self.holds_lease:
            raise LeaseRunsOut(f"{write}: the Lease is not held for long enough")
        raise NotLeading(f"{write}: the Lease is not held")

    def renewed(self, at: float) -> None:
        """A renewal succeeded; `at` is the clock's time just before its request was sent.

        One that is told of after the deadline comes too late: between the two, writes were dropped as somebody
        else's, so whoever decides has to begin anew.
        """
        if self._renewed_at is not None and not self.holds_lease:
            return
        if self._renewed_at is None or at > self._renewed_at:
            self._renewed_at = at

    def lost(self) -> None:
        """Leadership ended: closed until the next renewal."""
        self._renewed_at = None
