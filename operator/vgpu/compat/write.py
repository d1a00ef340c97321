"""What the device plugins of HAMi and Volcano read at Allocate, made from an assignment of ours.

Enters: the assignment, the pod's containers, the time. Leaves: the annotations for the Binding (facts-protocol.md
2.1-2.4), so that assignment and binding stay one write. Nothing is sent from here.
"""

from collections.abc import Mapping, Sequence

from vgpu import names
from vgpu.compat.encoding import Device, encode_devices
from vgpu.core.facts import AssignedCard, AssignmentFact, Plugin
from vgpu.core.presets import ContainerAmounts, PresetSettings
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import ContainerKind
from vgpu.units import CORES_PER_CARD

_ALLOCATING = "allocating"


def compat_annotations(
    assignment: AssignmentFact,
    plugin: Plugin,
    containers: Sequence[ContainerAmounts],
    *,
    unix_seconds: int,
    settings: PresetSettings | None = None,
) -> dict[str, str] | Refusal:
    """The annotations with which `plugin` finds this pod and its cards; {} for our own agent.

    `containers` in spec order, init containers first; `unix_seconds` is the time of the bind. A Refusal only for
    what Volcano's format cannot say: cards for more than one container or for an init container (its plugin would
    give them to the wrong one), and less memory than one unit (0 means no limit to it).
    """
    if plugin is Plugin.HAMI:
        return _hami(assignment, containers, unix_seconds)
    if plugin is Plugin.VOLCANO:
        return _volcano(assignment, unix_seconds, (settings or PresetSettings()).volcano_memory_factor)
    return {}


def _hami(assignment: AssignmentFact, containers: Sequence[ContainerAmounts], unix_seconds: int) -> dict[str, str]:
    """Every container has an entry, those without cards an empty one; memory in MiB."""
    cards: Mapping[str, tuple[AssignedCard, ...]] = {c.name: c.cards for c in assignment.containers}
    entries = [encode_devices(_device(card, 1) for card in cards.get(c.name, ())) for c in containers]
    devices = "".join(f"{entry};" for entry in entries)
    return {
        names.HAMI_NODE: assignment.node,
        names.HAMI_TIME: str(unix_seconds),
        names.HAMI_ALLOCATED: devices,
        names.HAMI_TO_ALLOCATE: devices,
        names.HAMI_BIND_TIME: str(unix_seconds),
        names.HAMI_BIND_PHASE: _ALLOCATING,
    }


def _volcano(assignment: AssignmentFact, unix_seconds: int, memory_factor: int) -> dict[str, str] | Refusal:
    """One entry for the one app container with cards; memory in units of `memory_factor` MiB, rounded down."""
    if len(assignment.containers) != 1 or assignment.containers[0].kind is not ContainerKind.APP:
        holders = ", ".join(c.name for c in assignment.containers)
        message = f"Volcano's device plugin serves one app container with GPUs per pod, this pod has: {holders}"
        return Refusal(Reason.MULTI_CONTAINER_DEFERRED, message)
    cards = assignment.containers[0].cards
    short = [card for card in cards if 0 < card.memory_mib < memory_factor]
    if short:
        message = (
            f"{short[0].memory_mib} MiB are less than one unit of {memory_factor} MiB of {names.VOLCANO_MEMORY}"
        )
        return Refusal(Reason.INVALID_REQUEST, message)
    devices = encode_devices(_device(card, memory_factor) for card in cards)
    return {
        names.VOLCANO_NODE: assignment.node,
        names.VOLCANO_TIME: str(unix_seconds),
        names.VOLCANO_IDS: devices,
        names.VOLCANO_TO_ALLOCATE: devices,
        names.VOLCANO_BIND_TIME: str(unix_seconds),
        names.VOLCANO_BIND_PHASE: _ALLOCATING,
    }


def _device(card: AssignedCard, memory_factor: int) -> Device:
    """A card held whole without a core limit is written with 100 cores: alone also to whoever reads the text."""
    cores = CORES_PER_CARD if card.whole and card.cores == 0 else card.cores
    return Device(card.uuid, card.memory_mib // memory_factor, cores)
