"""The agent's processes together: whatever becomes of one, the node closes, opens and is served by itself."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.agent_process import PATIENCE_SECONDS, SLOTS, AgentProcess, agent_process, bound_pod, cards
from tests.agent.fake_kubelet import FakeKubelet, fake_kubelet
from tests.agent.inventory_api import InventoryApi, inventory_api
from tests.agent.kubelet_cases import shows
from tests.agent.kubelet_world import Ask
from tests.kube.fake_api import Fault, until

ALL = 2 * SLOTS
ONE = [Ask("main", 1)]


@dataclass
class Node:
    """The agent, its kubelet and the API server."""

    agent: AgentProcess
    kubelet: FakeKubelet
    api: InventoryApi

    async def admits(self, name: str) -> None:
        """A pod that is bound now gets slots."""
        await self.kubelet.put_pod(name, ONE)
        await until(lambda: self.kubelet.pods[name].grants, f"{name} has slots", PATIENCE_SECONDS)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with (
        inventory_api() as api,
        fake_kubelet(tmp_path) as kubelet,
        agent_process(tmp_path, api, kubelet) as own,
    ):
        await shows(kubelet, ALL)
        yield Node(own, kubelet, api)


async def test_two_pods_at_once_get_each_its_own_card(node: Node, tmp_path: Path) -> None:
    for name, card in (("a", "GPU-1"), ("b", "GPU-0")):
        node.api.put("/api/v1/pods", bound_pod(name, f"uid-{name}", [card]))
        await node.kubelet.put_pod(name, ONE)
    pods = node.kubelet.pods
    await until(lambda: all(pods[n].view.phase == "Running" for n in pods), "both run", PATIENCE_SECONDS)
    for name, card in (("a", "GPU-1"), ("b", "GPU-0")):
        [named] = pods[name].view.cdi_names["main"]
        text = await asyncio.to_thread((tmp_path / "cdi" / f"vgpu-pod-uid-{name}.json").read_text)
        [device] = json.loads(text)["devices"]
        assert named.endswith(f"={device['name']}")
        assert f"NVIDIA_VISIBLE_DEVICES={card}" in device["containerEdits"]["env"]


async def test_cards_that_change_change_the_slots(node: Node) -> None:
    await node.agent.play(cards(1))
    await shows(node.kubelet, SLOTS)
    assert await node.kubelet.capacity() == ALL
    await node.agent.play(cards(readError="the driver was reloaded"))
    await shows(node.kubelet, 0)
    await until(lambda: (node.api.spec() or {}).get("readError"), "published", PATIENCE_SECONDS)
    await node.agent.play(cards())
    await shows(node.kubelet, ALL)


async def test_kubelet_that_restarts_is_served_again(node: Node) -> None:
    await node.kubelet.stop_kubelet()
    await node.kubelet.start_kubelet()
    await shows(node.kubelet, ALL)
    await node.admits("after")


async def test_a_node_of_another_plugin_is_published_and_not_served(tmp_path: Path) -> None:
    async with (
        inventory_api() as api,
        fake_kubelet(tmp_path) as kubelet,
        agent_process(tmp_path, api, kubelet, {"plugin": "hami"}) as agent,
    ):
        await agent.says("child is not needed name=server")
        await until(lambda: api.spec() is not None, "published", PATIENCE_SECONDS)
        assert [path.name for path in kubelet.plugin_folder.iterdir()] == ["kubelet.sock"]
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.process.wait() == 0


async def test_after_sigterm_pods_are_let_in_for_a_while(node: Node) -> None:
    node.agent.process.send_signal(signal.SIGTERM)
    await node.agent.says("ending soon serving_seconds=5")
    await node.admits("late")
    assert await node.kubelet.allocatable() == ALL
    assert await node.agent.process.wait() == 0
    await shows(node.kubelet, 0)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_server_that_is_gone_or_hangs_closes_the_node_until_another_serves(node: Node, how: int) -> None:
    await node.admits("before")
    reader, applies = node.agent.pid("reader"), node.api.applies
    node.agent.signal("server", signal.Signals(how))
    await shows(node.kubelet, 0)
    await shows(node.kubelet, ALL)
    await node.admits("after")
    assert node.kubelet.pods["before"].grants
    assert node.agent.pid("reader") == reader
    assert node.api.applies == applies


async def test_a_pod_that_meets_a_stopped_server_does_not_hold_up_the_next(node: Node) -> None:
    """kubelet waits inside Allocate, without a limit of its own, until the server is killed."""
    node.agent.signal("server", signal.SIGSTOP)
    await node.kubelet.put_pod("unlucky", ONE)
    await until(lambda: node.kubelet.pods["unlucky"].view.phase == "Failed", "given up", PATIENCE_SECONDS)
    await shows(node.kubelet, ALL)
    await node.admits("next")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_reader_that_is_gone_or_hangs_closes_the_node_until_another_reads(node: Node, how: int) -> None:
    await node.admits("before")
    server, applies = node.agent.pid("server"), node.api.applies
    node.agent.signal("reader", signal.Signals(how))
    await shows(node.kubelet, 0)
    await shows(node.kubelet, ALL)
    await node.admits("after")
    assert node.agent.pid("server") == server
    assert node.api.applies == applies


async def test_a_server_that_starts_while_the_api_server_is_away_serves_kubelet(node: Node) -> None:
    node.api.faults.append(Fault("GET", status=503, times=1_000_000))
    node.api.drop_watches()
    node.agent.signal("server", signal.SIGKILL)
    await shows(node.kubelet, 0)
    await shows(node.kubelet, ALL)
    await node.admits("meanwhile")
