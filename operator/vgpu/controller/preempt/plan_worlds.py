"""What a step of a plan looks at, gathered from what is known now: its owners, its victims, its nodes, its queue.

Enters: a PlanFact, the ledger, the roster, what became of evictions. Leaves: a PlanWorld. Nothing is changed here.
Moments are whole seconds of the wall clock, as the API states them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpu.controller.learning import in_pieces
from vgpu.controller.preempt.evictions import Evictions
from vgpu.controller.preempt.idle_room import IdleRoom
from vgpu.controller.preempt.plan_seats import PlanSeats
from vgpu.controller.preempt.victim_units import over_budget, units_of
from vgpu.core.facts import PodFact, Scheduling
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement, Policies
from vgpu.core.preempt.eligible import objection, rights_of
from vgpu.core.preempt.facts import NOTHING, Amounts, OwnerKind, PlanFact, QueueFact, Victim, Workload
from vgpu.core.preempt.feasible import obstacle_after
from vgpu.core.preempt.gang_seats import GangNow
from vgpu.core.preempt.hanging import grace_ends
from vgpu.core.preempt.needed import UNBOUND
from vgpu.core.preempt.plan import OwnerPod, OwnerState, PlanLimits, PlanWorld, QueueRoom, VictimState, key_of
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.preempt.room import is_free
from vgpu.core.preempt.roster import Roster
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView


@dataclass(frozen=True, slots=True)
class WorldParts:
    """Where everything is known. `living`: every plan that is not over; `taken_over_by`: NS/NAME of the plan that
    takes this one's cards, or ""; `gang`: the gang of this key, of which these uids have seats in a plan."""

    ledger: Ledger
    index: FitIndex
    roster: Roster
    policies: Policies
    evictions: Evictions
    living: Callable[[], Iterable[PlanFact]]
    taken_over_by: Callable[[str], str]
    unix_seconds: Callable[[], int]
    gang: Callable[[str, Collection[str]], GangNow | None]


class PlanWorlds:
    """Gathers."""

    def __init__(self, parts: WorldParts) -> None:
        self._parts = parts
        self.policies = parts.policies
        self._gate = QueueGate(parts.roster)
        self.room = IdleRoom(parts.ledger, parts.index, parts.roster, parts.policies)
        self._fitting: tuple[int, dict[PodRequest, bool]] = (-1, {})

    def of(self, plan: PlanFact, *, look_elsewhere: bool = True) -> PlanWorld:
        """Everything as it stands for this plan; room elsewhere takes a search."""
        parts = self._parts
        seats, barred = PlanSeats(plan), dict[tuple[str, Amounts], bool]()
        owners = {uid: self._owner(seats, uid, barred) for uid in owner_uids(plan)}
        views = {node: view for node in sorted(seats.nodes) if (view := parts.ledger.view(node)) is not None}
        return PlanWorld(
            owners=owners,
            victims=self._victims(plan),
            views=views,
            leaving_until=grace_ends(parts.ledger.pod(uid) for view in views.values() for uid in _leaving(view)),
            limits=self._limits(plan),
            elsewhere=self._elsewhere(seats, owners.values()) if look_elsewhere else (),
            taken_over_by=parts.taken_over_by(key_of(plan)),
            policies=parts.policies,
            gang=parts.gang(plan.owner_name, plan.owner_uids) if plan.owner_kind is OwnerKind.GANG else None,
            queue=self._queue_room(plan) if any(pod.barred for pod in owners.values()) else None,
        )

    def may_fit(self, plan: PlanFact) -> bool:
        """False when no node has cards free for any pod of the plan's owner that waits, whatever its own may have:
        then nobody need look for room elsewhere."""
        waiting = (uid for uid in owner_uids(plan) if owner_state(self._parts.ledger, uid) is OwnerState.WAITING)
        pods = (self._parts.ledger.pod(uid) for uid in waiting)
        return any(self._fits_somewhere(pod.request) for pod in pods if pod and pod.request)

    async def fits_now(self, pods: Sequence[PodFact]) -> bool:
        """True when all these pods could be placed at once as everything stands, CPU and memory included."""
        return bool(await in_pieces(self.room.in_pieces(pods)))

    def queue_of(self, plan: PlanFact) -> QueueFact | None:
        """The queue of the plan's owner, as far as it is known."""
        workload = next((w for uid in plan.owner_uids if (w := self._workload(uid)) is not None), None)
        return None if workload is None else self._parts.roster.queues.get(workload.queue)

    def _fits_somewhere(self, request: PodRequest) -> bool:
        """Asked for every plan after every change, and mostly about equal requests."""
        if self._fitting[0] != self._parts.ledger.version:
            self._fitting = self._parts.ledger.version, {}
        known = self._fitting[1]
        if request not in known:
            known[request] = bool(self._parts.index.verdicts(request, "").fitting)
        return known[request]

    # The owner's pods.

    def _owner(self, seats: PlanSeats, uid: str, barred: dict[tuple[str, Amounts], bool]) -> OwnerPod:
        """`barred`: what the queue has said to the owner's other pods that wait, all promised their cards."""
        ledger = self._parts.ledger
        pod = ledger.pod(uid)
        state = owner_state(ledger, uid)
        nominated, away = ledger.nomination(uid) is not None, self._is_away(seats, uid)
        if pod is None or state is not OwnerState.WAITING:
            return OwnerPod(uid, state, None if pod is None else pod.request, nominated, away=away)
        known = self._workload(uid)
        asks = (known.queue, known.claim) if known is not None else ("", NOTHING)
        if known is None or asks not in barred:
            barred[asks] = self._gate.refusal(pod) is not None
        gang = self._parts.roster.gang_of(uid)
        stops = {"barred": barred[asks], "groupless": gang is not None and not gang.known}
        return OwnerPod(uid, state, pod.request, nominated, self._obstacle(seats, pod), away=away, **stops)

    def _is_away(self, seats: PlanSeats, uid: str) -> bool:
        sent, booked = self._parts.ledger.nomination(uid), self._parts.ledger.booking(uid)
        return any(place is not None and place.node not in seats.nodes for place in (sent, booked))

    def _obstacle(self, seats: PlanSeats, pod: PodFact) -> str:
        """What but cards keeps the pod off its planned node when all victims and all who leave are gone."""
        node = seats.node_of.get(pod.uid, "")
        view = self._parts.ledger.view(node)
        use = self._parts.roster.uses.get(node)
        if view is None or view.node is None or use is None:
            return ""
        known = self._parts.roster.scheduling
        going = _leaving(view) | seats.victims_on.get(node, set())
        here = {holder.uid for card in view.cards for holder in card.holders}
        released = [known[uid] for uid in sorted(going & here) if uid in known]
        return obstacle_after(view.node, use, pod.scheduling, released, self._beside(seats, node, pod.uid))

    def _beside(self, seats: PlanSeats, node: str, uid: str) -> list[Scheduling]:
        """Others of the owner that are to come to this node."""
        pods = (self._parts.ledger.pod(other) for other in sorted(seats.on_node[node] - {uid}))
        return [pod.scheduling for pod in pods if pod is not None and not pod.node]

    # Its victims.

    def _victims(self, plan: PlanFact) -> dict[str, VictimState]:
        units = units_of(plan, self._parts.roster)
        objections = {**units.short, **self._objections(plan)}
        doubtful = over_budget(plan, self._parts.roster, self._parts.evictions.accepted())
        found = {one.uid: self._victim(plan, one, units.unit, objections) for one in plan.victims}
        return found | {uid: replace(found[uid], doubtful=True) for uid in doubtful}

    def _victim(
        self, plan: PlanFact, victim: Victim, units: Mapping[str, str], objections: Mapping[str, str]
    ) -> VictimState:
        pod, booked = self._parts.ledger.pod(victim.uid), self._parts.ledger.booking(victim.uid) is not None
        ours = self._parts.evictions.of_plan(plan.uid, victim.uid)
        return VictimState(
            victim.uid,
            gone=pod is None or pod.ended or not (pod.node or booked),
            leaving=pod is not None and (pod.terminating or self._goes(plan, victim.uid)),
            unsure=ours is not None and ours.unknown,
            unit=units.get(victim.uid, ""),
            objection=objections.get(victim.uid, ""),
            refusals=0 if ours is None else ours.refusals,
            # Where its Binding is on its way nobody is asked to go before its outcome is known.
            retry_seconds=self._parts.unix_seconds() + 1 if booked else 0 if ours is None else ours.retry_seconds,
            fails_since=None if ours is None else ours.fails_since,
            failure="" if ours is None else ours.failure,
            grace_ends_seconds=None if pod is None or pod.terms is None else pod.terms.deletion_seconds,
        )

    def _goes(self, plan: PlanFact, uid: str) -> bool:
        """True for one whose eviction was accepted, or whom somebody else has asked to go."""
        asked, ours = self._parts.evictions.get(uid), self._parts.evictions.of_plan(plan.uid, uid)
        return asked is not None and (asked.leaving if ours is None else ours.accepted)

    def _objections(self, plan: PlanFact) -> dict[str, str]:
        """Why the rules do not let a victim go any more of whom it is not known that he goes."""
        victims = [
            w
            for one in plan.victims
            if (w := self._workload(one.uid)) is not None and w.running and not w.terminating
            if not self._goes(plan, one.uid)
        ]
        owners = self.unlike_owners(plan) if victims else []
        if not owners:
            return {}
        standing, now_seconds = self._parts.roster.standing(), self._parts.unix_seconds()
        said = {victim.uid: objection(standing, owners, victim, now_seconds) for victim in victims}
        return {uid: text for uid, text in said.items() if text}

    def unlike_owners(self, plan: PlanFact) -> list[Workload]:
        """The plan's pods that wait, one of each kind that has the same rights."""
        standing, now_seconds = self._parts.roster.standing(), self._parts.unix_seconds()
        waiting = [w for uid in plan.owner_uids if (w := self._workload(uid)) is not None and not w.running]
        return list({rights_of(standing, owner, now_seconds): owner for owner in reversed(waiting)}.values())

    def objection(self, owners: Sequence[Workload], uid: str) -> str:
        """Why the rules do not let this victim go for these owners, or ""."""
        victim = self._workload(uid)
        if victim is None or not owners:
            return ""
        return objection(self._parts.roster.standing(), owners, victim, self._parts.unix_seconds())

    # Its queue and its chances.

    def _limits(self, plan: PlanFact) -> PlanLimits:
        queue = self.queue_of(plan)
        if queue is None:
            return PlanLimits()
        in_flight = 0 if queue.max_in_flight is None else self.in_flight(queue.name, key_of(plan))
        return PlanLimits(queue.stuck_timeout_seconds, queue.hold_timeout_seconds, queue.max_in_flight, in_flight)

    def _queue_room(self, plan: PlanFact) -> QueueRoom | None:
        """For an owner that its queue does not let start as things stand."""
        roster = self._parts.roster
        waiting = next((w for uid in plan.owner_uids if (w := self._workload(uid)) and not w.running), None)
        queue = None if waiting is None else roster.queues.get(waiting.queue)
        if waiting is None or queue is None:
            return None
        used = roster.usage(queue.name, without_promise=waiting.uid).after(waiting.claim)
        known = (self._workload(victim.uid) for victim in plan.victims)
        gives = {one.uid: one.amounts for one in known if one and one.queue == queue.name and not one.terminating}
        return QueueRoom(queue, used, waiting.claim, gives)

    def in_flight(self, queue: str, asking: str = "") -> int:
        """Evictions of the queue's plans that run now; those of `asking` that wait for their turn not counted."""
        found = set()
        for plan in self._parts.living():
            of_plan = self.queue_of(plan)
            if of_plan is not None and of_plan.name == queue:
                found |= {one.uid for one in plan.victims if self._runs(one.uid, mine=key_of(plan) == asking)}
        return len(found)

    def _runs(self, uid: str, *, mine: bool) -> bool:
        pod, evictions = self._parts.ledger.pod(uid), self._parts.evictions
        if pod is None or pod.ended:
            return False
        return pod.terminating or evictions.leaving(uid) or (not mine and evictions.under_way(uid))

    def _elsewhere(self, seats: PlanSeats, owners: Collection[OwnerPod]) -> tuple[tuple[str, Placement], ...]:
        """Nobody is sent on who was sent somewhere already, who may start nowhere now, or whose seats are free."""
        if any(pod.nominated or pod.stopped or pod.state is OwnerState.BOOKED for pod in owners):
            return ()
        if all(is_free(self._parts.ledger.view(node), held) for node, held in seats.held.items()):
            return ()
        waiting = (pod.uid for pod in owners if pod.state is OwnerState.WAITING)
        pods = [pod for uid in waiting if (pod := self._parts.ledger.pod(uid)) is not None]
        return tuple((one.pod.uid, one.placement) for one in self.room.room_for(pods))

    def _workload(self, uid: str) -> Workload | None:
        return self._parts.roster.workloads.get(uid)


def owner_uids(plan: PlanFact) -> list[str]:
    """Pods that the plan holds cards for."""
    return list(dict.fromkeys(card.reservation.uid for card in plan.reservations))


def owner_state(ledger: Ledger, uid: str) -> OwnerState:
    """Where a pod of an owner stands."""
    pod = ledger.pod(uid)
    if pod is None or pod.terminating or pod.ended:
        return OwnerState.GONE
    if pod.node:
        return OwnerState.BOUND
    return OwnerState.BOOKED if ledger.booking(uid) is not None else OwnerState.WAITING


def waits(ledger: Ledger, uid: str) -> bool:
    """True for a pod that is there and not bound."""
    return owner_state(ledger, uid) in UNBOUND


def _leaving(view: NodeView) -> set[str]:
    return {holder.uid for card in view.cards for holder in card.holders if holder.leaving}
