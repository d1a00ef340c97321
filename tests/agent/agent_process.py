"""The whole agent as processes, on a node of its own: a kubelet and an API server in memory, cards from a file."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.agent.fake_kubelet import FakeKubelet
from tests.agent.inventory_api import InventoryApi
from tests.kube.fake_api import until
from vgpu import names

ROOT = Path(__file__).resolve().parents[2]
NODE = "n1"
SLOTS = 10
PATIENCE_SECONDS = 90.0


def kubeconfig(url: str, folder: Path) -> Path:
    """A file by which the API server is reached."""
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [context],
        "clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {"token": "t"}}],
    }  # fmt: skip
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def cards(*unwell: int, count: int = 2, **fields: Any) -> dict[str, Any]:
    """The file's content: `count` cards, some of them with a problem."""
    rows = [
        {"uuid": f"GPU-{n}", "index": n, "minor": n, "model": "A100", "memoryMiB": 81920}
        | ({"problem": "broken"} if n in unwell else {})
        for n in range(count)
    ]
    return {"cards": rows, **fields}


class AgentProcess:
    """The supervisor's process, and what it and its children said."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self.process = process
        self.said = ""

    async def listen(self) -> None:
        """Keep what is said."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.said += line.decode()

    def pid(self, child: str) -> int:
        """The child's process now; 0 before its first start."""
        found = re.findall(rf"child started name={child} pid=(\d+)", self.said)
        return int(found[-1]) if found else 0

    def signal(self, child: str, number: signal.Signals) -> None:
        """Send a signal to the child's process."""
        os.kill(self.pid(child), number)

    async def play(self, document: dict[str, Any]) -> None:
        """The cards are like this from now on."""
        fresh = self.folder / "cards.new"
        await asyncio.to_thread(fresh.write_text, json.dumps(document))
        fresh.rename(self.folder / "cards.yaml")

    async def says(self, text: str) -> None:
        """Wait until it was said."""
        await until(lambda: text in self.said, f"said: {text}", PATIENCE_SECONDS)


@asynccontextmanager
async def agent_process(
    folder: Path, api: InventoryApi, kubelet: FakeKubelet, settings: dict[str, Any] | None = None
) -> AsyncIterator[AgentProcess]:
    """Run it with two cards of ten slots each, until the end of the block; nothing is left running."""
    defaults = {"isolationLibrary": "", "cdiFolder": str(folder / "cdi"), "slots": SLOTS} | (settings or {})
    await asyncio.to_thread((folder / "cards.yaml").write_text, json.dumps(cards()))
    await asyncio.to_thread((folder / "settings.yaml").write_text, json.dumps({"defaults": defaults}))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "operator"),
        "NODE_NAME": NODE,
        "KUBECONFIG": str(kubeconfig(api.url, folder)),
        "VGPU_AGENT_SOURCE": "fixed",
        "VGPU_AGENT_FIXED_FILE": str(folder / "cards.yaml"),
        "VGPU_AGENT_CONFIG": str(folder / "settings.yaml"),
        "VGPU_AGENT_STATE_FOLDER": str(folder / "state"),
        "VGPU_AGENT_PLUGINS_FOLDER": str(kubelet.plugin_folder),
        "VGPU_AGENT_POD_RESOURCES": str(kubelet.pod_resources),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vgpu.agent.main", env=environment, stderr=asyncio.subprocess.PIPE
    )
    agent = AgentProcess(folder, process)
    listening = asyncio.create_task(agent.listen())
    try:
        yield agent
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


def bound_pod(name: str, uid: str, uuids: list[str], containers: tuple[str, ...] = ("main",)) -> dict[str, Any]:
    """A pod of one whole card per container, bound with its assignment and accepted by kubelet."""
    given = [
        {"name": container, "cards": [{"uuid": card, "memoryMiB": 81920, "cores": 0, "whole": True}]}
        for container, card in zip(containers, uuids, strict=True)
    ]
    assignment = {"v": 1, "podUid": uid, "node": NODE, "nonce": "0123456789abcdef", "containers": given}
    limits = {"limits": {names.VOLCANO_NUMBER: "1"}}
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": uid,
            "annotations": {names.ASSIGNMENT_ANNOTATION: json.dumps(assignment)},
        },
        "spec": {"nodeName": NODE, "containers": [{"name": c, "resources": limits} for c in containers]},
        "status": {"phase": "Pending", "startTime": "2030-01-01T00:00:00Z"},
    }  # fmt: skip
