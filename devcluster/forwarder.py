"""A TCP forwarder with a fixed loopback port that follows the address named in a Lease's annotation.

Stands in for a Service: kube-scheduler's extender address is static, the leader's is not. Enters: a kubeconfig,
the Lease and the annotation's key. Each connection goes to the address known at that moment; when the address
changes, the connections to the old one are closed. While the API server is away, the last known address stays.
"""

import argparse
import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from devcluster.kubeconfig import ApiAccess, read_kubeconfig

CHUNK_BYTES = 65536
CONNECT_TIMEOUT_SECONDS = 2.0
WATCH_SECONDS = 300
RETRY_SECONDS = 0.2
log = logging.getLogger("devcluster.forwarder")
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """Which annotation of which Lease holds the address, as HOST:PORT."""

    namespace: str
    name: str
    annotation: str


class Forwarder:
    """Passes bytes both ways between callers and the current address."""

    def __init__(self) -> None:
        self._address: Address | None = None
        self._open: set[asyncio.Task[None]] = set()

    def move_to(self, address: Address | None) -> None:
        """Send new connections there and close those to any other address."""
        if address == self._address:
            return
        log.info("forwarding to=%s closed=%d", address, len(self._open))
        self._address = address
        for task in self._open:
            task.cancel()

    async def serve(self, port: int) -> asyncio.Server:
        """Listen on a loopback port."""
        return await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if self._address is not None:
                await self._relay(self._address, reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            # Ends this connection alone; a cancelled one is one whose address has moved.
            log.debug("connection ended: %r", error)
        finally:
            self._open.discard(task)
            writer.transport.abort()

    @staticmethod
    async def _relay(address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            far_reader, far_writer = await asyncio.open_connection(*address)
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK_BYTES):
        target.write(chunk)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()


async def follow(access: ApiAccess, key: LeaseKey, forwarder: Forwarder) -> None:
    """Watch the Lease for ever and move the forwarder with it."""
    path = f"{access.server}/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases"
    query = {"watch": "1", "fieldSelector": f"metadata.name={key.name}", "timeoutSeconds": str(WATCH_SECONDS)}
    headers = {"Authorization": f"Bearer {access.token}"}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        while True:
            try:
                async with session.get(path, params=query, ssl=access.tls) as response:
                    response.raise_for_status()
                    async for event in _events(response):
                        _handle(event, key, forwarder)
            except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a line cut short
                log.warning("watch of the Lease ended: %r", error)
            await asyncio.sleep(RETRY_SECONDS)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in response.content:
        yield json.loads(line)


def _handle(event: dict[str, Any], key: LeaseKey, forwarder: Forwarder) -> None:
    if event["type"] == "DELETED":
        forwarder.move_to(None)
    elif event["type"] in ("ADDED", "MODIFIED"):
        annotations = event["object"]["metadata"].get("annotations", {})
        forwarder.move_to(parse_address(annotations.get(key.annotation, "")))


def parse_address(text: str) -> Address | None:
    """HOST:PORT, or None for anything else: a leader that has not written its address yet, or wrote nonsense."""
    host, _, port = text.rpartition(":")
    if host and port.isdecimal():
        return host, int(port)
    if text:
        log.warning("the annotation holds no HOST:PORT: %r", text)
    return None


async def run(arguments: argparse.Namespace) -> None:
    """Listen and follow until ended from outside."""
    forwarder = Forwarder()
    server = await forwarder.serve(arguments.port)
    key = LeaseKey(arguments.namespace, arguments.lease, arguments.annotation)
    async with server:
        await follow(read_kubeconfig(arguments.kubeconfig), key, forwarder)


def main() -> None:
    """Command line: python -m devcluster.forwarder."""
    parser = argparse.ArgumentParser(prog="python -m devcluster.forwarder", description=main.__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True, help="loopback port to listen on")
    parser.add_argument("--namespace", required=True, help="namespace of the Lease")
    parser.add_argument("--lease", required=True, help="name of the Lease")
    parser.add_argument("--annotation", required=True, help="key whose value is HOST:PORT")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
