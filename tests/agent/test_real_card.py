"""The agent on a real NVIDIA card, where this machine has one; elsewhere one line says that it was left out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pynvml
import pytest

from tests.agent.inventory_api import inventory_api, until
from vgpu.agent.assembly import watch_of
from vgpu.agent.clock import SystemClock
from vgpu.agent.config import NodeSettings
from vgpu.agent.driver import has_device_files
from vgpu.agent.node_agent import NodeAgent
from vgpu.agent.nvml import NvmlSource
from vgpu.agent.publisher import Publisher
from vgpu.agent.source import CardReading, EventKind
from vgpu.api.inventory import InventorySpec

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _card() -> None:
    """Skip without a driver; a driver that is there and fails is a failure."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if has_device_files(Path("/")):
            raise
        pytest.skip(f"no NVIDIA card on this machine ({error}): the agent was not tried on a real one")
    pynvml.nvmlShutdown()


@pytest.fixture
async def source() -> AsyncIterator[NvmlSource]:
    found = NvmlSource(wait_milliseconds=200)
    yield found
    await found.close()


async def read(source: NvmlSource) -> CardReading:
    reading = await source.read()
    assert reading is not None
    return reading


async def test_every_card_is_read_whole(source: NvmlSource) -> None:
    reading = await read(source)
    assert reading.cards
    assert reading.lost == ()
    assert reading.driver_version
    assert len(reading.boot_id) == 36
    for card in reading.cards:
        assert card.uuid.startswith("GPU-")
        assert card.memory_mib is None or card.memory_mib > 1024
        assert card.model
        assert card.pci_bus_id
        assert card.problem == ""


async def test_two_readings_in_a_row_say_the_same(source: NvmlSource) -> None:
    """What flickers from reading to reading would be a write each time."""
    assert await read(source) == await read(source)


async def test_a_card_without_faults_reports_none(source: NvmlSource) -> None:
    """Waiting itself must not fail: that would come out as a reason to read again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            async for event in source.health_events():
                assert event.kind is not EventKind.CHANGED
                assert event.uuid in {card.uuid for card in (await read(source)).cards}


async def test_the_agent_publishes_the_cards_as_healthy_and_then_writes_no_more(source: NvmlSource) -> None:
    async with inventory_api() as api:
        clock, client = SystemClock(), api.client()
        publisher = Publisher("n1", client, clock, Random(1))
        agent = NodeAgent(source, NodeSettings(), publisher, clock)
        tasks = [asyncio.create_task(agent.run()), asyncio.create_task(watch_of(client, publisher).run())]
        try:
            await until(lambda: api.spec() is not None, "published", 60)
            await until(lambda: publisher.settled, "settled")
            spec = InventorySpec.model_validate(api.spec())
            assert {gpu.health.value for gpu in spec.gpus} == {"Healthy"}
            assert {gpu.uuid for gpu in spec.gpus} == {card.uuid for card in (await read(source)).cards}
            assert api.applies == 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()
