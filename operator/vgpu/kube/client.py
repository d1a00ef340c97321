"""Raw requests to the API server over one aiohttp session: bytes in, bytes out.

Enters: a path, parameters, a body. Leaves: the body of a success, or one of ApiRefused, ApiUnavailable,
OutcomeUnknown. May not live here: what the bytes mean, retries, or a decision to write (only the writer of each
process calls `send`).
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Self, TypedDict
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from vgpu.errors import ApiUnavailable, MalformedObject, OutcomeUnknown, StreamSilent
from vgpu.kube.answers import raise_failure
from vgpu.kube.connection import UNREADABLE, Connection, load_connection

NO_PARAMS: Mapping[str, str] = MappingProxyType({})
CONNECT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 60.0
READ_BUFFER_BYTES = 2**20
LINE_LIMIT_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write: everything that goes over the wire. `timeout_seconds` bounds the whole exchange."""

    method: str
    path: str
    body: bytes
    content_type: str = "application/json"
    params: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 3.0


class _Route(TypedDict, total=False):
    allow_redirects: bool
    proxy: str
    server_hostname: str


class ApiClient:
    """A connection pool to one API server under one account; an async context manager."""

    def __init__(self, connection: Connection, user_agent: str) -> None:
        self._connection = connection
        self._route: _Route = {"allow_redirects": False}
        if connection.proxy:
            self._route["proxy"] = connection.proxy
        if connection.server_hostname:
            self._route["server_hostname"] = connection.server_hostname
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_note_connected)
        trace.on_connection_reuseconn.append(_note_connected)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=connection.tls or True, keepalive_timeout=KEEP_ALIVE_SECONDS
            ),
            headers={"User-Agent": user_agent, "Accept": "application/json"},
            read_bufsize=READ_BUFFER_BYTES,
            trace_configs=[trace],
        )

    @classmethod
    async def connect(cls, *, kubeconfig: Path | None, user_agent: str) -> Self:
        """Read the configuration (None: the pod's own account). Raises ConfigurationError; asks nothing yet."""
        return cls(await load_connection(kubeconfig), user_agent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(self, path: str, params: Mapping[str, str] = NO_PARAMS, *, timeout_seconds: float = 30) -> bytes:
        """Read once. Raises ApiRefused (404 included) and ApiUnavailable."""
        headers = await self._authorization()
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.get(
                self._url(path, params), headers=headers, timeout=timeout, **self._route
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error
        raise_failure(response.status, body, response.headers, is_write=False)
        return body

    async def send(self, request: WriteRequest) -> bytes:
        """Write once. Raises ApiRefused, ApiUnavailable (nothing was sent, or turned away) and OutcomeUnknown.

        aiohttp repeats a PUT by itself when a kept connection turns out to be closed: every PUT must carry a
        resourceVersion, and 409 must be taken as "read and see".
        """
        headers = await self._authorization()
        headers["Content-Type"] = request.content_type
        timeout = aiohttp.ClientTimeout(total=request.timeout_seconds, sock_connect=CONNECT_SECONDS)
        progress = SimpleNamespace(connected=False)
        try:
            async with self._session.request(
                request.method,
                self._url(request.path, request.params),
                data=request.body,
                headers=headers,
                timeout=timeout,
                trace_request_ctx=progress,
                **self._route,
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            if not progress.connected:
                raise _unreachable(error) from error
            raise OutcomeUnknown(f"{request.method} {request.path}: {_told(error)}") from error
        raise_failure(response.status, body, response.headers, is_write=True)
        return body

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str] = NO_PARAMS, *, silence_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read an endless answer line by line, without line ends. Ends when the server ends it.

        Raises ApiRefused, ApiUnavailable also when the connection broke, and StreamSilent, which is one, when
        nothing came for `silence_seconds`.
        """
        headers = await self._authorization()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        try:
            response = await self._session.get(
                self._url(path, params), headers=headers, timeout=timeout, **self._route
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error
        try:
            if response.status != 200:
                await _raise_refusal(response)
            yield _lines(response.content)
        finally:
            response.close()

    def _url(self, path: str, params: Mapping[str, str]) -> URL:
        """Encoded here in one step: left to the session, each request's URL is taken apart and built anew."""
        query = f"?{urlencode(params)}" if params else ""
        return URL(self._connection.host + path + query, encoded=True)

    async def _authorization(self) -> dict[str, str]:
        try:
            value = await self._connection.authorize()
        except UNREADABLE as error:
            raise ApiUnavailable(0, "NoCredentials", f"credentials cannot be read: {error}") from error
        return {"Authorization": value} if value else {}


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split by line feeds ourselves: the reader's own line limit would end a stream at one large object."""
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async for chunk in content.iter_any():
            first, *rest = chunk.split(b"\n")
            parts.append(first)
            size_bytes += len(first)
            for piece in rest:
                yield b"".join(parts)
                parts, size_bytes = [piece], len(piece)
            if size_bytes > LINE_LIMIT_BYTES:
                raise MalformedObject(f"a line of the stream is longer than {LINE_LIMIT_BYTES} bytes")
    except aiohttp.ServerTimeoutError as error:
        raise StreamSilent(0, type(error).__name__, _told(error)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise _unreachable(error) from error
    # What follows the last line feed is a line that was cut off: never given out.


async def _raise_refusal(response: aiohttp.ClientResponse) -> None:
    try:
        body = await response.read()
    except (aiohttp.ClientError, OSError) as error:
        raise _unreachable(error) from error
    raise_failure(response.status, body, response.headers, is_write=False)
    raise ApiUnavailable(response.status, "NotAStream", "the answer to a watch is not a stream")


def _unreachable(error: Exception) -> ApiUnavailable:
    return ApiUnavailable(0, type(error).__name__, _told(error))


def _told(error: Exception) -> str:
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)


async def _note_connected(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.connected = True
