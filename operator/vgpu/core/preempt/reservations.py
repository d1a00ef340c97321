"""What a plan holds in *later*: cards for each of its owner's pods, and the victims whose place they take.

Enter: values that the plan is made of. Leave: Reservations and marks for a recount, by node. A reservation counts
only while the uid that it is for exists unbound, and no longer than its plan (preemption.md 4.6, T3); a seat that
is kept for a gang also while nobody sits in it. A victim counts in *later* for everyone until it is leaving: its
plan may end before. Nothing here decides who goes.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from vgpu.core.facts import PodFact
from vgpu.core.preempt.facts import NodeReservation
from vgpu.core.views import Holder, HolderState, NodeView, Reservation

LEFT_OVER = -1
"""The generation of what is left of a plan that is over: all else that is held for its pods counts before it."""


@dataclass(frozen=True, slots=True)
class PlanHold:
    """What one plan holds. `plan` names it, NS/NAME.

    `victims`: (uid, node) of those who are to go or are going; one who is spared is not among them. Of several
    plans for one uid the highest generation counts, ties by name. `kept`: of these uids the cards stay held when
    the pod goes before it was bound, until it is replaced.
    """

    plan: str
    generation: int
    cards: tuple[NodeReservation, ...]
    victims: frozenset[tuple[str, str]] = frozenset()
    kept: frozenset[str] = frozenset()
    uids: frozenset[str] = field(init=False, compare=False, repr=False)
    """The owner's pods for which cards are held."""
    nodes: frozenset[str] = field(init=False, compare=False, repr=False)
    """Nodes whose view depends on this plan."""
    on_node: Mapping[str, tuple[NodeReservation, ...]] = field(init=False, compare=False, repr=False)
    """The same cards, by node."""
    nodes_for: Mapping[str, frozenset[str]] = field(init=False, compare=False, repr=False)
    """Where cards are held for each of `uids`."""

    def __post_init__(self) -> None:
        on_node, nodes_for = defaultdict[str, list[NodeReservation]](list), defaultdict[str, set[str]](set)
        for card in self.cards:
            on_node[card.node].append(card)
            nodes_for[card.reservation.uid].add(card.node)
        object.__setattr__(self, "uids", frozenset(nodes_for))
        object.__setattr__(self, "nodes", frozenset(on_node) | {node for _, node in self.victims})
        object.__setattr__(self, "on_node", {node: tuple(cards) for node, cards in on_node.items()})
        object.__setattr__(self, "nodes_for", {uid: frozenset(nodes) for uid, nodes in nodes_for.items()})

    @property
    def age(self) -> tuple[int, str]:
        """By which of several plans for one uid the last one is found."""
        return (self.generation, self.plan)


class PlanHolds:
    """All plans' holds, by plan, by the uid that they are for, and by node; and whose eviction was accepted.

    Mutable, part of the ledger: `unbound` answers whether a uid exists unbound, `pod` what is known of it, `touch`
    marks nodes for a recount.
    """

    def __init__(
        self,
        unbound: Callable[[str], bool],
        touch: Callable[[Iterable[str]], None],
        pod: Callable[[str], PodFact | None],
    ) -> None:
        self._unbound = unbound
        self._pod = pod
        self._touch = touch
        self._plans: dict[str, PlanHold] = {}
        self._left: set[str] = set()
        self._of_uid: dict[str, set[str]] = defaultdict(set)
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._evicted: dict[str, str] = {}
        self._were_bound: set[str] = set()

    def get(self, plan: str) -> PlanHold | None:
        """What this plan holds."""
        return self._plans.get(plan)

    def all(self) -> Iterable[PlanHold]:
        """What every plan holds."""
        if not self._left:
            return self._plans.values()
        return [hold for plan, hold in self._plans.items() if plan not in self._left]

    def left(self) -> list[PlanHold]:
        """What is left of plans that are over, while their owners are decided on anew."""
        return [self._plans[plan] for plan in sorted(self._left)]

    def put(self, hold: PlanHold) -> None:
        """Hold this from now on, in place of what the plan held before.

        Its cards count in *later* for everyone else while their uid exists unbound; its victims are marked while
        one of its uids does.
        """
        if self._plans.get(hold.plan) == hold:
            return
        were_bound = self._were_bound & hold.uids
        self.drop(hold.plan)
        self._were_bound |= were_bound
        self._plans[hold.plan] = hold
        if hold.generation == LEFT_OVER:
            self._left.add(hold.plan)
        for uid in hold.uids:
            self._of_uid[uid].add(hold.plan)
        for node in hold.nodes:
            self._on_node[node].add(hold.plan)
        self._touch(self._affected(hold))

    def drop(self, plan: str) -> None:
        """Hold nothing for this plan any more."""
        hold = self._plans.pop(plan, None)
        if hold is None:
            return
        self._left.discard(plan)
        for uid in hold.uids:
            _discard(self._of_uid, uid, plan)
            if uid not in self._of_uid:
                self._were_bound.discard(uid)
        for node in hold.nodes:
            _discard(self._on_node, node, plan)
        self._touch(self._affected(hold))

    def mark_evicted(self, uid: str, node: str) -> None:
        """The API server accepted the eviction of this pod: it is leaving, before any event shows it."""
        if uid not in self._evicted:
            self._evicted[uid] = node
            self._touch([node])

    def forget(self, uid: str) -> None:
        """The pod of this uid goes; what is known of it is known still."""
        self._evicted.pop(uid, None)
        if uid in self._of_uid and self._is_bound(uid):
            self._were_bound.add(uid)

    def turn(self, uid: str) -> None:
        """The uid began or ceased to exist unbound."""
        self._touch(self.nodes_of(uid))

    def nodes_of(self, uid: str) -> frozenset[str]:
        """Nodes whose view depends on whether this uid exists unbound: where cards are held for it; and where the
        victims are, when nobody else's existence marks them."""
        found: set[str] = set()
        for plan in self._of_uid.get(uid, ()):
            hold = self._plans[plan]
            others = any(self._counts(hold, other) for other in hold.uids if other != uid)
            found |= hold.nodes_for[uid] if others else hold.nodes
        return frozenset(found)

    def reservations_on(
        self, node: str, nominated: Iterable[Reservation], booked: Iterable[Reservation]
    ) -> tuple[Reservation, ...]:
        """What counts as held in *later* on this node: nominations, and the cards of plans for unbound pods.

        What is held twice for one pod on a card is needed once; what its booking takes there already is not held
        again. A booking of other cards may yet be refused: then the plan's are still needed.
        """
        planned = [
            card.reservation
            for hold in self._live(node)
            for card in hold.on_node.get(node, ())
            if self._counts(hold, card.reservation.uid)
        ]
        taken = {(one.uid, one.uuid): one for one in booked}
        held: dict[tuple[str, str], Reservation] = {}
        for one in (*nominated, *planned):
            key = (one.uid, one.uuid)
            both = _larger(held[key], one) if key in held else one
            if key not in taken or not covers(taken[key], both):
                held[key] = both
        return tuple(held[key] for key in sorted(held))

    def empty(self, hold: PlanHold) -> list[NodeReservation]:
        """What is held of this for pods that are yet to come."""
        coming = {uid for uid in hold.kept if self._has_left(uid) and self._counts(hold, uid)}
        return [card for card in hold.cards if card.reservation.uid in coming]

    def displaced(self, node: str) -> frozenset[str]:
        """Uids whose place a plan is to take of which a pod is still unbound."""
        return frozenset(
            uid
            for hold in self._live(node)
            if any(self._counts(hold, owner) for owner in hold.uids)
            for uid, where in hold.victims
            if where == node
        )

    def evicted(self, node: str) -> frozenset[str]:
        """Uids on this node whose eviction was accepted."""
        return frozenset(uid for uid, where in self._evicted.items() if where == node)

    def _live(self, node: str) -> list[PlanHold]:
        return [self._plans[plan] for plan in sorted(self._on_node.get(node, ()))]

    def _counts(self, hold: PlanHold, uid: str) -> bool:
        """True while the uid exists unbound, or its seat is empty and kept, and no later plan holds for it."""
        rivals = self._of_uid.get(uid, ())
        waits = self._unbound(uid) or (uid in hold.kept and self._is_empty(uid))
        return waits and all(self._plans[other].age <= hold.age for other in rivals)

    def _is_empty(self, uid: str) -> bool:
        """What was held for one who was bound may be another's by now, who made him go."""
        return uid not in self._were_bound and not self._is_bound(uid)

    def _has_left(self, uid: str) -> bool:
        pod = self._pod(uid)
        return pod is None or pod.terminating or pod.ended

    def _is_bound(self, uid: str) -> bool:
        pod = self._pod(uid)
        return pod is not None and bool(pod.node)

    def _affected(self, hold: PlanHold) -> frozenset[str]:
        """Another plan for the same uids begins or ceases to count with this one."""
        rivals = {plan for uid in hold.uids for plan in self._of_uid.get(uid, ())}
        return hold.nodes.union(*(self._plans[plan].nodes for plan in rivals))


def without_plans(view: NodeView, holds: Iterable[PlanHold]) -> NodeView:
    """The node as it stands for one who may take over these plans: nothing is held for them, and only those who
    are leaving already go."""
    gone = {uid for hold in holds for uid in hold.uids}
    return replace(view, reservations=tuple(r for r in view.reservations if r.uid not in gone))


def with_stuck(view: NodeView, stuck: Collection[str]) -> NodeView:
    """The node where these leaving pods are taken to stay: their cards count as occupied until they are gone."""
    if not any(holder.uid in stuck for card in view.cards for holder in card.holders):
        return view
    slots = sum(h.slots for card in view.cards for h in card.holders if h.uid in stuck and h.leaving)
    cards = tuple(replace(card, holders=tuple(_staying(h, stuck) for h in card.holders)) for card in view.cards)
    return replace(view, cards=cards, leaving_slots=max(0, view.leaving_slots - slots))


def _staying(holder: Holder, stuck: Collection[str]) -> Holder:
    return replace(holder, state=HolderState.RUNNING) if holder.uid in stuck and holder.leaving else holder


def covers(held: Reservation, one: Reservation) -> bool:
    """True when who holds the first needs nothing more for the second."""
    return _larger(held, one) == held


def _larger(one: Reservation, other: Reservation) -> Reservation:
    return Reservation(
        one.uid,
        one.uuid,
        max(one.slots, other.slots),
        max(one.memory_mib, other.memory_mib),
        max(one.cores, other.cores),
        one.exclusive or other.exclusive,
        one.coreless or other.coreless,
    )


def _discard(index: dict[str, set[str]], key: str, plan: str) -> None:
    index[key].discard(plan)
    if not index[key]:
        del index[key]
