"""Do these holders and reservations fit on a card, or a node's slots, together? Sums, and who must be alone.

Enter: cards, holders, reservations. Leave: yes or no. It judges sets that are given; what may be added to a card
for a request is core.fit.
"""

from collections.abc import Callable, Iterable, Sequence

from vgpu.core.facts import CardFact
from vgpu.core.views import CardView, Holder, NodeView, Reservation, core_capacity
from vgpu.units import CORES_PER_CARD

Part = Holder | Reservation


def fits_on_card(card: CardFact, parts: Sequence[Part]) -> bool:
    """True when all parts can be on the card at one time."""
    if any(part.exclusive for part in parts) and len({part.uid for part in parts}) > 1:
        return False
    cores = sum(part.cores for part in parts)
    starves = cores >= CORES_PER_CARD and any(isinstance(p, Reservation) and p.coreless for p in parts)
    return (
        sum(part.slots for part in parts) <= card.slots
        and sum(_mib(card, part) for part in parts) <= card.memory_mib
        and cores <= core_capacity(card)
        and not starves
    )


def stays(holder: Holder) -> bool:
    """True for a holder that *later* counts."""
    return not holder.leaving


def fits_now(view: NodeView, own: Sequence[Reservation]) -> bool:
    """True when all these reservations fit together beside all who hold cards now, leaving ones included."""
    if view.used_slots + sum(one.slots for one in own) > view.effective_slots:
        return False
    uuids = {one.uuid for one in own}
    return all(_card_takes(view.card(uuid), own, lambda holder: True) for uuid in sorted(uuids))


def fits_later(view: NodeView, own: Sequence[Reservation], counts: Callable[[Holder], bool] = stays) -> bool:
    """True when these reservations fit together beside the holders that `counts`, and beside what is held for
    other uids. Cards that `own` does not name are not looked at."""
    mine = {one.uid for one in own}
    held = (*own, *(one for one in view.reservations if one.uid not in mine))
    slots = _staying_slots(view, counts) + sum(one.slots for one in held)
    if slots > view.effective_slots:
        return False
    uuids = {one.uuid for one in own}
    return all(_card_takes(view.card(uuid), held, counts) for uuid in sorted(uuids))


def is_free(view: NodeView | None, own: Sequence[Reservation]) -> bool:
    """True when the node takes assignments, and all these fit there together now and *later*."""
    return view is not None and view.closed is None and fits_now(view, own) and fits_later(view, own)


def _card_takes(card: CardView | None, held: Iterable[Reservation], counts: Callable[[Holder], bool]) -> bool:
    if card is None or not card.usable:
        return False
    holders = [holder for holder in card.holders if counts(holder)]
    return fits_on_card(card.fact, [*holders, *(one for one in held if one.uuid == card.fact.uuid)])


def _staying_slots(view: NodeView, counts: Callable[[Holder], bool]) -> int:
    """Slots in *later*: a holder that `counts` against its marks is added with what its cards show for it, at
    least what the node counts."""
    slots = view.used_slots - view.leaving_slots
    for holder in (holder for card in view.cards for holder in card.holders):
        slots += (counts(holder) - stays(holder)) * holder.slots
    return slots


def _mib(card: CardFact, part: Part) -> int:
    return part.memory_mib or (card.memory_mib if part.exclusive else 0)
