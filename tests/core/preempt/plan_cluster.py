"""A small cluster that carries out plans: what the API server holds, a ledger that is told of it, and a clock.

`pods` and `plans` are the truth; the ledger and Progress are memory, and lost at restart(). What a step says is
done one action at a time. Victims are chosen by the test: who goes is not what is tried here.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from tests.core.building import SLOTS, bound_pod, make_booking, make_card, make_node, pending_pod
from vgpu.core.facts import InventoryFact, NodeFact, PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import NodeReservation, OwnerKind, PlanFact, PlanPhase, Victim
from vgpu.core.preempt.gang_seats import GangNow, succeeded
from vgpu.core.preempt.held_cards import place_held_first
from vgpu.core.preempt.plan import (
    Action,
    Advance,
    End,
    Evict,
    GiveUp,
    Nominate,
    OwnerPod,
    OwnerState,
    PlanLimits,
    PlanWorld,
    Progress,
    Spare,
    Step,
    Succeed,
    VictimState,
    hold_of,
    key_of,
)
from vgpu.core.preempt.plan_step import given_up_by, next_actions, spared_by
from vgpu.core.preempt.reservations import PlanHold, without_plans
from vgpu.core.preempt.seating import Member
from vgpu.core.recount import reservations_of
from vgpu.core.request import PodRequest
from vgpu.core.views import CardView, NodeView

CARD_MIB = 100
Planned = Collection[tuple[str, Placement]]


def without(view: NodeView, uids: Collection[str]) -> NodeView:
    """The node as it will be when these pods, and all that are leaving, are gone."""
    gone = {h.uid for card in view.cards for h in card.holders if h.leaving} | set(uids)
    slots = sum(h.slots for card in view.cards for h in card.holders if h.uid in gone)
    cards = tuple(_card_without(card, gone) for card in view.cards)
    return replace(view, cards=cards, used_slots=view.used_slots - slots, leaving_slots=0)


def _card_without(card: CardView, gone: Collection[str]) -> CardView:
    holders = tuple(holder for holder in card.holders if holder.uid not in gone)
    return replace(
        card,
        holders=holders,
        used_slots=sum(h.slots for h in holders),
        used_memory_mib=sum(h.memory_mib for h in holders),
        used_cores=sum(h.cores for h in holders),
        exclusive=any(h.exclusive for h in holders),
    )


class PlanCluster:
    """See the module. Every method leaves truth and ledger in step unless it says otherwise."""

    def __init__(self, *, nodes: int = 1, cards: int = 4, make: Callable[[], Ledger] = Ledger) -> None:
        self.make = make
        self.now_seconds = 1000
        self.grace_seconds = 30
        self.limits = PlanLimits()
        self.nodes: dict[str, NodeFact] = {}
        self.inventories: dict[str, InventoryFact] = {}
        for n in range(1, nodes + 1):
            name = f"n{n}"
            found = [make_card(f"GPU-{n}{i}", i, memory_mib=CARD_MIB) for i in range(cards)]
            self.nodes[name] = make_node(name, 10 * cards)
            self.inventories[name] = InventoryFact(name, SLOTS, tuple(found))
        self.pods: dict[str, PodFact] = {}
        self.plans: dict[str, PlanFact] = {}
        self.grace_ends: dict[str, int] = {}
        self.evictions: list[str] = []
        self.refusing: dict[str, int] = {}
        self.objections: dict[str, str] = {}
        self.obstacles: dict[str, str] = {}
        self.units: dict[str, str] = {}
        self.ends: dict[str, End] = {}
        self.taken_over: dict[str, str] = {}
        self.gangs: dict[str, str] = {}
        self.minimums: dict[str, int] = {}
        self.look_elsewhere = False
        self._generation = 0
        self.restart()

    def restart(self) -> None:
        """Another process: nothing is left but what the API server holds."""
        self.ledger = self.make()
        self.progress: dict[str, Progress] = {}
        self.refusals: dict[str, tuple[int, int]] = {}
        self.fails_since: dict[str, int] = {}
        self.unsure: set[str] = set()
        for node in self.nodes.values():
            self.ledger.put_node(node)
        for inventory in self.inventories.values():
            self.ledger.put_inventory(inventory)
        for plan in self.plans.values():
            self.ledger.plans.put(hold_of(plan))
        for pod in self.pods.values():
            self.ledger.put_pod(pod)

    # Pods.

    def put(self, pod: PodFact) -> PodFact:
        self.pods[pod.uid] = pod
        self.ledger.put_pod(pod)
        return pod

    def wait(self, uid: str, request: PodRequest, **fields: object) -> PodFact:
        """A pod that is pending."""
        return self.put(pending_pod(uid, request, unschedulable=True, **fields))

    def member(self, uid: str, gang: str, request: PodRequest) -> PodFact:
        """A pod that is pending, of the gang for which there is a plan under this owner's name."""
        self.gangs[uid] = gang
        return self.wait(uid, request)

    def gone(self, uid: str) -> None:
        """The pod's object is deleted."""
        self.pods.pop(uid, None)
        self.ledger.drop_pod(uid)

    def view(self, node: str) -> NodeView:
        view = self.ledger.view(node)
        assert view is not None
        return view

    def try_bind(self, uid: str, node: str = "n1", *, refused: bool = False) -> bool:
        """Filter, book and bind, as any scheduler's request would; `refused`: the Binding is turned down."""
        pod = self.pods[uid]
        assert pod.request is not None
        placement = place_held_first(self.view(node), pod.request, uid, Policies(), self.ledger.plans)
        if not isinstance(placement, Placement) or self.ledger.booking(uid):
            return False
        self.ledger.book(make_booking(uid, placement))
        if refused:
            self.ledger.unbook(uid, "nonce")
            return False
        self.put(bound_pod(uid, *placement.containers, node=node, request=pod.request, priority=pod.priority))
        return True

    def book(self, uid: str, node: str = "n1") -> None:
        """Its Binding is on its way."""
        request = self.pods[uid].request
        assert request is not None
        placement = place_held_first(self.view(node), request, uid, Policies(), self.ledger.plans)
        assert isinstance(placement, Placement)
        self.ledger.book(make_booking(uid, placement))

    def running(self, uid: str, request: PodRequest, node: str = "n1") -> PodFact:
        """A pod that runs on what `place` gave it."""
        self.wait(uid, request)
        assert self.try_bind(uid, node), f"{uid} does not fit on {node}"
        return self.pods[uid]

    def uuids(self, uid: str) -> set[str]:
        """The cards of a bound pod."""
        assignment = self.pods[uid].assignment
        assert assignment is not None
        return {card.uuid for container in assignment.containers for card in container.cards}

    def evict(self, uid: str) -> None:
        """The Eviction API, with a precondition on the uid: 429 while a budget refuses."""
        self.evictions.append(uid)
        if self.refusing.get(uid, 0):
            self.refusing[uid] -= 1
            self.refusals[uid] = (self.refusals.get(uid, (0, 0))[0] + 1, self.now_seconds + 10)
            return
        pod = self.pods.get(uid)
        self.unsure.discard(uid)
        self.fails_since.pop(uid, None)
        if pod is not None and not pod.terminating:
            self.grace_ends[uid] = self.now_seconds + self.grace_seconds
            self.ledger.plans.mark_evicted(uid, pod.node)
            self.put(replace(pod, terminating=True))

    # Plans.

    def planned(
        self, uid: str, victims: Collection[str], node: str = "n1", taking: Iterable[PlanHold] = ()
    ) -> Placement | None:
        """Where the pod would be placed without these victims, and without what is held for the plans it takes."""
        request = self.pods[uid].request
        assert request is not None
        view = without(without_plans(self.view(node), taking), victims)
        found = place(view, request, uid, Policies())
        return found if isinstance(found, Placement) else None

    def plan(
        self, owner: str, victims: Iterable[str], members: Planned = (), taking: Iterable[PlanHold] = ()
    ) -> PlanFact:
        """Create the plan's object, and hold for it."""
        victims = list(victims)
        if not members:
            placement = self.planned(owner, victims, taking=taking)
            assert placement is not None, f"{owner} does not fit without {victims}"
            members = [(owner, placement)]
        self._generation += 1
        if len(members) > 1:
            self.gangs |= {uid: owner for uid, _ in members}
            self.minimums.setdefault(owner, len(members))
        cards = [NodeReservation(p.node, r) for uid, p in members for r in reservations_of(((uid, p),))]
        plan = PlanFact(
            uid=f"uid-{owner}-{self._generation}",
            namespace="team",
            name=f"{owner}-{self._generation}",
            owner_kind=OwnerKind.POD if len(members) == 1 else OwnerKind.GANG,
            owner_name=owner,
            owner_uids=tuple(uid for uid, _ in members),
            reservations=tuple(cards),
            victims=tuple(Victim(uid, "team", uid, self.pods[uid].node) for uid in victims),
            rule="test",
            exact=True,
            created_seconds=self.now_seconds,
            generation=self._generation,
        )
        self.plans[key_of(plan)] = plan
        self.ledger.plans.put(hold_of(plan))
        return plan

    def world(self, plan: PlanFact) -> PlanWorld:
        uids = {card.reservation.uid for card in plan.reservations}
        nodes = {card.node for card in plan.reservations}
        return PlanWorld(
            owners={uid: self._owner(uid) for uid in uids},
            victims={victim.uid: self._victim(victim.uid, victim.unit) for victim in plan.victims},
            views={node: view for node in nodes if (view := self.ledger.view(node)) is not None},
            limits=self.limits,
            elsewhere=self._elsewhere(uids) if self.look_elsewhere else (),
            taken_over_by=self.taken_over.get(key_of(plan), ""),
            gang=self.gang(plan),
        )

    def gang(self, plan: PlanFact) -> GangNow | None:
        """The gang of the plan's owner while any of it runs or waits."""
        pods = [pod for uid, pod in self.pods.items() if self.gangs.get(uid) == plan.owner_name]
        pods = [pod for pod in pods if not pod.terminating]
        if plan.owner_kind is OwnerKind.POD or not pods:
            return None
        waiting = [pod for pod in pods if not pod.node]
        lacks = max(0, self.minimums[plan.owner_name] - (len(pods) - len(waiting)))
        free = [pod for pod in waiting if pod.uid not in plan.owner_uids and not self.ledger.booking(pod.uid)]
        spare = tuple(Member(pod.uid, pod.request) for pod in free if pod.request)
        return GangNow(lacks, len(waiting) >= lacks, spare)

    def step(self, plan: PlanFact, *, most: int = 1000) -> Step:
        """One step, of which at most `most` actions are carried out before the process dies."""
        key = key_of(plan)
        plan = self.plans[key]
        step = next_actions(plan, self.world(plan), self.progress.get(key, Progress()), self.now_seconds)
        self.progress[key] = step.progress
        if not any(isinstance(action, End) for action in step.actions):
            self.ledger.plans.put(hold_of(plan, spared_by(step), given_up_by(step)))
        for action in step.actions[:most]:
            self._carry_out(key, action, step)
        return step

    def settle(self, *, rounds: int = 30) -> None:
        """Let leaving pods end, plans go on and nominated owners bind until nothing moves."""
        for _ in range(rounds):
            for uid in [pod.uid for pod in self.pods.values() if pod.terminating]:
                self.gone(uid)
            for key in list(self.plans):
                if key in self.plans:
                    self.step(self.plans[key])
            self.bind_nominated()

    def bind_nominated(self) -> None:
        for pod in list(self.pods.values()):
            held = self.ledger.nomination(pod.uid)
            if held is not None and not pod.node:
                self.try_bind(pod.uid, held.node)

    def _carry_out(self, key: str, action: Action, step: Step) -> None:
        plan = self.plans.get(key)
        if isinstance(action, Evict):
            self.evict(action.uid)
        elif isinstance(action, Nominate):
            self.ledger.nominate(action.uid, action.placement.node, action.placement)
        elif isinstance(action, Succeed):
            assert plan is not None
            self.plans[key] = plan = succeeded(plan, {action.lost: action.uid})
            self.ledger.plans.put(hold_of(plan, spared_by(step), given_up_by(step)))
        elif isinstance(action, Advance):
            assert plan is not None
            going = [v.uid for v in plan.victims if v.uid not in self.pods or self.pods[v.uid].terminating]
            self.plans[key] = replace(plan, phase=action.phase, evictions_sent=frozenset(going))
        elif isinstance(action, End):
            self.ends[key] = action
            for uid in self.plans.pop(key).owner_uids:
                self.ledger.drop_nomination(uid)
            self.ledger.plans.drop(key)
            for uid in action.release:
                self.evict(uid)
        else:
            assert isinstance(action, Spare | GiveUp)

    def _owner(self, uid: str) -> OwnerPod:
        pod = self.pods.get(uid)
        if pod is None or pod.terminating:
            return OwnerPod(uid, OwnerState.GONE)
        booked = OwnerState.BOOKED if self.ledger.booking(uid) is not None else OwnerState.WAITING
        state = OwnerState.BOUND if pod.node else booked
        nominated = self.ledger.nomination(uid) is not None
        return OwnerPod(uid, state, pod.request, nominated, self.obstacles.get(uid, ""))

    def _victim(self, uid: str, unit: str) -> VictimState:
        pod = self.pods.get(uid)
        refusals, retry = self.refusals.get(uid, (0, 0))
        return VictimState(
            uid,
            gone=pod is None,
            leaving=pod is not None and pod.terminating,
            unit=self.units.get(uid, unit),
            objection=self.objections.get(uid, ""),
            refusals=refusals,
            retry_seconds=retry,
            grace_ends_seconds=self.grace_ends.get(uid),
            unsure=uid in self.unsure,
            fails_since=self.fails_since.get(uid),
            failure="the API is ill" if uid in self.fails_since else "",
        )

    def _elsewhere(self, uids: Collection[str]) -> tuple[tuple[str, Placement], ...]:
        """Only for single pods, as much as the tests need."""
        for uid in uids if len(uids) == 1 else ():
            request = self.pods[uid].request if uid in self.pods else None
            found = [place(self.view(node), request, uid, Policies()) for node in self.nodes] if request else []
            return tuple((uid, placement) for placement in found if isinstance(placement, Placement))[:1]
        return ()


DRAINING = PlanPhase.DRAINING
