"""Gangs that did not start although cards were held for them: they rest while there is room for them.

Enters: gangs whose hold has ended without their start, that hold, nodes that changed. Leaves: whether a gang
rests: no cards are held for it then, and nobody goes for it. Once others have taken its room, on its nodes or in
its queue, it rests no longer, and waits for room as every gang does. May not live here: holding, who starts.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from vgpu.controller.preempt.gang_rooms import GangRooms
from vgpu.core.preempt.facts import Amounts
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.gang_state import GangState
from vgpu.core.preempt.reservations import PlanHold

Members = frozenset[tuple[str, bool]]
"""(uid, gated) of those who run and wait: what must differ for a gang that rests to be tried again."""


@dataclass(frozen=True, slots=True)
class _Rest:
    members: Members
    nodes: frozenset[str]
    queue: str
    used: Amounts


class GangRests:
    """See the module. Gangs are named by their keys."""

    def __init__(self, desk: GangDesk, rooms: GangRooms) -> None:
        self._desk = desk
        self._rooms = rooms
        self._rests: dict[str, _Rest] = {}
        self._doubtful: set[str] = set()

    def begin(self, state: GangState, hold: PlanHold) -> bool:
        """The gang, which had this hold until now, rests; there is room for it on those nodes. False: it does not,
        since its own queue kept back those for whom cards were held."""
        pods = [pod for pod in state.waiting if pod.uid in hold.uids]
        if not pods or not self._rooms.queue_takes(pods):
            return False
        queue = self._rooms.queue_of(pods[0])
        self._rests[state.gang.key] = _Rest(_members(state), hold.nodes, queue, self._rooms.used_in(queue))
        return True

    def rests(self, state: GangState) -> bool:
        """Whether the gang rests still, as it stands."""
        known = self._rests.get(state.gang.key)
        return known is not None and known.members == _members(state)

    def end(self, key: str) -> None:
        """The gang rests no longer."""
        self._rests.pop(key, None)

    def end_all(self) -> None:
        """Something may fit that did not fit before."""
        self._rests.clear()

    def touched(self, nodes: Collection[str]) -> bool:
        """These nodes are others than before. True when the room of a gang that rests may be gone: look()."""
        used = self._rooms.used_in
        for key, rest in self._rests.items():
            if not rest.nodes.isdisjoint(nodes) or used(rest.queue) != rest.used:
                self._doubtful.add(key)
        return bool(self._doubtful)

    async def look(self) -> bool:
        """End the rest of those whose room is gone. Each is looked at by itself, as nothing is held for those who
        rest. False: something came between, and it is to be called again."""
        keys, self._doubtful = sorted(self._doubtful & self._rests.keys()), set()
        for key in keys:
            state = self._desk.state(key)
            if state is not None and self.rests(state) and state.complete and not state.runs:
                await self._look_at(key, state)
        return not self._doubtful

    async def _look_at(self, key: str, state: GangState) -> None:
        await self._rooms.prepare([state])
        found, _ = await self._rooms.find([state])
        now, known = self._desk.state(key), self._rests.get(key)
        if known is None or now is None:
            return
        if not found:
            self.end(key)
        elif self._rooms.still(found, {key: now}):
            nodes = frozenset(placement.node for _, placement in found[0].seats)
            self._rests[key] = replace(known, nodes=nodes, used=self._rooms.used_in(known.queue))
        else:
            self._doubtful.add(key)


def _members(state: GangState) -> Members:
    return frozenset((pod.uid, pod.gated) for pod in (*state.running, *state.waiting))
