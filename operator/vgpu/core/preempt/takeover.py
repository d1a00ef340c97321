"""A plan of higher rank may take what is held for lower ones: which of them lose, as few and as low as possible.

Enter: the new plan's hold, the holds that rank lower, weakest first, and the nodes. Leave: the losers. Those who
lost are decided on anew by the caller; pods that are leaving for them are free room for everyone.
"""

from collections.abc import Callable, Iterable, Sequence, Set

from vgpu.core.preempt.reservations import PlanHold, without_plans
from vgpu.core.preempt.room import fits_later
from vgpu.core.views import Holder, NodeView


def losers(
    new: PlanHold,
    lower: Sequence[PlanHold],
    view_of: Callable[[str], NodeView | None],
    going: Set[str] = frozenset(),
) -> list[PlanHold] | None:
    """The lower plans that must end so that the new one fits *later*; None when it fits not even without all.
    `going`: uids of those who are to go for others' plans.

    Plans that share none of its cards are asked only when a node's slots are short.
    """
    found: list[PlanHold] = []
    cards = _cards(new)
    sharing = [hold for hold in lower if cards & _cards(hold)]
    beside = [hold for hold in lower if not cards & _cards(hold) and new.nodes & hold.nodes]
    for hold in (*sharing, *beside):
        if fits(new, found, view_of, going):
            return found
        found.append(hold)
    return found if fits(new, found, view_of, going) else None


def fits(
    new: PlanHold,
    gone: Iterable[PlanHold],
    view_of: Callable[[str], NodeView | None],
    going: Set[str] = frozenset(),
) -> bool:
    """True when the new hold fits *later* beside all that stands, without these plans, without its victims and
    without those who are `going` for others' plans."""
    goes = going | {uid for uid, _ in new.victims}

    def counts(holder: Holder) -> bool:
        return not holder.leaving and holder.uid not in goes

    gone = tuple(gone)
    for node in sorted({card.node for card in new.cards}):
        view = view_of(node)
        own = [card.reservation for card in new.cards if card.node == node]
        if view is None or not fits_later(without_plans(view, gone), own, counts):
            return False
    return True


def _cards(hold: PlanHold) -> set[tuple[str, str]]:
    return {(card.node, card.reservation.uuid) for card in hold.cards}
