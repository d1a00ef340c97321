"""A source whose calls no longer return: it is told once, and then this process ends so that another can try."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.agent.inventory_api import InventoryApi, inventory_api
from tests.agent.samples import HandClock, make_reading
from vgpu.agent.assembly import watch_of
from vgpu.agent.config import NodeSettings
from vgpu.agent.identity.port import CardsNow
from vgpu.agent.node_agent import HANGS_AT_MOST, NodeAgent
from vgpu.agent.reader import TellingPublisher
from vgpu.agent.source import CardReading, EventKind, HealthEvent, SourceHangs
from vgpu.errors import SourceError

MESSAGE = "the NVML library does not answer"


class FailingSource:
    """Reads well once, and then fails `times` times."""

    recheck_seconds: float | None = 30.0

    def __init__(self, error: SourceError, times: int) -> None:
        self.left = times
        self._error = error
        self._read = False

    async def read(self) -> CardReading | None:
        if not self._read or not self.left:
            self._read = True
            return make_reading()
        self.left -= 1
        raise self._error

    async def health_events(self) -> AsyncIterator[HealthEvent]:
        await asyncio.Event().wait()
        yield HealthEvent(None, None, EventKind.CHANGED)

    async def close(self) -> None:
        """Nothing is held."""


class Told:
    """What the serving process would have been told last."""

    def __init__(self) -> None:
        self.healthy: list[int] = []

    def tell(self, cards: CardsNow) -> None:
        self.healthy.append(sum(card.healthy for card in cards.cards))


async def outcome(api: InventoryApi, source: FailingSource, told: Told) -> BaseException | None:
    """Turn the clock until the source has failed as often as it will, and say how the agent ended, if it did."""
    clock, client = HandClock(), api.client()
    publisher = TellingPublisher("n1", client, clock, told)  # type: ignore[arg-type]  # it tells as a teller does
    agent = asyncio.create_task(NodeAgent(source, NodeSettings(), publisher, clock).run())
    watch = asyncio.create_task(watch_of(client, publisher).run())
    try:
        while not agent.done() and (source.left or (api.spec() or {}).get("readError")):
            await asyncio.sleep(0.01)
            clock.advance(1)
        return agent.exception() if agent.done() else None
    finally:
        for task in (agent, watch):
            task.cancel()
        await asyncio.gather(agent, watch, return_exceptions=True)
        await client.close()


@pytest.fixture
async def api() -> AsyncIterator[InventoryApi]:
    async with inventory_api() as serving:
        yield serving


async def test_a_source_that_hangs_is_published_once_and_then_given_up(api: InventoryApi) -> None:
    told = Told()
    ended = await outcome(api, FailingSource(SourceHangs(MESSAGE), 1000), told)
    assert isinstance(ended, ExceptionGroup)
    assert ended.subgroup(SourceHangs) is not None
    assert (api.spec() or {})["readError"] == MESSAGE
    assert api.applies == 2
    assert told.healthy[0] == 2
    assert set(told.healthy[1:]) == {0}


async def test_a_source_that_hangs_for_a_moment_is_read_again(api: InventoryApi) -> None:
    told = Told()
    assert await outcome(api, FailingSource(SourceHangs(MESSAGE), HANGS_AT_MOST - 1), told) is None
    assert "readError" not in (api.spec() or {"readError": ""})
    assert told.healthy[-1] == 2


async def test_a_source_that_fails_otherwise_is_never_given_up(api: InventoryApi) -> None:
    assert await outcome(api, FailingSource(SourceError("no driver"), HANGS_AT_MOST + 2), Told()) is None
