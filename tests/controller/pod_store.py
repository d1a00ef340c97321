"""An API server's pods in memory, which loses requests and answers on demand, and a clock turned by hand."""

import asyncio
import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tests.controller.kubernetes_json import encode, pod_json
from vgpu.controller.writes import BindingWrite
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.kube.objects import Key


class Fate(Enum):
    """What becomes of one write or read."""

    FINE = auto()
    LOST = auto()
    """Never carried out; the caller is not told."""
    DELAYED = auto()
    """Carried out only at `carry_out_delayed`; the caller is not told."""
    UNANSWERED = auto()
    """Carried out; the caller is not told."""
    BROKEN = auto()
    """503, not carried out."""
    CARRIED_OUT_BUT_503 = auto()
    BUSY = auto()
    """429."""
    FORBIDDEN = auto()
    FENCED = auto()


FAILURES: Mapping[Fate, Exception] = {
    Fate.LOST: OutcomeUnknown("no answer"),
    Fate.DELAYED: OutcomeUnknown("no answer"),
    Fate.UNANSWERED: OutcomeUnknown("no answer"),
    Fate.BROKEN: ApiUnavailable(503, "", "etcd is away"),
    Fate.CARRIED_OUT_BUT_503: ApiUnavailable(503, "", "etcd is away"),
    Fate.BUSY: ApiUnavailable(429, "", "too many requests"),
    Fate.FORBIDDEN: ApiRefused(403, "Forbidden", "not allowed"),
    Fate.FENCED: NotLeading("the Lease is not held"),
}
CARRIED_OUT = (Fate.FINE, Fate.UNANSWERED, Fate.CARRIED_OUT_BUT_503)


@dataclass
class PodStore:
    """`fates` are those of the next writes, `read_fates` of the next reads; then all is fine."""

    pods: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    fates: list[Fate] = field(default_factory=list)
    read_fates: list[Fate] = field(default_factory=list)
    bindings: int = 0
    reads: int = 0
    delayed: list[Callable[[], None]] = field(default_factory=list)

    def add(self, name: str, **fields: Any) -> dict[str, Any]:
        document = pod_json(name, **fields)
        self.pods[document["metadata"]["namespace"], name] = document
        return document

    async def get(self, path: str) -> bytes:
        self.reads += 1
        fate = self.read_fates.pop(0) if self.read_fates else Fate.FINE
        if fate is not Fate.FINE:
            raise FAILURES[fate]
        _, _, _, _, namespace, _, name = path.split("/")
        if (namespace, name) not in self.pods:
            raise ApiRefused(404, "NotFound", f"pods {name} not found")
        return encode(self.pods[namespace, name])

    async def bind(self, write: BindingWrite) -> None:
        await self._write((write.namespace, write.name), write.uid, write.annotations, write.node)

    async def assign_bound(self, pod: Key, annotations: Mapping[str, str]) -> None:
        await self._write((pod.namespace, pod.name), pod.uid, annotations, None)

    async def _write(
        self, name: tuple[str, str], uid: str, annotations: Mapping[str, str], node: str | None
    ) -> None:
        fate = self.fates.pop(0) if self.fates else Fate.FINE
        if fate in CARRIED_OUT:
            self._carry_out(name, uid, annotations, node)
        if fate is Fate.DELAYED:
            self.delayed.append(lambda: self._carry_out(name, uid, annotations, node))
        if fate is not Fate.FINE:
            raise FAILURES[fate]

    def carry_out_delayed(self) -> None:
        for work in self.delayed:
            work()
        self.delayed.clear()

    def _carry_out(
        self, name: tuple[str, str], uid: str, annotations: Mapping[str, str], node: str | None
    ) -> None:
        pod = self.pods.get(name)
        if pod is None:
            raise ApiRefused(404, "NotFound", "no such pod")
        if pod["metadata"]["uid"] != uid or (node is not None and pod["spec"].get("nodeName")):
            raise ApiRefused(409, "Conflict", "already assigned, or another uid")
        pod["metadata"].setdefault("annotations", {}).update(annotations)
        if node is not None:
            pod["spec"]["nodeName"] = node
            self.bindings += 1


class HandClock:
    """Time that passes only in `pass_seconds`."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self._now

    def unix_seconds(self) -> int:
        return 1_700_000_000

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        await future

    async def pass_seconds(self, seconds: float) -> None:
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await settle()
        self._now = end


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)
