"""The operator's plain HTTP: is it alive, is its view whole, its metrics, why a pod waits, what would happen,
what is still owed.

Enters: GET requests, and manifests of pods that do not exist. Leaves: text and JSON read from the ledger; nothing
is ever changed or written. May not live here: what an answer says (controller.answers, controller.metrics).
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from vgpu.controller.answers import Answers, Question
from vgpu.controller.explain_text import explanation_document, explanation_text, view_document
from vgpu.controller.http_server import Limits
from vgpu.controller.metrics import Metrics, Snapshot, WatchRow
from vgpu.controller.what_if import WhatIf
from vgpu.controller.what_if_pages import OUTPUTS, WhatIfPages, wants_text, wrong_output
from vgpu.core.ledger import Ledger
from vgpu.report.sections import table

JSON = "application/json"
LIMITS = Limits(shutdown_seconds=0.5)
INDEX = """\
/explain?pod=NAMESPACE/NAME  why a GPU pod waits, per node and card; &output=text for a terminal
/what-if?pod=NAMESPACE/NAME  who would be evicted for it, and why; POST a pod's manifest as JSON: the same for it
/debts                       what evicted work must still come back, plan by plan; what plans wait for now
/nodes                       the nodes that are known here
/nodes/NAME                  one node: its cards and who holds them
/metrics                     for Prometheus
/healthz /readyz             is it alive, is its view whole
"""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sources:
    """What the pages are made of. `problems` gives what keeps this replica from being ready, in words."""

    ledger: Ledger
    answers: Answers
    metrics: Metrics
    snapshot: Callable[[], Snapshot]
    watches: Callable[[], Mapping[str, WatchRow]]
    problems: Callable[[], list[str]]
    what_if: WhatIf | None = None
    owed: Callable[[], dict[str, Any]] = dict


def application(sources: Sources) -> web.Application:
    """The aiohttp application with all pages."""
    pages = _Pages(sources)
    app = web.Application()
    app.router.add_get("/", pages.index)
    app.router.add_get("/healthz", pages.healthz)
    app.router.add_get("/readyz", pages.readyz)
    app.router.add_get("/metrics", pages.metrics)
    app.router.add_get("/explain", pages.explain)
    what_if = WhatIfPages(sources.what_if)
    app.router.add_get("/what-if", what_if.get)
    app.router.add_post("/what-if", what_if.post)
    app.router.add_get("/debts", pages.debts)
    app.router.add_get("/nodes", pages.nodes)
    app.router.add_get("/nodes/{name}", pages.node)
    return app


def watch_problems(rows: Mapping[str, WatchRow], silence_seconds: float) -> list[str]:
    """Why the view is not whole: a watch that has not listed yet, is not connected, or is silent for too long."""
    found = []
    for kind, row in sorted(rows.items()):
        why = f" ({row.problem})" if row.problem else ""
        if not row.synced:
            found.append(f"{kind}: not listed yet{why}")
        elif not row.connected:
            found.append(f"{kind}: the watch is not connected{why}")
        elif row.age_seconds > silence_seconds:
            found.append(f"{kind}: the watch has been silent for {row.age_seconds:.0f} s")
    return found


class _Pages:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def index(self, request: web.Request) -> web.Response:
        return web.Response(text=INDEX)

    async def healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        problems = self._sources.problems()
        if problems:
            return web.Response(status=503, text="".join(f"{problem}\n" for problem in problems))
        return web.Response(text="ok\n")

    async def metrics(self, request: web.Request) -> web.Response:
        snapshot = self._sources.snapshot()
        body = await asyncio.to_thread(self._sources.metrics.render, snapshot)
        return web.Response(body=body, headers={"Content-Type": METRICS_TYPE})

    async def explain(self, request: web.Request) -> web.Response:
        output = request.query.get("output", "")
        if output and output not in OUTPUTS:
            return _wrong(400, wrong_output(output))
        asked = request.query.get("pod", "")
        namespace, _, name = asked.partition("/")
        if not namespace or not name:
            return _wrong(400, "say which pod: /explain?pod=NAMESPACE/NAME")
        pod = self._sources.ledger.find_pod(namespace, name)
        if pod is None:
            return _wrong(404, f"no pod {asked} is known here")
        if not pod.wants_gpus:
            return _wrong(400, f"pod {asked} asks for no GPU")
        question = self._sources.answers.question(pod)
        if wants_text(request):
            return web.Response(text=await asyncio.to_thread(_answer_text, question))
        return web.Response(text=await asyncio.to_thread(_answer_json, question), content_type=JSON)

    async def debts(self, request: web.Request) -> web.Response:
        return web.Response(text=_json_text(self._sources.owed()), content_type=JSON)

    async def nodes(self, request: web.Request) -> web.Response:
        ledger = self._sources.ledger
        views = (ledger.view(name) for name in sorted(ledger.nodes()))
        rows = [
            (view.name, str(len(view.cards)), "open" if view.closed is None else view.closed.reason.value)
            for view in views
            if view is not None
        ]
        return web.Response(text=table(("NODE", "CARDS", "STATE"), rows) + "\n")

    async def node(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        view = self._sources.ledger.view(name)
        if view is None:
            return _wrong(404, f"no node or inventory {name} is known here")
        return web.Response(text=_json_text(view_document(view)), content_type=JSON)


def _wrong(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=f"{message}\n")


def _answer_text(question: Question) -> str:
    return explanation_text(question.answer())


def _answer_json(question: Question) -> str:
    return _json_text(explanation_document(question.answer()))


def _json_text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
