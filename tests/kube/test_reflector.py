"""The reflector against the fake API server: the shared cases, and faults that a real one cannot be asked for."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tests.kube.fake_api import FakeApi, Fault, until
from tests.kube.mirror import NAMESPACE, PATH, Cable, Mirror, decode, reflecting
from tests.kube.reflector_cases import CASES, Case, forgotten_history_is_made_up_by_the_difference
from vgpu.kube.backoff import Backoff
from vgpu.kube.client import ApiClient
from vgpu.kube.connection import Connection
from vgpu.kube.reflector import Reflector, ReflectorSpec
from vgpu.kube.store import Store


def put(api: FakeApi, name: str, value: str = "1") -> None:
    api.put(PATH, {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"value": value}})


def remove(api: FakeApi, name: str) -> None:
    api.remove(PATH, name, NAMESPACE)


class FakeWorld:
    """The fake API server behind a cable that can be cut."""

    def __init__(self, api: FakeApi, cable: Cable, client: ApiClient) -> None:
        self.api, self.cable, self.client = api, cable, client

    async def put(self, name: str, value: str) -> None:
        put(self.api, name, value)

    async def remove(self, name: str) -> None:
        remove(self.api, name)

    async def forget_history(self) -> None:
        self.api.compact()


@pytest.fixture
async def world(api: FakeApi) -> AsyncIterator[FakeWorld]:
    cable = Cable(api.url)
    await cable.mend()
    async with ApiClient(Connection(cable.url), "tests") as through:
        yield FakeWorld(api, cable, through)
    await cable.cut()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_shared_case(case: Case, world: FakeWorld) -> None:
    await case(world)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_any_status_on_list_and_watch_is_waited_out(api: FakeApi, client: ApiClient, status: int) -> None:
    put(api, "a")
    api.faults += [Fault("GET", "limit=", status=status), Fault("GET", "watch=", status=status)]
    async with reflecting(client) as (reflector, mirror):
        # The server knows of the watch before its answer reaches the client, which was connected for its list.
        await until(lambda: mirror.values and api.watching and reflector.state.connected, "watching in the end")
        assert reflector.state.problem == ""
        assert reflector.state.relists == 0


async def test_failing_server_shows_in_the_state(api: FakeApi, client: ApiClient) -> None:
    api.faults.append(Fault("GET", status=403, reason="Forbidden", times=10_000))
    async with reflecting(client) as (reflector, _):
        await until(lambda: reflector.state.problem, "a problem")
        assert not reflector.state.synced
        assert not reflector.state.connected
        assert reflector.state.problem.startswith("403")


async def test_expired_page_token_lists_anew(api: FakeApi, client: ApiClient) -> None:
    for number in range(6):
        put(api, f"n{number}")
    api.faults.append(Fault("GET", "continue=", status=410, reason="Expired"))
    async with reflecting(client, page_size=3) as (reflector, mirror):
        await until(lambda: mirror.syncs == 1, "synced")
        assert len(mirror.values) == 6
        assert reflector.state.relists == 0


async def test_object_deleted_between_two_tries_of_a_list_is_dropped(api: FakeApi, client: ApiClient) -> None:
    """The first page of a list that was never finished has put it already."""
    for number in range(6):
        put(api, f"n{number}")
    api.faults.append(Fault("GET", "continue=", status=410))
    async with reflecting(client, page_size=3) as (_, mirror):
        await until(lambda: "n0" in mirror.values, "the first page")
        remove(api, "n0")
        await until(lambda: mirror.syncs == 1, "synced")
        await until(lambda: sorted(mirror.values) == ["n1", "n2", "n3", "n4", "n5"], "dropped")


async def test_http_410_on_the_watch_lists_anew(api: FakeApi, client: ApiClient) -> None:
    put(api, "a")
    put(api, "b")
    async with reflecting(client) as (_, mirror):
        await until(lambda: api.watching, "watching")
        api.faults.append(Fault("GET", "watch=", status=410))
        api.compact()
        remove(api, "a")
        api.drop_watches()
        await until(lambda: mirror.syncs == 2, "synced again")
        assert list(mirror.values) == ["b"]


async def test_other_error_event_resumes_and_lists_after_three_in_a_row(api: FakeApi, client: ApiClient) -> None:
    put(api, "a")
    error = b'{"type":"ERROR","object":{"kind":"Status","code":500,"reason":"InternalError","message":"m"}}'
    async with reflecting(client) as (reflector, mirror):
        for wanted_relists in (0, 0, 1):
            await until(lambda: api.watching, "watching")
            api.send_line(error)
            await until(lambda: not api.watching, "given up")
            await until(lambda: api.watching, "watching again")
            assert reflector.state.relists == wanted_relists
        assert mirror.syncs == 2


async def test_server_that_went_back_in_time_is_listed_anew(api: FakeApi, client: ApiClient) -> None:
    """etcd restored from a backup: a watch from a version of the future would stay silent for ever."""
    put(api, "a")
    async with reflecting(client) as (_, mirror):
        await until(lambda: api.watching, "watching")
        api.bookmark(version=50)
        await until(lambda: mirror.syncs == 2, "synced again")


async def test_bookmark_moves_the_version_to_resume_from(api: FakeApi, client: ApiClient) -> None:
    put(api, "a")
    async with reflecting(client) as (_, mirror):
        await until(lambda: api.watching, "watching")
        api.version += 1000
        api.bookmark()
        api.compact()
        await until(lambda: mirror.syncs == 1, "synced")
        api.drop_watches()
        await until(lambda: api.count("GET", f"resourceVersion={api.version}"), "resumed from the bookmark")
        assert mirror.syncs == 1


async def test_silent_watch_is_opened_again_from_where_it_was(api: FakeApi, client: ApiClient) -> None:
    put(api, "a")
    async with reflecting(client, silence_seconds=0.05) as (reflector, mirror):
        await until(lambda: api.count("GET", "watch=") >= 3, "opened again")
        assert mirror.syncs == 1
        assert reflector.state.relists == 0


async def test_a_watch_that_is_merely_quiet_is_no_interruption(
    api: FakeApi, client: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "vgpu.kube.reflector")
    async with reflecting(client, silence_seconds=0.05) as (reflector, _):
        await until(lambda: api.count("GET", "watch=") >= 3, "opened again")
        assert (reflector.state.connected, reflector.state.problem) == (True, "")
    told = [(record.levelname, record.message) for record in caplog.records]
    assert set(told) == {("DEBUG", f"watch silent, opened again path={PATH}")}


async def test_server_that_ends_each_watch_at_once_is_not_hammered(api: FakeApi, client: ApiClient) -> None:
    """Nothing is drawn from the bound here, so that the test is quick; what counts is that the bound grows."""
    api.end_watches_at_once = True
    backoff = Backoff(draw=lambda: 0.0)
    reflector = Reflector(client, ReflectorSpec(PATH), decode, Mirror(), backoff=backoff)
    task = asyncio.create_task(reflector.run())
    await until(lambda: api.count("GET", "watch=") >= 12, "twelve watches")
    assert backoff.bound_seconds == 30
    task.cancel()
    await asyncio.wait({task})


async def test_malformed_object_is_quarantined_alone(api: FakeApi, client: ApiClient) -> None:
    put(api, "good")
    api.put(PATH, {"metadata": {"name": "bad", "namespace": NAMESPACE}, "data": "not a mapping"})
    async with reflecting(client) as (reflector, mirror):
        await until(lambda: mirror.syncs == 1, "synced")
        assert list(mirror.values) == ["good"]
        assert "data" in mirror.bad["bad"]
        assert reflector.store.malformed_objects == 1
        put(api, "bad", "mended")
        await until(lambda: mirror.values.get("bad") == "mended", "mended")
        remove(api, "bad")
        await until(lambda: "bad" not in mirror.values, "dropped")


async def test_object_that_becomes_malformed_keeps_its_last_fact(api: FakeApi, client: ApiClient) -> None:
    put(api, "a", "last good")
    async with reflecting(client) as (_, mirror):
        await until(lambda: api.watching, "watching")
        api.put(PATH, {"metadata": {"name": "a", "namespace": NAMESPACE}, "data": ["x"]})
        await until(lambda: "a" in mirror.bad, "reported")
        assert mirror.values["a"] == "last good"


@pytest.mark.parametrize("value", ["crash the decoder", "crash the sink"])
async def test_bug_behind_one_object_never_stops_the_others(
    api: FakeApi, client: ApiClient, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    put(api, "a", value)
    async with reflecting(client) as (_, mirror):
        await until(lambda: api.watching, "watching")
        put(api, "b", value)
        put(api, "c", "fine")
        await until(lambda: "c" in mirror.values, "the next one")
        assert mirror.bad.keys() == {"a", "b"}
        assert "ZeroDivisionError" in mirror.bad["a"]
        assert mirror.syncs == 1


async def test_line_that_is_no_json_lists_anew(
    api: FakeApi, client: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    put(api, "a")
    async with reflecting(client) as (_, mirror):
        await until(lambda: api.watching, "watching")
        api.send_line(b'{"type":"ADDED","object":{"metadata":{"na')
        await until(lambda: mirror.syncs == 2, "synced again")
        assert list(mirror.values) == ["a"]


async def test_object_of_many_megabytes_passes(api: FakeApi, client: ApiClient) -> None:
    async with reflecting(client) as (_, mirror):
        await until(lambda: api.watching, "watching")
        put(api, "large", "x" * 8_000_000)
        await until(lambda: "large" in mirror.values, "arrived")
        assert len(mirror.values["large"]) == 8_000_000


async def test_relist_waits_through_failures(api: FakeApi, client: ApiClient) -> None:
    put(api, "a")
    async with reflecting(client) as (reflector, mirror):
        await until(lambda: api.watching, "watching")
        api.faults.append(Fault("GET", "limit=", status=500, times=3))
        put(api, "a", "2")
        await reflector.relist()
        assert mirror.values["a"] == "2"
        assert mirror.syncs == 2


@pytest.mark.parametrize(("turn_seconds", "others_run"), [(0.0, True), (1e9, False)])
async def test_loop_is_given_to_others_within_a_page(
    api: FakeApi, client: ApiClient, monkeypatch: pytest.MonkeyPatch, turn_seconds: float, others_run: bool
) -> None:
    """With no turns at all a page is folded in one go: the loop stands still meanwhile."""
    monkeypatch.setattr("vgpu.kube.reflector.TURN_SECONDS", turn_seconds)
    for number in range(50):
        put(api, f"n{number:02}")
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    seen: list[int] = []

    class Counting(Mirror):
        def put(self, item: tuple[str, str, str]) -> None:
            seen.append(beats)

    other = asyncio.create_task(beat())
    mirror = Counting()
    task = asyncio.create_task(Reflector(client, ReflectorSpec(PATH), decode, mirror).run())
    await until(lambda: mirror.syncs == 1, "synced")
    assert (len(set(seen)) == 50) == others_run
    assert (len(set(seen)) == 1) != others_run
    for running in (task, other):
        running.cancel()
    await asyncio.wait({task, other})


async def test_missed_deletions_are_found_by_the_difference_alone(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rule switched off the shared case must fail."""
    monkeypatch.setattr(Store, "unseen", lambda _: [])
    with pytest.raises(AssertionError):
        await forgotten_history_is_made_up_by_the_difference(world)
