"""A sink that mirrors config maps, and a world (fake or real) in which they change while the way to it is cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError

from vgpu.errors import MalformedObject
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Decoded, Key
from vgpu.kube.reflector import Reflector, ReflectorSpec

NAMESPACE = "reflected"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class _Meta(BaseModel):
    namespace: str = ""
    name: str
    uid: str
    version: str = Field(alias="resourceVersion")


class _ConfigMap(BaseModel):
    metadata: _Meta
    data: dict[str, str] = {}


def decode(raw: bytes) -> Decoded[tuple[str, str, str]]:
    """(name, uid, value) of one config map."""
    try:
        found = _ConfigMap.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(str(error)) from error
    meta = found.metadata
    if found.data.get("value") == "crash the decoder":
        raise ZeroDivisionError("a bug of the decoder")
    fact = (meta.name, meta.uid, found.data.get("value", ""))
    return Decoded(Key(meta.namespace, meta.name, meta.uid), meta.version, fact)


class Mirror:
    """What the sink was told: `values` by name, and the history of calls in words."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.uids: dict[str, str] = {}
        self.bad: dict[str, str] = {}
        self.told: list[str] = []
        self.syncs = 0

    def put(self, item: tuple[str, str, str]) -> None:
        name, uid, value = item
        if value == "crash the sink":
            raise ZeroDivisionError("a bug of the sink")
        self.told.append(f"put {name}={value}")
        self.values[name], self.uids[name] = value, uid

    def drop(self, key: Key) -> None:
        self.told.append(f"drop {key.name}")
        if self.uids.get(key.name) == key.uid:
            del self.values[key.name], self.uids[key.name]

    def malformed(self, key: Key, message: str) -> None:
        self.told.append(f"malformed {key.name}")
        self.bad[key.name] = message

    def synced(self) -> None:
        self.told.append("synced")
        self.syncs += 1


class Cable:
    """A TCP way to a server that can be cut: open connections end, new ones are refused, until it is mended."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        assert parts.hostname
        assert parts.port
        self._target = (parts.hostname, parts.port)
        self._scheme = parts.scheme
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._port}"

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(_pour(reader, far_writer), _pour(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}


async def _pour(source: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(2**16):
            drain.write(data)
            await drain.drain()
    drain.close()


class World(Protocol):
    """Config maps in NAMESPACE, and the way to their API server."""

    client: ApiClient
    cable: Cable

    async def put(self, name: str, value: str) -> None:
        """Create or change one."""

    async def remove(self, name: str) -> None:
        """Delete one."""

    async def forget_history(self) -> None:
        """What happened before can no longer be watched: 410."""


@asynccontextmanager
async def reflecting(
    client: ApiClient, page_size: int = 500, silence_seconds: float = 30
) -> AsyncIterator[tuple[Reflector[tuple[str, str, str]], Mirror]]:
    """A running reflector over the config maps; cancelled at the end."""
    mirror = Mirror()
    spec = ReflectorSpec(PATH, page_size=page_size, silence_seconds=silence_seconds)
    reflector = Reflector(client, spec, decode, mirror)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector, mirror
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
