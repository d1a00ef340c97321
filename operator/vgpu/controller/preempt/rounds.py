"""In which order everybody who waits is decided on, and when anew.

Enters: pods that just came, word that something changed, rounds that ended. Leaves: one place after another. A
round holds everybody who waits, the first in rank first; who comes during it takes his place in it. A round in
which nobody got a plan is followed by a rest: on a busy cluster where nobody may be evicted the loop is left to
others. Pods that just came do not wait for it. May not live here: decisions.
"""

import asyncio
from collections.abc import Collection
from heapq import heapify, heappop, heappush

from vgpu.controller.learning import learn
from vgpu.controller.preempt.waiting import Place, Waiting
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger

REST_FACTOR = 4
"""A rest is so many times the length of the round,"""
LONGEST_REST_SECONDS = 1.0
"""and at most so long."""


class Rounds:
    """See the module. `planned` says that somebody of this round got a plan."""

    def __init__(self, ledger: Ledger, index: FitIndex, waiting: Waiting) -> None:
        self._ledger = ledger
        self._index = index
        self._waiting = waiting
        self._places: list[Place] = []
        self._again = False
        self._fresh: set[str] = set()
        self._began = self._not_before = 0.0
        self.planned = False

    def note(self, uids: Collection[str] = ()) -> None:
        """Something changed that a decision rests on; these pods are there, or others than before."""
        self._fresh.update(uids)
        self._again = True

    def put_back(self, uids: Collection[str]) -> None:
        """These pods are decided on before those of this round who rank lower."""
        self._fresh.update(uids)

    def start_over(self) -> None:
        """Whatever was known is not known any more."""
        self._places.clear()
        self._not_before = 0.0
        self._again = True

    async def take_in(self) -> bool:
        """Who just came, and everybody when a new round begins. True when one does."""
        now = asyncio.get_running_loop().time()
        fresh, self._fresh = self._fresh, set()
        if not self._places and self._again and now >= self._not_before:
            await learn(self._index, {pod.request for pod in self._ledger.pending()})
            self._again, self.planned, self._began = False, False, now
            self._places = self._waiting.all()
            heapify(self._places)
            return True
        places = self._waiting.of(fresh)
        await learn(self._index, {pod.request for place in places for pod in place.pods})
        for place in places:
            heappush(self._places, place)
        return False

    def next(self) -> Place | None:
        """The first in rank of those who still need a decision; None: the round is over."""
        while self._places:
            place = self._waiting.still(heappop(self._places))
            if place is not None:
                return place
        return None

    @property
    def goes_on(self) -> bool:
        """True while somebody is left in this round, or something just came."""
        return bool(self._places or self._fresh)

    def wakes_at(self) -> float | None:
        """When to go on (the loop's clock), or None: when something changes."""
        now = asyncio.get_running_loop().time()
        if self._places:
            return now
        if self._again:
            return max(now, self._not_before)
        return None

    def rest(self) -> None:
        """A round is over."""
        now = asyncio.get_running_loop().time()
        length = 0.0 if self.planned else min(LONGEST_REST_SECONDS, REST_FACTOR * (now - self._began))
        self._not_before = now + length
