"""Nominations that are out: until when each holds its cards, and which nodes get nothing new by their ends.

What is held for a pod that is yet to be created is held under the uid that it had before, and passes to the pod of
its name as soon as that is heard of: nobody else comes in between.

Enters: nominations as they are sent, pods as they change. Leaves: holds in the ledger; those that held for too
long; nodes that are free again only because a nomination came to nothing: that is no news to whoever it was for.
May not live here: who is sent where.
"""

import asyncio

from vgpu.controller.pacing import DueKeys
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement


class Held:
    """See the module. Each nomination holds its cards for `seconds` at most."""

    def __init__(self, ledger: Ledger, seconds: float) -> None:
        self._ledger = ledger
        self._seconds = seconds
        self._due: DueKeys[str] = DueKeys()
        self._node_of: dict[str, str] = {}
        self._to_come: dict[tuple[str, str], str] = {}
        self._given_up: set[str] = set()

    def hold(self, pod: PodFact, placement: Placement) -> bool:
        """Hold the placement for this pod from now on, also for one that does not exist yet. False, and nothing is
        held, where it holds cards already or waits no more."""
        to_come = self._ledger.pod(pod.uid) is None
        if not self._ledger.nominate(pod.uid, placement.node, placement, to_come=to_come):
            return False
        self._node_of[pod.uid] = placement.node
        self._due.discard(pod.uid)
        self._due.add(pod.uid, asyncio.get_running_loop().time() + self._seconds)
        if to_come:
            self._to_come[pod.namespace, pod.name] = pod.uid
        return True

    def came(self, pod: PodFact) -> bool:
        """The pod is there. True when something was held for it under another uid: it is its own now."""
        before = self._to_come.get((pod.namespace, pod.name), pod.uid)
        placement = self._ledger.nomination(before)
        if before == pod.uid or placement is None:
            return False
        self._given_up.add(placement.node)  # no room comes by this
        self._ledger.drop_nomination(before)
        self.forget(before)
        return self.hold(pod, placement)

    def look(self, uid: str) -> None:
        """The waiting pod has changed: kube-scheduler may have cleared its nomination."""
        held = self._ledger.nomination(uid) is not None or self._ledger.booking(uid) is not None
        if uid in self._node_of and not held:
            self._given_up.add(self._node_of.pop(uid))

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._node_of.pop(uid, None)
        self._due.discard(uid)
        self._to_come = {name: one for name, one in self._to_come.items() if one != uid}

    def give_up(self, uid: str) -> bool:
        """The pod does not come: hold nothing for it any more. False: nothing was held."""
        node = self._node_of.get(uid, "")
        self.forget(uid)
        if not self._ledger.drop_nomination(uid):
            return False
        self._given_up.add(node)
        return True

    async def next_over(self) -> str:
        """Wait for a nomination whose time is over, and hold nothing for its pod any more; hands back the uid, or
        "" when nothing was held any longer."""
        uid = await self._due.next()
        return uid if self.give_up(uid) else ""

    def take_given_up(self) -> set[str]:
        """Nodes whose cards were held for a pod that did not come, since the last call; and where a hold has only
        passed to the pod that was created."""
        given_up, self._given_up = self._given_up, set()
        return given_up
