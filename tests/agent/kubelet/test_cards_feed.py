"""The socket between the process that reads cards and the one that serves kubelet."""

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.agent.samples import make_card, make_reading, make_spec
from tests.kube.fake_api import until
from vgpu.agent.clock import SystemClock
from vgpu.agent.identity.port import CardNow, CardsNow
from vgpu.agent.kubelet.cards_feed import CardsListener, CardsTeller, cards_of, from_line, to_line
from vgpu.agent.kubelet.socket_mark import SocketMark
from vgpu.core.facts import CardMode
from vgpu.errors import MalformedObject

TWO = CardsNow((CardNow("GPU-0", 0, 4, True, 81920, 0), CardNow("GPU-1", 1, 4, True, 81920, 1)))
ONE_SICK = CardsNow((TWO.cards[0], replace(TWO.cards[1], healthy=False)))


@dataclass
class Heard:
    """What the serving end knows; None: nobody tells it."""

    now: CardsNow | None = None
    all: list[CardsNow | None] = field(default_factory=list)

    def told(self, cards: CardsNow) -> None:
        self.now = cards
        self.all.append(cards)

    def lost(self) -> None:
        self.now = None
        self.all.append(None)

    def cards(self) -> tuple[CardNow, ...] | None:
        return self.now.cards if self.now else None


@contextlib.asynccontextmanager
async def running(end: CardsTeller | CardsListener) -> AsyncIterator[None]:
    task = asyncio.create_task(end.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cards.sock"


@pytest.fixture
async def heard(path: Path) -> AsyncIterator[Heard]:
    known = Heard()
    async with running(CardsListener(path, known.told, known.lost)):
        await until(path.exists, "listens")
        yield known


def teller(path: Path, cards: CardsNow | None = TWO) -> CardsTeller:
    end = CardsTeller(path, SystemClock())
    if cards is not None:
        end.tell(cards)
    return end


async def test_cards_arrive_at_once_and_after_each_change(path: Path, heard: Heard) -> None:
    end = teller(path)
    async with running(end):
        await until(lambda: heard.cards() == TWO.cards, "told")
        end.tell(ONE_SICK)
        await until(lambda: heard.cards() == ONE_SICK.cards, "told the change")
        end.tell(ONE_SICK)
        end.tell(TWO)
        await until(lambda: heard.cards() == TWO.cards, "told the last")
    assert [cards.generation for cards in heard.all if cards] == [1, 2, 3]


async def test_a_reader_that_is_gone_is_noticed_at_once_and_another_one_counts(path: Path, heard: Heard) -> None:
    async with running(teller(path)):
        await until(lambda: heard.now is not None, "told")
    await until(lambda: heard.now is None, "lost")
    async with running(teller(path, ONE_SICK)):
        await until(lambda: heard.cards() == ONE_SICK.cards, "told by the next")
    assert [cards.cards if cards else None for cards in heard.all[:3]] == [TWO.cards, None, ONE_SICK.cards]


async def test_the_end_of_an_older_connection_says_nothing_of_the_newer_one(path: Path, heard: Heard) -> None:
    older_reader, older_writer = await asyncio.open_unix_connection(str(path))
    older_writer.write(to_line(TWO))
    await until(lambda: heard.cards() == TWO.cards, "told")
    _, newer_writer = await asyncio.open_unix_connection(str(path))
    newer_writer.write(to_line(ONE_SICK))
    await until(lambda: heard.cards() == ONE_SICK.cards, "the newest counts")
    assert await older_reader.read() == b""
    older_writer.close()
    newer_writer.write(to_line(TWO))
    await until(lambda: heard.cards() == TWO.cards, "told by the newest")
    assert None not in heard.all
    newer_writer.close()


async def test_a_serving_end_that_starts_later_or_anew_is_told(path: Path) -> None:
    end = teller(path)
    async with running(end):
        for _ in range(2):
            known = Heard()
            async with running(CardsListener(path, known.told, known.lost)):
                await until(lambda known=known: known.cards() == TWO.cards, "told")


async def test_a_line_that_cannot_be_read_is_as_good_as_no_reader(path: Path, heard: Heard) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(to_line(TWO))
    await until(lambda: heard.now is not None, "told")
    writer.write(b'{"cards": 7}\n')
    await until(lambda: heard.now is None, "lost")
    assert await reader.read() == b""
    writer.close()


async def test_an_endless_line_is_as_good_as_no_reader(path: Path, heard: Heard) -> None:
    _, writer = await asyncio.open_unix_connection(str(path))
    writer.write(to_line(TWO))
    await until(lambda: heard.now is not None, "told")
    writer.write(b"x" * 3_000_000)
    await until(lambda: heard.now is None, "lost")
    writer.close()


async def test_the_socket_is_its_owners_alone_and_a_stale_one_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    await asyncio.to_thread(path.write_text, "left behind")
    known = Heard()
    async with running(CardsListener(path, known.told, known.lost)):
        await until(path.is_socket, "listens")
        await until(lambda: stat.S_IMODE(path.stat().st_mode) == 0o600, "closed to others")


async def test_a_socket_that_was_removed_or_replaced_is_served_anew(path: Path, heard: Heard) -> None:
    async with running(teller(path)):
        await until(lambda: heard.cards() == TWO.cards, "told")
        await asyncio.to_thread(path.unlink)
        await until(path.is_socket, "listens anew")
        assert heard.cards() == TWO.cards  # the reader that was there is there
    await until(lambda: heard.now is None, "lost")
    other = path.with_name("other")
    await asyncio.to_thread(other.write_text, "something else")
    await asyncio.to_thread(other.replace, path)
    await until(path.is_socket, "listens anew")
    async with running(teller(path, ONE_SICK)):
        await until(lambda: heard.cards() == ONE_SICK.cards, "told by the next")


async def test_without_looking_for_it_nobody_would_be_heard(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vgpu.agent.kubelet.cards_feed.mark_of", lambda _: SocketMark(1, 1))
    known = Heard()
    async with running(CardsListener(path, known.told, known.lost)):
        await until(path.is_socket, "listens")
        await asyncio.to_thread(path.unlink)
        async with running(teller(path)):
            await until(lambda: "cannot be told the cards" in caplog.text, "the reader has tried for seconds")
            assert known.now is None


async def test_a_folder_in_the_sockets_place_is_told_once_and_served_when_it_is_gone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(path.mkdir, parents=True)
    known = Heard()
    async with running(CardsListener(path, known.told, known.lost)), running(teller(path)):
        await until(lambda: "cannot be told the cards" in caplog.text, "the reader says so")
        assert caplog.text.count("card reader cannot reach this process") == 1
        assert caplog.text.count("cannot be told the cards") == 1
        await asyncio.to_thread(path.rmdir)
        await until(lambda: known.cards() == TWO.cards, "told")


def test_cards_are_those_of_the_inventory() -> None:
    reading = make_reading(make_card(0), make_card(1, problem="ECC"), make_card(2, mode=CardMode.MIG))
    told = cards_of(make_spec(reading))
    assert [(card.uuid, card.slots, card.healthy, card.mode) for card in told.cards] == [
        ("GPU-0", 10, True, CardMode.SHARED),
        ("GPU-1", 10, False, CardMode.SHARED),
        ("GPU-2", 10, True, CardMode.MIG),
    ]
    assert cards_of(None) == CardsNow()


def test_no_card_counts_as_healthy_while_they_cannot_be_read() -> None:
    unread = make_spec().model_copy(update={"read_error": "NVML does not answer"})
    assert {card.healthy for card in cards_of(unread).cards} == {False}
    assert {card.healthy for card in cards_of(make_spec()).cards} == {True}


def test_a_line_says_all_and_a_broken_one_is_named() -> None:
    assert from_line(to_line(ONE_SICK)) == ONE_SICK
    with pytest.raises(MalformedObject, match="line of the card reader"):
        from_line(b'{"cards": [{"uuid": "GPU-0"}]}')
