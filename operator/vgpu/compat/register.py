"""The cards that other node plugins publish on a Node, read into values.

Enters: a Node's annotations and capacity. Leaves: per system a Register, or a Refusal that says what is wrong with
its annotation. Every version's form is read (facts-protocol.md 1.1-1.3); the version is told by the form alone.
Never a source of truth for our own nodes: that is the inventory.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from vgpu import names
from vgpu.compat.encoding import LONGEST_TEXT, read_number, read_uuid, shown, split_ended
from vgpu.core.facts import AssignmentSource, CardMode
from vgpu.core.presets import PresetSettings
from vgpu.core.reasons import Reason, Refusal
from vgpu.errors import MalformedObject
from vgpu.units import CORES_PER_CARD, MAX_COUNT, parse_count

_MODES: Final = {"": CardMode.SHARED, "hami-core": CardMode.SHARED, "mig": CardMode.MIG}
_VENDOR_PREFIX: Final = "NVIDIA-"
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class RegisteredCard:
    """One card as another plugin publishes it. `index` None: not stated, and the position says nothing.

    volcano-dp states no UUIDs: there `uuid` is "index:N", as in AssignmentFact.
    """

    uuid: str
    model: str
    memory_mib: int
    cores: int
    slots: int
    healthy: bool
    index: int | None = None
    numa_node: int | None = None
    mode: CardMode = CardMode.SHARED


@dataclass(frozen=True, slots=True)
class Register:
    """All cards that one system publishes for a node, in the order of its annotation."""

    source: AssignmentSource
    cards: tuple[RegisteredCard, ...]


def read_registers(
    annotations: Mapping[str, str], capacity: Mapping[str, str], settings: PresetSettings | None = None
) -> tuple[Register | Refusal, ...]:
    """One entry per system that has published on this node: HAMi, Volcano vGPU, volcano-dp; () for none.

    `capacity` is the Node's status.capacity, quantities as text: volcano-dp publishes there only. `settings` gives
    the factor of Volcano's memory units, which volcano-dp shares.
    """
    factor = (settings or PresetSettings()).volcano_memory_factor
    found: list[Register | Refusal] = []
    if names.HAMI_REGISTER in annotations:
        found.append(_register(AssignmentSource.HAMI, names.HAMI_REGISTER, annotations, _read_hami))
    if names.VOLCANO_REGISTER in annotations:

        def read(text: str) -> Sequence[RegisteredCard]:
            return _read_volcano(text, factor)

        found.append(_register(AssignmentSource.VOLCANO, names.VOLCANO_REGISTER, annotations, read))
    if names.VOLCANO_DP_NUMBER in capacity:
        found.append(_read_volcano_dp(annotations, capacity, factor))
    return tuple(found)


def _register(
    source: AssignmentSource,
    annotation: str,
    annotations: Mapping[str, str],
    read: Callable[[str], Sequence[RegisteredCard]],
) -> Register | Refusal:
    text = annotations[annotation].strip()
    try:
        if len(text) > LONGEST_TEXT:
            raise MalformedObject(f"is longer than {LONGEST_TEXT} characters")
        cards = tuple(read(text))
        if len({card.uuid for card in cards}) != len(cards):
            raise MalformedObject("names a card twice")
    except MalformedObject as error:
        return Refusal(Reason.INVENTORY_INVALID, f"annotation {annotation}: {error}")
    return Register(source, cards)


def _rows(text: str, widths: Sequence[int]) -> list[list[str]]:
    """Entries ended by ":" of fields joined by ","; all of one of these widths. No ":" at all: no devices."""
    if ":" not in text:
        return []
    rows = [entry.split(",") for entry in split_ended(text, ":")]
    for row in rows:
        if len(row) not in widths or len(row) != len(rows[0]):
            expected = " or ".join(map(str, widths))
            raise MalformedObject(
                f"{shown(','.join(row))} has {len(row)} fields, expected {expected} in every entry"
            )
    return rows


def _read_volcano(text: str, memory_factor: int) -> Sequence[RegisteredCard]:
    """UUID,slots,memory,type,health and since DP 1.10 mode, which is the node's: the last entry decides."""
    cards: list[RegisteredCard] = []
    for row in _rows(text, (5, 6)):
        uuid, slots, memory, model, healthy, *mode = row
        card = RegisteredCard(
            uuid=read_uuid(uuid),
            model=model.removeprefix(_VENDOR_PREFIX),
            memory_mib=read_number(memory, "memory") * memory_factor,
            cores=CORES_PER_CARD,
            slots=read_number(slots, "slots"),
            healthy=_boolean(healthy),
            mode=_mode("".join(mode)),
        )
        cards.append(card)
    return [replace(card, mode=cards[-1].mode) for card in cards]


def _read_hami(text: str) -> Sequence[RegisteredCard]:
    return _read_hami_json(text) if text.startswith("[") else _read_hami_csv(text)


def _read_hami_csv(text: str) -> Sequence[RegisteredCard]:
    """HAMi <= 2.7: UUID,count,devmem,devcore,type,numa,health and since 2.5 index,mode; memory in MiB."""
    cards: list[RegisteredCard] = []
    for row in _rows(text, (7, 9)):
        uuid, count, memory, cores, model, numa, healthy, *more = row
        index, mode = more or ("", "")
        card = RegisteredCard(
            uuid=read_uuid(uuid),
            model=model.removeprefix(_VENDOR_PREFIX),
            memory_mib=read_number(memory, "devmem"),
            cores=read_number(cores, "devcore"),
            slots=read_number(count, "count"),
            healthy=_boolean(healthy),
            index=read_number(index, "index") if more else None,
            numa_node=None if numa == "-1" else read_number(numa, "numa"),
            mode=_mode(mode),
        )
        cards.append(card)
    return cards


def _read_hami_json(text: str) -> Sequence[RegisteredCard]:
    """HAMi >= 2.8: a missing key is the type's zero, so that a missing health means unhealthy."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedObject(f"{shown(text)} is not JSON") from error
    return [_hami_card(item) for item in items]


def _hami_card(item: object) -> RegisteredCard:
    if not isinstance(item, dict):
        raise MalformedObject("an entry of the list is not an object")
    numa = _json_number(item, "numa", least=-1)
    return RegisteredCard(
        uuid=read_uuid(_json_text(item, "id")),
        model=_json_text(item, "type").removeprefix(_VENDOR_PREFIX),
        memory_mib=_json_number(item, "devmem"),
        cores=_json_number(item, "devcore"),
        slots=_json_number(item, "count"),
        healthy=_json_boolean(item, "health"),
        index=_json_number(item, "index"),
        numa_node=None if numa < 0 else numa,
        mode=_mode(_json_text(item, "mode")),
    )


def _json_text(item: Mapping[str, object], key: str) -> str:
    value = item.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isprintable():
        raise MalformedObject(f"{key} is not printable text")
    return value


def _json_number(item: Mapping[str, object], key: str, least: int = 0) -> int:
    value = item.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_COUNT:
        raise MalformedObject(f"{key} is not a whole number from {least} to {MAX_COUNT}")
    return value


def _json_boolean(item: Mapping[str, object], key: str) -> bool:
    value = item.get(key)
    if not isinstance(value, bool | None):
        raise MalformedObject(f"{key} is neither true nor false")
    return bool(value)


def _boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise MalformedObject(f"health {shown(text)} is neither true nor false")
    return _BOOLEANS[text]


def _mode(text: str) -> CardMode:
    if text not in _MODES:
        raise MalformedObject(f"mode {shown(text)} is not known; known are hami-core and mig")
    return _MODES[text]


def _read_volcano_dp(
    annotations: Mapping[str, str], capacity: Mapping[str, str], memory_factor: int
) -> Register | Refusal:
    """Equal cards are assumed, as volcano-dp does: memory of each = capacity gpu-memory / capacity gpu-number."""
    resource = names.VOLCANO_DP_NUMBER
    try:
        number = parse_count(capacity[resource])
        if number > 1000:
            raise MalformedObject(f"{number} cards on one node")
        resource = names.VOLCANO_DP_MEMORY
        memory_mib = parse_count(capacity.get(resource, "0")) * memory_factor // max(1, number)
        resource = names.VOLCANO_DP_UNHEALTHY
        listed = annotations.get(resource, "").split(",")
        unhealthy = {read_number(item.strip(), "index") for item in listed if item.strip()}
    except MalformedObject as error:
        return Refusal(Reason.INVENTORY_INVALID, f"{resource}: {error}")
    cards = tuple(
        RegisteredCard(f"index:{i}", "", memory_mib, CORES_PER_CARD, 1, i not in unhealthy, index=i)
        for i in range(number)
    )
    return Register(AssignmentSource.VOLCANO_DP, cards)
