"""The text in which Volcano and HAMi keep a pod's devices, both ways.

A device is `UUID,TYPE,memory,core` ended by ":"; containers are separated by ";" (facts-protocol.md 2.2). Text
enters and values leave, or the reverse; whose units the memory has and which container an entry belongs to is
decided by the callers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from vgpu.errors import MalformedObject
from vgpu.units import MAX_COUNT

VENDOR: Final = "NVIDIA"
LONGEST_TEXT: Final = 256 * 1024
"""The API server's limit for all annotations of an object."""

_COUNT: Final = re.compile("[0-9]{1,16}")
_UUID: Final = re.compile("[A-Za-z0-9._/-]{1,128}")
_MIG: Final = re.compile(r"(?P<card>[^\[]*)\[[^\[\]]*\]")
"""A MIG device of Volcano, `GPU-x[group-position]`, and of HAMi <= 2.9, `GPU-x[template-slot]`."""

_LONGEST_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Device:
    """One device as it stands in the text. `mig`: it is an instance of the card `uuid`, not the card."""

    uuid: str
    memory: int
    cores: int
    mig: bool = False


def shown(text: str) -> str:
    """The text quoted for a message, cut to 60 characters."""
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")


def read_number(text: str, what: str) -> int:
    """Digits only, at most MAX_COUNT; these systems write no suffixes. Raises MalformedObject naming `what`."""
    if not _COUNT.fullmatch(text) or int(text) > MAX_COUNT:
        raise MalformedObject(f"{what} {shown(text)} is not a whole number from 0 to {MAX_COUNT}")
    return int(text)


def read_uuid(text: str) -> str:
    """The text itself, if it can be the UUID of a card. Raises MalformedObject."""
    if not _UUID.fullmatch(text):
        raise MalformedObject(f"{shown(text)} is not a card's UUID")
    return text


def split_ended(text: str, end: str) -> list[str]:
    """The parts of a text in which every part, the last included, is ended by `end`."""
    *parts, rest = text.split(end)
    if rest:
        raise MalformedObject(f"{shown(rest)} is not ended by {end!r}: the text is cut off")
    return parts


def decode_containers(text: str) -> tuple[tuple[Device, ...], ...]:
    """Devices per entry; empty entries are kept, an ended last entry (HAMi) and a bare one (Volcano) are the same.

    Raises MalformedObject naming the entry and the field.
    """
    if len(text) > LONGEST_TEXT:
        raise MalformedObject(f"is longer than {LONGEST_TEXT} characters")
    entries = text.strip().split(";")
    if not entries[-1].strip():
        entries.pop()
    return tuple(tuple(_decode_device(part) for part in split_ended(entry.strip(), ":")) for entry in entries)


def encode_devices(devices: Iterable[Device]) -> str:
    """One container's entry, without the separator between containers."""
    return "".join(f"{device.uuid},{VENDOR},{device.memory},{device.cores}:" for device in devices)


def _decode_device(text: str) -> Device:
    """The second field is the vendor word, which says nothing here."""
    fields: Sequence[str] = text.split(",")
    if len(fields) != 4:
        raise MalformedObject(f"{shown(text)} has {len(fields)} fields, expected UUID,TYPE,memory,core")
    uuid, _, memory, cores = fields
    instance = _MIG.fullmatch(uuid)
    return Device(
        uuid=read_uuid(instance["card"] if instance else uuid),
        memory=read_number(memory, "memory"),
        cores=read_number(cores, "core"),
        mig=instance is not None,
    )
