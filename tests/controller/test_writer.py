"""What each write leaves behind, and what the writer lets nobody do."""

import ast
import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.kube.fake_api import FakeApi, Fault, until
from vgpu import names
from vgpu.controller.fence import Fence
from vgpu.controller.writer import BindingWrite, EventWrite, Writer
from vgpu.controller.writes import cut_text
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

PODS = "/api/v1/namespaces/n/pods"
EVENTS = "/api/v1/namespaces/n/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/n/leases"
INVENTORIES = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
PACKAGE = Path(__file__).resolve().parents[2] / "operator" / "vgpu"


@pytest.fixture
def pod(api: FakeApi) -> Key:
    body = {"metadata": {"name": "p", "namespace": "n", "annotations": {"kept": "yes"}}}
    return Key("n", "p", api.put(PODS, body)["metadata"]["uid"])


def binding(pod: Key) -> BindingWrite:
    return BindingWrite(pod.namespace, pod.name, pod.uid, "node-1", {names.ASSIGNMENT_ANNOTATION: "{}"})


def event(reason: str = "InsufficientMemory", message: str = "m") -> EventWrite:
    return EventWrite("n", f"p.{reason.lower()}", "p", "uid", reason, message)


async def test_binding_and_assignment_are_one_write(api: FakeApi, writer: Writer, pod: Key) -> None:
    await writer.bind(binding(pod))
    stored = api.get(PODS, "p", "n")
    assert stored is not None
    assert stored["spec"]["nodeName"] == "node-1"
    assert stored["metadata"]["annotations"] == {"kept": "yes", names.ASSIGNMENT_ANNOTATION: "{}"}
    assert writer.counts == {("create", "pods/binding", "ok"): 1}


async def test_binding_of_another_uid_or_a_second_one_is_refused(api: FakeApi, writer: Writer, pod: Key) -> None:
    with pytest.raises(ApiRefused):
        await writer.bind(binding(Key("n", "p", "another")))
    await writer.bind(binding(pod))
    with pytest.raises(ApiRefused):
        await writer.bind(binding(pod))
    assert writer.counts["create", "pods/binding", "409"] == 2


async def test_nomination_sets_node_and_counter_together(api: FakeApi, writer: Writer, pod: Key) -> None:
    before = api.version
    await writer.nominate(pod, "node-2", 7)
    stored = api.get(PODS, "p", "n")
    assert stored is not None
    assert stored["status"]["nominatedNodeName"] == "node-2"
    assert stored["metadata"]["annotations"] == {"kept": "yes", names.WAKE_ANNOTATION: "7"}
    assert api.version == before + 1


async def test_counter_alone_leaves_the_nomination(api: FakeApi, writer: Writer, pod: Key) -> None:
    await writer.nominate(pod, "node-2", 7)
    await writer.nominate(pod, None, 8)
    stored = api.get(PODS, "p", "n")
    assert stored is not None
    assert stored["status"]["nominatedNodeName"] == "node-2"
    assert stored["metadata"]["annotations"][names.WAKE_ANNOTATION] == "8"


async def test_reused_name_is_neither_nominated_nor_evicted(api: FakeApi, writer: Writer, pod: Key) -> None:
    stranger = Key("n", "p", "gone-uid")
    with pytest.raises(ApiRefused) as caught:
        await writer.nominate(stranger, "node", 1)
    assert caught.value.status == 422
    with pytest.raises(ApiRefused) as caught:
        await writer.evict(stranger)
    assert caught.value.status == 409
    assert api.get(PODS, "p", "n") is not None


async def test_eviction_removes_exactly_this_pod(api: FakeApi, writer: Writer, pod: Key) -> None:
    await writer.evict(pod)
    assert api.get(PODS, "p", "n") is None


async def test_status_is_applied_to_an_existing_inventory(api: FakeApi, writer: Writer) -> None:
    api.put(INVENTORIES, {"metadata": {"name": "node-1"}, "spec": {"gpus": []}})
    await writer.apply_inventory_status("node-1", {"slots": 3})
    stored = api.get(INVENTORIES, "node-1")
    assert stored is not None
    assert (stored["spec"], stored["status"]) == ({"gpus": []}, {"slots": 3})
    with pytest.raises(ApiRefused):
        await writer.apply_inventory_status("node-2", {})


async def test_repeated_event_is_one_object_with_a_count(api: FakeApi, client: ApiClient, fence: Fence) -> None:
    times = iter([datetime(2026, 1, 1, 12, minute, tzinfo=UTC) for minute in range(9)])
    writer = Writer(client, fence, OperatorSettings(), lambda: next(times))
    await writer.write_event(event(message="first"))
    await writer.write_event(event(message="second"))
    stored = api.get(EVENTS, "p.insufficientmemory", "n")
    assert stored is not None
    assert (stored["count"], stored["message"]) == (2, "second")
    assert (stored["firstTimestamp"], stored["lastTimestamp"]) == ("2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z")
    assert stored["involvedObject"]["uid"] == "uid"


async def test_restart_does_not_duplicate_events(api: FakeApi, client: ApiClient, fence: Fence) -> None:
    for wanted_count in (1, 1, 2):
        if wanted_count == 1:
            writer = Writer(client, fence, OperatorSettings())
        await writer.write_event(event())
        stored = api.get(EVENTS, "p.insufficientmemory", "n")
        assert stored is not None
        assert stored["count"] == wanted_count


async def test_event_that_expired_meanwhile_is_created_anew(api: FakeApi, writer: Writer) -> None:
    await writer.write_event(event())
    api.remove(EVENTS, "p.insufficientmemory", "n")
    await writer.write_event(event())
    stored = api.get(EVENTS, "p.insufficientmemory", "n")
    assert stored is not None
    assert stored["count"] == 1


async def test_events_message_is_cut_to_a_kibibyte(api: FakeApi, writer: Writer) -> None:
    await writer.write_event(event(message="ä" * 2000))
    stored = api.get(EVENTS, "p.insufficientmemory", "n")
    assert stored is not None
    assert len(stored["message"].encode()) <= 1024
    assert stored["message"].endswith("ä...")


def test_short_text_is_not_cut() -> None:
    assert cut_text("1234", 4) == "1234"
    assert cut_text("12345", 4) == "1..."


async def test_closed_fence_lets_nothing_through(api: FakeApi, writer: Writer, fence: Fence, pod: Key) -> None:
    fence.lost()
    for write in (writer.bind(binding(pod)), writer.evict(pod), writer.write_event(event())):
        with pytest.raises(NotLeading):
            await write
    assert api.requests == []
    assert writer.counts["create", "pods/binding", "fenced"] == 1


async def test_lease_is_written_while_the_fence_is_closed(api: FakeApi, writer: Writer, fence: Fence) -> None:
    fence.lost()
    lease = {"metadata": {"namespace": "n", "name": "l"}, "spec": {"holderIdentity": "a"}}
    await writer.create_lease(lease)
    stored = api.get(LEASES, "l", "n")
    assert stored is not None
    await writer.put_lease({**lease, "metadata": stored["metadata"], "spec": {"holderIdentity": "b"}})
    with pytest.raises(ValueError, match="resourceVersion"):
        await writer.put_lease(lease)


async def test_lease_of_an_older_version_is_a_conflict(api: FakeApi, writer: Writer) -> None:
    lease = {"metadata": {"namespace": "n", "name": "l"}}
    api.put(LEASES, lease)
    with pytest.raises(ApiRefused) as caught:
        await writer.put_lease({"metadata": {**lease["metadata"], "resourceVersion": "1"}})
    assert caught.value.status == 409


async def test_every_write_carries_its_time_out_and_our_name(api: FakeApi, writer: Writer, pod: Key) -> None:
    await writer.nominate(pod, None, 1)
    await writer.bind(binding(pod))
    await writer.write_event(event())
    await writer.create_lease({"metadata": {"namespace": "n", "name": "l"}})
    paths = [path for _, path in api.requests]
    assert all(f"fieldManager={names.OPERATOR_FIELD_MANAGER}" in path for path in paths)
    assert ["timeout=500ms" in path for path in paths] == [True, True, True, False]
    assert "timeout=2000ms" in paths[3]


async def test_hanging_write_ends_unknown_and_turned_away_ends_unavailable(
    api: FakeApi, writer: Writer, pod: Key
) -> None:
    api.faults += [Fault("POST", action="hang"), Fault("POST", status=429)]
    with pytest.raises(OutcomeUnknown):
        await writer.bind(binding(pod))
    with pytest.raises(ApiUnavailable):
        await writer.bind(binding(pod))
    assert writer.counts == {("create", "pods/binding", "unknown"): 1, ("create", "pods/binding", "429"): 1}


async def test_drain_waits_for_the_write_under_way(api: FakeApi, writer: Writer, pod: Key) -> None:
    api.faults.append(Fault("POST", action="hang"))
    write = asyncio.create_task(writer.bind(binding(pod)))
    await until(lambda: api.requests, "sent")
    await writer.drain()
    assert write.done()
    with pytest.raises(OutcomeUnknown):
        await write


def test_one_file_writes_to_the_api_per_process() -> None:
    """Whoever builds a WriteRequest or calls `send` of the client is a writer."""
    allowed = {"kube/client.py", "controller/writer.py", "agent/publisher.py"}
    writers = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name) and node.id == "WriteRequest":
                writers.add(str(path.relative_to(PACKAGE)))
    assert writers <= allowed
    assert "controller/writer.py" in writers


async def test_news_told_before_a_restart_stays_as_it_is(api: FakeApi, client: ApiClient, fence: Fence) -> None:
    for message in ("before", "after"):
        writer = Writer(client, fence, OperatorSettings())
        await writer.write_event(replace(event(message=message), if_absent=True))
    stored = api.get(EVENTS, "p.insufficientmemory", "n")
    assert stored is not None
    assert (stored["message"], stored["count"]) == ("before", 1)
