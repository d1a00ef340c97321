"""How soon the agent may write again: at once after a calm minute, otherwise 1 to 60 seconds with jitter."""

from dataclasses import dataclass
from random import Random

from vgpu.agent.clock import Clock


@dataclass(slots=True)
class Pace:
    """Pauses between the attempts of one publisher.

    The first attempt goes at once. Each further one waits between half and all of 2, 4, 8 ... 60 seconds, until
    the content has been as wanted for `calm_seconds`: neither a failing API server nor another writer of the
    same object is ever hammered.
    """

    clock: Clock
    random: Random
    first_seconds: float = 2
    longest_seconds: float = 60
    calm_seconds: float = 60
    _attempts: int = 0
    _settled_at: float | None = None

    def settled(self) -> None:
        """The content is as wanted."""
        if self._settled_at is None:
            self._settled_at = self.clock.monotonic()

    def next_pause_seconds(self, asked_seconds: float = 0) -> float:
        """Seconds to wait before the attempt that is due now; `asked_seconds` is the least the server wants."""
        now = self.clock.monotonic()
        if self._settled_at is not None and now - self._settled_at >= self.calm_seconds:
            self._attempts = 0
        self._settled_at = None
        self._attempts += 1
        if self._attempts == 1:
            return asked_seconds
        longest = min(self.first_seconds * 2 ** min(self._attempts - 2, 16), self.longest_seconds)
        return max(asked_seconds, self.random.uniform(longest / 2, longest))
