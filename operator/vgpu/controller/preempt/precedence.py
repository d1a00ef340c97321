"""Who comes first where the owner of a plan is about to be sent: one look before anybody is.

A plan is decided on with what is known at its time. When its cards are free at last, somebody of higher rank may
wait whose own plan still drains, or who has none: he starts there, and this owner is decided on anew. On cards
that a plan holds only he comes first who could have taken the plan over; on free ones whoever is served first.

Enters: a plan and its step that sends. Leaves: who is sent in its place, the ends of plans that follow from it.
May not live here: how plans end, what is written.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from vgpu.controller.preempt.keeper_parts import KeeperParts
from vgpu.controller.preempt.plan_worlds import owner_state, owner_uids
from vgpu.core.facts import PodFact
from vgpu.core.nomination import Nomination, best_placement
from vgpu.core.preempt.eligible import may_preempt
from vgpu.core.preempt.facts import OwnerKind, PlanFact, Workload
from vgpu.core.preempt.feasible import obstacle_after
from vgpu.core.preempt.plan import Action, End, Nominate, OwnerState, PlanEnd, Progress, Step, key_of
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.preempt.rank import rank_of
from vgpu.core.preempt.reservations import PlanHold, without_plans
from vgpu.core.preempt.situation import situation_of

LOG = logging.getLogger(__name__)
MOST_SENT = 3
"""So often a pod is sent before others; if it does not come then, others' filters are against it."""


@dataclass(frozen=True, slots=True)
class Acts:
    """What is done with plans: looked at, by name; taken over, by names, for one of a name; ended."""

    step: Callable[[str], None]
    take_over: Callable[[Iterable[str], str], None]
    end: Callable[[PlanFact, End, Sequence[Action]], None]


@dataclass(frozen=True, slots=True)
class _Rival:
    """Who waits, and his own plan if there is one."""

    pods: Sequence[Workload]
    plan: PlanFact | None = None

    @property
    def name(self) -> str:
        """NS/NAME of the plan, or of the pod."""
        return self.pods[0].pod if self.plan is None else key_of(self.plan)


class Precedence:
    """See the module."""

    def __init__(self, parts: KeeperParts, acts: Acts) -> None:
        self._parts = parts
        self._acts = acts
        self._gate = QueueGate(parts.roster)
        self._sent: Counter[str] = Counter()

    def gives_way(self, plan: PlanFact, step: Step) -> bool:
        """True when somebody who comes first starts where the plan's owner was about to be sent: on its own cards,
        so that the plan is over, or on free ones. All that follows is done."""
        if not any(isinstance(action, Nominate) for action in step.actions):
            return False
        own = not any(isinstance(action, End) for action in step.actions)
        rival, sends = self._first(plan, own=own)
        if rival is None:
            return False
        LOG.info("first in rank: %s before plan=%s", rival.name, key_of(plan))
        if own:
            self._acts.take_over([key_of(plan)], rival.name)
        self._start(rival, sends)
        self._parts.left.give_room()
        if not own:
            self._acts.step(key_of(plan))
        return True

    def _first(self, plan: PlanFact, *, own: bool) -> tuple[_Rival | None, tuple[Nominate, ...]]:
        """Who could start now and comes before the owner of this plan: on its `own` cards, or on free ones. A gang
        of which somebody is bound already goes on."""
        workloads = self._parts.roster.workloads
        owners = [workloads[uid] for uid in plan.owner_uids if uid in workloads]
        hold = self._parts.ledger.plans.get(key_of(plan))
        begun = any(owner_state(self._parts.ledger, uid) is not OwnerState.WAITING for uid in owner_uids(plan))
        if owners and hold is not None and not begun:
            for rival in self._rivals(plan, owners, own=own):
                sends = self._start_of(rival, hold, own=own)
                if sends:
                    return rival, sends
        return None, ()

    def _start(self, rival: _Rival, sends: tuple[Nominate, ...]) -> None:
        for uid in [uid for uid in self._sent if self._parts.ledger.pod(uid) is None]:
            del self._sent[uid]
        self._sent.update(send.uid for send in sends)
        if rival.plan is not None:
            nodes = ", ".join(sorted({send.placement.node for send in sends}))
            self._acts.end(rival.plan, End(PlanEnd.ROOM_ELSEWHERE, f"room without evictions on {nodes}"), sends)
            return
        for send in sends:
            self._parts.sender.send(send.uid, send.placement)
        self._parts.poke()

    def _rivals(self, plan: PlanFact, owners: Sequence[Workload], *, own: bool) -> Iterator[_Rival]:
        """Those who wait and come before these, the first first. Gangs start by their own offer."""
        waiting = self._parts.waiting
        entitled, order = self._parts.roster.standing().entitled, waiting.order_of(owners)
        mine = max(rank_of(owner, entitled) for owner in owners)

        def higher(pod: Workload) -> bool:
            return rank_of(pod, entitled) > mine if own else waiting.order_of([pod]) < order

        found = [_Rival(place.pods) for place in waiting.singles(higher)]
        for other in self._parts.book.all_living():
            pods = self._unsent(other) if other is not plan and other.owner_kind is OwnerKind.POD else ()
            if pods and all(higher(pod) for pod in pods):
                found.append(_Rival(pods, other))
        found.sort(key=lambda rival: waiting.order_of(rival.pods))
        yield from found

    def _unsent(self, plan: PlanFact) -> Sequence[Workload]:
        """The owner's pods that wait, while none of them is on its way."""
        ledger, workloads, uids = self._parts.ledger, self._parts.roster.workloads, owner_uids(plan)
        if any(ledger.nomination(uid) is not None or ledger.booking(uid) is not None for uid in uids):
            return ()
        waiting = [uid for uid in uids if owner_state(ledger, uid) is OwnerState.WAITING]
        return [workloads[uid] for uid in waiting if uid in workloads]

    def _start_of(self, rival: _Rival, hold: PlanHold, *, own: bool) -> tuple[Nominate, ...]:
        """Where he starts, () = he does not start now, or needs none of these cards for it."""
        room_for, known = self._parts.worlds.room.room_for, self._parts.ledger.pod
        pods = [pod for one in rival.pods if (pod := known(one.uid)) is not None]
        if len(pods) < len(rival.pods):
            return ()
        room = self._room_on(hold, pods[0]) if own else room_for(pods)
        if not room or not self._may_start(rival, pods):
            return ()
        if own and (room_for(pods) or not self._may_take(rival, hold)):
            return ()
        return tuple(Nominate(one.pod.uid, one.placement) for one in room)

    def _room_on(self, hold: PlanHold, pod: PodFact) -> list[Nomination]:
        """Where the pod could start on the plan's nodes if nothing were held for the plan; [] = not there."""
        uses = self._parts.roster.uses
        views = []
        for name in sorted({card.node for card in hold.cards}):
            view, use = self._parts.ledger.view(name), uses.get(name)
            if view is None or view.node is None or view.closed is not None:
                continue
            if use is None or not obstacle_after(view.node, use, pod.scheduling):
                views.append(without_plans(view, [hold]))
        found = best_placement(views, pod, self._parts.worlds.policies)
        return [] if found is None else [Nomination(pod, found, direct=True)]

    def _may_start(self, rival: _Rival, pods: Sequence[PodFact]) -> bool:
        now_seconds = self._parts.wall.now_seconds()
        uids = [pod.uid for pod in pods]
        if any(self._sent[uid] >= MOST_SENT for uid in uids) or any(self._gate.refusal(pod) for pod in pods):
            return False
        if self._parts.lessons.rests_until(uids, now_seconds) is not None:
            return False
        if rival.plan is None:
            return True
        world = self._parts.worlds.of(rival.plan, look_elsewhere=False)
        state = situation_of(rival.plan, world, Progress(), now_seconds)
        return not state.cards_free and not state.empty.lacks

    def _may_take(self, rival: _Rival, hold: PlanHold) -> bool:
        """Whether a decision on him might have taken the plan over."""
        world, now_seconds = self._parts.world(), self._parts.wall.now_seconds()
        if any(may_preempt(world.standing, pod, now_seconds) is not None for pod in rival.pods):
            return False
        return any(lower.plan == hold.plan for lower in world.plans_around(rival.pods)[0])
