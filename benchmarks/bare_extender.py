"""An extender that decides nothing, over mutual TLS: what no extender in Python gets below.

python -m benchmarks.bare_extender FOLDER PORT. FOLDER holds ca.crt, tls.crt, tls.key and `api.json` (the API
server, a token). filter names the first nodes, prioritize says 0, bind posts a Binding without annotations. It
runs on the event loop and the HTTP server that the operator uses, until it is ended.
"""

import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from aiohttp import web

BEST = 32


async def answer(request: web.Request) -> web.Response:
    """filter and prioritize."""
    nodes = json.loads(await request.read())["NodeNames"]
    if request.match_info["verb"] == "prioritize":
        return web.json_response([{"Host": node, "Score": 0} for node in nodes])
    return web.json_response({"NodeNames": nodes[:BEST], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}})


def binding(wanted: dict[str, Any]) -> dict[str, Any]:
    """The Binding of one bind call."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": wanted["PodName"], "namespace": wanted["PodNamespace"], "uid": wanted["PodUID"]},
        "target": {"kind": "Node", "name": wanted["Node"]},
    }


async def serve(folder: Path, port: int) -> None:
    """Answer until the process is ended."""
    api = json.loads((folder / "api.json").read_text())
    headers = {"Authorization": f"Bearer {api['token']}"}
    connector = aiohttp.TCPConnector(limit=0, ssl=False)  # loopback, in a benchmark
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def bind(request: web.Request) -> web.Response:
            wanted = json.loads(await request.read())
            path = f"/api/v1/namespaces/{wanted['PodNamespace']}/pods/{wanted['PodName']}/binding"
            async with session.post(api["server"] + path, json=binding(wanted)) as response:
                said = await response.text()
            return web.json_response({"Error": "" if response.status == 201 else said})

        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_post("/v1/bind", bind)
        app.router.add_post("/v1/{verb}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls(folder)).start()
        await asyncio.Event().wait()


def tls(folder: Path) -> ssl.SSLContext:
    """As the operator's: a client certificate, no session tickets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "ca.crt")
    return context


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
