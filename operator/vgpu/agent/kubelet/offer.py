"""Notices that kubelet offers other slots than it was told.

Another device plugin may register the same resource. kubelet then calls that one and says nothing to ours: our
stream stays open, and nobody listens at its other end. When the other plugin ends, kubelet offers nothing at all.
Only what kubelet offers shows it.

The board and kubelet's answers enter, a complaint to the link leaves. Nothing is registered here.
"""

import logging
from collections.abc import Awaitable, Callable

from vgpu.agent.clock import Clock
from vgpu.agent.kubelet.board import SlotBoard
from vgpu.agent.kubelet.registration import KubeletLink
from vgpu.errors import VgpuError

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 10.0
REPLACED = "kubelet offers other slots than it was told: another plugin has registered the same resource"

Offered = Callable[[], Awaitable[frozenset[str]]]
"""The healthy slots that kubelet knows of now. Raises VgpuError where it does not tell."""


class OfferWatch:
    """Compares what kubelet offers with what it was told, as long as it listens."""

    def __init__(self, link: KubeletLink, board: SlotBoard, offered: Offered, clock: Clock) -> None:
        self._link = link
        self._board = board
        self._offered = offered
        self._clock = clock

    async def run(self) -> None:
        """Look once in ten seconds until cancelled. One difference may be a change on its way, two are none."""
        differed = False
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            differs = await self._differs()
            if differs and differed:
                self._link.register_anew(REPLACED)
                differs = False
            differed = differs

    async def _differs(self) -> bool:
        slots = self._board.slots
        if slots is None or not self._link.in_use:
            return False
        try:
            offered = await self._offered()
        except VgpuError as error:
            LOG.debug("what kubelet offers is not known problem=%s", error)
            return False
        return slots == self._board.slots and offered != frozenset(slots.ids[: slots.healthy])
