"""How often a plan is looked at: a look costs more the more pods it is for, and each of these calls for one.

Enters: looks at plans, and how long they took. Leaves: the moment from which what happens calls for the next look.
Bindings of a large gang come one by one, all within the seconds that kube-scheduler waits for them: a look at all
of it for each would take longer than that. May not live here: what calls for a look, looks.
"""

import asyncio

REST_FACTOR = 4
"""A plan rests so many times the length of a look,"""
LONGEST_REST_SECONDS = 1.0
"""and at most so long."""
SHORT_SECONDS = 0.005
"""A look that takes no longer calls for no rest."""


class StepPace:
    """On the loop's clock."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def now(self) -> float:
        """This moment."""
        return asyncio.get_running_loop().time()

    def note(self, plan: str, took_seconds: float) -> None:
        """A look at the plan NS/NAME has ended; 0 where the plan has, too."""
        if took_seconds <= SHORT_SECONDS:
            self._until.pop(plan, None)
        else:
            self._until[plan] = self.now() + min(LONGEST_REST_SECONDS, REST_FACTOR * took_seconds)

    def until(self, plan: str) -> float:
        """From when on it may be looked at again; 0 = at once."""
        return self._until.get(plan, 0.0)
