"""Bookings of pods that no list and no watch has shown: whether their pods still exist is asked, one read each.

The binder also knows pods by its own reads and writes. A pod that is bound and deleted while the watch is away is
in no list and in no difference of lists, so nothing else would ever end its booking.

Enters: word that the list of pods was folded. Leaves: the end of each booking whose pod is gone. A pod that exists
keeps its booking: it was created after the list began, the watch will show it, and the next list asks again.
May not live here: bookings of pods that the ledger knows; their events end them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Booking, Ledger
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject

LOG = logging.getLogger(__name__)
AGAIN_SECONDS = 2.0
"""Until a booking is looked at again whose attempt is under way or whose pod could not be read."""
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class StrayParts:
    """What is asked. `read_pod` (namespace, name) raises ApiRefused (404: gone), ApiUnavailable, MalformedObject;
    `in_flight` (uid) says whether an attempt still works on the booking; `changed` is called after one was ended.
    """

    ledger: Ledger
    read_pod: Callable[[str, str], Awaitable[PodFact]]
    in_flight: Callable[[str], bool]
    changed: Callable[[], None]
    again_seconds: float = AGAIN_SECONDS


class StrayBookings:
    """Ends the bookings whose pods went unseen."""

    def __init__(self, parts: StrayParts) -> None:
        self._parts = parts
        self._due: DueKeys[str] = DueKeys()

    def synced(self) -> None:
        """The list of pods was folded: what it did not show is asked about."""
        now = asyncio.get_running_loop().time()
        for booking in self._parts.ledger.bookings():
            if self._parts.ledger.pod(booking.uid) is None:
                self._due.add(booking.uid, now)

    async def run(self) -> None:
        """Ask, one pod at a time. Runs until cancelled."""
        while True:
            uid = await self._due.next()
            with one_object("stray bookings", uid):
                if await self._look(uid):
                    self._due.add(uid, asyncio.get_running_loop().time() + self._parts.again_seconds)

    async def _look(self, uid: str) -> bool:
        """True when it must be looked at again."""
        booking = self._stray(uid)
        if booking is None:
            return False
        exists = None if self._parts.in_flight(uid) else await self._exists(booking)
        if exists is False:
            self._end(booking)
        return exists is None

    async def _exists(self, booking: Booking) -> bool | None:
        """Whether the pod of this uid is there; None when that could not be learnt."""
        try:
            fact = await self._parts.read_pod(booking.namespace, booking.name)
        except ApiRefused as error:
            if error.status == NOT_FOUND:
                return False
            LOG.warning("pod cannot be read pod=%s/%s: %s", booking.namespace, booking.name, error)
            return None
        except ApiUnavailable:
            return None
        except MalformedObject:
            return True  # something bears its name: its deletion will be seen, and a list asks again
        return fact.uid == booking.uid

    def _stray(self, uid: str) -> Booking | None:
        """The booking, while nothing but our own reads and writes tells of its pod."""
        return self._parts.ledger.booking(uid) if self._parts.ledger.pod(uid) is None else None

    def _end(self, booking: Booking) -> None:
        """The uid is gone for ever. Whatever was learnt of it while it was read only ends more than this."""
        if self._parts.ledger.drop_pod(booking.uid):
            LOG.info("unseen pod is gone pod=%s/%s node=%s", booking.namespace, booking.name, booking.node)
            self._parts.changed()
