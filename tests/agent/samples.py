"""Builders that name only what matters, and a clock that tests turn by hand."""

import asyncio
from dataclasses import replace
from typing import Any

from vgpu.agent.canonical import observations, resolve_lost, spec_of
from vgpu.agent.config import NodeSettings
from vgpu.agent.health import HealthBook
from vgpu.agent.source import CardReading, CardSample
from vgpu.api.inventory import InventorySpec


class HandClock:
    """Time stands still until `advance`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    @property
    def sleeping(self) -> list[float]:
        """Seconds that each sleeper still has."""
        return [due - self.now for due, future in self._sleepers if not future.done()]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for due, future in self._sleepers:
            if due <= self.now and not future.done():
                future.set_result(None)
        self._sleepers = [entry for entry in self._sleepers if not entry[1].done()]


def make_card(number: int = 0, **changes: Any) -> CardSample:
    card = CardSample(
        uuid=f"GPU-{number}",
        index=number,
        model="NVIDIA A100-SXM4-80GB",
        memory_mib=81920,
        minor=number,
        pci_bus_id=f"00000000:{number + 16:02X}:00.0",
        numa_node=0,
        confirmed_well=True,
    )
    return replace(card, **changes)


def make_reading(*cards: CardSample, count: int = 2, **changes: Any) -> CardReading:
    cards = cards or tuple(make_card(index) for index in range(count))
    return replace(CardReading("550.54.15", "12.4", "boot-1", cards), **changes)


def make_spec(
    reading: CardReading | None = None,
    settings: NodeSettings | None = None,
    previous: InventorySpec | None = None,
) -> InventorySpec:
    """What one first reading makes of the inventory."""
    reading = reading or make_reading()
    health = HealthBook().after_reading(observations(reading, resolve_lost(reading, previous)), 0)
    spec = spec_of(reading, settings or NodeSettings(), health, previous)
    assert spec is not None
    return spec
