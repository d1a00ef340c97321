"""What one pod holds on its node, whoever says so: its assignment, a booking, or the node's agent.

Enters: a bound pod with an assignment, the containers of a booking, a lingering pod. Leaves: a Hold. May not live
here: what the holds of a node come to, and which of them count.
"""

from dataclasses import dataclass
from typing import Protocol

from vgpu.core.charge import card_charges, pod_slots
from vgpu.core.facts import AssignedContainer, AssignmentSource, LingeringPod, PodFact
from vgpu.core.views import Holder, HolderState


@dataclass(frozen=True, slots=True)
class Hold:
    """One pod's cards on a node: from its assignment, or from a booking that no event has shown yet.

    `card_counts`: of its containers. `holders`: by the card's name in the assignment, an UUID or an index.
    """

    uid: str
    namespace: str
    name: str
    state: HolderState
    admitted: bool
    card_counts: frozenset[int]
    slots: int
    holders: tuple[tuple[str, Holder], ...]

    @property
    def pod(self) -> str:
        """NS/POD, as people write it."""
        return f"{self.namespace}/{self.name}"


def hold_of(pod: PodFact) -> Hold:
    """The hold of a bound pod with an assignment."""
    assert pod.assignment is not None
    state = HolderState.RUNNING
    if pod.terminating:
        state = HolderState.TERMINATING
    elif pod.assignment.source is not AssignmentSource.VGPU:
        state = HolderState.LEGACY
    return hold_by(pod, state, pod.admitted, pod.assignment.containers)


class _Named(Protocol):
    """A pod, or the booking of one."""

    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


def hold_by(pod: _Named, state: HolderState, admitted: bool, containers: tuple[AssignedContainer, ...]) -> Hold:
    """The hold of these containers. A node is recounted some times for each of its pods: what one pod holds is
    worked out once for each of its facts."""
    holders = tuple(
        (
            named,
            Holder(
                pod.uid,
                pod.namespace,
                pod.name,
                charge.slots,
                charge.memory_mib,
                charge.cores,
                charge.exclusive,
                state,
                charge.crowded,
            ),
        )
        for named, charge in card_charges(containers).items()
    )
    counts = frozenset(len(container.cards) for container in containers)
    return Hold(pod.uid, pod.namespace, pod.name, state, admitted, counts, pod_slots(containers), holders)


def hold_of_lingering(pod: LingeringPod) -> Hold:
    """The hold of a pod of which only its node's agent knows. Of the node's slots it takes all that it takes of
    its cards: which of its containers lived at the same time is not told."""
    holders = tuple(
        (
            card.uuid,
            Holder(
                pod.uid,
                pod.namespace,
                pod.name,
                card.slots,
                card.memory_mib,
                card.cores,
                card.whole,
                HolderState.LINGERING,
            ),
        )
        for card in pod.cards
    )
    slots = sum(card.slots for card in pod.cards)
    return Hold(
        pod.uid,
        pod.namespace,
        pod.name,
        HolderState.LINGERING,
        admitted=True,
        card_counts=frozenset(),
        slots=slots,
        holders=holders,
    )
