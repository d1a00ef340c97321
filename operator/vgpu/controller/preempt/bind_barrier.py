"""Holds the binding of a gang's member back until all that the gang lacks are to be bound: then all go, or none.

Enters: members whose cards are booked and whose binding would be sent now. Leaves: "" for all of them together, or
for all of them why not. kube-scheduler waits for the answer, so nobody is held for longer than a few seconds. May
not live here: booking, sending, who is of which gang.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Protocol

from vgpu.controller.clock import Clock
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.gang_state import GangState

LOG = logging.getLogger(__name__)
MARGIN_SECONDS = 1.0
"""So long before the binder must answer the wait ends: what is sent then still has its answer in time."""


class Gangs(Protocol):
    """What is asked about gangs."""

    def state_of(self, uid: str) -> GangState | None:
        """The state of the pod's gang; None for a pod that starts by itself."""

    def state(self, key: str) -> GangState | None:
        """The state of this gang, None when it is gone."""

    def knows(self, uid: str) -> bool:
        """Whether the pod's event has come."""


@dataclass(slots=True)
class _Muster:
    """Members of one gang that wait for each other."""

    answer: "asyncio.Future[str]"
    uids: set[str] = field(default_factory=set)
    timer: "asyncio.Task[None] | None" = None


class BindBarrier:
    """See the module. `wait_seconds`: no member waits for longer."""

    def __init__(self, gangs: Gangs, ledger: Ledger, clock: Clock, wait_seconds: float) -> None:
        self._gangs = gangs
        self._ledger = ledger
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._musters: dict[str, _Muster] = {}
        self._passed: dict[str, str] = {}

    async def hold(self, pod: PodFact) -> str:
        """Come back when the pod may be bound (""), or with why it may not be now. Its cards must be booked."""
        if pod.terms is not None and pod.terms.group is not None and not self._gangs.knows(pod.uid):
            return "the pod is of a gang, and its event has not come yet"
        state = self._gangs.state_of(pod.uid)
        if state is None:
            return ""
        key = state.gang.key
        muster = self._musters.get(key) or self._begin(key)
        muster.uids.add(pod.uid)
        if self._enough(state, muster.uids):
            self._passed = {uid: nonce for uid, nonce in self._passed.items() if self._nonce(uid) == nonce}
            self._passed.update({uid: self._nonce(uid) for uid in muster.uids})
            LOG.debug("gang %s: %d bindings go together", key, len(muster.uids))
            self._end(key, "")
        return await asyncio.shield(muster.answer)

    def close(self) -> None:
        """Let nobody wait any longer."""
        for key in list(self._musters):
            self._end(key, "the operator stops")

    def _begin(self, key: str) -> _Muster:
        muster = self._musters[key] = _Muster(asyncio.get_running_loop().create_future())
        muster.timer = asyncio.create_task(self._expire(key, muster))
        return muster

    async def _expire(self, key: str, muster: _Muster) -> None:
        await self._clock.sleep(self._wait_seconds)
        if self._musters.get(key) is not muster:
            return
        state = self._gangs.state(key)
        lacking = "" if state is None else f" of the {state.missing} that it lacks"
        here = len(muster.uids)
        muster.timer = None
        self._end(
            key,
            f"gang {key}: {here} pods{lacking} were to be bound within {self._wait_seconds:g} s, so none is; all "
            "are tried again together",
        )

    def _enough(self, state: GangState, uids: set[str]) -> bool:
        """True when those who run, whose binding is under way and who wait here are as many as must run."""
        here = {pod.uid for pod in state.waiting if self._holds_cards(pod.uid, uids)}
        return len(here) >= state.missing

    def _holds_cards(self, uid: str, uids: set[str]) -> bool:
        """True for a booked pod that waits here or has passed, on a node that is still there."""
        booking = self._ledger.booking(uid)
        if booking is None or (uid not in uids and self._passed.get(uid) != booking.nonce):
            return False
        view = self._ledger.view(booking.node)
        return view is not None and view.node is not None and view.inventory is not None

    def _nonce(self, uid: str) -> str:
        booking = self._ledger.booking(uid)
        return "" if booking is None else booking.nonce

    def _end(self, key: str, answer: str) -> None:
        muster = self._musters.pop(key)
        if muster.timer is not None:
            muster.timer.cancel()
        if not muster.answer.done():
            muster.answer.set_result(answer)


async def pass_at_once(pod: PodFact) -> str:
    """No barrier: every pod is bound as soon as its cards are booked."""
    del pod
    return ""
