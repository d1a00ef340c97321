"""GpuNodeInventory JSON -> InventoryFact. A card that cannot be read is quarantined alone, a spec as a whole.

A quarantined card keeps what was last known of it (so its holders still count against the right size) and is
unhealthy with the fault as its reason: nothing new goes there. A spec that cannot be read keeps the previous
cards and carries `problem`, which closes the node. A lingering pod that cannot be read closes it, too: nobody
knows what it takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from vgpu.api.inventory import Health, InventoryGpu
from vgpu.api.lingering import LingeringPod as LingeringModel
from vgpu.api.model import first_fault
from vgpu.controller.translate.node import SLOT_RESOURCES
from vgpu.controller.translate.partial import InventoryModel, InventorySpec
from vgpu.core.facts import CardFact, Identity, InventoryFact, LingeringPod, Plugin

UNREADABLE = "InvalidCard"
LISTED_TWICE = "ListedTwice"


def inventory_fact(raw: InventoryModel, previous: InventoryFact | None) -> InventoryFact:
    """The fact of one inventory; `previous` is the last one of the same node, for what cannot be read now."""
    spec = raw.spec
    problem = _problem(spec)
    if problem:
        return quarantined(raw.metadata.name, previous, problem)
    known = {card.uuid: card for card in previous.cards} if previous else {}
    cards, unnamed = _cards(spec.gpus or (), known)
    lingering, unreadable = _lingering(spec.lingering or ())
    return InventoryFact(
        node=raw.metadata.name,
        slot_resource=spec.slot_resource,
        cards=cards,
        identity=Identity(spec.identity),
        plugin=Plugin(spec.plugin),
        read_error=spec.read_error,
        isolation_error=spec.isolation_error,
        boot_id=spec.boot_id,
        problem=unnamed or unreadable,
        lingering=lingering,
    )


def quarantined(node: str, previous: InventoryFact | None, problem: str) -> InventoryFact:
    """The previous inventory of `node` with `problem` set; without one, an inventory without cards."""
    if previous is None:
        return InventoryFact(node=node, slot_resource="", cards=(), problem=problem)
    return replace(previous, problem=problem)


def _problem(spec: InventorySpec) -> str:
    if spec.slot_resource not in SLOT_RESOURCES:
        return f"spec.slotResource: {spec.slot_resource[:64]!r} is none of {', '.join(SLOT_RESOURCES)}"
    for field, value, known in (("identity", spec.identity, Identity), ("plugin", spec.plugin, Plugin)):
        if value not in {member.value for member in known}:
            return f"spec.{field}: {value[:64]!r} is none of {', '.join(known)}"
    return ""


def _cards(gpus: Sequence[Any], known: Mapping[str, CardFact]) -> tuple[tuple[CardFact, ...], str]:
    """Cards by uuid, and the problem of entries that do not even name their card."""
    cards: dict[str, CardFact] = {}
    unnamed = ""
    for position, gpu in enumerate(gpus):
        card = _card(gpu, known)
        if card is None:
            unnamed = unnamed or f"spec.gpus[{position}] has no readable uuid"
        elif card.uuid in cards:
            cards[card.uuid] = replace(cards[card.uuid], healthy=False, health_reason=LISTED_TWICE)
        else:
            cards[card.uuid] = card
    return tuple(sorted(cards.values(), key=lambda card: (card.index, card.uuid))), unnamed


def _lingering(pods: Sequence[Any]) -> tuple[tuple[LingeringPod, ...], str]:
    """Those that can be read, by uid, and what is wrong with the first other one."""
    found: dict[str, LingeringPod] = {}
    unreadable = ""
    for position, pod in enumerate(pods):
        try:
            fact = LingeringModel.model_validate(pod).fact()
        except ValidationError as error:
            unreadable = unreadable or f"spec.lingering[{position}]: {first_fault(error)}"
        else:
            found[fact.uid] = fact
    return tuple(found[uid] for uid in sorted(found)), unreadable


def _card(gpu: Any, known: Mapping[str, CardFact]) -> CardFact | None:
    try:
        return _fact(InventoryGpu.model_validate(gpu))
    except ValidationError as error:
        fault = f"{UNREADABLE}: {first_fault(error)}"
    uuid = gpu.get("uuid") if isinstance(gpu, dict) else None
    if not isinstance(uuid, str) or not uuid:
        return None
    blank = CardFact(uuid=uuid, index=-1, model="", memory_mib=0, cores=0, slots=0, healthy=False)
    return replace(known.get(uuid, blank), healthy=False, health_reason=fault)


def _fact(gpu: InventoryGpu) -> CardFact:
    return CardFact(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        cores=gpu.cores,
        slots=gpu.slots,
        healthy=gpu.health == Health.HEALTHY,
        health_reason=gpu.health_reason,
        minor=gpu.minor,
        pci_bus_id=gpu.pci_bus_id,
        mode=gpu.mode,
        numa_node=gpu.numa_node,
        links=frozenset(gpu.nvlink_peers),
    )
