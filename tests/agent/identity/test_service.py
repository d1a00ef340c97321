"""Identity behind real sockets: a kubelet and an API server in memory, pods in pairs of equal counts."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.agent.fake_kubelet import FakeKubelet, fake_kubelet
from tests.agent.identity.bench import NODE, assign, make_cards
from tests.agent.kubelet_world import RESOURCE, Ask
from tests.kube.fake_api import FakeApi, until
from vgpu.agent.clock import SystemClock
from vgpu.agent.config import NodeSettings
from vgpu.agent.identity.pod_watch import PodSeen
from vgpu.agent.identity.prestart import NodeIdentity
from vgpu.agent.identity.service import IdentityService, NodePaths
from vgpu.agent.kubelet.board import SlotBoard
from vgpu.agent.kubelet.registration import KubeletLink
from vgpu.agent.kubelet.server import DevicePlugin
from vgpu.agent.kubelet.slots import Slots

PODS = "/api/v1/pods"
SHAPES = (
    [Ask("main", 1)],
    [Ask("main", 2)],
    [Ask("init", 2, init=True), Ask("main", 2)],
    [Ask("i1", 1, init=True), Ask("i2", 2, init=True), Ask("a1", 1), Ask("a2", 1)],
)


@dataclass
class Node:
    """One node whose agent can be killed."""

    folder: Path
    kubelet: FakeKubelet
    api: FakeApi
    random: Random = field(default_factory=lambda: Random(5))
    agent: "asyncio.Task[None] | None" = None
    wanted: dict[str, dict[str, str]] = field(default_factory=dict)
    """pod -> container -> the cards that its annotation names, in the order of their index"""

    async def start_agent(self) -> None:
        self.agent = asyncio.create_task(self._live())
        await until(self.is_served, "served")

    def is_served(self) -> bool:
        return self.kubelet.endpoint is not None and any(self.kubelet.endpoint.devices.values())

    async def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.cancel()
        await asyncio.gather(self.agent, return_exceptions=True)
        await until(lambda: not self.is_served(), "kubelet has noticed")

    async def _live(self) -> None:
        settings = NodeSettings(isolation_library="", cdi_folder=str(self.folder / "cdi"))
        paths = NodePaths(self.folder / "state", self.kubelet.pod_resources)
        board, clock = SlotBoard(), SystemClock()
        board.put(Slots(80, 80))
        async with self.api.client() as client, asyncio.TaskGroup() as tasks:
            service = IdentityService(NODE, client, settings, paths, clock)
            service.cards_changed(make_cards())
            plugin = DevicePlugin(service, board)
            link = KubeletLink(plugin, board, self.kubelet.plugin_folder, RESOURCE, clock)
            tasks.create_task(service.run())
            tasks.create_task(link.run())

    def bind(self, name: str, asks: list[Ask]) -> None:
        """The API server has it: bound with its assignment, accepted by kubelet."""
        cards = {ask.container: self.random.sample(range(8), ask.slots) for ask in asks}
        self.wanted[name] = {c: ",".join(f"card-{n}" for n in sorted(given)) for c, given in cards.items()}
        text = assign(f"uid-{name}", NODE, **{c: [(f"card-{n}", 10) for n in g] for c, g in cards.items()})
        rows = [
            (ask.init, {"name": ask.container, "resources": {"limits": {RESOURCE: ask.slots}}}) for ask in asks
        ]
        self.api.put(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": f"uid-{name}",
                    "annotations": {"vgpu.dev/assignment": text},
                },
                "spec": {
                    "nodeName": NODE,
                    "initContainers": [row for init, row in rows if init],
                    "containers": [row for init, row in rows if not init],
                },
                "status": {"startTime": "2030-01-01T00:00:00Z"},
            },
        )

    async def run_pair(self, number: int, asks: list[Ask]) -> None:
        """Two pods of one shape at once; kubelet and API server hear of them in either order."""
        names = [f"p{number}a", f"p{number}b"]
        for name in names:
            await self.kubelet.put_pod(name, asks)
        self.random.shuffle(names)
        for name in names:
            self.bind(name, asks)

    async def delete(self, name: str) -> None:
        await self.kubelet.delete_pod(name)
        self.api.remove(PODS, name, "default")

    async def all_run(self) -> None:
        pods = self.kubelet.pods
        await until(lambda: all(pod.view.phase != "Pending" for pod in pods.values()), f"all run: {pods}", 60)
        assert {name: pod.view.message for name, pod in pods.items() if pod.view.phase != "Running"} == {}

    def found(self) -> dict[str, dict[str, str]]:
        """pod -> container -> the cards that the runtime was told, for all pods that kubelet has."""
        told = devices_in(self.folder / "cdi")
        return {
            name: {c: told[cdi.split("=")[1]] for c, [cdi] in pod.view.cdi_names.items()}
            for name, pod in self.kubelet.pods.items()
        }


def devices_in(folder: Path) -> Mapping[str, str]:
    """nonce -> cards, of all CDI files."""
    found = {}
    for path in folder.glob("*.json"):
        for device in json.loads(path.read_text())["devices"]:
            env = dict(line.split("=", 1) for line in device["containerEdits"]["env"])
            found[device["name"]] = env["NVIDIA_VISIBLE_DEVICES"]
    return found


@asynccontextmanager
async def running_node(folder: Path) -> AsyncIterator[Node]:
    async with FakeApi().serve() as api, fake_kubelet(folder) as kubelet:
        node = Node(folder, kubelet, api)
        await node.start_agent()
        try:
            yield node
        finally:
            await node.kill_agent()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(tmp_path) as running:
        yield running


async def play_pairs(node: Node, pairs: int) -> None:
    """So many pairs, with half of the earlier ones deleted on the way."""
    for number in range(pairs):
        await node.run_pair(number, list(SHAPES[number % len(SHAPES)]))
        if number % 2:
            await node.all_run()
            for name in node.random.sample(sorted(node.kubelet.pods), 2):
                await node.delete(name)
    await node.all_run()


def swaps(node: Node) -> list[str]:
    return [name for name, cards in node.found().items() if cards != node.wanted[name]]


async def test_r05_pairs_of_equal_counts_at_once_are_never_swapped(node: Node) -> None:
    await play_pairs(node, 16)
    assert len(node.kubelet.pods) == 16
    assert swaps(node) == []


async def test_pairs_are_swapped_with_the_identity_step_switched_off(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As others do it: the first pod with as many cards that has none yet."""

    def guess(self: NodeIdentity, ids: frozenset[str], *_: object) -> tuple[PodSeen, dict[str, str]]:
        if ids not in guessed:
            guessed[ids] = next(pod for pod in self._world.pods.pods.values() if pod not in guessed.values())
        return guessed[ids], {entry.nonce: "main" for entry in self._log.entries if entry.ids == ids}

    guessed: dict[frozenset[str], PodSeen] = {}
    monkeypatch.setattr(NodeIdentity, "_owner", guess)
    node.bind("p0b", SHAPES[0])
    node.bind("p0a", SHAPES[0])
    for name in ("p0a", "p0b"):
        await node.kubelet.put_pod(name, SHAPES[0])
    await node.all_run()
    assert swaps(node) == ["p0a", "p0b"]


async def test_r34_an_agent_killed_before_the_starts_changes_nobodys_cards(node: Node) -> None:
    for number in range(4):
        await node.run_pair(number, list(SHAPES[number]))
        await until(lambda: all(len(p.grants) == len(p.asks) for p in node.kubelet.pods.values()), "allocated")
        await node.kill_agent()
        await node.start_agent()
    await node.all_run()
    before = node.found()
    await node.kill_agent()
    await node.start_agent()
    for name, pod in node.kubelet.pods.items():
        await node.kubelet.restart_container(name, pod.asks[-1].container)
    await until(lambda: all(p.task and p.task.done() for p in node.kubelet.pods.values()), "running again")
    assert node.found() == before
    assert swaps(node) == []


async def test_files_of_deleted_pods_go_and_those_of_living_ones_stay(node: Node) -> None:
    await play_pairs(node, 4)
    for name in sorted(node.kubelet.pods)[:2]:
        await node.delete(name)
    living = {cdi.split("=")[1] for p in node.kubelet.pods.values() for [cdi] in p.view.cdi_names.values()}
    await until(lambda: devices_in(node.folder / "cdi").keys() == living, "only living pods have files")
    assert swaps(node) == []


async def test_a_pod_of_another_node_is_not_seen(node: Node) -> None:
    node.api.put(PODS, {"metadata": {"name": "far", "namespace": "default"}, "spec": {"nodeName": "node-2"}})
    await node.kill_agent()
    await node.start_agent()
    await node.run_pair(0, list(SHAPES[0]))
    await node.all_run()
    assert swaps(node) == []
