"""From readings, settings and health to what the inventory should say. Pure.

A reading (or the error in its place), the settings, the health of the cards and the last good inventory enter;
an InventorySpec leaves, or None where nothing may be written. Two specs are the same when their canonical
content is. No clock, no I/O. Order is by minor number, so that one reading always gives one text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from vgpu.agent.config import NodeSettings
from vgpu.agent.health import HealthBook, Observation
from vgpu.agent.nvlink import comparable_bus_id
from vgpu.agent.source import CardReading, CardSample, LostCard
from vgpu.api.inventory import Health, InventoryGpu, InventorySpec
from vgpu.api.model import MAX_TEXT, first_fault
from vgpu.errors import SourceError
from vgpu.units import CORES_PER_CARD

NO_SIZE = "memory size unknown to the driver; set preconfiguredMemoryMiB for this node"


@dataclass(frozen=True, slots=True)
class ResolvedLost:
    """A lost card that the last good inventory knows, with the reason of its loss."""

    gpu: InventoryGpu
    reason: str


def resolve_lost(reading: CardReading, previous: InventorySpec | None) -> tuple[ResolvedLost, ...]:
    """Which cards of the last good inventory the reading's lost ones are.

    By UUID where it is known, else by PCI address, else by index, and only among cards that are missing from the
    reading: address and index are hints here, never an identity.
    """
    present = {card.uuid for card in reading.cards}
    missing = [gpu for gpu in previous.gpus if gpu.uuid not in present] if previous else []
    found = []
    for lost in reading.lost:
        gpu = next((gpu for gpu in missing if _is_lost(gpu, lost)), None)
        if gpu is not None:
            missing.remove(gpu)
            found.append(ResolvedLost(gpu, f"lost: {lost.reason}"))
    return tuple(found)


def _is_lost(gpu: InventoryGpu, lost: LostCard) -> bool:
    if lost.uuid:
        return gpu.uuid == lost.uuid
    if lost.pci_bus_id:
        return comparable_bus_id(gpu.pci_bus_id) == comparable_bus_id(lost.pci_bus_id)
    return gpu.index == lost.index


def observations(reading: CardReading, lost: Iterable[ResolvedLost]) -> Mapping[str, Observation]:
    """What the reading says of each card's health."""
    seen = {card.uuid: Observation(card.problem, card.confirmed_well) for card in reading.cards}
    return seen | {entry.gpu.uuid: Observation(entry.reason) for entry in lost}


def spec_of(
    reading: CardReading,
    settings: NodeSettings,
    health: HealthBook,
    previous: InventorySpec | None,
    isolation_error: str = "",
) -> InventorySpec | None:
    """What a successful reading makes of the inventory; None for a node that never had cards.

    Raises SourceError when the cards contradict each other (two with one UUID or index).
    """
    excluded = settings.exclude_cards
    try:
        gpus = [
            _gpu(card, settings, health)
            for card in reading.cards
            if card.uuid not in excluded.uuids and card.index not in excluded.indexes
        ]
        taken = {card.index for card in reading.cards}
        lost = [entry for entry in resolve_lost(reading, previous) if entry.gpu.uuid not in excluded.uuids]
        gpus += [_lost_gpu(entry, health, taken) for entry in lost]
        if not gpus and previous is None:
            return None
        spec = _spec(reading, settings, gpus)
        return spec.model_copy(update={"isolation_error": isolation_error[:MAX_TEXT]})
    except ValidationError as error:
        raise SourceError(f"the cards make no valid inventory: {first_fault(error)}") from error


def _lost_gpu(entry: ResolvedLost, health: HealthBook, taken: set[int]) -> InventoryGpu:
    """The card as it was, unhealthy. An index that a living card has by now is given up for a free one."""
    gpu = entry.gpu
    index = gpu.index if gpu.index not in taken else max(taken) + 1 + gpu.index
    state = health.of(gpu.uuid)
    reason = state.reason or entry.reason
    told = {"health": Health.UNHEALTHY, "health_reason": reason[:MAX_TEXT], "xid": state.xid}
    return gpu.model_copy(update={"index": index, **told})


def _spec(reading: CardReading, settings: NodeSettings, gpus: Iterable[InventoryGpu]) -> InventorySpec:
    return InventorySpec(
        slot_resource=settings.effective_slot_resource,
        identity=settings.effective_identity,
        plugin=settings.plugin,
        gpus=tuple(sorted(gpus, key=_order)),
        driver_version=reading.driver_version,
        cuda_version=reading.cuda_version,
        boot_id=reading.boot_id,
    )


def unreadable(error: str, previous: InventorySpec | None) -> InventorySpec | None:
    """The last good list with readError: "could not read" never overwrites cards. None where there is no list."""
    if previous is None:
        return None
    return previous.model_copy(update={"read_error": error[:MAX_TEXT] or "unknown error"})


def same_content(left: InventorySpec | None, right: InventorySpec | None) -> bool:
    """Do both say the same, whatever the order of cards and peers?"""
    if left is None or right is None:
        return left is right
    return left.canonical() == right.canonical()


def usable_memory_mib(card: CardSample, settings: NodeSettings) -> int:
    """MiB that pods may use: (total x scale - reserve), down to whole units of memoryFactor; 0 if unknown."""
    total = card.memory_mib or settings.preconfigured_memory_mib
    usable = total * settings.memory_scale_percent // 100 - settings.memory_reserve_mib
    return max(0, usable - usable % settings.memory_factor)


def _gpu(card: CardSample, settings: NodeSettings, health: HealthBook) -> InventoryGpu:
    memory_mib = usable_memory_mib(card, settings)
    state = health.of(card.uuid)
    unwell, reason = state.fault is not None, state.reason
    if memory_mib == 0:
        unwell, reason = True, NO_SIZE if not card.memory_mib else "memoryReserveMiB leaves nothing of this card"
    return InventoryGpu(
        uuid=card.uuid,
        index=card.index,
        model=card.model,
        memory_mib=max(1, memory_mib),
        cores=CORES_PER_CARD,
        slots=settings.slots,
        mode=settings.mode or card.mode,
        health=Health.UNHEALTHY if unwell else Health.HEALTHY,
        health_reason=reason[:MAX_TEXT],
        xid=state.xid if reason == state.reason else None,
        minor=card.minor,
        pci_bus_id=card.pci_bus_id,
        numa_node=card.numa_node,
        nvlink_peers=tuple(sorted(card.links)),
    )


def _order(gpu: InventoryGpu) -> tuple[int, int, str]:
    return (gpu.minor if gpu.minor is not None else gpu.index, gpu.index, gpu.uuid)
