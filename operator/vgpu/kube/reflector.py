"""One list + watch that keeps a sink in step with the API server for ever.

Enters: raw objects of one path. Leaves: the sink's put, drop, malformed, synced, and a state for readiness and
metrics. Any failure is a reason to wait and go on, never an end. After a lost connection the watch resumes, and
so it does, as a matter of course, when nothing came for a while; after 410 anywhere (the watch, its ERROR event,
an expired page token) all is listed anew and the difference folded. May not live here: what an object means,
writes.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from vgpu.errors import ApiError, ApiRefused, ApiUnavailable, MalformedObject, StreamSilent
from vgpu.kube.answers import status_of
from vgpu.kube.backoff import Backoff
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Decoded, Key
from vgpu.kube.store import NotJson, Sink, Store
from vgpu.kube.wire import Page, WatchEvent, identify, is_older, split_event, split_page, split_page_slowly

__all__ = ["Decoded", "Key", "Reflector", "ReflectorSpec", "ReflectorState", "Sink"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
ItemT = TypeVar("ItemT")

GONE = 410
RESUMABLE = frozenset({0, 429, 503})  # says nothing about our resourceVersion: resume from it later
FRUITLESS_LIMIT = 3  # other answers in a row that refuse to resume: list anew
TURN_SECONDS = 0.01  # the loop is given to others at least this often while objects come in a row
LIST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ReflectorSpec:
    """What is watched: `params` are selectors; a page holds `page_size` objects at most."""

    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    page_size: int = 500
    silence_seconds: float = 70
    watch_seconds: tuple[int, int] = (300, 600)
    """The server ends each watch after a random time in this range, so that watches spread over its replicas."""


@dataclass(slots=True)
class ReflectorState:
    """`synced`: a complete list was folded once. `connected`: the last request was answered as wanted."""

    synced: bool = False
    connected: bool = False
    last_event_monotonic: float = 0.0
    relists: int = 0
    events: int = 0
    problem: str = ""


class Reflector(Generic[T]):
    """Keeps `sink` in step with one path. `run` must be running for `relist` to come back."""

    def __init__(
        self,
        client: ApiClient,
        spec: ReflectorSpec,
        decode: Callable[[bytes], Decoded[T]],
        sink: Sink[T],
        *,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = client
        self._spec = spec
        self.backoff = backoff or Backoff()
        self.store = Store(decode, sink)
        self.state = ReflectorState()
        self._version = ""
        self._fruitless = 0
        self._attempt: asyncio.Task[float] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        """Run until cancelled. An attempt is one list (if needed) and one watch; between two there is a pause."""
        pause_seconds = 0.0
        while True:
            self._attempt = asyncio.create_task(self._try_once(pause_seconds), name=f"reflect {self._spec.path}")
            try:
                await asyncio.wait({self._attempt})
            except asyncio.CancelledError:
                self._attempt.cancel()
                await asyncio.wait({self._attempt})
                raise
            pause_seconds = 0.0 if self._attempt.cancelled() else self._attempt.result()

    async def relist(self) -> None:
        """Fold one consistent list that begins now; comes back when it is folded, however long that takes."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._version = ""
        if self._attempt is not None:
            self._attempt.cancel()
        await waiter

    async def _try_once(self, pause_seconds: float) -> float:
        """One attempt; gives the seconds to wait before the next. Raises nothing but cancellation."""
        await asyncio.sleep(pause_seconds)
        asked_seconds = 0.0
        try:
            if not self._version:
                await self._list()
            await self._watch()
        except StreamSilent:
            logger.debug("watch silent, opened again path=%s", self._spec.path)
        except ApiError as error:
            asked_seconds = error.retry_after_seconds if isinstance(error, ApiUnavailable) else 0.0
            self._failed(error)
        except MalformedObject as error:
            self._version = ""
            self._failed(error)
        except Exception as error:  # supervised: a bug here must not end the only source of facts
            logger.exception("watch stopped unexpectedly path=%s", self._spec.path)
            self._version = ""
            self._failed(error)
        return self.backoff.next_seconds(asked_seconds)

    async def _list(self) -> None:
        self.store.begin_list()
        params = {**self._spec.params, "limit": str(self._spec.page_size)}
        while True:
            body = await self._client.get(self._spec.path, params, timeout_seconds=LIST_SECONDS)
            self._answered()
            page = await self._fold_page(body)
            if not page.next_page:
                break
            params["continue"] = page.next_page
        await _in_turns(self.store.drop, self.store.unseen())
        self.store.end_list()
        self._version, self._fruitless = page.resource_version, 0
        self.state.relists += self.state.synced
        self.state.synced = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def _fold_page(self, body: bytes) -> Page:
        page = split_page(body)
        try:
            await _in_turns(self.store.fold_object, page.items)
        except NotJson:
            page = split_page_slowly(body)
            await _in_turns(self.store.fold_object, page.items)
        return page

    async def _watch(self) -> None:
        params = {
            **self._spec.params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*self._spec.watch_seconds)),
        }
        began = time.monotonic()
        try:
            async with self._client.stream(
                self._spec.path, params, silence_seconds=self._spec.silence_seconds
            ) as lines:
                self._answered()
                await self._fold_lines(lines)
        except ApiError as error:
            self._fruitless += error.status not in RESUMABLE
            if error.status == GONE or self._fruitless >= FRUITLESS_LIMIT:
                self._version = ""
            raise
        finally:
            self.backoff.worked_for(time.monotonic() - began)

    async def _fold_lines(self, lines: AsyncIterator[bytes]) -> None:
        turn_began = time.monotonic()
        async for line in lines:
            now = time.monotonic()
            self.state.last_event_monotonic = now
            self._fold_event(split_event(line))
            if now - turn_began > TURN_SECONDS:
                await asyncio.sleep(0)
                turn_began = time.monotonic()

    def _fold_event(self, event: WatchEvent) -> None:
        if event.kind == "ERROR":
            raise ApiRefused(*status_of(event.raw))
        if event.kind == "BOOKMARK":
            _, version = identify(event.raw)
            if is_older(version, self._version):
                raise ApiRefused(GONE, "Expired", f"the server went back from {self._version} to {version}")
        else:
            version = self.store.fold_event(event)
            self.state.events += 1
        self._version = version or self._version
        self._fruitless = 0

    def _answered(self) -> None:
        self.state.connected = True
        self.state.problem = ""
        self.state.last_event_monotonic = time.monotonic()

    def _failed(self, error: Exception) -> None:
        problem = f"{getattr(error, 'status', '')} {error}".strip()
        if problem != self.state.problem:
            logger.warning("watch interrupted path=%s problem=%s", self._spec.path, problem)
        self.state.connected = False
        self.state.problem = problem


async def _in_turns(fold: Callable[[ItemT], object], items: Sequence[ItemT]) -> None:
    """Fold many in a row and give the loop to others in between."""
    turn_began = time.monotonic()
    for item in items:
        fold(item)
        if time.monotonic() - turn_began > TURN_SECONDS:
            await asyncio.sleep(0)
            turn_began = time.monotonic()
