"""A proxy in front of the API server that fails on purpose: for tests that kill, cut, stall and refuse.

Enters: a kubeconfig and rules. Leaves: the same API over plain HTTP on loopback, with the faults of the rules.
Runs in a thread of its own, so that a test can change the rules and look at what was hit while it waits.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from types import TracebackType

import aiohttp
from aiohttp import web

from devcluster.credentials import write_kubeconfig
from devcluster.kubeconfig import read_kubeconfig
from devcluster.ports import free_ports

CHUNK_BYTES = 65536
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "content-encoding"}
ADDED_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
START_TIMEOUT_SECONDS = 10.0


class Fault(Enum):
    """What happens to a request that a rule matches."""

    BEFORE = auto()
    """The hook runs, the connection is closed; the API server never sees the request."""
    UNANSWERED = auto()
    """The API server carries it out, the hook runs, the connection is closed without an answer."""
    ANSWERED = auto()
    """The API server carries it out, the answer is passed on, then the hook runs."""
    STATUS = auto()
    """Answered with the rule's status; the API server never sees it."""
    STALL = auto()
    """Held until `release()`, then the connection is closed; the API server never sees it."""
    SLOW = auto()
    """Passed on after the rule's delay."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in, whatever became of it. `at` is a time of the monotonic clock."""

    at: float
    method: str
    path: str


@dataclass
class Rule:
    """Which requests (regular expressions), and what happens to them. `first`..`last` count its matches from 1."""

    method: str
    path: str
    fault: Fault
    first: int = 1
    last: int = 1
    hook: Callable[[], None] | None = None
    status: int = 503
    delay_seconds: float = 0.0
    hits: int = field(default=0, init=False)
    """How many requests matched method and path so far."""
    fired: int = field(default=0, init=False)
    """How often the fault began."""
    done: threading.Event = field(default_factory=threading.Event, init=False)
    """Set once the fault has happened for the first time, its hook included."""

    def claims(self, method: str, path: str) -> bool:
        """Count a matching request and say whether the fault happens to it."""
        if not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        self.hits += 1
        if not self.first <= self.hits <= self.last:
            return False
        self.fired += 1
        return True


class FaultProxy:
    """Context manager; `kubeconfig(token)` leads through it. `asked` is every request that came, in order.

    A request that was passed on is carried out, also when who sent it is killed meanwhile.

    Hooks run in the proxy's own thread: nothing passes while one runs.
    """

    def __init__(self, upstream: Path, folder: Path) -> None:
        """`upstream` is a kubeconfig that says where the API server is; `folder` keeps those made here."""
        self._access = read_kubeconfig(upstream)
        self._folder = folder
        [self.port] = free_ports(1)
        self.rules: list[Rule] = []
        self.asked: list[Asked] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._streams: set[asyncio.Task[object]] = set()
        self._exchanges: set[asyncio.Future[web.Response]] = set()
        self._released = asyncio.Event()
        self._flowing = asyncio.Event()
        self._stop = asyncio.Event()

    def __enter__(self) -> "FaultProxy":
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_SECONDS):
            raise TimeoutError("the proxy did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_TIMEOUT_SECONDS)

    def kubeconfig(self, token: str) -> Path:
        """A kubeconfig for the bearer of a token, through this proxy."""
        path = self._folder / f"kubeconfig-proxy-{self.port}-{abs(hash(token))}"
        write_kubeconfig(path, server=f"http://127.0.0.1:{self.port}", ca=b"", token=token)
        return path

    def cut_streams(self) -> None:
        """Close every open watch."""
        self._loop.call_soon_threadsafe(self._cut)

    def silence(self) -> None:
        """Pass on nothing of any watch any more, without closing them."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def speak(self) -> None:
        """End `silence`: what was held back is passed on."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def release(self) -> None:
        """Let go of every request that a STALL rule holds."""
        self._loop.call_soon_threadsafe(self._released.set)

    def _cut(self) -> None:
        for task in self._streams:
            task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._flowing.set()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.tls)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, skip_auto_headers=ADDED_HEADERS
        ) as session:
            self._session = session
            self._ready.set()
            await self._stop.wait()
            self._cut()
            self._released.set()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(time.monotonic(), request.method, request.path_qs))
        # Every rule counts what it matches, so that `first` does not depend on the rules before it.
        claiming = [rule for rule in list(self.rules) if rule.claims(request.method, request.path_qs)]
        if not claiming:
            return await self._pass_on(request)
        return await self._fail(request, claiming[0])

    async def _fail(self, request: web.Request, rule: Rule) -> web.StreamResponse:
        if rule.fault is Fault.STATUS:
            self._call(rule)
            body = {"kind": "Status", "code": rule.status, "message": f"fault {rule.status}", "reason": "Fault"}
            return web.json_response(body, status=rule.status)
        if rule.fault in (Fault.SLOW, Fault.ANSWERED):
            await asyncio.sleep(rule.delay_seconds)
            response = await self._pass_on(request)
            if request.transport is not None and not request.transport.is_closing():
                await response.prepare(request)
                await response.write_eof()  # the hook must find the answer already sent
            self._call(rule)
            return response
        if rule.fault is Fault.STALL:
            await self._released.wait()
        elif rule.fault is Fault.UNANSWERED:
            await self._pass_on(request)
        self._call(rule)
        return self._hang_up(request)

    @staticmethod
    def _call(rule: Rule) -> None:
        if rule.hook is not None:
            rule.hook()
        rule.done.set()

    @staticmethod
    def _hang_up(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)

    def _forward(self, request: web.Request, body: bytes) -> "aiohttp.client._RequestContextManager":
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP_HEADERS}
        url = self._access.server + request.path_qs
        # Nothing is added: a content type on a request without a body would be refused.
        return self._session.request(request.method, url, data=body or None, headers=headers)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        watching = request.query.get("watch") in ("1", "true")
        assert task is not None
        if watching:
            self._streams.add(task)
        try:
            return await self._relay(request, watching)
        except aiohttp.ClientError:
            # The API server is away or went away: so is this connection.
            return self._hang_up(request)
        except asyncio.CancelledError:
            self._hang_up(request)
            raise
        finally:
            self._streams.discard(task)

    async def _relay(self, request: web.Request, watching: bool) -> web.StreamResponse:
        body = await request.read()
        if not watching:
            # Once begun it is carried out, whoever was killed meanwhile: the audit log then says what came of it.
            exchange = asyncio.ensure_future(self._exchange(request, body))
            self._exchanges.add(exchange)
            exchange.add_done_callback(self._exchanges.discard)
            return await asyncio.shield(exchange)
        async with self._forward(request, body) as answer:
            response = web.StreamResponse(status=answer.status, headers=_headers(answer))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await self._flowing.wait()
                await response.write(chunk)
            return response

    async def _exchange(self, request: web.Request, body: bytes) -> web.Response:
        async with self._forward(request, body) as answer:
            return web.Response(status=answer.status, headers=_headers(answer), body=await answer.read())


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    headers = {key: value for key, value in answer.headers.items() if key.lower() not in HOP_HEADERS}
    if "Content-Encoding" in answer.headers:
        headers["Content-Encoding"] = answer.headers["Content-Encoding"]
    return headers
