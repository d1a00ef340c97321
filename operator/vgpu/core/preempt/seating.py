"""Gives cards to several pods on one node, once it is known that they fit there together.

Enters: a node as it will be, pods with their requests, the copies that each card is to take. Leaves: a Placement
per pod, or None. Who goes for it has been decided before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpu.core.facts import AssignedCard, AssignedContainer, CardFact
from vgpu.core.placement import Placement, place
from vgpu.core.preempt.demand import Loads
from vgpu.core.preempt.problem import with_reservation
from vgpu.core.request import ContainerRequest, PodRequest
from vgpu.core.score import Policies
from vgpu.core.views import NodeView


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a gang that wants cards."""

    uid: str
    request: PodRequest


@dataclass(frozen=True, slots=True)
class Seat:
    """The cards of one member."""

    member: Member
    placement: Placement


def seat_in_turn(view: NodeView, members: Iterable[Member], policies: Policies) -> tuple[Seat, ...] | None:
    """Places the members one after another, each beside those before it; None when one finds no cards."""
    seats: list[Seat] = []
    for member in members:
        placement = place(view, member.request, member.uid, policies)
        if not isinstance(placement, Placement):
            return None
        view = with_reservation(view, member.uid, placement)
        seats.append(Seat(member, placement))
    return tuple(seats)


def seat_by_loads(
    view: NodeView, members: Sequence[Member], loads: Iterable[tuple[str, Loads]]
) -> tuple[Seat, ...]:
    """Deals the copies of each container out to equal members: each takes the cards with most copies left, which
    never leaves a later one without distinct cards."""
    left = {uuid: list(load) for uuid, load in loads}
    facts = {card.fact.uuid: card.fact for card in view.cards}
    seats = []
    for member in members:
        containers = []
        for index, container in enumerate(member.request.containers):
            ranked = sorted(left, key=lambda uuid: (-left[uuid][index], facts[uuid].index, uuid))
            chosen = ranked[: container.number]
            for uuid in chosen:
                left[uuid][index] -= 1
            containers.append(_assigned(container, [facts[uuid] for uuid in chosen]))
        seats.append(Seat(member, Placement(view.name, tuple(containers), 0)))
    return tuple(seats)


def _assigned(container: ContainerRequest, cards: Iterable[CardFact]) -> AssignedContainer:
    want = container.card
    ordered = sorted(cards, key=lambda card: (card.index, card.uuid))
    shares = (AssignedCard(card.uuid, want.memory_on(card.memory_mib), want.cores, want.alone) for card in ordered)
    return AssignedContainer(container.name, container.kind, tuple(shares))
