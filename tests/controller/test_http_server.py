"""Silent and half-sent connections are closed, and no more are held than allowed, over real sockets."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import uvloop
from aiohttp import ClientSession, web

from vgpu.controller import pki
from vgpu.controller.http_server import HttpServer, Limits, serve

LIMITS = Limits(connections=4, head_seconds=0.2, idle_seconds=0.2, shutdown_seconds=0.1)
PATIENT = Limits(connections=4, head_seconds=60, idle_seconds=60, shutdown_seconds=0.1)
HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="module")
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop that the operator runs on."""
    return uvloop.EventLoopPolicy()


@asynccontextmanager
async def served(limits: Limits, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpServer]:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(float(request.query.get("seconds", "0")))
        await request.read()
        return web.Response(text="ok")

    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    app = web.Application()
    app.router.add_get("/", answer)
    app.router.add_post("/", answer)
    server = await serve(app, ("127.0.0.1", 0), tls, limits)
    try:
        yield server
    finally:
        await server.cleanup()


async def connect(server: HttpServer, first: bytes = b"") -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(first)
    return reader, writer


async def closed(stream: Stream) -> bool:
    """Waits for the server to end this connection."""
    try:
        while await asyncio.wait_for(stream[0].read(1000), 5):
            pass
    except ConnectionError:
        pass
    stream[1].close()
    return True


async def ask(stream: Stream) -> bytes:
    stream[1].write(HEAD + b"\r\n")
    answer = await asyncio.wait_for(stream[0].readuntil(b"ok"), 5)
    return answer.split(b"\r\n")[0]


async def fetch(url: str, tls: ssl.SSLContext | bool = True) -> str:
    async with ClientSession() as session, session.get(url, ssl=tls) as response:
        return await response.text()


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's side, and that of a client it knows."""
    now = datetime.now(UTC)
    ours = pki.create_authority(now)
    client = pki.client_tls(pki.issue_client(ours, now))
    client.check_hostname = False
    return pki.server_tls(pki.issue_server(ours, "vgpu-system", now)), client


@pytest.mark.parametrize("sent", [b"", HEAD, b"\x16"], ids=["silent", "half a head", "no http"])
async def test_a_connection_without_a_whole_request_head_is_closed(sent: bytes) -> None:
    async with served(LIMITS) as server:
        assert await closed(await connect(server, sent))


async def test_a_head_that_trickles_in_does_not_gain_time() -> None:
    async with served(LIMITS) as server:
        stream = await connect(server, HEAD)

        async def trickle() -> None:
            while True:
                stream[1].write(b"X: y\r\n")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        assert await closed(stream)
        trickling.cancel()


@pytest.mark.parametrize("then", [b"", HEAD], ids=["silent", "half a head"])
async def test_a_connection_that_was_answered_is_closed_when_it_asks_no_more(then: bytes) -> None:
    async with served(LIMITS) as server:
        stream = await connect(server)
        assert await ask(stream) == b"HTTP/1.1 200 OK"
        stream[1].write(then)
        assert await closed(stream)


async def test_an_answer_that_takes_longer_than_an_idle_connection_may_is_given() -> None:
    async with served(LIMITS) as server:
        assert await fetch(f"http://127.0.0.1:{server.port}/?seconds=0.5") == "ok"


async def test_a_body_that_is_not_what_its_headers_say_is_its_senders_fault() -> None:
    async with served(LIMITS) as server, ClientSession() as session:
        url, headers = f"http://127.0.0.1:{server.port}/", {"Content-Encoding": "gzip"}
        async with session.post(url, data=b"no gzip", headers=headers) as response:
            assert response.status == 400
            assert "body" in await response.text()


async def test_of_too_many_the_one_that_never_asked_goes_first() -> None:
    """The rule is the cap's: nothing times out here."""
    async with served(PATIENT) as server:
        asking = await connect(server)
        await ask(asking)
        silent = [await connect(server) for _ in range(3)]
        fresh = await connect(server)
        assert await ask(fresh) == b"HTTP/1.1 200 OK"
        assert await closed(silent[0])
        assert await ask(asking) == b"HTTP/1.1 200 OK"
        for _, writer in (asking, fresh, *silent):
            writer.close()


async def test_hundreds_of_silent_connections_keep_nobody_from_an_answer() -> None:
    async with served(PATIENT) as server:
        silent = [await connect(server) for _ in range(200)]
        stream = await connect(server)
        assert await ask(stream) == b"HTTP/1.1 200 OK"
        assert await closed(silent[0])
        for _, writer in (stream, *silent):
            writer.close()


async def test_a_handshake_that_is_never_finished_is_ended_and_a_whole_one_is_answered() -> None:
    server_side, client_side = tls_contexts()
    async with served(Limits(4, head_seconds=0.5, shutdown_seconds=0.1), server_side) as server:
        silent = await connect(server, b"\x16\x03\x01")
        assert await fetch(f"https://127.0.0.1:{server.port}/", client_side) == "ok"
        assert await closed(silent)


async def test_handshakes_that_are_never_finished_count_too() -> None:
    server_side, client_side = tls_contexts()
    async with served(PATIENT, server_side) as server:
        silent = [await connect(server) for _ in range(20)]
        assert await fetch(f"https://127.0.0.1:{server.port}/", client_side) == "ok"
        assert await closed(silent[0])
        for _, writer in silent:
            writer.close()


async def test_an_address_that_is_taken_is_an_error_and_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await serve(web.Application(), ("127.0.0.1", taken.getsockname()[1]))
