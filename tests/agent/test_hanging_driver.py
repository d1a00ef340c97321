"""A driver call that does not return, while kubelet goes on: from NVML's own interface to kubelet's sockets."""

import asyncio
import ctypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pynvml
import pytest

from tests.agent.fake_kubelet import FakeKubelet, fake_kubelet
from tests.agent.inventory_api import InventoryApi, inventory_api
from tests.agent.kubelet_cases import pod_is, runs, shows
from tests.agent.kubelet_world import RESOURCE, Ask, ScriptedIdentity
from tests.kube.fake_api import until
from vgpu.agent.assembly import watch_of
from vgpu.agent.clock import SystemClock
from vgpu.agent.config import NodeSettings
from vgpu.agent.identity.lingering import LingeringBoard
from vgpu.agent.kubelet.cards_feed import FEED_SOCKET, CardsTeller
from vgpu.agent.node_agent import NodeAgent
from vgpu.agent.nvml import NvmlSource
from vgpu.agent.options import AgentOptions
from vgpu.agent.reader import TellingPublisher
from vgpu.agent.server import NodeServer

CARDS = """driver 550.54.15
cuda 12040
card uuid=GPU-0 name=A100 memory_mib=81920 minor=0 bus=00000000:10:00.0 action=0
card uuid=GPU-1 name=A100 memory_mib=81920 minor=1 bus=00000000:11:00.0 action=0
"""
HARMLESS_XID = "event 0 8 13\n"


@pytest.fixture
def machine(tmp_path: Path, standin_library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the stand-in plays."""
    library = ctypes.CDLL(str(standin_library))
    library.standin_reset()
    path = tmp_path / "machine"
    path.write_text(CARDS)
    monkeypatch.setenv("VGPU_NVML_STANDIN", str(path))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return path


def play(machine: Path, text: str) -> None:
    fresh = machine.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(machine)


@asynccontextmanager
async def whole_agent(folder: Path, kubelet: FakeKubelet, api: InventoryApi) -> AsyncIterator[ScriptedIdentity]:
    """Reader and server in one process, with the socket between them; a driver call may take 0.3 s."""
    clock, client, identity = SystemClock(), api.client(), ScriptedIdentity()
    options = AgentOptions(state_folder=folder / "state", plugins_folder=kubelet.plugin_folder)
    source = NvmlSource(root=folder, read_seconds=0.3, wait_milliseconds=10, pause_seconds=0.01)
    teller = CardsTeller(options.state_folder / FEED_SOCKET, clock)
    publisher = TellingPublisher("n1", client, clock, teller)
    works = [
        NodeServer(identity, LingeringBoard(), options, RESOURCE, clock).run(),
        teller.run(),
        watch_of(client, publisher).run(),
        NodeAgent(source, NodeSettings(), publisher, clock).run(),
    ]
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield identity
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


async def test_the_node_closes_and_kubelet_is_answered_while_the_driver_hangs(
    machine: Path, tmp_path: Path
) -> None:
    async with (
        inventory_api() as api,
        fake_kubelet(tmp_path) as kubelet,
        whole_agent(tmp_path, kubelet, api) as told,
    ):
        await shows(kubelet, 20)
        await kubelet.put_pod("before", [Ask("main", 1)])
        await runs(kubelet, "before")

        play(machine, CARDS + "hang 1\n" + HARMLESS_XID)
        await shows(kubelet, 0)
        await until(lambda: "does not answer" in (api.spec() or {}).get("readError", ""), "published", 30)
        await kubelet.restart_container("before", "main")
        await until(lambda: len(told.started) == 2, "a container of a running pod is started again", 30)
        await kubelet.put_pod("meanwhile", [Ask("main", 1)])
        await pod_is(kubelet, "meanwhile", lambda pod: pod.phase == "Failed", "is turned away at once")

        play(machine, CARDS)
        await shows(kubelet, 20)
        await until(lambda: "readError" not in (api.spec() or {"readError": ""}), "published", 30)
        await kubelet.put_pod("after", [Ask("main", 1)])
        await runs(kubelet, "after")
        assert (await kubelet.pod("before")).running == {"main"}
