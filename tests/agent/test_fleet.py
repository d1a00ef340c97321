"""Fleets: the nodes file, one watch for all, accounts of their own, and reading the file again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from tests.agent.inventory_api import INVENTORIES, InventoryApi, inventory_api, until
from tests.agent.test_main import kubeconfig
from vgpu.agent.fleet import Fleet
from vgpu.agent.nodes_file import FleetDocument, FleetNode, read_nodes
from vgpu.agent.publisher import INVENTORIES_PATH
from vgpu.agent.seen import decode_seen
from vgpu.agent.shared_watch import SharedWatch
from vgpu.errors import ConfigurationError
from vgpu.kube.client import ApiClient
from vgpu.kube.reflector import Reflector, ReflectorSpec

NODES = [f"node-{number:04}" for number in range(6)]


def nodes(text: str) -> dict[str, FleetNode]:
    return FleetDocument.model_validate(yaml.safe_load(text)).expand()


THREE = nodes("nodes: [{prefix: node-, count: 3}]")


def test_nodes_are_named_by_prefix_and_by_name_and_the_later_entry_wins() -> None:
    found = nodes(
        """
        cards: {count: 8, memoryMiB: 1000}
        settings: {slots: 5}
        nodes:
          - {prefix: node-, first: 2, count: 2}
          - {name: node-0003, cards: {count: 1}, settings: {slots: 2}}
        """
    )
    assert sorted(found) == ["node-0002", "node-0003"]
    assert [len(node.document.reading(name).cards) for name, node in sorted(found.items())] == [8, 1]
    assert [node.settings.slots for _, node in sorted(found.items())] == [5, 2]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("nodes: [{count: 3}]", "give either name"),
        ("nodes: [{name: a, prefix: b}]", "give either name"),
        ("nodes: [{prefix: b, count: 2, tokenFile: t}]", "a token belongs to one node"),
        ("nodes: [{name: a, settings: {slots: 0}}]", "slots"),
        ("node: []", "node: unknown key; known are cards, nodes, settings$"),
        ("nodes: [{name: a, setings: {}}]", r"nodes\.0\.setings: unknown key; known are cards, count"),
        ("nodes: [{name: a, settings: {slot: 1}}]", r"nodes\.0\.settings\.slot: unknown key; known are cardFiles"),
        ("cards: {count: 2, size: 1}", "cards.size: unknown key; known are count, memoryMiB, mode"),
        ("cards: {}", "cards.count: is needed"),
        ("cards: {count: 65}", "cards.count: must be at most 64, got '65'"),
        ("[", "cannot be read"),
    ],
)
def test_a_wrong_nodes_file_is_refused_and_named(tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=want) as caught:
        read_nodes(path)
    assert "nodes.yaml" in str(caught.value)


class WhoAsks(InventoryApi):
    """Remembers which token wrote which object."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: dict[str, str] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            self.writers[request.path.rsplit("/", 1)[1]] = request.headers["Authorization"]
        return await super().handle(request)


@asynccontextmanager
async def running(
    api: InventoryApi, folder: Path, *, shared: bool
) -> AsyncIterator[tuple[Fleet, asyncio.TaskGroup]]:
    config = kubeconfig(api.url, folder)
    async with await ApiClient.connect(kubeconfig=config, user_agent="tests") as client:
        watch = SharedWatch() if shared else None
        async with asyncio.TaskGroup() as tasks:
            own = []
            if watch:
                spec = ReflectorSpec(path=INVENTORIES_PATH)
                own.append(tasks.create_task(Reflector(client, spec, decode_seen, watch).run()))
            fleet = Fleet(client, config, shared=watch)
            yield fleet, tasks
            fleet.follow({}, tasks)
            for task in own:
                task.cancel()


@pytest.fixture
async def api() -> AsyncIterator[InventoryApi]:
    async with inventory_api(*NODES) as serving:
        yield serving


def published(api: InventoryApi) -> dict[str, int]:
    return {name: len((api.spec(name) or {"gpus": []})["gpus"]) for name in NODES if api.get(INVENTORIES, name)}


@pytest.mark.parametrize("shared", [True, False], ids=["one watch for all", "a watch each"])
async def test_the_fleet_follows_its_file(api: InventoryApi, tmp_path: Path, shared: bool) -> None:
    async with running(api, tmp_path, shared=shared) as (fleet, tasks):
        fleet.follow(THREE, tasks)
        await until(lambda: published(api) == dict.fromkeys(NODES[:3], 8) and fleet.settled, "three published")
        assert api.applies == 3
        assert api.watching == (1 if shared else 3)

        fleet.follow(nodes("nodes: [{prefix: node-, count: 2}, {name: node-0005, cards: {count: 1}}]"), tasks)
        await until(lambda: published(api).get("node-0005") == 1, "the new one published")
        api.remove(INVENTORIES, "node-0002")
        fleet.follow(nodes("nodes: [{name: node-0000, cards: {count: 4}}]"), tasks)
        await until(lambda: published(api)["node-0000"] == 4, "cards changed")
        assert "node-0002" not in published(api)
        assert api.applies == 5


async def test_a_node_with_a_token_writes_under_its_own_account(tmp_path: Path) -> None:
    token = tmp_path / "token"
    await asyncio.to_thread(token.write_text, "of-node-0001")
    with_token = THREE["node-0001"].model_copy(update={"token_file": token})
    lost = THREE["node-0002"].model_copy(update={"token_file": tmp_path / "absent"})
    api = WhoAsks()
    async with api.serve():
        for name in NODES[:3]:
            api.put("/api/v1/nodes", {"metadata": {"name": name}})
        async with running(api, tmp_path, shared=True) as (fleet, tasks):
            fleet.follow(THREE | {"node-0001": with_token, "node-0002": lost}, tasks)
            await until(lambda: len(api.writers) == 2, "two published")
    assert api.writers == {"node-0000": "Bearer t", "node-0001": "Bearer of-node-0001"}
