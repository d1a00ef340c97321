"""How the process that reads the cards and the one that serves kubelet tell each other: a Unix socket, JSON lines.

CardsNow enters at the reader's end and leaves at the other, the lingering pods go the other way, one line for each
change. An open connection means that a reader lives; once it is gone
nobody knows how the cards are, and the serving end says so at once. Nothing is decided here, and nothing is sent
because time has passed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vgpu.agent.clock import Clock, SystemClock
from vgpu.agent.identity.port import CardNow, CardsNow
from vgpu.agent.kubelet.socket_mark import mark_of
from vgpu.api.inventory import Health, InventorySpec
from vgpu.api.lingering import Lingering
from vgpu.api.model import first_fault
from vgpu.errors import MalformedObject

LOG = logging.getLogger(__name__)
FEED_SOCKET = "cards.sock"
MAX_LINE_BYTES = 1024 * 1024
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
LOOK_SECONDS = 0.5
LINES = TypeAdapter(CardsNow)
LINGERING_LINES: TypeAdapter[Lingering] = TypeAdapter(Lingering)
Heard = Callable[[Lingering], None]


def cards_of(spec: InventorySpec | None) -> CardsNow:
    """The cards that an inventory names. While they cannot be read none of them counts as healthy."""
    if spec is None:
        return CardsNow()
    return CardsNow(
        tuple(
            CardNow(
                uuid=gpu.uuid,
                index=gpu.index,
                slots=gpu.slots,
                healthy=gpu.health is Health.HEALTHY and not spec.read_error,
                memory_mib=gpu.memory_mib,
                minor=gpu.minor,
                mode=gpu.mode,
            )
            for gpu in spec.gpus
        )
    )


def to_line(cards: CardsNow) -> bytes:
    """One line of JSON."""
    return LINES.dump_json(cards) + b"\n"


def from_line(line: bytes) -> CardsNow:
    """Read one line. Raises MalformedObject."""
    try:
        return LINES.validate_json(line)
    except ValidationError as error:
        raise MalformedObject(f"line of the card reader: {first_fault(error)}") from error


def lingering_to_line(pods: Lingering) -> bytes:
    """One line of JSON."""
    return LINGERING_LINES.dump_json(pods, by_alias=True) + b"\n"


def lingering_from_line(line: bytes) -> Lingering:
    """Read one line. Raises MalformedObject."""
    try:
        return LINGERING_LINES.validate_json(line)
    except ValidationError as error:
        raise MalformedObject(f"line of the serving process: {first_fault(error)}") from error


class CardsTeller:
    """The reader's end."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._cards: CardsNow | None = None
        self._changed = asyncio.Event()
        self._problem = ""

    def tell(self, cards: CardsNow) -> None:
        """The cards are like this from now on; `generation` is counted here."""
        before = self._cards or CardsNow()
        if self._cards is None or cards.cards != before.cards:
            self._cards = replace(cards, generation=before.generation + 1)
            self._changed.set()

    async def run(self, heard: Heard = lambda pods: None) -> None:
        """Keep the serving end informed until cancelled, and pass on what it says."""
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self._path), limit=MAX_LINE_BYTES)
            except OSError as error:
                if pause_seconds == LONGEST_PAUSE_SECONDS:  # the other process starts at the same time
                    self._complain(str(error))
                await self._clock.sleep(pause_seconds)
                pause_seconds = min(pause_seconds * 2, LONGEST_PAUSE_SECONDS)
                continue
            pause_seconds, self._problem = FIRST_PAUSE_SECONDS, ""
            await self._talk(reader, writer, heard)
            await self._clock.sleep(pause_seconds)

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            LOG.warning("serving process cannot be told the cards socket=%s problem=%s", self._path, problem)
        self._problem = problem

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Heard) -> None:
        """Send the cards and each change of them, and hear the other end, until it has gone."""
        telling = asyncio.ensure_future(self._send_changes(writer))
        gone = asyncio.ensure_future(_hear_all(reader, heard))
        try:
            await asyncio.wait({telling, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                gone.result()
        finally:
            telling.cancel()
            gone.cancel()
            await asyncio.gather(telling, gone, return_exceptions=True)
            writer.close()

    async def _send_changes(self, writer: asyncio.StreamWriter) -> None:
        while True:
            self._changed.clear()
            if self._cards is not None:
                writer.write(to_line(self._cards))
                await writer.drain()
            await self._changed.wait()


async def _hear_all(reader: asyncio.StreamReader, heard: Heard) -> None:
    """A line that cannot be read changes nothing: to hang up would look as if no reader lived."""
    while line := await _next_line(reader):
        try:
            pods = lingering_from_line(line)
        except MalformedObject as error:
            LOG.error("lingering pods stay as last told problem=%s", error)
        else:
            heard(pods)


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Nothing once the other end has gone."""
    try:
        return await reader.readline()
    except (OSError, ValueError) as error:  # ValueError: a line above the limit
        LOG.warning("serving process lost problem=%s", error)
        return b""


class CardsListener:
    """The serving end. One reader counts: the one that connected last."""

    def __init__(self, path: Path, told: Callable[[CardsNow], None], lost: Callable[[], None]) -> None:
        self._path = path
        self._told = told
        self._lost = lost
        self._clock: Clock = SystemClock()
        self._current: asyncio.StreamWriter | None = None
        self._lingering: Lingering | None = None

    def tell(self, pods: Lingering) -> None:
        """These pods linger from now on: the reader is told, and any later one as soon as it connects."""
        self._lingering = pods
        if self._current is not None:
            self._current.write(lingering_to_line(pods))

    async def run(self) -> None:
        """Listen until cancelled, anew where the socket was removed. What was told stays true meanwhile."""
        told = ""
        try:
            while True:
                try:
                    await self._listen_while_there()
                    problem = "it was removed or replaced"
                except OSError as error:
                    problem = str(error)
                if problem != told:
                    LOG.warning("card reader cannot reach this process socket=%s problem=%s", self._path, problem)
                told = problem
                await self._clock.sleep(LOOK_SECONDS)
        finally:
            if self._current is not None:
                self._current.close()

    async def _listen_while_there(self) -> None:
        """A missing folder is made; the socket is its owner's alone. Raises OSError where it cannot be made."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._hear, str(self._path), limit=MAX_LINE_BYTES)
        try:
            self._path.chmod(0o600)
            own = mark_of(self._path)
            while own is not None and mark_of(self._path) == own:
                await self._clock.sleep(LOOK_SECONDS)
        finally:
            server.close()  # a connection that is open stays so

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        former, self._current = self._current, writer
        if former is not None:
            former.close()
        if self._lingering is not None:
            writer.write(lingering_to_line(self._lingering))
        problem = "the connection ended"
        try:
            while line := await reader.readline():
                cards = from_line(line)
                if self._current is writer:
                    self._told(cards)
        except (MalformedObject, ValueError) as error:  # ValueError: a line above the limit
            problem = str(error)
        except OSError as error:
            problem = f"the connection broke: {error}"
        finally:
            with contextlib.suppress(OSError):
                writer.close()
            if self._current is writer:
                self._current = None
                LOG.warning("card reader lost problem=%s", problem)
                self._lost()
