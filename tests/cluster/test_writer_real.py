"""Every write of the operator against a real API server: what is stored, and what is refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

import devcluster
from devcluster import Cluster, NodeShape
from vgpu import names
from vgpu.controller.certificates import TlsSecrets
from vgpu.controller.endpoint import publish_endpoint
from vgpu.controller.fence import Fence
from vgpu.controller.lease import Candidate, decode_lease, held_body
from vgpu.controller.writer import BindingWrite, EventWrite, SliceWrite, Writer
from vgpu.errors import ApiRefused, OutcomeUnknown
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

pytestmark = pytest.mark.cluster

SPACE = "written"
PODS = f"/api/v1/namespaces/{SPACE}/pods"


class Desk:
    """A writer with an open fence, and plain reads."""

    def __init__(self, cluster: Cluster, client: ApiClient) -> None:
        self.cluster, self.client = cluster, client
        fence = Fence(10, 4, lambda: 0.0)
        fence.renewed(0.0)
        self.writer = Writer(client, fence, OperatorSettings())

    async def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = await asyncio.to_thread(self.cluster.api.get, path)
        return found

    async def pod(self, name: str = "p") -> Key:
        spec = {"containers": [{"name": "c", "image": "x"}], "schedulerName": "nobody"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {"kept": "yes"}}}
        made = await asyncio.to_thread(self.cluster.api.post, PODS, {**body, "spec": spec})
        return Key(SPACE, name, made["metadata"]["uid"])


async def refusal(write: Awaitable[object]) -> int:
    """The status with which this write is refused."""
    with pytest.raises(ApiRefused) as caught:
        await write
    return caught.value.status


@pytest.fixture
def served(crds: list[str], cluster: Cluster) -> None:
    """An established kind answers 429 ("storage is (re)initializing") for a moment."""

    def all_listed() -> bool:
        try:
            for plural in (names.INVENTORY_PLURAL, names.QUEUE_PLURAL, names.PREEMPTION_PLURAL):
                cluster.api.get(f"/apis/{names.API_VERSION}/{plural}")
        except devcluster.ApiRefused:
            return False
        return True

    cluster.wait_until(all_listed, "our kinds are served")


@pytest.fixture
async def desk(served: None, clean_cluster: Cluster) -> AsyncIterator[Desk]:
    for namespace in (SPACE, names.NAMESPACE):
        await asyncio.to_thread(clean_cluster.ensure_namespace, namespace)
    async with await ApiClient.connect(kubeconfig=clean_cluster.kubeconfig(), user_agent="vgpu-tests") as client:
        yield Desk(clean_cluster, client)


async def test_nomination_then_binding_of_exactly_this_pod(desk: Desk) -> None:
    await asyncio.to_thread(desk.cluster.create_nodes, 1, NodeShape())
    pod = await desk.pod()
    await desk.writer.nominate(pod, "node-0000", 7)
    stored = await desk.get(f"{PODS}/p")
    assert stored["status"]["nominatedNodeName"] == "node-0000"
    assert stored["metadata"]["annotations"] == {"kept": "yes", names.WAKE_ANNOTATION: "7"}
    await desk.writer.nominate(pod, None, 8)
    stored = await desk.get(f"{PODS}/p")
    assert stored["status"]["nominatedNodeName"] == "node-0000"

    write = BindingWrite(SPACE, "p", pod.uid, "node-0000", {names.ASSIGNMENT_ANNOTATION: "{}"})
    stranger = Key(SPACE, "p", "00000000-0000-0000-0000-000000000000")
    assert await refusal(desk.writer.bind(BindingWrite(SPACE, "p", stranger.uid, "node-0000", {}))) == 409
    assert await refusal(desk.writer.nominate(stranger, "node-0000", 9)) == 422
    await desk.writer.bind(write)
    stored = await desk.get(f"{PODS}/p")
    assert stored["spec"]["nodeName"] == "node-0000"
    assert stored["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION] == "{}"
    assert await refusal(desk.writer.bind(write)) == 409
    assert await refusal(desk.writer.nominate(pod, "node-0000", 10)) == 422


async def test_late_assignment_reaches_a_bound_pod(desk: Desk) -> None:
    await asyncio.to_thread(desk.cluster.create_nodes, 1, NodeShape())
    pod = await desk.pod()
    await desk.writer.bind(BindingWrite(SPACE, "p", pod.uid, "node-0000", {}))
    await desk.writer.assign_bound(pod, {names.ASSIGNMENT_ANNOTATION: "late"})
    stored = await desk.get(f"{PODS}/p")
    assert stored["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION] == "late"


async def test_eviction_ends_the_pod(desk: Desk) -> None:
    pod = await desk.pod()
    await desk.writer.evict(pod)
    listed = await desk.get(PODS)
    assert [item for item in listed["items"] if "deletionTimestamp" not in item["metadata"]] == []


async def test_eviction_of_another_uid_touches_nothing(desk: Desk) -> None:
    """The API server takes the uid for a conflict that may pass and tries on: our time-out ends it."""
    await desk.pod()
    hasty = Writer(desk.client, desk.writer.fence, OperatorSettings(write_seconds=1))
    with pytest.raises((OutcomeUnknown, ApiRefused)):
        await hasty.evict(Key(SPACE, "p", "00000000-0000-0000-0000-000000000000"))
    assert "deletionTimestamp" not in (await desk.get(f"{PODS}/p"))["metadata"]


async def test_events_of_one_name_are_one_event(desk: Desk) -> None:
    event = EventWrite(SPACE, "p.0123456789abcdef", "p", "uid-1", "InsufficientMemory", "first")
    await desk.writer.write_event(event)
    await desk.writer.write_event(event)
    again = Desk(desk.cluster, desk.client)
    await again.writer.write_event(event)
    await again.writer.write_event(event)
    stored = await desk.get(f"/api/v1/namespaces/{SPACE}/events/{event.name}")
    assert stored["count"] == 3
    assert stored["source"] == {"component": "vgpu-operator"}
    assert stored["involvedObject"]["name"] == "p"


async def test_status_is_applied_and_equal_content_changes_nothing(desk: Desk) -> None:
    base = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
    assert await refusal(desk.writer.apply_inventory_status("absent", {})) == 404
    spec = {"slotResource": "volcano.sh/vgpu-number", "identity": "exact", "plugin": "vgpu", "gpus": []}
    meta = {"name": "node-1"}
    body = {"apiVersion": names.API_VERSION, "kind": names.INVENTORY_KIND, "metadata": meta, "spec": spec}
    await asyncio.to_thread(desk.cluster.api.post, base, body)
    condition = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    status = {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    await desk.writer.apply_inventory_status("node-1", status)
    first = await desk.get(f"{base}/node-1")
    assert first["status"]["conditions"][0]["reason"] == "Ready"
    await desk.writer.apply_inventory_status("node-1", status)
    second = await desk.get(f"{base}/node-1")
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


async def test_lease_is_created_replaced_and_guarded_by_its_version(desk: Desk) -> None:
    meta = {"name": names.LEASE_NAME, "namespace": names.NAMESPACE}
    new = held_body(None, Candidate("one", "127.0.0.1:9443"), 15, desk.writer._now())
    new["metadata"].update(meta)
    created = decode_lease(await desk.writer.create_lease(new)).fact
    renewed_body = held_body(created, Candidate("two", "127.0.0.1:9444"), 15, desk.writer._now())
    renewed = decode_lease(await desk.writer.put_lease(renewed_body)).fact
    assert (renewed.holder, renewed.transitions) == ("two", 1)
    assert renewed.body["metadata"]["annotations"] == {names.LEASE_ADDRESS_ANNOTATION: "127.0.0.1:9444"}
    assert await refusal(desk.writer.put_lease(renewed_body)) == 409


async def test_secrets_and_endpoint_slice_are_taken(desk: Desk) -> None:
    secrets = f"/api/v1/namespaces/{names.NAMESPACE}/secrets"
    tls = TlsSecrets(desk.client, desk.writer, names.NAMESPACE)
    assert await tls.ensure() == await tls.read()
    assert (await desk.get(f"{secrets}/{names.EXTENDER_TLS_SECRET}"))["type"] == "kubernetes.io/tls"

    assert await publish_endpoint(desk.writer, "10.9.8.7:9443", names.NAMESPACE)
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{names.NAMESPACE}/endpointslices"
    stored = await desk.get(f"{slices}/vgpu-extender-ipv4")
    assert stored["endpoints"][0]["addresses"] == ["10.9.8.7"]
    loopback = SliceWrite(names.NAMESPACE, names.EXTENDER_SERVICE, "127.0.0.1", "IPv4", 9443)
    assert await refusal(desk.writer.apply_endpoint_slice(loopback)) == 422
