"""Places a pod on the cards that are held for it, of each just what is held, before any other room is looked for.

Enters: a node's view, what a plan holds there for the pod. Leaves: a Placement, a Refusal, or None. Containers
that change places among held cards would take of one card more than is held of it: until the pod is bound both
would count, and others' plans there would seem to have lost their cards.
"""

from collections.abc import Sequence
from dataclasses import replace

from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.reservations import PlanHolds, covers
from vgpu.core.preempt.room import Part, stays
from vgpu.core.reasons import Refusal
from vgpu.core.recount import reservations_of
from vgpu.core.request import PodRequest
from vgpu.core.views import CardView, NodeView, Reservation, core_capacity

NOBODY = ""
"""The uid for which nothing is ever placed."""


def place_held_first(
    view: NodeView, request: PodRequest, uid: str, policies: Policies, plans: PlanHolds
) -> Placement | Refusal:
    """Cards on this node for the pod: what plans hold for it there if it is free, any others if it is not."""
    mine = [one for one in view.reservations if one.uid == uid] if view.name in plans.nodes_of(uid) else []
    own = place_as_held(view, request, mine, policies) if mine else None
    return place(view, request, uid, policies) if own is None else own


def place_on_held(
    view: NodeView, request: PodRequest, held: Sequence[Reservation], policies: Policies
) -> Placement | None:
    """The pod on the cards that are held for it, if need be otherwise than they are held; None when it does not
    fit there, or a rule of the node is against it."""
    own = place_as_held(view, request, held, policies)
    found = place(_only(view, held), request, held[0].uid, policies) if own is None else own
    return found if isinstance(found, Placement) else None


def place_as_held(
    view: NodeView, request: PodRequest, held: Sequence[Reservation], policies: Policies
) -> Placement | None:
    """The pod where it takes no more of any card than is held of it, or None. `held` is for one pod."""
    only, uid = _only(view, held), held[0].uid
    of = {one.uuid: one for one in held}
    others = [one for one in only.reservations if one.uid != uid]
    rest = (_rest_of(card, of[card.fact.uuid], others) for card in only.cards)
    full = replace(only, reservations=(*others, *(one for one in rest if one is not None)))
    found = place(full, request, uid, policies)
    if not isinstance(found, Placement):
        return None
    return found if all(covers(of[one.uuid], one) for one in reservations_of(((uid, found),))) else None


def _only(view: NodeView, held: Sequence[Reservation]) -> NodeView:
    uuids = {one.uuid for one in held}
    return replace(view, cards=tuple(card for card in view.cards if card.fact.uuid in uuids))


def _rest_of(card: CardView, own: Reservation, others: Sequence[Reservation]) -> Reservation | None:
    """What nobody has of the card beside what is held: filled in *later*, so that nothing else is found. It takes
    no slots, of which the node has its own count."""
    if own.exclusive:
        return None
    held = [own, *(one for one in others if one.uuid == card.fact.uuid)]
    parts: list[Part] = [*held, *filter(stays, card.holders)]
    memory_mib, cores = sum(one.memory_mib for one in parts), sum(one.cores for one in parts)
    cores += any(one.coreless for one in held)  # beside 100 booked cores they would starve
    return Reservation(
        NOBODY,
        card.fact.uuid,
        0,
        max(0, card.fact.memory_mib - memory_mib),
        max(0, core_capacity(card.fact) - cores),
        exclusive=False,
    )
