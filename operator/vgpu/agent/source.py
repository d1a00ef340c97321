"""GpuSource: the one interface over a node's cards, and the values that cross it.

Values only: no NVML, no files, no Kubernetes. A source converts units and quirks at its edge, so that memory is
in MiB here and a card that cannot answer is an entry of `lost`, never an exception for the whole node.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from vgpu.core.facts import CardMode
from vgpu.errors import SourceError


class NothingToRead(SourceError):
    """The cards cannot be read because this machine shows no sign of any: on a CPU node nothing is wrong."""


class SourceHangs(SourceError):
    """A call of the driver has not returned: only its end, or another process, gets any further."""


@dataclass(frozen=True, slots=True)
class CardSample:
    """One card that answered. `problem` is what is wrong with it now ("" = nothing).

    `memory_mib` is the card's total, None where the driver cannot say (unified memory).
    `confirmed_well` is True when the driver itself says that no recovery action is due.
    """

    uuid: str
    index: int
    model: str
    memory_mib: int | None
    minor: int | None = None
    pci_bus_id: str = ""
    mode: CardMode = CardMode.SHARED
    numa_node: int | None = None
    links: frozenset[str] = frozenset()
    problem: str = ""
    confirmed_well: bool = False


@dataclass(frozen=True, slots=True)
class LostCard:
    """A card that is there and does not answer. `uuid` and `pci_bus_id` are "" where they cannot be read.

    `index` is None for a card that the driver does not even count any more.
    """

    index: int | None
    reason: str
    uuid: str = ""
    pci_bus_id: str = ""


@dataclass(frozen=True, slots=True)
class CardReading:
    """One successful reading of a node. No cards and nothing lost means: this node has none."""

    driver_version: str = ""
    cuda_version: str = ""
    boot_id: str = ""
    cards: tuple[CardSample, ...] = ()
    lost: tuple[LostCard, ...] = ()


class EventKind(StrEnum):
    """What a source noticed between two readings."""

    XID = "xid"
    ECC_DOUBLE = "ecc-double"
    ECC_SINGLE = "ecc-single"
    CHANGED = "changed"
    """Something changed: read again. Says nothing about any one card's health."""


@dataclass(frozen=True, slots=True)
class HealthEvent:
    """One event. `uuid` None: the card could not be told; then no card is blamed."""

    uuid: str | None
    xid: int | None
    kind: EventKind


class GpuSource(Protocol):
    """Where cards come from: NVML, a file, or nowhere."""

    @property
    def recheck_seconds(self) -> float | None:
        """Read again after so many seconds without an event; None: only after events."""

    async def read(self) -> CardReading | None:
        """All cards now; None when this node is meant to have none. Raises SourceError: they cannot be read;
        NothingToRead where that is as it should be on a machine without cards."""

    def health_events(self) -> AsyncIterator[HealthEvent]:
        """Endless. An event is a reason to read again; it never replaces a reading."""

    async def close(self) -> None:
        """Let go of the driver or file."""
