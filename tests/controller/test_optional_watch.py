"""A kind that need not be served is watched while it is; an absent one is no fault and costs nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from vgpu.controller.optional_watch import OptionalKind, OptionalWatch
from vgpu.errors import ApiRefused, ApiUnavailable
from vgpu.kube.client import ApiClient
from vgpu.kube.reflector import Reflector


@dataclass
class Api:
    """Serves resource lists; `down` so many times before it answers."""

    served: dict[str, list[str]] = field(default_factory=dict)
    down: int = 0
    asked: list[str] = field(default_factory=list)

    async def get(self, path: str) -> bytes:
        self.asked.append(path)
        if self.down:
            self.down -= 1
            raise ApiUnavailable(503, "", "down")
        if path not in self.served:
            raise ApiRefused(404, "NotFound", "not found")
        return json.dumps({"resources": [{"name": name} for name in self.served[path]]}).encode()


@dataclass
class Bench:
    api: Api
    watch: OptionalWatch
    running: list[str] = field(default_factory=list)
    forgotten: int = 0
    served: list[bool] = field(default_factory=list)

    async def until(self, running: list[str]) -> None:
        await until(lambda: self.running == running)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  nothing but the loop itself is waited for
            await asyncio.sleep(0)


class _Endless:
    def __init__(self, path: str, running: list[str]) -> None:
        self._path, self._running = path, running

    async def run(self) -> None:
        self._running.append(self._path)
        try:
            await asyncio.Event().wait()
        finally:
            self._running.remove(self._path)


@asynccontextmanager
async def bench(*, defined: bool | None = None, **served: list[str]) -> AsyncIterator[Bench]:
    api = Api({f"/apis/g/{version}": names for version, names in served.items()})
    it: Bench

    def reflect(path: str) -> Reflector[Any]:
        return cast(Reflector[Any], _Endless(path, it.running))

    def forget() -> None:
        it.forgotten += 1

    def served_or_not(served: bool) -> None:
        it.served.append(served)

    kind = OptionalKind("g", "groups", ("v2", "v1"), reflect, forget, served_or_not)
    it = Bench(api, OptionalWatch(cast(ApiClient, api), kind, defined=defined))
    task = asyncio.ensure_future(it.watch.run())
    try:
        yield it
    finally:
        assert not task.done(), "it has ended by itself"
        task.cancel()
        await asyncio.wait({task})
        assert it.running == []


async def test_the_first_version_that_has_the_kind_is_watched() -> None:
    async with bench(v2=["others"], v1=["groups", "groups/status"]) as it:
        await it.until(["/apis/g/v1/groups"])
        assert it.watch.reflector is not None


async def test_an_absent_kind_is_asked_about_once_until_it_is_told_to_look_again() -> None:
    async with bench() as it:
        await until(lambda: len(it.api.asked) == 2)
        for _ in range(50):
            await asyncio.sleep(0)
        assert it.api.asked == ["/apis/g/v2", "/apis/g/v1"]
        assert it.watch.reflector is None
        it.api.served["/apis/g/v1"] = ["groups"]
        it.watch.look()
        await it.until(["/apis/g/v1/groups"])


async def test_a_kind_that_is_served_no_longer_is_forgotten() -> None:
    async with bench(v1=["groups"]) as it:
        await it.until(["/apis/g/v1/groups"])
        it.api.served.clear()
        it.watch.look()
        await it.until([])
        await until(lambda: it.watch.reflector is None)
        assert it.forgotten == 1


async def test_looking_again_leaves_a_watch_of_the_same_version_alone() -> None:
    async with bench(v1=["groups"]) as it:
        await it.until(["/apis/g/v1/groups"])
        reflector = it.watch.reflector
        it.watch.look()
        await until(lambda: len(it.api.asked) == 4)
        await asyncio.sleep(0)
        assert it.watch.reflector is reflector


async def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    async with bench(v1=["groups"]) as it:
        it.api.down = 2
        await it.until(["/apis/g/v1/groups"])


async def test_a_kind_that_has_just_been_defined_is_asked_for_until_it_is_served() -> None:
    async with bench(defined=False, v1=[]) as it:
        for _ in range(50):
            await asyncio.sleep(0)
        assert it.api.asked == [], "nobody has defined it"
        it.watch.define(defined=True)
        await until(lambda: len(it.api.asked) == 2)
        it.api.served["/apis/g/v1"] = ["groups"]
        await it.until(["/apis/g/v1/groups"])


async def test_a_kind_whose_definition_is_gone_is_forgotten_although_it_is_served_a_moment_longer() -> None:
    async with bench(defined=True, v1=["groups"]) as it:
        await it.until(["/apis/g/v1/groups"])
        it.watch.define(defined=False)
        await until(lambda: it.watch.reflector is None)
        assert it.forgotten == 1


async def test_it_is_told_that_a_kind_is_not_served_only_once_that_is_known() -> None:
    async with bench() as it:
        it.api.down = 3
        await until(lambda: it.served == [False])
        assert it.api.down == 0
    async with bench(defined=False, v1=["groups"]) as it:
        for _ in range(50):
            await asyncio.sleep(0)
        assert it.served == []
        it.watch.definitions_listed()
        await until(lambda: it.served == [False])
        it.watch.define(defined=True)
        await it.until(["/apis/g/v1/groups"])
        assert it.served == [False, True]
        it.watch.define(defined=False)
        await until(lambda: it.served == [False, True, False])
        assert it.forgotten == 1
