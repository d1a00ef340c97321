"""The pages of /what-if: a question is read from the request, its answer given as JSON or text.

Enters: GET with a pod's name, POST with a pod's manifest. Leaves: the answer, or one line that says what is wrong.
One answer is worked out at a time, in a thread: it must not keep kube-scheduler waiting. May not live here: what
an answer says.
"""

import asyncio
import json
from collections.abc import Callable

from aiohttp import web

from vgpu.controller.what_if import WhatIf, WrongQuestion
from vgpu.controller.what_if_asked import Asked
from vgpu.report.sections import plain_text
from vgpu.report.what_if import what_if_sections

LONGEST_COUNT = 9
LONGEST_WRONG = 1000
"""Characters of what is said about a wrong question."""
MOST_WAITING = 8
OUTPUTS = ("json", "text")
ASK = "say which pod: /what-if?pod=NAMESPACE/NAME, or POST the manifest of one as JSON"


class WhatIfPages:
    """`what_if` is None where nothing can be asked."""

    def __init__(self, what_if: WhatIf | None) -> None:
        self._what_if = what_if
        self._one = asyncio.Lock()
        self._waiting = 0

    async def get(self, request: web.Request) -> web.Response:
        """About a pod that waits."""
        namespace, _, name = request.query.get("pod", "").partition("/")
        if not namespace or not name:
            return _wrong(WrongQuestion(400, ASK))
        return await self._answer(request, lambda what_if: what_if.about(namespace, name))

    async def post(self, request: web.Request) -> web.Response:
        """About a pod that does not exist yet, or `copies` equal ones."""
        raw, copies = await request.read(), request.query.get("copies", "1")
        if not (copies.isascii() and copies.isdigit() and len(copies) < LONGEST_COUNT):
            return _wrong(WrongQuestion(400, f"copies is a number of pods, not {copies[:40]!r}"))
        return await self._answer(request, lambda what_if: what_if.about_manifest(raw, int(copies)))

    async def _answer(self, request: web.Request, ask: Callable[[WhatIf], Asked | WrongQuestion]) -> web.Response:
        output = request.query.get("output", "")
        if output and output not in OUTPUTS:
            return _wrong(WrongQuestion(400, wrong_output(output)))
        if self._what_if is None:
            return _wrong(WrongQuestion(503, "this operator decides on no preemption"))
        if self._waiting >= MOST_WAITING:
            return _wrong(WrongQuestion(503, "too many questions at once; ask again in a moment"))
        self._waiting += 1
        try:
            async with self._one:
                asked = ask(self._what_if)
                if isinstance(asked, WrongQuestion):
                    return _wrong(asked)
                body = await asyncio.to_thread(_text if wants_text(request) else _json, asked)
        finally:
            self._waiting -= 1
        return web.Response(text=body, content_type="text/plain" if wants_text(request) else "application/json")


def _text(asked: Asked) -> str:
    return plain_text(what_if_sections(asked.answer()))


def _json(asked: Asked) -> str:
    return json.dumps(asked.answer(), indent=2) + "\n"


def wrong_output(output: str) -> str:
    """What is said of an output that does not exist."""
    return f"output {output[:40]!r} is none of {', '.join(OUTPUTS)}"


def wants_text(request: web.Request) -> bool:
    """True for a request that asks for text rather than JSON."""
    output = request.query.get("output", "")
    return output == "text" or (not output and request.headers.get("Accept", "").startswith("text/plain"))


def _wrong(question: WrongQuestion) -> web.Response:
    """A message may repeat what was sent, which need not be text that can be written."""
    rest = " ..." if len(question.message) > LONGEST_WRONG else ""
    body = f"{question.message[:LONGEST_WRONG]}{rest}\n".encode(errors="backslashreplace")
    return web.Response(status=question.status, body=body, content_type="text/plain", charset="utf-8")
