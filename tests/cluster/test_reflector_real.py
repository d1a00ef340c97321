"""The reflector against a real API server: the shared cases, restarts, and what 410 really looks like."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import pytest

from devcluster import Cluster
from tests.kube.fake_api import until
from tests.kube.mirror import NAMESPACE, PATH, Cable, reflecting
from tests.kube.reflector_cases import CASES, Case
from vgpu.errors import ApiRefused
from vgpu.kube.client import ApiClient
from vgpu.kube.connection import load_connection
from vgpu.kube.wire import is_json, split_page

pytestmark = pytest.mark.cluster


class RealWorld:
    """Config maps of a real API server, reached through a cable that can be cut."""

    def __init__(self, cluster: Cluster, cable: Cable, client: ApiClient) -> None:
        self.cluster, self.cable, self.client = cluster, cable, client

    async def put(self, name: str, value: str) -> None:
        await asyncio.to_thread(
            self.cluster.kubectl,
            "apply", "--server-side", "--force-conflicts", "-f", "-",
            input=f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"{NAMESPACE}"}},'
            f'"data":{{"value":"{value}"}}}}',
        )  # fmt: skip

    async def remove(self, name: str) -> None:
        await asyncio.to_thread(self.cluster.api.delete, f"{PATH}/{name}")

    async def forget_history(self) -> None:
        await asyncio.to_thread(self.cluster.forget_history)


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[RealWorld]:
    await asyncio.to_thread(cluster.ensure_namespace, NAMESPACE)
    await asyncio.to_thread(cluster.kubectl, "delete", "configmaps", "--all", "-n", NAMESPACE)
    cable = Cable(cluster.server)
    await cable.mend()
    connection = await load_connection(cluster.kubeconfig())
    async with ApiClient(replace(connection, host=cable.url), "vgpu-tests") as client:
        yield RealWorld(cluster, cable, client)
    await cable.cut()
    with suppress(OSError):  # the test thread's own connection may be from before a restart
        cluster.api.get("/version")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_shared_case(case: Case, world: RealWorld) -> None:
    await case(world)


async def test_api_server_that_restarts_is_followed_on(world: RealWorld) -> None:
    await world.put("a", "1")
    async with reflecting(world.client) as (_, mirror):
        await until(lambda: mirror.values.get("a") == "1", "synced")
        await asyncio.to_thread(world.cluster.restart_apiserver)
        await world.put("a", "2")
        await until(lambda: mirror.values.get("a") == "2", "caught up", timeout_seconds=60)


async def test_expired_page_token_is_410(world: RealWorld) -> None:
    """What the fake answers for a token of before a compaction is what the real one answers."""
    for number in range(3):
        await world.put(f"n{number}", "1")
    page = split_page(await world.client.get(PATH, {"limit": "1"}))
    await world.put("n0", "2")
    await asyncio.to_thread(world.cluster.forget_history)
    with pytest.raises(ApiRefused) as caught:
        await world.client.get(PATH, {"limit": "1", "continue": page.next_page})
    assert (caught.value.status, caught.value.reason) == (410, "Expired")


async def test_real_lists_are_cut_without_parsing(world: RealWorld) -> None:
    """The quick cut knows how the API server writes built-in and custom kinds."""
    for name in ("a", "b"):
        await world.put(name, "1")
    body = await world.client.get(PATH)
    assert [json.loads(raw) for raw in split_page(body).items] == json.loads(body)["items"]
    assert all(is_json(raw) for raw in split_page(body).items)
