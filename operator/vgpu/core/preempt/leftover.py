"""What is left of a plan that is over: cards that were freed for its owner, and that whoever took over needs not.

Enter: what the plan held, the nodes as they stand. Leaves: the part of it that is free, or will be as soon as
those are gone who leave already, beside all that is held for others. For how long it is held is not decided here.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from vgpu.core.preempt.facts import NodeReservation
from vgpu.core.preempt.reservations import LEFT_OVER, PlanHold, without_plans
from vgpu.core.preempt.room import fits_later
from vgpu.core.views import NodeView


def left_of(
    hold: PlanHold, view_of: Callable[[str], NodeView | None], avoid_nodes: Collection[str] = ()
) -> PlanHold:
    """Card by card: one that was lost does not open the others. Nobody is to go for it, and seats whose pods are
    gone are nobody's. On `avoid_nodes` the owner cannot start."""
    cards: list[NodeReservation] = []
    for node, held in sorted(hold.on_node.items()):
        view = None if node in avoid_nodes else view_of(node)
        if view is not None:
            cards += _that_fit(held, without_plans(view, [hold]))
    return replace(hold, generation=LEFT_OVER, cards=tuple(cards), victims=frozenset(), kept=frozenset())


def _that_fit(held: Collection[NodeReservation], view: NodeView) -> list[NodeReservation]:
    """`view`: the node without what is held for these pods."""
    if fits_later(view, [card.reservation for card in held]):
        return list(held)
    kept: list[NodeReservation] = []
    for card in held:
        if fits_later(view, [*(one.reservation for one in kept), card.reservation]):
            kept.append(card)
    return kept
