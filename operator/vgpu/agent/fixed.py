"""Cards from a YAML or JSON file: laptops, tests, simulated fleets.

A file or a mapping enters, a CardReading leaves. No NVML and no Kubernetes here. The file is looked at once a
second (a stat of a local file), and a change of it is an event. Form:

    driverVersion: "550.54.15"     cudaVersion: "12.4"     bootId: ...     (all optional)
    readError: text                 the cards "cannot be read" (to try what happens then)
    cards:                          either {count: 8, model: ..., memoryMiB: 81920, uuidSeed: ""} or a list of
      - {uuid: GPU-..., index: 0, minor: 0, model: ..., memoryMiB: 81920, pciBusId: ..., mode: shared|mig,
         numaNode: 0, nvlinkPeers: [GPU-...], problem: "text = unhealthy"}
    lost: [{index: 3, reason: "GPU is lost", uuid: ""}]
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from vgpu.agent.file_faults import NO_YAML, in_words
from vgpu.agent.source import CardReading, CardSample, EventKind, HealthEvent, LostCard
from vgpu.api.model import CardUuid
from vgpu.core.facts import CardMode
from vgpu.errors import ConfigurationError, SourceError

LOOK_SECONDS = 1.0
_SEED = uuid.UUID("6e0a3c1c-3a0e-5d0c-9b3e-8f2f6b1d7c55")


class FileModel(BaseModel):
    """A part of the file: camelCase keys, unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: to_camel(name).replace("Mib", "MiB"),
        validate_by_name=True,
    )


class FileCard(FileModel):
    """One card of the list form."""

    uuid: CardUuid
    index: int = Field(ge=0)
    model: str
    memory_mib: int | None = Field(None, ge=1)
    minor: int | None = Field(None, ge=0)
    pci_bus_id: str = ""
    mode: CardMode = CardMode.SHARED
    numa_node: int | None = Field(None, ge=0)
    nvlink_peers: frozenset[CardUuid] = frozenset()
    problem: str = ""


class CardTemplate(FileModel):
    """`count` equal cards whose UUIDs follow from the node's name."""

    count: int = Field(ge=0, le=64)
    model: str = "NVIDIA A100-SXM4-80GB"
    memory_mib: int = Field(81920, ge=1)
    mode: CardMode = CardMode.SHARED
    uuid_seed: str = ""


class FileLost(FileModel):
    """A card that does not answer."""

    index: int = Field(ge=0)
    reason: str = Field(min_length=1)
    uuid: str = ""


class CardsDocument(FileModel):
    """The whole file."""

    driver_version: str = "550.54.15"
    cuda_version: str = "12.4"
    boot_id: str = ""
    read_error: str = ""
    cards: CardTemplate | tuple[FileCard, ...] = ()
    lost: tuple[FileLost, ...] = ()

    def reading(self, node: str) -> CardReading:
        """What a source on `node` reads. Raises SourceError when the document says so."""
        if self.read_error:
            raise SourceError(self.read_error)
        cards = self.cards
        samples = _from_template(cards, node) if isinstance(cards, CardTemplate) else map(_sample, cards)
        return CardReading(
            driver_version=self.driver_version,
            cuda_version=self.cuda_version,
            boot_id=self.boot_id,
            cards=tuple(samples),
            lost=tuple(LostCard(lost.index, lost.reason, lost.uuid) for lost in self.lost),
        )


def _sample(card: FileCard) -> CardSample:
    return CardSample(
        uuid=card.uuid,
        index=card.index,
        model=card.model,
        memory_mib=card.memory_mib,
        minor=card.minor,
        pci_bus_id=card.pci_bus_id,
        mode=card.mode,
        numa_node=card.numa_node,
        links=card.nvlink_peers,
        problem=card.problem,
        confirmed_well=not card.problem,
    )


def _from_template(template: CardTemplate, node: str) -> list[CardSample]:
    return [
        CardSample(
            uuid=f"GPU-{uuid.uuid5(_SEED, f'{template.uuid_seed}/{node}/{index}')}",
            index=index,
            model=template.model,
            memory_mib=template.memory_mib,
            minor=index,
            pci_bus_id=f"00000000:{index + 16:02X}:00.0",
            mode=template.mode,
            numa_node=index * 2 // max(1, template.count),
            confirmed_well=True,
        )
        for index in range(template.count)
    ]


def parse_cards(raw: Any, where: str) -> CardsDocument:
    """Check a mapping read from a file. Raises ConfigurationError naming `where` and the wrong key."""
    try:
        return CardsDocument.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(f"{where}: {in_words(error, CardsDocument)}") from error


class FixedSource:
    """Cards as a file states them now."""

    recheck_seconds: float | None = None

    def __init__(self, path: Path, node: str, look_seconds: float = LOOK_SECONDS) -> None:
        self._path = path
        self._node = node
        self._look_seconds = look_seconds
        self._read_stamp = (0, 0, 0)

    async def read(self) -> CardReading | None:
        """The file's cards. Raises SourceError when it is missing or wrong."""
        self._read_stamp = self._stamp()
        try:
            document = parse_cards(yaml.safe_load(self._path.read_text()), str(self._path))
        except (OSError, *NO_YAML) as error:
            raise SourceError(f"{self._path}: {error}") from error
        except ConfigurationError as error:
            raise SourceError(str(error)) from error
        return document.reading(self._node)

    async def health_events(self) -> AsyncIterator[HealthEvent]:
        """One event for each look at which the file is no longer the one that was read."""
        while True:
            await asyncio.sleep(self._look_seconds)
            if self._stamp() != self._read_stamp:
                yield HealthEvent(None, None, EventKind.CHANGED)

    async def close(self) -> None:
        """Nothing is held."""

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)


class HeldSource:
    """Cards held in memory and replaced by the owner of this process (simulated fleets)."""

    recheck_seconds: float | None = None

    def __init__(self, document: CardsDocument, node: str) -> None:
        self._document = document
        self._node = node
        self._events: asyncio.Queue[HealthEvent] = asyncio.Queue()

    def replace(self, document: CardsDocument) -> None:
        """The cards are others from now on."""
        if document != self._document:
            self._document = document
            self._events.put_nowait(HealthEvent(None, None, EventKind.CHANGED))

    def report(self, event: HealthEvent) -> None:
        """Something happened to a card."""
        self._events.put_nowait(event)

    async def read(self) -> CardReading | None:
        """The cards held now. Raises SourceError when the document says so."""
        return self._document.reading(self._node)

    async def health_events(self) -> AsyncIterator[HealthEvent]:
        """What was reported or replaced."""
        while True:
            yield await self._events.get()

    async def close(self) -> None:
        """Nothing is held."""
