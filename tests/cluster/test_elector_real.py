"""Two replicas and a real Lease: hand-over, an API server that restarts, and what a follower asks (nothing)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from devcluster import Cluster
from tests.kube.fake_api import until
from vgpu import names
from vgpu.controller.elector import Callbacks, Candidate, Elector
from vgpu.controller.fence import Fence
from vgpu.controller.writer import Writer
from vgpu.kube.client import ApiClient
from vgpu.settings import OperatorSettings

pytestmark = pytest.mark.cluster

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.LEASE_NAME}"
SETTINGS = OperatorSettings()


class Replica:
    """One elector with a client of its own; the user agent tells its requests in the audit log."""

    def __init__(self, client: ApiClient, identity: str) -> None:
        self.fence = Fence(SETTINGS.renew_deadline_seconds, SETTINGS.write_margin_seconds)
        self.starts = 0
        writer = Writer(client, self.fence, SETTINGS)
        candidate = Candidate(identity, f"127.0.0.1:{len(identity)}")
        self.elector = Elector(client, writer, SETTINGS, candidate, Callbacks(self._started, lambda: None))

    async def _started(self) -> None:
        self.starts += 1


@asynccontextmanager
async def replica(cluster: Cluster, identity: str) -> AsyncIterator[Replica]:
    async with await ApiClient.connect(kubeconfig=cluster.kubeconfig(), user_agent=identity) as client:
        running = Replica(client, identity)
        task = asyncio.create_task(running.elector.run())
        try:
            yield running
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_lease_is_handed_over_and_the_follower_asks_nothing(clean_cluster: Cluster) -> None:
    await asyncio.to_thread(clean_cluster.ensure_namespace, names.NAMESPACE)
    async with replica(clean_cluster, "first-replica") as first:
        await until(first.fence.may_write, "the first leads")
        async with replica(clean_cluster, "second-replica") as second:
            await until(lambda: second.elector.holder == "first-replica", "the second sees it")
            begun = clean_cluster.audit_events().position
            renewed = first.fence.deadline
            await until(lambda: (first.fence.deadline or 0) > (renewed or 0), "a renewal", timeout_seconds=20)
            asked = [
                (event.user_agent, event.verb)
                for event in clean_cluster.audit_events(begun).events
                if event.user_agent in ("first-replica", "second-replica") and event.verb != "watch"
            ]
            assert set(asked) == {("first-replica", "update")}
            assert not second.fence.leading
            await asyncio.to_thread(clean_cluster.restart_apiserver)
            await until(lambda: first.elector.reflector.state.connected, "watching again", timeout_seconds=60)
            await until(lambda: first.fence.leading or second.fence.leading, "one leads", timeout_seconds=60)
            assert not (first.fence.leading and second.fence.leading)
    with suppress(OSError):  # the test thread's own connection is from before the restart
        clean_cluster.api.get("/version")


async def test_leader_that_ends_is_followed_at_once(clean_cluster: Cluster) -> None:
    await asyncio.to_thread(clean_cluster.ensure_namespace, names.NAMESPACE)
    async with AsyncExitStack() as longer:
        async with replica(clean_cluster, "first-replica") as first:
            await until(lambda: first.fence.leading, "the first leads")
            second = await longer.enter_async_context(replica(clean_cluster, "second-replica"))
            await until(lambda: second.elector.holder == "first-replica", "the second sees it")
        assert not first.fence.leading
        await until(second.fence.may_write, "taken over before the Lease would have ended")
        lease = await asyncio.to_thread(clean_cluster.api.get, LEASE)
        assert lease["spec"]["holderIdentity"] == "second-replica"
        assert lease["metadata"]["annotations"][names.LEASE_ADDRESS_ANNOTATION] == "127.0.0.1:14"
    lease = await asyncio.to_thread(clean_cluster.api.get, LEASE)
    assert lease["spec"]["holderIdentity"] == ""
