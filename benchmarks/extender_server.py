"""The child of filter_latency: our extender over a ledger in memory, or the trivial one, on loopback without TLS.

python -m benchmarks.extender_server trivial | ours NODES. Prints its port, then serves until its input ends.
"""

import asyncio
import json
import sys
import threading

from aiohttp import web

from benchmarks import synthetic
from benchmarks.memory import fill
from vgpu.controller.clock import SystemClock
from vgpu.controller.extender import Extender, ExtenderParts
from vgpu.core.filtering import NodeFilter
from vgpu.core.index import FitIndex
from vgpu.core.score import Policies
from vgpu.settings import OperatorSettings

BEST = 32


async def trivial(request: web.Request) -> web.Response:
    """The reference: parse, answer with the first names, decide nothing."""
    names = json.loads(await request.read())["NodeNames"]
    return web.json_response({"NodeNames": names[:BEST], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}})


def trivial_application() -> web.Application:
    """An extender of a few lines."""
    app = web.Application(client_max_size=16 * 2**20)
    app.router.add_post("/v1/filter", trivial)
    return app


def our_application(nodes: int) -> web.Application:
    """Our extender over `nodes` nodes with 20 pods each. POST /change binds one more pod in the ledger."""
    filled = fill(nodes, nodes * synthetic.PODS_PER_NODE)
    ledger, translator = filled.ledger, filled.translator
    index = FitIndex(ledger, Policies())
    parts = ExtenderParts(
        ledger=ledger,
        index=index,
        node_filter=NodeFilter(index, ledger, OperatorSettings().filter_best_nodes),
        translator=translator,
        binder=None,  # type: ignore[arg-type]  # bind is not asked here
        clock=SystemClock(),
        refusal=lambda: "",
        answered=lambda pod, answer: None,
        observe=lambda verb, seconds: None,
    )
    app = Extender(parts).application()
    turn = 0

    async def change(request: web.Request) -> web.Response:
        nonlocal turn
        number = turn % (nodes * synthetic.PODS_PER_NODE)
        fact = translator.decode_pod(synthetic.pod(number)).fact
        if turn // (nodes * synthetic.PODS_PER_NODE) % 2 == 0:
            ledger.drop_pod(fact.uid)
        else:
            ledger.put_pod(fact)
        ledger.take_changes()  # as the consumer does 30 ms after each event
        turn += 1
        return web.Response()

    app.router.add_post("/change", change)
    return app


async def serve(app: web.Application) -> None:
    """Serve until standard input ends."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    application = trivial_application() if sys.argv[1] == "trivial" else our_application(int(sys.argv[2]))
    asyncio.run(serve(application))
