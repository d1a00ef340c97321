"""A small API server in memory, over HTTP on 127.0.0.1: list, watch, pages, bookmarks, 410, conflicts, faults.

It knows no kinds: any path of the usual form holds objects. What it must do like the real one is checked by cases
that run against both. Tests change the world by `put` and `remove`, and say by `faults` what goes wrong.
"""

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from vgpu.kube.client import ApiClient
from vgpu.kube.connection import Connection

Object = dict[str, Any]


@dataclass
class Fault:
    """What goes wrong with the next `times` requests of this method whose path and query hold `part`.

    status: answered so. hang: no answer. drop_before / drop_after: the connection breaks before / after the work.
    """

    method: str
    part: str = ""
    action: Literal["status", "hang", "drop_before", "drop_after"] = "status"
    status: int = 500
    reason: str = "InternalError"
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1


@dataclass(frozen=True)
class Target:
    """What a path names: `resource` is group/version/plural; `namespace` "" means all, or cluster-scoped."""

    resource: str
    namespace: str
    name: str
    subresource: str

    @classmethod
    def of(cls, path: str) -> "Target":
        parts = path.strip("/").split("/")
        group, rest = ("/".join(parts[:2]), parts[2:]) if parts[0] == "api" else ("/".join(parts[:3]), parts[3:])
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        rest += [""] * (3 - len(rest))
        return cls(f"{group}/{rest[0]}", namespace, rest[1], rest[2])


class Answer(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}


class FakeApi:
    """The world and its faults."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.history: list[tuple[int, str, str, Object]] = []
        self.compacted = 0
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.end_watches_at_once = False
        self.url = ""
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._tokens = itertools.count(1)
        self._uids = itertools.count(1)
        self._watchers: dict[asyncio.Queue[bytes | None], str] = {}
        self._stopping = asyncio.Event()

    # The world

    def put(self, collection: str, body: Object) -> Object:
        """Create or replace an object of a collection ("/api/v1/pods"); gives what is stored."""
        target = Target.of(collection)
        body = copy.deepcopy(body)
        meta = body.setdefault("metadata", {})
        key = (target.resource, meta.get("namespace", ""), meta["name"])
        known = self.objects.get(key)
        meta.setdefault("uid", known["metadata"]["uid"] if known else f"uid-{next(self._uids)}")
        self._store(key, "MODIFIED" if known else "ADDED", body)
        return body

    def get(self, collection: str, name: str, namespace: str = "") -> Object | None:
        return self.objects.get((Target.of(collection).resource, namespace, name))

    def remove(self, collection: str, name: str, namespace: str = "") -> None:
        self._store((Target.of(collection).resource, namespace, name), "DELETED", None)

    def compact(self) -> None:
        """Forget history and page tokens: 410 for whoever comes from before."""
        self.compacted = self.version
        self.history.clear()
        self._pages.clear()

    def drop_watches(self) -> None:
        """End every watch, cleanly."""
        for queue in self._watchers:
            queue.put_nowait(None)

    def send_line(self, line: bytes) -> None:
        """Put a raw line into every watch."""
        for queue in self._watchers:
            queue.put_nowait(line + b"\n")

    def bookmark(self, version: int | None = None) -> None:
        meta = {"resourceVersion": str(version or self.version)}
        self.send_line(encode({"type": "BOOKMARK", "object": {"metadata": meta}}))

    @property
    def watching(self) -> int:
        return len(self._watchers)

    def count(self, method: str, part: str = "", *, without: str = "\0") -> int:
        """Requests so far of this method whose path and query hold `part` and not `without`."""
        return sum(1 for m, p in self.requests if m == method and part in p and without not in p)

    def _store(self, key: tuple[str, str, str], event: str, body: Object | None) -> None:
        self.version += 1
        if body is None:
            body = copy.deepcopy(self.objects.pop(key))
        else:
            self.objects[key] = body
        body["metadata"]["resourceVersion"] = str(self.version)
        stored = copy.deepcopy(body)
        self.history.append((self.version, event, key[0], stored))
        line = encode({"type": event, "object": stored}) + b"\n"
        for queue, resource in self._watchers.items():
            if resource == key[0]:
                queue.put_nowait(line)

    # HTTP

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        fault = self._take_fault(request)
        try:
            if fault and fault.action == "status":
                raise Answer(fault.status, fault.reason, "a fault of the test", fault.headers)
            if fault and fault.action == "hang":
                await self._stopping.wait()
            if fault and fault.action == "drop_before":
                return self._drop(request)
            response = await self._serve(request)
            return self._drop(request) if fault else response
        except Answer as answer:
            return web.json_response(answer.body, status=answer.status, headers=answer.headers)

    def _take_fault(self, request: web.Request) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == request.method and fault.part in request.path_qs:
                fault.times -= 1
                return fault
        return None

    @staticmethod
    def _drop(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        target = Target.of(request.path)
        if request.method == "GET" and not target.name:
            return await self._watch(request, target) if "watch" in request.query else self._list(request, target)
        body = json.loads(await request.read()) if request.can_read_body else {}
        key = (target.resource, target.namespace, target.name)
        if request.method == "POST" and target.subresource:
            return self._act(key, target.subresource, body)
        if request.method == "POST":
            return self._create(request.path, target, body)
        applied = "apply-patch" in request.content_type and not target.subresource
        if key not in self.objects and not applied:
            raise Answer(404, "NotFound", f"{target.resource} {target.name!r} not found")
        if request.method == "PUT":
            self._check(self.objects[key], body)
            self.put(request.path, {**body, "metadata": {**body["metadata"], "uid": self._uid(key)}})
        elif request.method == "PATCH":
            stored = self.objects.get(key, {})
            self._check(stored, body, of_uid=Answer(422, "Invalid", "metadata.uid: field is immutable"))
            self.put(request.path, merged(stored, body))
        elif request.method == "DELETE":
            self.remove(request.path, target.name, target.namespace)
            return web.json_response({"kind": "Status", "status": "Success"})
        return web.json_response(self.objects[key])

    def _uid(self, key: tuple[str, str, str]) -> str:
        return str(self.objects[key]["metadata"]["uid"])

    @staticmethod
    def _check(stored: Object, body: Object, of_uid: Answer | None = None) -> None:
        """A uid or resourceVersion in what is sent must be the stored one; a patch is told so in other words."""
        for name in ("uid", "resourceVersion"):
            wanted = body.get("metadata", {}).get(name)
            if wanted and stored.get("metadata", {}).get(name) != wanted:
                conflict = Answer(409, "Conflict", f"{name} is not {wanted}")
                raise (of_uid or conflict) if name == "uid" else conflict

    def _create(self, path: str, target: Target, body: Object) -> web.Response:
        key = (target.resource, target.namespace, body["metadata"]["name"])
        if key in self.objects:
            raise Answer(409, "AlreadyExists", f"{key[2]} exists")
        return web.json_response(self.put(path, body), status=201)

    def _act(self, key: tuple[str, str, str], subresource: str, body: Object) -> web.Response:
        if key not in self.objects:
            raise Answer(404, "NotFound", f"{key[2]} not found")
        pod = copy.deepcopy(self.objects[key])
        if subresource == "binding":
            self._check(pod, {"metadata": {"uid": body["metadata"].get("uid")}})
            if pod.get("spec", {}).get("nodeName"):
                raise Answer(409, "Conflict", f"pod {key[2]} is already assigned to node")
            change = {"spec": {"nodeName": body["target"]["name"]}, "status": {"nominatedNodeName": None}}
            annotations = {"metadata": {"annotations": body["metadata"].get("annotations", {})}}
            self._store(key, "MODIFIED", merged(merged(pod, change), annotations))
        elif subresource == "eviction":
            wanted = body.get("deleteOptions", {}).get("preconditions", {})
            self._check(pod, {"metadata": wanted})
            self._store(key, "DELETED", None)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _list(self, request: web.Request, target: Target) -> web.Response:
        token = request.query.get("continue")
        if token:
            if token not in self._pages:
                raise Answer(410, "Expired", "The provided continue parameter is too old")
            version, items = self._pages.pop(token)
        else:
            version, items = self.version, [copy.deepcopy(o) for o in self._selected(request, target)]
        limit = int(request.query.get("limit", "0")) or len(items)
        meta = {"resourceVersion": str(version)}
        if len(items) > limit:
            meta["continue"] = f"token-{next(self._tokens)}"
            self._pages[meta["continue"]] = (version, items[limit:])
        body = {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items[:limit]}
        return web.Response(body=encode(body) + b"\n", content_type="application/json")

    def _selected(self, request: web.Request, target: Target) -> list[Object]:
        path, _, wanted = request.query.get("fieldSelector", "").partition("=")
        return [
            body
            for (resource, namespace, _), body in sorted(self.objects.items())
            if resource == target.resource and target.namespace in ("", namespace) and _at(body, path) == wanted
        ]

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if since < self.compacted:
            gone = Answer(410, "Expired", "too old resource version").body
            await response.write(encode({"type": "ERROR", "object": gone}) + b"\n")
            return response
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, event, resource, body in self.history:
            if version > since and resource == target.resource:
                queue.put_nowait(encode({"type": event, "object": body}) + b"\n")
        if self.end_watches_at_once:
            return response
        self._watchers[queue] = target.resource
        try:
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            del self._watchers[queue]
        return response

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["FakeApi"]:
        """Listen on a free port of 127.0.0.1; `url` says where."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self._stopping.set()
            self.drop_watches()
            with suppress(asyncio.CancelledError):
                await runner.cleanup()

    def client(self) -> ApiClient:
        """A client of this server; the caller closes it."""
        return ApiClient(Connection(self.url), "tests")


def merged(stored: Object, change: Object) -> Object:
    """A merge patch (RFC 7386)."""
    result = copy.deepcopy(stored)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key) if isinstance(result.get(key), dict) else {}, value)
        else:
            result[key] = value
    return result


def encode(body: Object) -> bytes:
    """JSON as the API server writes it: no spaces, keys in order of insertion."""
    return json.dumps(body, separators=(",", ":")).encode()


async def until(condition: Any, what: str, timeout_seconds: float = 10) -> None:
    """Give the loop to others until the condition holds."""
    try:
        async with asyncio.timeout(timeout_seconds):
            while not condition():  # noqa: ASYNC110  # conditions on plain state have no event to wait for
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


def _at(body: Object, path: str) -> str:
    """The text at a path such as spec.nodeName; "" for no path and where nothing is."""
    part: Any = body if path else ""
    for key in path.split("."):
        part = part.get(key, "") if isinstance(part, dict) else part
    return str(part)
