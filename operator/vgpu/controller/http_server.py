"""Serves an aiohttp application on one address, to no more connections than this process can afford.

Enters: an application and an address. Leaves: answers. A new connection has a few seconds for its first complete
request head (and for its TLS handshake), one that was answered may be idle for a while; then it is closed. Of more
connections than allowed the one goes that asks for nothing for longest, those that never asked first. May not live
here: what is answered.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

LOG = logging.getLogger(__name__)
BACKLOG = 128
REST_SECONDS = 0.1
"""Pause after the system has refused to take a connection: no file descriptor is left."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`idle_seconds` is longer than kube-scheduler keeps an unused connection (90 s), so that it closes first."""

    connections: int = 256
    head_seconds: float = 10.0
    idle_seconds: float = 120.0
    lingering_seconds: float = 1.0
    """How long the rest of a body is still read after an early answer: closing at once would lose that answer."""
    shutdown_seconds: float = 2.0


DEFAULT_LIMITS = Limits()


class _Connection:
    """One accepted connection, from before its handshake until it is closed."""

    def __init__(self, taken: socket.socket, since: float) -> None:
        self.taken = taken
        self.since = since
        self.asked = False
        self.busy = 0
        self.handler: RequestHandler | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.handshake: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """True once nothing of it is left."""
        if self.handshake is not None and not self.handshake.done():
            return False
        transport = self.handler.transport if self.handler is not None else None
        return transport is None or transport.is_closing()

    def close(self) -> None:
        """End it now, unsent answers included."""
        if self.timer is not None:
            self.timer.cancel()
        if self.handshake is not None and not self.handshake.done():
            self.handshake.cancel()
        elif self.handler is not None and self.handler.transport is not None:
            self.handler.transport.abort()


class HttpServer:
    """A listening server; `cleanup` ends it."""

    def __init__(self, runner: web.AppRunner, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self._runner = runner
        self._limits = limits
        self._tls = tls
        self._connections: dict[_Connection, None] = {}  # in the order they came: clocks tell no two apart
        self._of_handler: dict[object, _Connection] = {}
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The real port, which differs from the one asked for when that was 0."""
        return int(self._sockets[0].getsockname()[1])

    async def listen(self, host: str, port: int) -> None:
        """Accept connections from now on. Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            self._sockets.append(_bound(family, address))
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in self._sockets]

    async def cleanup(self) -> None:
        """Stop listening, give requests in progress a moment, close everything."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self._sockets:
            listening.close()
        await self._runner.cleanup()
        for connection in list(self._connections):
            connection.close()
        waiting = [c.handshake for c in self._connections if c.handshake is not None]
        await asyncio.gather(*waiting, return_exceptions=True)
        self._connections.clear()

    @web.middleware
    async def count(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Middleware: a connection is not idle while it is answered. A body that is not what its headers say is
        its sender's fault."""
        connection = self._of_handler.get(request.protocol)
        if connection is None:
            return await handler(request)
        connection.asked = True
        connection.busy += 1
        try:
            return await handler(request)
        except web.RequestPayloadError as error:
            return web.Response(status=400, text=f"the body cannot be read: {error}\n")
        finally:
            connection.busy -= 1
            connection.since = asyncio.get_running_loop().time()
            self._arm(connection, self._limits.idle_seconds)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, _ = await loop.sock_accept(listening)
            except OSError as error:
                LOG.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(REST_SECONDS)
                continue
            self._make_room()
            connection = _Connection(taken, loop.time())
            self._connections[connection] = None
            self._arm(connection, self._limits.head_seconds)
            connection.handshake = asyncio.create_task(self._begin(connection))

    async def _begin(self, connection: _Connection) -> None:
        """The TLS handshake, if there is one; from then on aiohttp reads and answers."""
        loop, limits = asyncio.get_running_loop(), self._limits
        try:
            await loop.connect_accepted_socket(
                lambda: self._new_handler(connection),
                connection.taken,
                ssl=self._tls,
                ssl_handshake_timeout=limits.head_seconds if self._tls is not None else None,
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            LOG.debug("a connection ended before its first request: %s", error)
            self._forget(connection)
        except asyncio.CancelledError:
            self._forget(connection)
            raise

    def _new_handler(self, connection: _Connection) -> RequestHandler:
        server = self._runner.server
        assert server is not None, "the runner is set up before anything is accepted"
        connection.handler = server()
        self._of_handler[connection.handler] = connection
        return connection.handler

    def _arm(self, connection: _Connection, seconds: float) -> None:
        if connection.timer is not None:
            connection.timer.cancel()
        connection.timer = asyncio.get_running_loop().call_later(seconds, self._expire, connection)

    def _expire(self, connection: _Connection) -> None:
        if not connection.busy:
            self._end(connection)

    def _make_room(self) -> None:
        """Leave a place for one more; where all are being answered the one that began first goes."""
        if len(self._connections) < self._limits.connections:
            return
        for connection in [c for c in self._connections if c.over]:
            self._forget(connection)
        while len(self._connections) >= self._limits.connections:
            self._end(min(self._connections, key=lambda c: (c.busy > 0, c.asked, c.since)))

    def _end(self, connection: _Connection) -> None:
        connection.close()
        self._forget(connection)

    def _forget(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        self._of_handler.pop(connection.handler, None)
        if connection.timer is not None:
            connection.timer.cancel()
        if connection.handler is None:
            connection.taken.close()


async def serve(
    app: web.Application,
    address: tuple[str, int],
    tls: ssl.SSLContext | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> HttpServer:
    """Listen on (host, port); the caller ends it with cleanup(). Raises OSError when the address cannot be had."""
    runner = web.AppRunner(
        app,
        access_log=None,
        lingering_time=limits.lingering_seconds,
        shutdown_timeout=limits.shutdown_seconds,
    )
    server = HttpServer(runner, limits, tls)
    app.middlewares.insert(0, server.count)
    await runner.setup()
    try:
        await server.listen(*address)
    except OSError:
        await server.cleanup()
        raise
    return server


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
