"""How long to wait before the next attempt. Values only: the caller waits."""

import random
from collections.abc import Callable

STEADY_SECONDS = 10.0


class Backoff:
    """Full jitter: a random part of a bound that doubles from `first_seconds` to `most_seconds`."""

    def __init__(
        self, first_seconds: float = 0.1, most_seconds: float = 30, draw: Callable[[], float] = random.random
    ) -> None:
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._draw = draw
        self._bound_seconds = first_seconds

    def next_seconds(self, at_least_seconds: float = 0) -> float:
        """Seconds to wait now; each call doubles the bound of the next."""
        seconds = self._draw() * self._bound_seconds
        self._bound_seconds = min(self._bound_seconds * 2, self._most_seconds)
        return max(seconds, at_least_seconds)

    @property
    def bound_seconds(self) -> float:
        """The longest that the next wait can be."""
        return self._bound_seconds

    def worked_for(self, seconds: float) -> None:
        """Start over if what was tried worked for at least STEADY_SECONDS: a short success proves nothing."""
        if seconds >= STEADY_SECONDS:
            self._bound_seconds = self._first_seconds
