"""Starts gangs: cards are held for all that a gang lacks, or for none; then its members are sent there together.

Enters: changes of the ledger and of PodGroups. Leaves: holds in the ledger; members that may be tried, to the
sender. Members are woken once for each hold, and again when one of them was replaced: his cards wait for that, as
long as the hold lasts. A gang whose hold has ended without its start rests until something happens for it, or its
room is taken, so a quiet cluster stays quiet. Room that others must leave first is the planner's: once it sends
the members, their gates are lifted here. May not live here: rules, writes.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from vgpu.controller.fence import Fence
from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys
from vgpu.controller.preempt.broken_gangs import BrokenGangs
from vgpu.controller.preempt.gang_nodes import GangNodes
from vgpu.controller.preempt.gang_rests import GangRests
from vgpu.controller.preempt.gang_rooms import GangRooms
from vgpu.controller.preempt.gang_sender import GangSender
from vgpu.controller.preempt.pod_group_waits import PodGroupWaits, Tell
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.preempt.gang_desk import GangDesk, Sent
from vgpu.core.preempt.gang_offer import GangOffer
from vgpu.core.preempt.gang_seats import refilled
from vgpu.core.preempt.gang_state import GangState, starts_with
from vgpu.core.preempt.reservations import PlanHold

LOG = logging.getLogger(__name__)
OFFER = ""
"""The key, beside gangs', of all that wait."""
RETRY_SECONDS = 2.0
WAIT_FOR_BINDING_SECONDS = 10.0
"""A hold that ends while bindings are under way is looked at again after so long."""
OWN_HOLD = "gang "
"""What names of our own holds begin with; plans are NS/NAME."""


@dataclass(frozen=True, slots=True)
class GangParts:
    """What the actor works with. `hold_seconds`: holdTimeout of the pod's queue; `short` is called when gangs
    found no room, `held` when other cards are held for them, `poke` after the ledger was changed here,
    `lacking` of members whose PodGroup is not there, and is."""

    ledger: Ledger
    desk: GangDesk
    rooms: GangRooms
    sender: GangSender
    broken: BrokenGangs
    fence: Fence
    hold_seconds: Callable[[PodFact], int]
    short: Callable[[], None]
    held: Callable[[], None]
    poke: Callable[[], None]
    lacking: Tell = lambda pod, refusal: None


class Gangs:
    """See the module; only while this process leads."""

    def __init__(self, parts: GangParts) -> None:
        self._parts = parts
        self._desk = parts.desk
        self._due: DueKeys[str] = DueKeys()
        self._ends: DueKeys[str] = DueKeys()
        self._nodes = GangNodes(parts.ledger)
        self._rests = GangRests(parts.desk, parts.rooms)
        self._let_go: set[str] = set()
        self._incomplete: set[str] = set()
        self._groups = PodGroupWaits(parts.desk, parts.sender, parts.lacking)

    def changed(self, changes: Changes) -> None:
        """Note which gangs something happened to, and whether others may fit now."""
        if not self._parts.fence.leading:
            return
        keys = {key for uid in changes.pods if (key := self._desk.note(uid))}
        keys |= self._nodes.on(changes.nodes)
        holds = [*self._parts.ledger.plans.all(), *self._parts.ledger.plans.left()]
        held = (hold for hold in holds if not hold.nodes.isdisjoint(changes.nodes))
        keys |= {key for hold in held for uid in hold.uids if (key := self._desk.note(uid))}
        lost = (hold.plan for hold in holds if not hold.uids.isdisjoint(changes.pods))
        keys |= {plan.removeprefix(OWN_HOLD) for plan in lost if plan.startswith(OWN_HOLD)}
        for key in keys:
            self._look_at(key)
        if changes.freed:
            if changes.freed - self._let_go:
                self._rests.end_all()
            self._let_go.clear()
        if self._rests.touched(changes.nodes) or changes.freed:
            self._look_at(OFFER)

    def rules_changed(self) -> None:
        """A PodGroup or a queue is another than before: every gang that waits is looked at again."""
        if not self._parts.fence.leading:
            return
        self._note_waiting()
        self._rests.end_all()
        for key in self._desk.all_keys():
            self._look_at(key)

    def start_over(self) -> None:
        """This process has begun to lead: nothing was sent, and what is free may be news."""
        self._note_waiting()
        self._rests.end_all()
        for key in self._desk.all_keys():
            self._drop_hold(key)
            self._look_at(key)

    async def run(self) -> None:
        """Look at gangs that something happened to. Runs until cancelled."""
        while True:
            key = await self._due.next()
            with one_object("gangs", key or "all that wait"):
                if self._parts.fence.leading:
                    await (self._offer() if key == OFFER else self._look(key))

    async def expire(self) -> None:
        """End holds whose time is over. Runs until cancelled."""
        while True:
            key = await self._ends.next()
            with one_object("gangs: expire", key):
                self._time_is_over(key)

    def _note_waiting(self) -> None:
        for pod in self._parts.ledger.pending():
            if pod.terms is not None and pod.terms.group is not None:
                key = self._desk.note(pod.uid)
                if key:
                    self._look_at(key)

    def _look_at(self, key: str, in_seconds: float = 0.0) -> None:
        self._due.add(key, _now() + in_seconds)

    async def _look(self, key: str) -> None:
        state = self._desk.state(key)
        self._nodes.put(key, state)
        self._parts.broken.look(key, state)
        if state is None or state.runs:
            self._incomplete.discard(key)
        else:
            self._incomplete.add(key)
        if not await self._groups.look(key, state):
            self._look_at(key, RETRY_SECONDS)
        if state is None:
            self._drop_hold(key)
            self._rests.end(key)
            self._parts.sender.forget_gone()
        elif state.runs:
            await self._runs(key, state)
        else:
            await self._starts(key, state)

    async def _runs(self, key: str, state: GangState) -> None:
        """Whoever of it still waits is a pod like any other from now on."""
        self._desk.short(key, None)
        sent = self._desk.sent(key)
        if sent is not None and not any(pod.uid in sent.uids for pod in state.waiting):
            self._drop_hold(key)
        elif sent is not None and (hold := self._own_hold(key)) is not None:
            self._change_hold(replace(hold, kept=frozenset()))
        waiting = [pod for pod in state.waiting if pod.uid not in state.on_the_way]
        if not await self._parts.sender.let_in(waiting):
            self._look_at(key, RETRY_SECONDS)

    async def _starts(self, key: str, state: GangState) -> None:
        sent = self._desk.sent(key)
        if sent is not None and self._lost_one(key, sent, state):
            sent = await self._replace(key, state)
        elif sent is not None and state.complete and not starts_with(state, sent.uids):
            self._drop_hold(key)  # one who was bound is gone: it lacks more than is held
            sent = None
        sent = sent or self._adopt_plan(key, state)
        if sent is not None:
            gated = [pod for pod in state.waiting if pod.uid in sent.uids and starts_with(state, sent.uids)]
            if not await self._parts.sender.lift_gates(gated):
                self._look_at(key, RETRY_SECONDS)
        elif self._may_be_offered(key, state):
            self._look_at(OFFER)
        elif not state.complete:
            self._desk.short(key, None)

    def _lost_one(self, key: str, sent: Sent, state: GangState) -> bool:
        hold = self._own_hold(key)
        return not starts_with(state, sent.uids) if hold is None else not hold.uids <= state.uids

    async def _replace(self, key: str, state: GangState) -> Sent | None:
        """Some of those who were sent do not wait any more: who replaces them takes their seats, and everybody is
        sent again once the gang is whole. None: nothing is held by us."""
        hold = self._own_hold(key)
        now = self._desk.now(key, hold.uids) if hold is not None else None
        after = None if hold is None else refilled(hold, state, now, self._parts.ledger.view)
        if after is None:
            self._drop_hold(key)
            return None
        pods = [pod for pod in state.waiting if pod.uid in after.uids]
        sent = Sent(frozenset(pod.uid for pod in pods), after.plan)
        self._desk.send(key, sent)
        self._change_hold(after)
        if after != hold and starts_with(state, sent.uids):
            LOG.info("gang %s is whole again: its cards are still held", key)
            self._end_in_time(key, pods[0])
            nodes = {card.reservation.uid: card.node for card in after.cards}
            await self._send(key, [(pod, nodes[pod.uid]) for pod in pods if pod.uid not in state.on_the_way])
        return sent

    def _adopt_plan(self, key: str, state: GangState) -> Sent | None:
        """A plan has made room and nominated its pods: they may start."""
        hold = self._desk.planned(state)
        if hold is None:
            return None
        sent = Sent(frozenset(pod.uid for pod in state.waiting if pod.uid in hold.uids), hold.plan)
        self._desk.send(key, sent)
        return sent

    def _may_be_offered(self, key: str, state: GangState) -> bool:
        held = self._desk.covered(state) or self._desk.sent(key) is not None
        not_now = state.runs or not state.complete or state.on_the_way or held
        return not (not_now or self._rests.rests(state))

    async def _offer(self) -> None:
        """Hold cards for every gang that fits, then send its members."""
        if not await self._rests.look():
            self._look_at(OFFER)
        while waiting := self._waiting():
            await self._parts.rooms.prepare(waiting)
            found, short = await self._parts.rooms.find(self._waiting())
            offers = self._parts.rooms.still(found, {state.gang.key: state for state in self._waiting()})
            for key, room in short.items():
                self._desk.short(key, room)
            for offer in offers:
                self._hold(offer)
            for offer in offers:
                with one_object("gangs: send", offer.key):
                    await self._send(offer.key, [(pod, placement.node) for pod, placement in offer.seats])
            if len(offers) < len(found):
                self._look_at(OFFER)  # something came between
            if not offers:
                if short:
                    self._parts.short()
                return

    def _waiting(self) -> list[GangState]:
        states = [(key, self._desk.state(key)) for key in sorted(self._incomplete)]
        return [state for key, state in states if state is not None and self._may_be_offered(key, state)]

    async def _send(self, key: str, seats: list[tuple[PodFact, str]]) -> None:
        if not await self._parts.sender.send(seats):
            self._look_at(key, RETRY_SECONDS)

    def _hold(self, offer: GangOffer) -> None:
        name = f"{OWN_HOLD}{offer.key}"
        self._desk.send(offer.key, Sent(frozenset(pod.uid for pod, _ in offer.seats), name))
        self._change_hold(offer.hold(name))
        self._end_in_time(offer.key, offer.seats[0][0])
        LOG.info("gang %s fits: cards are held for %d pods", offer.key, len(offer.seats))

    def _own_hold(self, key: str) -> PlanHold | None:
        return self._parts.ledger.plans.get(f"{OWN_HOLD}{key}")

    def _change_hold(self, hold: PlanHold) -> None:
        """What the gang gives back of it is no room that wakes those who rest."""
        known = self._parts.ledger.plans.get(hold.plan)
        if hold != known:
            self._let_go |= hold.nodes if known is not None else frozenset()
            self._parts.ledger.plans.put(hold)
            self._parts.held()
            self._parts.poke()

    def _end_in_time(self, key: str, pod: PodFact) -> None:
        self._ends.discard(key)
        self._ends.add(key, _now() + self._parts.hold_seconds(pod))

    def _time_is_over(self, key: str) -> None:
        state, hold = self._desk.state(key), self._own_hold(key)
        if state is not None and state.on_the_way:
            self._ends.add(key, _now() + WAIT_FOR_BINDING_SECONDS)
        elif self._drop_hold(key) and hold is not None and state is not None and not state.runs:
            LOG.info("gang %s did not start in time: its cards are free for others", key)
            if not self._rests.begin(state, hold):
                self._look_at(key)

    def _drop_hold(self, key: str) -> bool:
        """End what we hold for the gang; what a plan holds is the planner's. False: we held nothing."""
        hold = self._own_hold(key)
        self._desk.recall(key)
        self._ends.discard(key)
        if hold is None:
            return False
        self._parts.ledger.plans.drop(hold.plan)
        self._let_go |= hold.nodes
        self._parts.held()
        self._parts.poke()
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
