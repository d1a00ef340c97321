"""Loopback ports of the machine that lead to the same ports inside a node's network namespace.

Started as `python -I -S gate.py PID PORT...`, PID being a process of that namespace. Listens first and enters the
namespace then: the listening sockets stay outside, and every connection made afterwards starts inside. Imports
only what the bare interpreter has.
"""

import asyncio
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000
CHUNK_BYTES = 65536


async def serve(listeners: list[socket.socket]) -> None:
    """Pass connections on until ended from outside."""
    for listener in listeners:
        port = listener.getsockname()[1]

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port) -> None:
            await _relay(port, reader, writer)

        await asyncio.start_server(accept, sock=listener)
    await asyncio.Event().wait()


async def _relay(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    far_writer: asyncio.StreamWriter | None = None
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    except OSError as error:  # ends this connection alone: nobody listens yet, or one end was reset
        print(f"connection to port {port} ended: {error!r}", flush=True)
    finally:
        writer.transport.abort()
        if far_writer is not None:
            far_writer.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK_BYTES):
        target.write(chunk)
        await target.drain()
    target.write_eof()


def enter_network(pid: int) -> None:
    """Move this process, which must have one thread, into the network namespace of another."""
    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace of {pid}")
    finally:
        os.close(handle)


def main() -> None:
    """Listen outside, enter, pass on."""
    listeners = [socket.create_server(("127.0.0.1", int(port)), backlog=512) for port in sys.argv[2:]]
    enter_network(int(sys.argv[1]))
    asyncio.run(serve(listeners))


if __name__ == "__main__":
    main()
