"""kopf as the owner of the process: start, clean-up, login, and the events of our own low-volume kinds.

Enters: what to start and stop, the connection to the API server. Leaves: kopf running in our loop. Its handlers
return None and only mark a key dirty; nothing of kopf's ever writes: no posting, no peering, no finalizer, and
storages that store nothing. May not live here: decisions, requests.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import kopf

from vgpu import names
from vgpu.controller.kopf_quiet import MOST_PAUSE_SECONDS, EndlessBackoffs, Logins, quieten, stop_on_signals
from vgpu.kube.connection import UNREADABLE, Connection

GC_THRESHOLD = 50_000
EXIT_SECONDS = 25.0
"""A process that has not stopped so long after a signal is killed."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the process does: `start` and `stop` once each, `queue_changed` for each event of a GpuQueue."""

    start: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]
    queue_changed: Callable[[str], None]


async def run_kopf(hooks: Hooks, connection: Connection, user_agent: str) -> None:
    """Run until SIGTERM or SIGINT, or until a start-up or clean-up fails."""
    settings = kopf.OperatorSettings()
    configure(settings)
    quieten()
    stop = asyncio.Event()
    gc.set_threshold(GC_THRESHOLD, 50, 50)
    await kopf.operator(
        registry=registry(hooks, connection, user_agent, stop),
        settings=settings,
        standalone=True,
        clusterwide=True,
        stop_flag=stop,
    )


def configure(settings: kopf.OperatorSettings) -> None:
    """Settings under which kopf writes nothing and outlives any fault of the API server."""
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = 300
    settings.queueing.idle_timeout = 0.2
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.networking.request_timeout = 30
    settings.process.ultimate_exiting_timeout = EXIT_SECONDS
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()


def registry(
    hooks: Hooks, connection: Connection, user_agent: str, stop_flag: asyncio.Event
) -> kopf.OperatorRegistry:
    """All handlers, in a registry of their own. `stop_flag` is set by the first signal."""
    handlers = kopf.OperatorRegistry()
    logins = Logins(time.monotonic)

    @kopf.on.startup(registry=handlers)
    async def start(**_: Any) -> None:
        # kopf sets its own signal handlers in the turn of the loop in which its tasks begin: ours come after.
        asyncio.get_running_loop().call_soon(stop_on_signals, stop_flag, EXIT_SECONDS)
        await hooks.start()

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: Any) -> None:
        await hooks.stop()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.AiohttpSession:
        await logins.turn()
        try:
            return await _session(connection, user_agent)
        except UNREADABLE as error:
            raise kopf.TemporaryError(f"credentials cannot be read: {error}", delay=MOST_PAUSE_SECONDS) from error

    @kopf.on.event(names.GROUP, names.VERSION, names.QUEUE_PLURAL, registry=handlers)
    async def queue_event(name: str | None, **_: Any) -> None:
        hooks.queue_changed(name or "")

    return handlers


async def _session(connection: Connection, user_agent: str) -> kopf.AiohttpSession:
    """kopf asks again after a 401, so a renewed token is taken then."""
    authorization = await connection.authorize()
    headers = {"User-Agent": user_agent}
    if authorization:
        headers["Authorization"] = authorization
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.tls or True),
        headers=headers,
        proxy=connection.proxy,
    )
    return kopf.AiohttpSession(server=connection.host, aiohttp_session=session)


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores nothing and builds nothing: events are not compared by kopf."""

    def build(self, **_: Any) -> Any:
        """An empty essence."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Nothing is known of before."""

    def store(self, **_: Any) -> None:
        """Nothing is kept."""


class NoProgress(kopf.ProgressStorage):
    """Stores no progress of handlers."""

    def fetch(self, **_: Any) -> None:
        """Nothing is known of before."""

    def store(self, **_: Any) -> None:
        """Nothing is kept."""

    def purge(self, **_: Any) -> None:
        """Nothing was kept."""

    def touch(self, **_: Any) -> None:
        """Nothing is written."""

    def clear(self, *, essence: Any) -> Any:
        """Nothing was added."""
        return essence
