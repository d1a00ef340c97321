"""Mutual TLS with certificates of our own, tried by real handshakes."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web

from vgpu.controller.pki import (
    Authority,
    Pair,
    check_same_authority,
    client_tls,
    create_authority,
    issue_client,
    issue_server,
    server_tls,
)
from vgpu.errors import ConfigurationError

NOW = datetime.now(UTC)
SERVICE = "vgpu-extender.vgpu-system.svc"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return create_authority(NOW)


@asynccontextmanager
async def extender(pair: Pair) -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="bound")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_tls(pair)).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def ask(url: str, tls: ssl.SSLContext, server_name: str) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=tls, server_hostname=server_name) as response,
    ):
        return await response.text()


@pytest.mark.parametrize("name", [SERVICE, "localhost", "127.0.0.1"])
async def test_scheduler_and_extender_accept_each_other(authority: Authority, name: str) -> None:
    async with extender(issue_server(authority, "vgpu-system", NOW)) as url:
        assert await ask(url, client_tls(issue_client(authority, NOW)), name) == "bound"


async def test_no_client_certificate_no_answer(authority: Authority) -> None:
    server = issue_server(authority, "vgpu-system", NOW)
    nobody = ssl.create_default_context(cadata=server.ca.decode())
    async with extender(server) as url:
        with pytest.raises(aiohttp.ClientError):
            await ask(url, nobody, SERVICE)


async def test_certificate_of_another_ca_gets_no_answer(authority: Authority) -> None:
    server = issue_server(authority, "vgpu-system", NOW)
    stranger = issue_client(create_authority(NOW), NOW)
    tls = client_tls(Pair(stranger.certificate, stranger.key, server.ca))
    async with extender(server) as url:
        with pytest.raises(aiohttp.ClientError):
            await ask(url, tls, SERVICE)


async def test_servers_certificate_is_no_clients(authority: Authority) -> None:
    server = issue_server(authority, "vgpu-system", NOW)
    async with extender(server) as url:
        with pytest.raises(aiohttp.ClientError):
            await ask(url, client_tls(server), SERVICE)


async def test_other_server_name_is_not_trusted(authority: Authority) -> None:
    async with extender(issue_server(authority, "vgpu-system", NOW)) as url:
        with pytest.raises(aiohttp.ClientError):
            await ask(url, client_tls(issue_client(authority, NOW)), "vgpu-extender.other.svc")


def test_pairs_of_two_authorities_do_not_fit(authority: Authority) -> None:
    server, client = issue_server(authority, "n", NOW), issue_client(authority, NOW)
    check_same_authority(server, client)
    with pytest.raises(ConfigurationError, match="one CA"):
        check_same_authority(server, issue_client(create_authority(NOW), NOW))


def test_unreadable_certificates_are_named(authority: Authority) -> None:
    server = issue_server(authority, "n", NOW)
    with pytest.raises(ConfigurationError, match="client certificate"):
        check_same_authority(server, Pair(b"x", b"x", server.ca))
    with pytest.raises(ConfigurationError, match="cannot be used"):
        server_tls(Pair(b"x", b"x", server.ca))


def test_keys_do_not_show_in_logs(authority: Authority) -> None:
    assert "PRIVATE" not in repr(issue_client(authority, NOW)) + repr(authority)
