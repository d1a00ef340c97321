"""Cards that are held for a gang, seat by seat, while one of its members is replaced (preemption.md 4.5).

Enter: what is held, which pods it is held for, the gang as it stands. Leave: seats that stay held although their
pod is gone, seats that nobody needs any more, and who takes an empty one: a waiting member that asks for just what
is held there. Nothing here writes, decides how long a seat stays empty, or knows plans' phases.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpu.core.placement import Policies
from vgpu.core.preempt.facts import NodeReservation, PlanFact
from vgpu.core.preempt.gang_state import GangState
from vgpu.core.preempt.held_cards import place_as_held
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.seating import Member
from vgpu.core.recount import reservations_of
from vgpu.core.request import PodRequest
from vgpu.core.views import CardView, NodeView

ANY_ORDER = Policies()
"""What is held leaves no choice of cards."""


@dataclass(frozen=True, slots=True)
class GangNow:
    """A gang for which cards are held. `lacks`: so many of it must still be bound until it runs, None = not known
    yet. `whole`: as many as it lacks wait. `spare`: those who wait and for whom nothing is held, oldest first."""

    lacks: int | None
    whole: bool = False
    spare: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class EmptySeats:
    """Seats by the uids of their pods, which are gone. `kept`: the gang lacks them; `given_up`: it does not.
    `lost`: it lacks others, whose cards are held no longer: their pods had been bound. `short`: so many it lacks
    beside all who ever had a seat: it needs more than it did."""

    kept: tuple[str, ...] = ()
    given_up: frozenset[str] = frozenset()
    lost: bool = False
    short: int = 0

    @property
    def lacks(self) -> int:
        """So many pods are to come before the gang can start on what is held."""
        return len(self.kept) + self.short


NONE_EMPTY = EmptySeats()


def empty_seats(gone: Sequence[str], held: Collection[str], waiting: int, gang: GangNow) -> EmptySeats:
    """Which of the seats of pods that are `gone` stay held, when cards are `held` for those, and so many of the
    seated ones wait."""
    lacks = waiting + len(gone) if gang.lacks is None else gang.lacks
    needed = max(0, lacks - waiting)
    kept = [uid for uid in gone if uid in held][:needed]
    short = max(0, needed - len(gone)) if waiting or gone else 0  # else all that was held is used
    return EmptySeats(tuple(kept), frozenset(gone) - {*kept}, len(kept) < min(needed, len(gone)), short)


def takers(
    held: Iterable[NodeReservation],
    empty: Collection[str],
    spare: Iterable[Member],
    view_of: Callable[[str], NodeView | None],
) -> dict[str, str]:
    """Who takes which of the empty seats, by the uid of the pod that is gone: the oldest who asks for the same."""
    seats: dict[str, list[NodeReservation]] = {uid: [] for uid in empty}
    for card in held:
        if card.reservation.uid in seats:
            seats[card.reservation.uid].append(card)
    found: dict[str, str] = {}
    for member in spare:
        for lost, seat in seats.items():
            view = view_of(seat[0].node) if seat else None
            if lost not in found and view is not None and asks_for(member.request, seat, view):
                found[lost] = member.uid
                break
    return found


def asks_for(request: PodRequest, seat: Sequence[NodeReservation], view: NodeView) -> bool:
    """True when such a pod would take of the seat's cards just what is held of them, no less and no more.

    Whoever else is on the cards does not matter: the pod is placed on a copy with room for this seat alone.
    """
    held = [card.reservation for card in seat]
    uuids = {one.uuid for one in held}
    cards = tuple(CardView(card.fact) for card in view.cards if card.fact.uuid in uuids)
    if view.inventory is None or len(cards) < len(uuids):
        return False
    slots = sum(card.fact.slots for card in cards)
    alone = NodeView(view.name, node=view.node, inventory=view.inventory, cards=cards, effective_slots=slots)
    found = place_as_held(alone, request, held, ANY_ORDER)
    return found is not None and set(reservations_of(((held[0].uid, found),))) == set(held)


def refilled(
    hold: PlanHold, state: GangState, gang: GangNow | None, view_of: Callable[[str], NodeView | None]
) -> PlanHold | None:
    """What is held for a gang that stands so: seats of those who are gone for who takes them, kept, or given up.
    None where it is no use: there is no gang, others are enough who do not take them, or what one had is held no
    longer."""
    if gang is None:
        return None
    gone, waiting = sorted(hold.uids - state.uids), sum(pod.uid in hold.uids for pod in state.waiting)
    views = (view_of(node) for node in sorted(hold.nodes))
    held = {one.uid for view in views if view is not None for one in view.reservations}
    empty = empty_seats(gone, held, waiting, gang)
    taken = takers(hold.cards, empty.kept, gang.spare, view_of)
    if empty.lost or (gang.whole and len(taken) < len(empty.kept)):
        return None
    cards = reseated(hold.cards, lambda uid: taken.get(uid, uid))
    kept = frozenset(card.reservation.uid for card in cards) - empty.given_up
    return replace(hold, cards=cards, kept=kept)


def succeeded(plan: PlanFact, taken: Mapping[str, str]) -> PlanFact:
    """The plan once these pods have taken the seats of those who are gone, by uid."""
    first = {now: lost for lost, now in plan.successors}
    known = dict(plan.successors) | {first.get(lost, lost): uid for lost, uid in taken.items()}
    return with_successors(plan, known)


def with_successors(plan: PlanFact, successors: Mapping[str, str]) -> PlanFact:
    """The plan with just these successors, by the uid for which its object holds the cards. One that sits in it
    already takes no second seat."""
    first = {now: lost for lost, now in plan.successors}
    original = [first.get(uid, uid) for uid in plan.owner_uids]
    counted: dict[str, str] = {}
    for lost, uid in sorted(successors.items()):
        if lost in original and uid not in original and uid not in counted.values():
            counted[lost] = uid

    def sits_now(uid: str) -> str:
        lost = first.get(uid, uid)
        return counted.get(lost, lost)

    return replace(
        plan,
        owner_uids=tuple(map(sits_now, plan.owner_uids)),
        reservations=reseated(plan.reservations, sits_now),
        successors=tuple(sorted(counted.items())),
    )


def reseated(cards: Iterable[NodeReservation], sits_now: Callable[[str], str]) -> tuple[NodeReservation, ...]:
    """The same cards, held for others."""
    return tuple(
        replace(card, reservation=replace(card.reservation, uid=sits_now(card.reservation.uid))) for card in cards
    )
