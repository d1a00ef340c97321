"""The other direction of the socket: the serving end tells the reader which pods linger."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.kubelet.test_cards_feed import ONE_SICK, TWO, Heard, running
from tests.kube.fake_api import until
from vgpu.agent.clock import SystemClock
from vgpu.agent.kubelet.cards_feed import (
    CardsListener,
    CardsTeller,
    lingering_from_line,
    lingering_to_line,
    to_line,
)
from vgpu.api.lingering import Lingering, LingeringCard, LingeringPod
from vgpu.errors import MalformedObject

CARD = LingeringCard(uuid="GPU-0", slots=1, memory_mib=4096, cores=30)
WHOLE = LingeringCard(uuid="GPU-1", slots=1, memory_mib=81920, cores=0, whole=True)
POD = LingeringPod(namespace="team", name="p", uid="uid-p", cards=(CARD, WHOLE))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cards.sock"


@contextlib.asynccontextmanager
async def listening(path: Path, known: Heard) -> AsyncIterator[CardsListener]:
    listener = CardsListener(path, known.told, known.lost)
    async with running(listener):
        await until(path.is_socket, "listens")
        yield listener


@contextlib.asynccontextmanager
async def reading(path: Path) -> AsyncIterator[tuple[CardsTeller, list[Lingering]]]:
    """A reader, and all that it is told."""
    told: list[Lingering] = []
    end = CardsTeller(path, SystemClock())
    end.tell(TWO)
    task = asyncio.create_task(end.run(told.append))
    try:
        yield end, told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_reader_is_told_each_change_and_tells_its_cards_meanwhile(path: Path) -> None:
    known = Heard()
    async with listening(path, known) as listener, reading(path) as (end, told):
        await until(lambda: known.cards() == TWO.cards, "connected")
        listener.tell((POD,))
        await until(lambda: told == [(POD,)], "told")
        end.tell(ONE_SICK)
        await until(lambda: known.cards() == ONE_SICK.cards, "cards told")
        listener.tell(())
        await until(lambda: told == [(POD,), ()], "told the end")


async def test_a_reader_that_connects_later_is_told_what_is_known(path: Path) -> None:
    async with listening(path, Heard()) as listener:
        listener.tell((POD,))
        for _ in range(2):
            async with reading(path) as (_, told):
                await until(lambda told=told: told == [(POD,)], "told")


async def test_a_reader_is_told_nothing_before_anything_is_known(path: Path) -> None:
    """None lingers is a word too, and it is not said before somebody has looked."""
    known = Heard()
    async with listening(path, known) as listener, reading(path) as (_, told):
        await until(lambda: known.cards() == TWO.cards, "connected")
        assert told == []
        listener.tell(())
        await until(lambda: told == [()], "told")


async def test_a_line_that_cannot_be_read_is_named_and_changes_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'[{"uid": 7}]\n' + lingering_to_line((POD,)))
        heard.append(await reader.readline())

    server = await asyncio.start_unix_server(serve, str(path))
    async with server, reading(path) as (_, told):
        await until(lambda: bool(told and heard), "told the next line on the same connection")
        assert told == [(POD,)]
        assert heard == [to_line(TWO).replace(b'"generation":0', b'"generation":1')]
    assert sum("lingering pods stay as last told" in record.getMessage() for record in caplog.records) == 1


def test_a_line_says_all_and_a_broken_one_is_named() -> None:
    assert lingering_from_line(lingering_to_line((POD,))) == (POD,)
    assert lingering_from_line(lingering_to_line(())) == ()
    assert b'"memoryMiB":4096' in lingering_to_line((POD,))
    with pytest.raises(MalformedObject, match="line of the serving process"):
        lingering_from_line(b'[{"uid": "u"}]')
