"""What a pod asks for, free of preset names: per container N distinct cards, of each so much.

Values only; reading them out of resource amounts is core/presets.py, choosing cards is core/fit.py.
"""

from dataclasses import dataclass
from enum import StrEnum

from vgpu.units import CORES_PER_CARD, memory_mib_from_percent


class ContainerKind(StrEnum):
    """app, plain init, or sidecar (an init container with restartPolicy Always)."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True)
class CardRequest:
    """What a container wants of EACH of its cards. Exactly one of the memory forms counts.

    memory_mib None and memory_percent None: the whole card's memory. cores 0: no reservation.
    """

    memory_mib: int | None = None
    memory_percent: int | None = None
    cores: int = 0

    @property
    def alone(self) -> bool:
        """Alone on the card: no memory given, or percent 100, or cores 100 (architecture.md 3)."""
        unset = self.memory_mib is None and self.memory_percent is None
        return unset or self.memory_percent == 100 or self.cores >= CORES_PER_CARD

    def memory_on(self, card_memory_mib: int) -> int:
        """MiB that this request takes of a card with `card_memory_mib`."""
        if self.memory_mib is not None:
            return self.memory_mib
        if self.memory_percent is not None:
            return memory_mib_from_percent(card_memory_mib, self.memory_percent)
        return card_memory_mib


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One container that asks for cards; `number` distinct physical cards, each with `card`."""

    name: str
    kind: ContainerKind
    number: int
    card: CardRequest


class NodePolicy(StrEnum):
    """Which of the fitting nodes is preferred."""

    BINPACK = "binpack"
    SPREAD = "spread"
    TOPOLOGY = "topology"


class CardPolicy(StrEnum):
    """Which of the fitting cards of a node is preferred (MUTEX: idle cards only)."""

    BINPACK = "binpack"
    SPREAD = "spread"
    TOPOLOGY = "topology"
    MUTEX = "mutex"
    NUMA = "numa"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which cards a pod accepts. Types are case-insensitive substrings of the model, UUIDs are exact.

    Empty = no constraint. `mode` "" = any mode that takes assignments.
    """

    use_types: tuple[str, ...] = ()
    nouse_types: tuple[str, ...] = ()
    use_uuids: frozenset[str] = frozenset()
    nouse_uuids: frozenset[str] = frozenset()
    mode: str = ""
    numa_bind: bool = False


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A pod's whole request. `containers` in spec order, init first, only those with cards.

    `slot_resource` is the number resource it named. Equal requests compare equal, so verdicts can be
    shared between the pods of one job: nothing in here names the pod.
    """

    slot_resource: str
    containers: tuple[ContainerRequest, ...]
    sidecars_before: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(plain init container, names of the sidecars declared before it), for init containers with cards."""
    selection: Selection = Selection()
    node_policy: NodePolicy | None = None
    card_policies: tuple[CardPolicy, ...] = ()

    @property
    def slots(self) -> int:
        """Slots that kube-scheduler counts: the larger of (app and sidecars) and each init with its sidecars."""
        if len(self.containers) == 1:
            return self.containers[0].number
        by_name = {c.name: c.number for c in self.containers}
        steady = sum(c.number for c in self.containers if c.kind is not ContainerKind.INIT)
        before = dict(self.sidecars_before)
        steps = [
            c.number + sum(by_name.get(name, 0) for name in before.get(c.name, ()))
            for c in self.containers
            if c.kind is ContainerKind.INIT
        ]
        return max([steady, *steps])

    @property
    def only_init(self) -> bool:
        """True when every container with cards is a plain init container (refused on exact nodes)."""
        return all(c.kind is ContainerKind.INIT for c in self.containers)
