"""The question that the search answers: room for a pod on one node, and what may be evicted there for it.

Enters: a NodeView, a request, the units that may go. Leaves: the question as a value, and the node as it would be
without some pods. Which units are allowed to go, and what they cost, is decided before; how the least set is
found is the search's business.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from vgpu.core.gate import allocatable_slots
from vgpu.core.placement import Placement, place
from vgpu.core.preempt.limits import cards_words
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.recount import reservations_of
from vgpu.core.request import PodRequest
from vgpu.core.score import Policies
from vgpu.core.views import CardView, Holder, HolderState, NodeView, Reservation


@dataclass(frozen=True, slots=True)
class Unit:
    """What goes together or stays together: one pod, or a whole gang.

    `uids`: every pod of it on any node; `here`: those on this node; `slots_here`: the node's slots that those take
    (a pod's PodRequest.slots). `cost` is a number of one CostScale, for the whole unit. A gang is never taken both
    whole and by single members. `uses`: (key, pods) of the allowances that it draws on.
    """

    key: str
    uids: tuple[str, ...]
    here: frozenset[str]
    slots_here: int
    cost: int
    gang: str = ""
    whole: bool = False
    uses: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many pods may be taken that name this key: a gang's surplus, a disruption budget.

    `penalty` is the cost of each pod beyond `allowed`; None = none may go beyond.
    """

    key: str
    allowed: int
    penalty: int | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """Something beyond cards that each pod placed here needs `wanted` of, such as CPU: `free` is there, and
    evicting a pod gives what `freed` says by uid (each uid once). `what` names it among the node's needs;
    `reason`: of a "no" where it is short; `thousandths`: so it is counted, and people read wholes."""

    what: str
    wanted: int
    free: int
    freed: tuple[tuple[str, int], ...] = ()
    reason: Reason = Reason.OTHER_FILTERS
    thousandths: bool = False

    def missing(self, copies: int, gone: Collection[str] = ()) -> int:
        """What is still lacking for so many pods when those are gone; 0 or less = nothing."""
        return self.wanted * copies - self.free - sum(amount for uid, amount in self.freed if uid in gone)

    def refusal(self, copies: int, missing: int) -> Refusal:
        """That so much is lacking for so many pods."""
        say = cards_words if self.thousandths else str
        return Refusal(self.reason, f"{self.what}: {say(self.wanted * copies)} wanted, {say(missing)} too few")


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """Room for `copies` pods with this request on this node. `owner_uid` is the pod whose own reservations do not
    count against it."""

    view: NodeView
    request: PodRequest
    owner_uid: str
    policies: Policies
    units: tuple[Unit, ...] = ()
    allowances: tuple[Allowance, ...] = ()
    needs: tuple[Need, ...] = ()
    copies: int = 1

    def asks_like(self, other: "NodeProblem") -> bool:
        """True when an answer to the other one of the same request, for as many copies, holds for this one too.

        Views are compared as objects: the ledger hands out the same one until something changes there. What is
        the owner's own on the node is not looked at.
        """
        return (
            self.view is other.view
            and self.units == other.units
            and self.allowances == other.allowances
            and self.needs == other.needs
            and self.policies == other.policies
        )

    def counts_for(self, uid: str) -> bool:
        """True when something on the node counts for this pod otherwise than for everybody else."""
        view = self.view
        if not view.reservations and not view.unassigned:
            return False
        return uid in [r.uid for r in view.reservations] or uid in [u.uid for u in view.unassigned]

    def without(self, units: Iterable[Unit]) -> NodeView:
        """The node when these units and all that leaves already are gone."""
        return view_without(self.view, {uid for unit in units for uid in unit.here}, sum_slots(units))

    def place_without(self, units: Collection[Unit]) -> Placement | Refusal:
        """Where the pod goes when these units and all that leaves already are gone, by the rules of every other
        placement: nobody is evicted for a pod that would be refused afterwards. Of several copies: where all their
        containers go, as if they were one pod's."""
        gone = {uid for unit in units for uid in unit.uids}
        for need in self.needs:
            missing = need.missing(self.copies, gone)
            if missing > 0:
                return need.refusal(self.copies, missing)
        request = self.request
        if self.copies > 1:
            request = replace(request, containers=request.containers * self.copies)
        return place(self.without(units), request, self.owner_uid, self.policies)


def widest(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """All that could go: a gang as a whole where it may, otherwise its single members."""
    units = tuple(units)
    whole = {unit.gang for unit in units if unit.whole}
    return tuple(unit for unit in units if unit.whole or unit.gang not in whole)


def sum_slots(units: Iterable[Unit]) -> int:
    """The node's slots that the units give free."""
    return sum(unit.slots_here for unit in units)


def view_without(view: NodeView, gone: Collection[str], slots_gone: int) -> NodeView:
    """The node without the pods `gone`, which take `slots_gone` of its slots, and without all that is leaving.

    What is held for others stays. Pods that go cannot be waited for either.
    """
    cards = tuple(card_without(card, gone) for card in view.cards)
    leaving = {h.uid for card in view.cards for h in card.holders if h.leaving}
    leaving |= {orphan.holder.uid for orphan in view.orphans if orphan.holder.leaving}
    orphans = tuple(o for o in view.orphans if o.holder.uid not in gone and not o.holder.leaving)
    return replace(
        view,
        cards=cards,
        orphans=orphans,
        used_slots=view.used_slots - view.leaving_slots - slots_gone,
        effective_slots=_effective_slots(view, cards, sum(o.holder.slots for o in orphans)),
        leaving_slots=0,
        awaiting=tuple(a for a in view.awaiting if a.uid not in gone and a.uid not in leaving),
    )


def card_without(card: CardView, gone: Collection[str]) -> CardView:
    """The card without the holders of these pods, and without all that is leaving."""
    if not any(holder.leaving or holder.uid in gone for holder in card.holders):
        return card
    holders = tuple(h for h in card.holders if h.uid not in gone and not h.leaving)
    return CardView(
        card.fact,
        holders,
        sum(h.slots for h in holders),
        sum(held_mib(card, h) for h in holders),
        sum(h.cores for h in holders),
        any(h.exclusive for h in holders),
    )


def held_mib(card: CardView, holder: Holder | Reservation) -> int:
    """MiB that the holder has of the card: an exclusive one without a stated amount has all of it."""
    return holder.memory_mib or (card.fact.memory_mib if holder.exclusive else 0)


def with_going(view: NodeView, going: Collection[str]) -> NodeView:
    """The node where these pods have been, or are to be, asked to go and are there still: leaving, as others."""
    slots = sum(h.slots for card in view.cards for h in card.holders if h.uid in going and not h.leaving)
    if not slots:
        return view
    cards = tuple(_card_with_going(card, going) for card in view.cards)
    return replace(view, cards=cards, leaving_slots=view.leaving_slots + slots)


def _card_with_going(card: CardView, going: Collection[str]) -> CardView:
    if not any(holder.uid in going for holder in card.holders):
        return card
    holders = (replace(h, state=HolderState.TERMINATING) if h.uid in going else h for h in card.holders)
    return replace(card, holders=tuple(holders))


def with_reservation(view: NodeView, uid: str, placement: Placement) -> NodeView:
    """The node with this placement held for a pod that is not bound yet."""
    mine = reservations_of(((uid, placement),))
    return replace(view, reservations=(*(r for r in view.reservations if r.uid != uid), *mine))


def without_reservations(view: NodeView, uids: Collection[str]) -> NodeView:
    """The node without what is held for these pods: members of one gang do not stand in each other's way."""
    if not any(reservation.uid in uids for reservation in view.reservations):
        return view
    return replace(view, reservations=tuple(r for r in view.reservations if r.uid not in uids))


def offered_slots(cards: Iterable[CardView]) -> int:
    """Slots of the cards that take assignments."""
    return sum(card.fact.slots for card in cards if card.usable)


def _effective_slots(view: NodeView, cards: tuple[CardView, ...], orphan_slots: int) -> int:
    """As the node's recount says it: the lower of inventory and allocatable, slots held on cards that take
    nothing neither used up nor offered."""
    if view.inventory is None:
        return 0
    held_elsewhere = orphan_slots + sum(card.used_slots for card in cards if not card.usable)
    return min(offered_slots(cards) + held_elsewhere, allocatable_slots(view.node, view.inventory.slot_resource))
