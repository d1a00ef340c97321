"""A Lease in memory with a way to it for each replica; each way can hang, lose answers, or carry writes late."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from vgpu.errors import ApiRefused, ApiUnavailable, OutcomeUnknown
from vgpu.kube.client import WriteRequest


@dataclass
class LeaseServer:
    """The stored Lease, its versions and its watchers."""

    lease: dict[str, Any] | None = None
    version: int = 10
    writes: list[str] = field(default_factory=list)
    watchers: set[asyncio.Queue[bytes]] = field(default_factory=set)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    def write(self, method: str, body: dict[str, Any]) -> bytes:
        meta = body["metadata"]
        if method == "POST" and self.lease is not None:
            raise ApiRefused(409, "AlreadyExists", "exists")
        if method == "PUT" and self.lease is None:
            raise ApiRefused(404, "NotFound", "no Lease")
        if method == "PUT" and self.lease and meta["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiRefused(409, "Conflict", "modified meanwhile")
        self.version += 1
        uid = self.lease["metadata"]["uid"] if self.lease else f"uid-{self.version}"
        self.lease = {**body, "metadata": {**meta, "uid": uid, "resourceVersion": str(self.version)}}
        self.writes.append(body["spec"]["holderIdentity"])
        self._tell("ADDED" if method == "POST" else "MODIFIED")
        return json.dumps(self.lease).encode()

    def delete(self) -> None:
        self.version += 1
        assert self.lease
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED")
        self.lease = None

    def _tell(self, event: str) -> None:
        line = json.dumps({"type": event, "object": self.lease}).encode()
        for queue in self.watchers:
            queue.put_nowait(line)


class LeaseClient:
    """One replica's way to the server, in the form of an ApiClient.

    `refusal`: the definite answer to every write.
    `hangs`: nothing comes through. `blind`: the watch alone is silent. `loses_answers`: writes are carried out and
    not answered. `late_seconds`: a hanging write is carried out so much later after all.
    """

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.hangs = False
        self.blind = False
        self.loses_answers = False
        self.refuses = False
        self.refusal: ApiRefused | None = None
        self.late_seconds: float | None = None
        self.reads = 0
        self.puts = 0
        self._late: set[asyncio.Task[None]] = set()

    def mend(self) -> None:
        """Everything works again."""
        self.hangs = self.blind = self.loses_answers = self.refuses = False
        self.late_seconds = None

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, timeout_seconds: float = 30
    ) -> bytes:
        self.reads += 1
        await self._pass()
        lease = self.server.lease
        if not path.endswith("/leases"):
            if lease is None:
                raise ApiRefused(404, "NotFound", "no Lease")
            return json.dumps(lease).encode()
        items = [lease] if lease else []
        return json.dumps({"metadata": {"resourceVersion": str(self.server.version)}, "items": items}).encode()

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, silence_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._pass()
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if self.server.lease and int(params["resourceVersion"]) < self.server.version:
            queue.put_nowait(json.dumps({"type": "MODIFIED", "object": self.server.lease}).encode())
        self.server.watchers.add(queue)
        try:
            yield self._lines(queue, silence_seconds)
        finally:
            self.server.watchers.discard(queue)

    async def send(self, request: WriteRequest) -> bytes:
        self.puts += 1
        body = json.loads(request.body)
        if self.hangs and self.late_seconds is not None:
            task = asyncio.create_task(self._carry_out_late(request.method, body, self.late_seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        await self._pass()
        if self.refusal is not None:
            raise self.refusal
        answer = self.server.write(request.method, body)
        if self.loses_answers:
            raise OutcomeUnknown("the answer was lost")
        return answer

    async def _carry_out_late(self, method: str, body: dict[str, Any], seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            self.server.write(method, body)
        except ApiRefused:
            return

    async def _pass(self) -> None:
        if self.refuses:
            raise ApiUnavailable(0, "", "connection refused")
        if self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(0.005)

    async def _lines(self, queue: asyncio.Queue[bytes], silence_seconds: float) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(silence_seconds):
                    line = await queue.get()
            except TimeoutError:
                raise ApiUnavailable(0, "Silent", "nothing came") from None
            if not self.blind and not self.hangs:
                yield line
