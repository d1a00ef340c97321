"""Nominations that are out: until when each holds its cards, and which nodes get nothing new by their ends.

Enters: nominations as they are sent, pods as they change. Leaves: those that held for too long; nodes that are
free again only because a nomination came to nothing: that is no news to whoever it was for. May not live here: who
is sent where.
"""

import asyncio

from vgpu.controller.pacing import DueKeys
from vgpu.core.ledger import Ledger


class Held:
    """See the module."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._due: DueKeys[str] = DueKeys()
        self._node_of: dict[str, str] = {}
        self._given_up: set[str] = set()

    def note(self, uid: str, node: str, seconds: float) -> None:
        """Cards of the node are held for this pod, for so long at most."""
        self._node_of[uid] = node
        self._due.discard(uid)
        self._due.add(uid, asyncio.get_running_loop().time() + seconds)

    def look(self, uid: str) -> None:
        """The waiting pod has changed: kube-scheduler may have cleared its nomination."""
        held = self._ledger.nomination(uid) is not None or self._ledger.booking(uid) is not None
        if uid in self._node_of and not held:
            self._given_up.add(self._node_of.pop(uid))

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._node_of.pop(uid, None)
        self._due.discard(uid)

    async def next_over(self) -> str:
        """Wait for a nomination whose time is over, and hold nothing for its pod any more; hands back the uid, or
        "" when nothing was held any longer."""
        uid = await self._due.next()
        node = self._node_of.pop(uid, "")
        if not self._ledger.drop_nomination(uid):
            return ""
        self._given_up.add(node)
        return uid

    def take_given_up(self) -> set[str]:
        """Nodes whose cards were held for a pod that did not come, since the last call."""
        given_up, self._given_up = self._given_up, set()
        return given_up
