"""What a pod takes of each card, and of its node's slots, from its assignment.

Enters: the containers of an assignment in spec order (init first). Leaves: one Charge per card, and the
pod's slots. A pod runs in phases: its app containers with its sidecars, and before that each plain init
container with the sidecars declared before it. It takes of a card the elementwise maximum of its phases
(architecture.md 3). Nothing here knows inventories or nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from vgpu.core.facts import AssignedCard, AssignedContainer
from vgpu.core.request import ContainerKind
from vgpu.units import CORES_PER_CARD


class _HasKind(Protocol):
    @property
    def kind(self) -> ContainerKind: ...


_Container = TypeVar("_Container", bound=_HasKind)


@dataclass(frozen=True, slots=True)
class Charge:
    """What one pod takes of one card. One slot per (container, card) that can live at the same time.

    `exclusive`: a holder among them is alone on the card. `coreless`: a holder among them reserves no cores.
    `crowded`: an exclusive holder shares the card with another container of its own pod (only outside
    systems make such assignments).
    """

    slots: int
    memory_mib: int
    cores: int
    exclusive: bool = False
    coreless: bool = False
    crowded: bool = False

    def merged(self, other: "Charge") -> "Charge":
        """Elementwise maximum: two phases of one pod never live at the same time."""
        return Charge(
            max(self.slots, other.slots),
            max(self.memory_mib, other.memory_mib),
            max(self.cores, other.cores),
            self.exclusive or other.exclusive,
            self.coreless or other.coreless,
            self.crowded or other.crowded,
        )


def phases(containers: Sequence[_Container]) -> list[tuple[int, ...]]:
    """Indexes of the containers that live at the same time, per phase; the last phase is the steady one.

    A sidecar lives in its own start and in everything declared after it, so init phases hold the plain init
    container and the sidecars before it. Phases without containers are left out.
    """
    result: list[tuple[int, ...]] = []
    sidecars: list[int] = []
    for index, container in enumerate(containers):
        if container.kind is ContainerKind.SIDECAR:
            sidecars.append(index)
        elif container.kind is ContainerKind.INIT:
            result.append((*sidecars, index))
    steady = tuple(i for i, c in enumerate(containers) if c.kind is not ContainerKind.INIT)
    return [*result, steady] if steady else result


def card_charges(containers: Sequence[AssignedContainer]) -> dict[str, Charge]:
    """Charge per card uuid, in the order in which the assignment first names the cards."""
    if len(containers) == 1:
        return _phase_charges(containers)
    total: dict[str, Charge] = {}
    for phase in phases(containers):
        for uuid, charge in _phase_charges([containers[i] for i in phase]).items():
            total[uuid] = charge.merged(total[uuid]) if uuid in total else charge
    return total


def pod_slots(containers: Sequence[AssignedContainer]) -> int:
    """Slots of the node that kubelet and kube-scheduler count for the pod: the largest phase."""
    return max((sum(len(containers[i].cards) for i in phase) for phase in phases(containers)), default=0)


def is_exclusive(card: AssignedCard) -> bool:
    """True when this holder must be alone on its card: whole, or all cores."""
    return card.whole or card.cores >= CORES_PER_CARD


def _phase_charges(containers: Iterable[AssignedContainer]) -> dict[str, Charge]:
    total: dict[str, Charge] = {}
    for container in containers:
        for card in container.cards:
            alone = is_exclusive(card)
            before = total.get(card.uuid)
            if before is None:
                total[card.uuid] = Charge(1, card.memory_mib, card.cores, alone, card.cores == 0 and not alone)
                continue
            exclusive = before.exclusive or alone
            total[card.uuid] = Charge(
                before.slots + 1,
                before.memory_mib + card.memory_mib,
                before.cores + card.cores,
                exclusive,
                before.coreless or (card.cores == 0 and not alone),
                exclusive,
            )
    return total
