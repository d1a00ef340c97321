"""kube-scheduler's extender over HTTP: /v1/filter, /v1/prioritize, /v1/preempt, /v1/bind.

Enters: requests over mTLS (the TLS context is the caller's). Leaves: answers of core.filtering and of the
binder. Answers only while `refusal` says "" (leading and synced), otherwise 503 on a closed connection, so that
kube-scheduler connects anew, to the leader. Nothing is logged or written per refusal: a hopeless pod may be asked
about twenty times a second. May not live here: rules, writes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from vgpu.controller import wire
from vgpu.controller.binder import Binder
from vgpu.controller.clock import Clock
from vgpu.controller.translate import Translator
from vgpu.core.facts import PodFact
from vgpu.core.filtering import FilterAnswer, NodeFilter, keep_candidates, prioritize
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.errors import MalformedObject

LOG = logging.getLogger(__name__)
PREFIX = "/v1"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class ExtenderParts:
    """What the extender asks. `refusal` gives why nothing is answered now, "" when all is well.

    `before` is told of each pod that filter is about to answer a real scheduler about, `answered` of the answer;
    `observe` gets (verb, seconds) of every answer.
    """

    ledger: Ledger
    index: FitIndex
    node_filter: NodeFilter
    translator: Translator
    binder: Binder
    clock: Clock
    refusal: Callable[[], str]
    answered: Callable[[PodFact, FilterAnswer], None]
    observe: Callable[[str, float], None]
    deadline_seconds: float = 1.0
    before: Callable[[PodFact], None] = lambda _: None


class Extender:
    """The four verbs as an aiohttp application."""

    def __init__(self, parts: ExtenderParts) -> None:
        self._parts = parts

    def application(self) -> web.Application:
        """A fresh application; controller.http_server serves it over mTLS."""
        app = web.Application(client_max_size=wire.MAX_BODY_BYTES)
        quick = {"filter": self._filter, "prioritize": self._prioritize, "preempt": self._preempt}
        for verb, answer in quick.items():
            app.router.add_post(f"{PREFIX}/{verb}", partial(self._answer, verb, partial(self._in_time, answer)))
        app.router.add_post(f"{PREFIX}/bind", partial(self._answer, "bind", self._bind))
        return app

    async def _answer(
        self, verb: str, work: Callable[[web.Request], Awaitable[web.Response]], request: web.Request
    ) -> web.Response:
        why_not = self._parts.refusal()
        if why_not:
            return _unavailable(why_not)
        started = self._parts.clock.monotonic()
        try:
            response = await work(request)
        except MalformedObject as error:
            return web.Response(status=400, body=wire.error_result(str(error)), content_type=JSON)
        self._parts.observe(verb, self._parts.clock.monotonic() - started)
        return response

    async def _in_time(self, answer: Callable[[bytes], bytes], request: web.Request) -> web.Response:
        """503 when the body does not arrive within the deadline. An answer once worked out is given, also late:
        kube-scheduler still waits for it, and asking again would cost its loop another round."""
        try:
            async with asyncio.timeout(self._parts.deadline_seconds):
                body = await request.read()
        except TimeoutError:
            return _unavailable("the request did not arrive in time")
        return _ok(answer(body))

    def _filter(self, body: bytes) -> bytes:
        args = wire.read(wire.ExtenderArgs, body)
        pod = self._parts.translator.pod_fact(args.pod)
        items = args.node_items() if args.node_names is None else None
        names = list(items) if items is not None else args.node_names or []
        # Callers that send whole nodes are simulators: they get an answer and cause nothing.
        real = items is None
        if real:
            self._parts.before(pod)
        answer = self._parts.node_filter.filter(pod, names)
        if real:
            self._parts.answered(pod, answer)
        LOG.debug(
            "filter pod=%s/%s names=%d nodes=%d missed=%s",
            pod.namespace,
            pod.name,
            len(names),
            len(answer.nodes),
            answer.missed,
        )
        return wire.filter_result(answer, items)

    def _prioritize(self, body: bytes) -> bytes:
        args = wire.read(wire.ExtenderArgs, body)
        pod = self._parts.translator.pod_fact(args.pod)
        names = list(args.node_items()) if args.node_names is None else args.node_names
        return wire.priorities(prioritize(self._parts.index, pod, names))

    def _preempt(self, body: bytes) -> bytes:
        args = wire.read(wire.PreemptArgs, body)
        pod = self._parts.translator.pod_fact(args.pod)
        victims = args.victim_uids()
        kept = keep_candidates(self._parts.index, self._parts.ledger, pod, victims)
        return wire.preempt_result({node: victims[node] for node in kept}, args)

    async def _bind(self, request: web.Request) -> web.Response:
        args = wire.read(wire.BindArgs, await request.read())
        return _ok(wire.error_result(await self._parts.binder.bind(args)))


def _ok(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=JSON)


def _unavailable(message: str) -> web.Response:
    response = web.Response(status=503, body=wire.error_result(message), content_type=JSON)
    response.force_close()
    return response
