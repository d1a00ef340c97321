"""What HAMi, Volcano and the old volcano-dp assigned to a pod, read from the annotations that they leave on it.

Enters: a bound pod's annotations, its node and its containers. Leaves: an AssignmentFact that is counted beside
ours, None, or a Refusal that says why the annotation is not counted; never an exception, so that one broken pod is
quarantined alone. Rules: facts-protocol.md 1.2, 2.1, 2.2 and 7.1. Doubt counts more, never less.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vgpu import names
from vgpu.compat.encoding import Device, decode_containers, read_number, shown
from vgpu.core.facts import AssignedCard, AssignedContainer, AssignmentFact, AssignmentSource
from vgpu.core.presets import HAMI, VOLCANO, ContainerAmounts, PresetSettings
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import ContainerKind
from vgpu.errors import MalformedObject
from vgpu.units import CORES_PER_CARD

Containers = Sequence[ContainerAmounts]
_UNSET: Final = frozenset({"", "0"})


@dataclass(frozen=True, slots=True)
class _Dialect:
    """Where one system keeps its assignment. `permanent` stays; `consumed` is the same text, eaten by Allocate."""

    source: AssignmentSource
    permanent: str
    consumed: str
    node: str
    requests: tuple[str, ...]
    align: Callable[[int, Containers], Containers | None]
    """The containers that a list of so many entries belongs to, in order; None when it fits no rule."""


def _align_hami(entries: int, containers: Containers) -> Containers | None:
    """Init containers first, then app containers, empty entries kept: the index is the container's index."""
    apps = [c for c in containers if c.kind is ContainerKind.APP]
    return next((group for group in (containers, apps) if len(group) == entries), None)


def _align_volcano(entries: int, containers: Containers) -> Containers | None:
    """Only the app containers that ask, without padding; one entry each."""
    apps = [c for c in containers if c.kind is ContainerKind.APP]
    asking = [c for c in apps if _asks(c, VOLCANO.amounts)]
    return next((group for group in (asking, apps) if len(group) == entries), None)


_HAMI: Final = _Dialect(
    AssignmentSource.HAMI,
    names.HAMI_ALLOCATED,
    names.HAMI_TO_ALLOCATE,
    names.HAMI_NODE,
    HAMI.amounts,
    _align_hami,
)
_VOLCANO: Final = _Dialect(
    AssignmentSource.VOLCANO,
    names.VOLCANO_IDS,
    names.VOLCANO_TO_ALLOCATE,
    names.VOLCANO_NODE,
    VOLCANO.amounts,
    _align_volcano,
)
_VOLCANO_DP_REQUESTS: Final = (names.VOLCANO_DP_MEMORY, names.VOLCANO_DP_NUMBER)


def read_legacy(
    annotations: Mapping[str, str], node: str, containers: Containers, settings: PresetSettings | None = None
) -> AssignmentFact | Refusal | None:
    """The assignment of another system that a pod bound to `node` carries; None without one or without a node.

    `containers` in spec order, init containers first. `settings` gives the factor of Volcano's memory units. A
    system's annotation counts only where the pod asks for a resource of it: annotations anybody may write.
    An amount of 0 MiB is what Volcano <= 1.13 made of small percentages while the container saw the whole card: it
    counts as the whole card, and so do 100 cores and a MIG instance.
    """
    if not node or not containers:
        return None
    factor = (settings or PresetSettings()).volcano_memory_factor
    for dialect, memory_factor in ((_HAMI, 1), (_VOLCANO, factor)):
        if any(_asks(c, dialect.requests) for c in containers):
            read = _read(dialect, annotations, node, containers, memory_factor)
            if read is not None:
                return read
    return _read_volcano_dp(annotations, node, containers) if asks_volcano_dp(containers) else None


def asks_volcano_dp(containers: Containers) -> bool:
    """Whether any container asks for what the old volcano-dp serves; such pods are never ours to place."""
    return any(_asks(c, _VOLCANO_DP_REQUESTS) for c in containers)


def _read(
    dialect: _Dialect, annotations: Mapping[str, str], node: str, containers: Containers, memory_factor: int
) -> AssignmentFact | Refusal | None:
    places = (dialect.permanent, dialect.consumed)
    annotation = next((key for key in places if annotations.get(key, "").strip(" ;")), None)
    if annotation is None:
        return None
    assigned_node = annotations.get(dialect.node, "")
    if assigned_node != node:
        stale = f"made for node {shown(assigned_node)}" if assigned_node else f"without {dialect.node}"
        return _ignored(annotation, f"{stale}, the pod is on {node}: left over from a bind that failed")
    try:
        mig_cards = _mig_cards(annotations) if dialect is _HAMI else frozenset()
        entries = [_cards(e, memory_factor, mig_cards) for e in decode_containers(annotations[annotation])]
    except MalformedObject as error:
        return _ignored(annotation, str(error))
    owners = dialect.align(len(entries), containers)
    if owners is None:
        return _ignored(annotation, f"{len(entries)} entries fit none of the pod's {len(containers)} containers")
    held = [
        AssignedContainer(owner.name, owner.kind, cards)
        for owner, cards in zip(owners, entries, strict=True)
        if cards
    ]
    return AssignmentFact(dialect.source, node, "", tuple(held))


def _cards(devices: Sequence[Device], memory_factor: int, mig_cards: frozenset[str]) -> tuple[AssignedCard, ...]:
    """One holder per card: the MIG instances of one card are one holder of the whole card."""
    cards: dict[str, AssignedCard] = {}
    for device in devices:
        instance = device.mig or device.uuid in mig_cards
        if device.uuid in cards and not (instance and cards[device.uuid].whole):
            raise MalformedObject(f"card {shown(device.uuid)} is named twice for one container")
        cards[device.uuid] = AssignedCard(
            uuid=device.uuid,
            memory_mib=0 if instance else device.memory * memory_factor,
            cores=0 if instance else device.cores,
            whole=instance or device.memory == 0 or device.cores >= CORES_PER_CARD,
        )
    return tuple(cards.values())


def _mig_cards(annotations: Mapping[str, str]) -> frozenset[str]:
    """The cards that HAMi >= 2.10 cut for this pod: the device list names the plain card, this JSON says so."""
    text = annotations.get(names.HAMI_MIG_ALLOCATIONS, "")
    if not text.strip():
        return frozenset()
    try:
        allocations = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedObject(f"{names.HAMI_MIG_ALLOCATIONS} is not JSON: {shown(text)}") from error
    if not isinstance(allocations, list):
        raise MalformedObject(f"{names.HAMI_MIG_ALLOCATIONS} is not a list: {shown(text)}")
    uuids = [item.get("gpuUUID") if isinstance(item, dict) else None for item in allocations]
    cards = frozenset(uuid for uuid in uuids if isinstance(uuid, str) and uuid)
    if len(cards) == 0 or any(not isinstance(uuid, str) for uuid in uuids):
        raise MalformedObject(f"{names.HAMI_MIG_ALLOCATIONS} has an entry without gpuUUID: {shown(text)}")
    return cards


def _read_volcano_dp(
    annotations: Mapping[str, str], node: str, containers: Containers
) -> AssignmentFact | Refusal | None:
    """volcano-dp names cards by NVML index and no node: its pods hold their cards whole.

    The list is the pod's, not a container's; the first app container that asks holds all of it.
    """
    text = annotations.get(names.VOLCANO_DP_INDEX, "")
    if not text.strip():
        return None
    try:
        indices = [read_number(item.strip(), "index") for item in text.split(",")]
    except MalformedObject as error:
        return _ignored(names.VOLCANO_DP_INDEX, str(error))
    apps = [c for c in containers if c.kind is ContainerKind.APP] or list(containers)
    owner = next((c for c in apps if _asks(c, _VOLCANO_DP_REQUESTS)), apps[0])
    cards = tuple(AssignedCard(f"index:{index}", 0, 0, whole=True) for index in dict.fromkeys(indices))
    held = AssignedContainer(owner.name, owner.kind, cards)
    return AssignmentFact(AssignmentSource.VOLCANO_DP, node, "", (held,))


def _asks(container: ContainerAmounts, resources: Sequence[str]) -> bool:
    return any(container.amounts.get(resource, "") not in _UNSET for resource in resources)


def _ignored(annotation: str, problem: str) -> Refusal:
    return Refusal(Reason.ASSIGNMENT_IGNORED, f"annotation {annotation} is not counted: {problem}")
