"""Gangs of which too few are bound: told at once, and evicted where nobody completes them in time.

Enters: states of gangs as they are looked at. Leaves: events, what the gang's plan is to say of it, evictions
through whoever carries them out. The time runs from when this process first saw it: a restart makes it longer,
never wrong. May not live here: the rule.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys
from vgpu.core.facts import PodFact
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.gang_state import GangState, in_vain
from vgpu.core.reasons import Reason

LOOK_AGAIN_SECONDS = 10.0
"""A gang that is being completed just then, or that a budget protects, is looked at again after so long."""


@dataclass(frozen=True, slots=True)
class BrokenParts:
    """`hold_seconds`: holdTimeout of the pod's queue; `evict`: this member of the gang (its key) runs in
    vain, with why; `tell`: an event; `leading`: whether this process leads; `partly`: too few of the gang (its
    key) are bound, and what is told of it, or "" = that is not so."""

    desk: GangDesk
    hold_seconds: Callable[[PodFact], int]
    evict: Callable[[PodFact, str, str], None]
    tell: Callable[[PodFact, Reason, str], None]
    leading: Callable[[], bool]
    partly: Callable[[str, str], None] = lambda key, why: None


class BrokenGangs:
    """See the module."""

    def __init__(self, parts: BrokenParts) -> None:
        self._parts = parts
        self._since: dict[str, float] = {}
        self._due: DueKeys[str] = DueKeys()

    def look(self, key: str, state: GangState | None) -> None:
        """The gang stands like this now."""
        if state is None or not state.partial:
            self._since.pop(key, None)
            self._due.discard(key)
            self._parts.partly(key, "")
            return
        words = self._words(key, state)
        self._parts.partly(key, words)
        if key not in self._since:
            self._since[key] = _now()
            self._due.add(key, _now() + self._parts.hold_seconds(state.running[0]))
            for pod in (*state.running, *state.waiting):
                self._parts.tell(pod, Reason.GANG_PARTIAL, words)

    def again(self, key: str) -> None:
        """An eviction was put off: ask again in a moment."""
        self._due.add(key, _now() + LOOK_AGAIN_SECONDS)

    async def run(self) -> None:
        """Evict what ran in vain for too long. Runs until cancelled."""
        while True:
            key = await self._due.next()
            with one_object("broken gangs", key):
                if self._parts.leading():
                    self._time_is_over(key)

    def _time_is_over(self, key: str) -> None:
        state, since = self._parts.desk.state(key), self._since.get(key)
        if state is None or since is None or not state.running:
            return
        if state.on_the_way or self._parts.desk.sent(key) is not None:
            self._due.add(key, _now() + LOOK_AGAIN_SECONDS)
            return
        grace = self._parts.hold_seconds(state.running[0])
        if _now() < since + grace:  # its queue grants more by now
            self._due.add(key, since + grace)
            return
        why = f"gang {key} lacks {state.missing} pods, and for {grace} s there was no room for them"
        for pod in in_vain(state, 0, grace, round(_now() - since)):
            self._parts.evict(pod, key, why)

    def _words(self, key: str, state: GangState) -> str:
        return (
            f"{len(state.running)} of the {state.gang.minimum} pods that gang {key} needs are bound; these are "
            f"evicted unless the others follow within {self._parts.hold_seconds(state.running[0])} s"
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
