"""Members whose PodGroup is not there, and those whose PodGroup says that they are no gang.

Enters: gangs as they are looked at. Leaves: what such members are told, gated ones too, since nobody else tells
those; pods that start by themselves to the sender. May not live here: whether a PodGroup is there.
"""

from collections.abc import Callable

from vgpu.controller.preempt.gang_sender import GangSender
from vgpu.core.facts import PodFact
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.gang_state import GangState
from vgpu.core.reasons import Refusal

Tell = Callable[[PodFact, Refusal | None], None]
"""Told of a member why what it belongs to is not there; None = it is."""


class PodGroupWaits:
    """See the module."""

    def __init__(self, desk: GangDesk, sender: GangSender, tell: Tell) -> None:
        self._desk = desk
        self._sender = sender
        self._tell = tell
        self._lacking: set[str] = set()

    async def look(self, key: str, state: GangState | None) -> bool:
        """The gang of this key stands like this, None = there is none. False: a gate is still to be lifted."""
        lacks = state is not None and not state.gang.known
        waiting = list(state.waiting) if state is not None else self._desk.starting_alone(key)
        if lacks:
            self._lacking.add(key)
            self._sender.put_back(pod.uid for pod in waiting)
        if lacks or key in self._lacking:
            for pod in waiting:
                self._tell(pod, self._desk.refusal(pod) if lacks else None)
        if not lacks:
            self._lacking.discard(key)
        return state is not None or not waiting or await self._sender.let_in(waiting)
