"""What happens when this replica begins to lead, and what it answers while it does not.

Enters: the elector's two calls. Leaves: a view that is consistent with the API server before anything is answered
or written, an open extender, and a start for those who act. May not live here: the Lease itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from vgpu.controller.fence import Fence
from vgpu.controller.guard import one_object

LOG = logging.getLogger(__name__)


class Relistable(Protocol):
    """A watch that can fold one consistent list on demand."""

    async def relist(self) -> None:
        """Come back when a list that began now is folded."""


class Leadership:
    """Serves only between a finished take-over and the end of the leadership.

    `prepare` steps run in order after the list is folded and before anything is answered.
    """

    def __init__(
        self, fence: Fence, watches: Sequence[Relistable], prepare: Sequence[Callable[[], Awaitable[None]]]
    ) -> None:
        self.serving = False
        self._fence = fence
        self._watches = watches
        self._prepare = prepare
        self._starters: list[Callable[[], None]] = []
        fence.takes_over()

    def on_start(self, start: Callable[[], None]) -> None:
        """Call `start` whenever this replica is ready to act as the leader."""
        self._starters.append(start)

    async def started(self) -> None:
        """Take over: however warm our view is, fold one consistent list of everything that decisions rest on."""
        began = asyncio.get_running_loop().time()
        self._fence.takes_over()
        await asyncio.gather(*(watch.relist() for watch in self._watches))
        for step in self._prepare:
            await step()
        self.serving = True
        self._fence.took_over()
        for start in self._starters:
            with one_object("start as the leader", getattr(start, "__qualname__", repr(start))):
                start()
        LOG.info("serving as the leader after seconds=%.2f", asyncio.get_running_loop().time() - began)

    def stopped(self) -> None:
        """Another one leads, or nobody."""
        self.serving = False
        self._fence.takes_over()

    def refusal(self) -> str:
        """Why the extender is not answered here now; "" while it is."""
        if not self._fence.holds_lease:
            return "this replica does not lead"
        return "" if self.serving else "this replica has just begun to lead and reads the cluster"
