"""May this pod's containers get the cards that its annotation names? Pure: values enter, a text leaves.

The text is "" for yes, otherwise what is wrong and what would help; people read it in the pod's event.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vgpu import names
from vgpu.agent.identity.port import CardNow
from vgpu.api.assignment import AssignmentModel
from vgpu.core.charge import Charge, card_charges
from vgpu.core.facts import AssignedCard, AssignedContainer
from vgpu.core.request import ContainerKind
from vgpu.units import CORES_PER_CARD

Kinds = Mapping[str, ContainerKind]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another pod and what it takes of its cards. `deleted_uid`: gone from the API, its processes are not."""

    path: str
    charges: Mapping[str, Charge]
    deleted_uid: str = ""


def foreign(assignment: AssignmentModel, uid: str, node: str) -> str:
    """Was it made for another pod, or another node?"""
    made = f"its {names.ASSIGNMENT_ANNOTATION} was made for"
    if assignment.pod_uid != uid:
        return f"{made} the pod with uid {assignment.pod_uid}, this pod has uid {uid}; delete the pod"
    if assignment.node != node:
        return f"{made} node {assignment.node}, the pod is on {node}; delete the pod"
    return ""


def unlike_spec(assignment: AssignmentModel, asked: Mapping[str, int]) -> str:
    """Does it name each container that asks for slots, with as many cards as slots?"""
    given = {container.name: len(container.cards) for container in assignment.containers}
    if given == asked:
        return ""
    return f"its {names.ASSIGNMENT_ANNOTATION} gives cards {_counts(given)}, its containers ask {_counts(asked)}"


def unknown_cards(assignment: AssignmentModel, cards: Mapping[str, CardNow]) -> str:
    """Are all its cards on this node?"""
    wanted = {card.uuid for container in assignment.containers for card in container.cards}
    missing = sorted(wanted - cards.keys())
    if not missing:
        return ""
    return (
        f"the assigned card {missing[0]} is not on this node, which has {', '.join(sorted(cards)) or 'none'}; "
        "it is of another node, was swapped, or is left out by the settings"
    )


def charges_of(assignment: AssignmentModel, kinds: Kinds) -> Mapping[str, Charge]:
    """What the pod takes of each card."""
    return card_charges(
        [
            AssignedContainer(
                container.name,
                kinds.get(container.name, ContainerKind.APP),
                tuple(AssignedCard(c.uuid, c.memory_mib, c.cores, c.whole) for c in container.cards),
            )
            for container in assignment.containers
        ]
    )


def no_room(own: Mapping[str, Charge], others: Iterable[Neighbour], cards: Mapping[str, CardNow]) -> str:
    """Do the other pods leave room for it on each of its cards?"""
    held = list(others)
    for uuid, charge in own.items():
        neighbours = sorted((pod for pod in held if uuid in pod.charges), key=lambda pod: pod.path)
        if neighbours and not _fits([charge, *(pod.charges[uuid] for pod in neighbours)], cards[uuid]):
            pods = ", ".join(pod.path for pod in neighbours)
            room = f"card {uuid} has no room for it beside {pods}; it starts when they are gone"
            return room + "".join(_still_there(pod) for pod in neighbours if pod.deleted_uid)
    return ""


def _still_there(pod: Neighbour) -> str:
    return (
        f"; {pod.path} (uid {pod.deleted_uid}) was deleted and still has processes on this node, which kubelet "
        "ends when it can; if they stay, look at kubelet and the container runtime here, or end them by hand"
    )


def _fits(charges: Sequence[Charge], card: CardNow) -> bool:
    return (
        not any(charge.exclusive for charge in charges)
        and sum(charge.memory_mib for charge in charges) <= card.memory_mib
        and sum(charge.cores for charge in charges) <= CORES_PER_CARD
        and sum(charge.slots for charge in charges) <= card.slots
    )


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {number}" for name, number in sorted(numbers.items())) or "nothing"
