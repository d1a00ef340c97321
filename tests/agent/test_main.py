"""The command `vgpu-agent` as processes: publishes, serves kubelet, ends on SIGTERM, names a wrong setting."""

import asyncio
import fcntl
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.agent_process import kubeconfig
from tests.agent.inventory_api import INVENTORIES, InventoryApi, inventory_api, until
from vgpu.agent.publisher import INVENTORIES_PATH

ROOT = Path(__file__).resolve().parents[2]
MACHINE = """driver 550.54.15
cuda 12040
card uuid=GPU-a name=NVIDIA_H200 memory_mib=143771 minor=0 bus=00000000:10:00.0 action=0
card uuid=GPU-b name=NVIDIA_H200 memory_mib=143771 minor=1 bus=00000000:11:00.0 action=0
"""


@asynccontextmanager
async def agent(folder: Path, *options: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The agent with a node of its own in `folder`: kubelet's folders and the agent's."""
    own = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "operator"),
        "VGPU_AGENT_STATE_FOLDER": str(folder / "state"),
        "VGPU_AGENT_PLUGINS_FOLDER": str(folder / "device-plugins"),
        "VGPU_AGENT_POD_RESOURCES": str(folder / "pod-resources" / "kubelet.sock"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vgpu.agent.main", *options,
        env=own | environment,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
async def api() -> AsyncIterator[InventoryApi]:
    async with inventory_api() as serving:
        yield serving


async def test_a_node_with_cards_is_published_and_sigterm_ends_the_agent(
    api: InventoryApi, tmp_path: Path, standin_library: Path
) -> None:
    machine, settings = tmp_path / "machine", tmp_path / "settings.yaml"
    await asyncio.to_thread(machine.write_text, MACHINE)
    await asyncio.to_thread(settings.write_text, "nodes: [{labels: {pool: a100}, slots: 4}]")
    environment = {
        "NODE_NAME": "n1",
        "KUBECONFIG": str(kubeconfig(api.url, tmp_path)),
        "VGPU_AGENT_CONFIG": str(settings),
        "VGPU_NVML_STANDIN": str(machine),
        "LD_LIBRARY_PATH": str(standin_library.parent),
    }
    async with agent(tmp_path, **environment) as process:
        await until(lambda: api.spec() is not None, "published", 30)
        gpus = (api.spec() or {})["gpus"]
        assert [(gpu["uuid"], gpu["memoryMiB"], gpu["slots"]) for gpu in gpus] == [
            ("GPU-a", 143771, 4),
            ("GPU-b", 143771, 4),
        ]
        await asyncio.to_thread(machine.write_text, MACHINE + "event 1 8 79\n")
        await until(lambda: (api.spec() or {})["gpus"][1]["health"] == "Unhealthy", "Xid 79 published", 30)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert api.applies == 2


async def test_r35_a_node_without_the_library_gets_no_object_and_the_agent_goes_on(
    api: InventoryApi, tmp_path: Path
) -> None:
    config = str(kubeconfig(api.url, tmp_path))
    async with agent(tmp_path, "--node", "n1", "--kubeconfig", config, LD_LIBRARY_PATH=str(tmp_path)) as process:
        assert process.stderr is not None
        # Which of the two depends on the machine that runs this test.
        said = re.compile(rb"INFO no cards here|ERROR cards cannot be read")
        while not said.search(line := await process.stderr.readline()):
            assert line, "the agent ended"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert api.get(INVENTORIES, "n1") is None
    assert api.count("GET", INVENTORIES_PATH) > 0


@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param((), "no node name: set NODE_NAME", id="no node"),
        pytest.param(("--node", "n", "--source", "cuda"), "known are nvml, fixed, none", id="source"),
        pytest.param(("--node", "n", "--source", "fixed"), "needs --fixed-file", id="no file of cards"),
        pytest.param(("--node", "n", "--log-level", "loud"), "known are debug", id="log level"),
        pytest.param(("--node", "n", "--config", "/absent.yaml"), "/absent.yaml: cannot be read", id="settings"),
        pytest.param(
            ("--node", "n", "--source", "none", "--kubeconfig", "/absent"), "kubeconfig /absent", id="kubeconfig"
        ),
        pytest.param(
            ("--node", "n", "--source", "none", "--kubeconfig", "/absent", "--log-level", "Info"),
            "kubeconfig /absent",
            id="only what comes after a level in another case",
        ),
    ],
)
async def test_a_wrong_setting_ends_the_process_and_is_named(
    options: tuple[str, ...], want: str, tmp_path: Path
) -> None:
    async with agent(tmp_path, *options) as process:
        _, errors = await process.communicate()
    assert process.returncode == 2
    last = errors.decode().splitlines()[-1]
    assert last.startswith("wrong setting: ")
    assert want in last
    assert "Traceback" not in errors.decode()


async def test_a_second_agent_on_the_node_says_so_and_takes_no_part_until_the_first_is_gone(
    api: InventoryApi, tmp_path: Path
) -> None:
    config = str(kubeconfig(api.url, tmp_path))
    options = ("--node", "n1", "--source", "none", "--kubeconfig", config)
    lock = tmp_path / "state" / "agent.lock"
    async with agent(tmp_path, *options) as first:
        await until(lambda: is_held(lock), "the first has the lock", 30)
        async with agent(tmp_path, *options) as second:
            _, errors = await second.communicate()
        assert second.returncode == 2
        assert errors.decode().splitlines() == [
            f"wrong setting: another agent runs on this node: it holds {lock}; a node has one, this one is not "
            "started"
        ]
        assert first.returncode is None
        first.kill()
        async with agent(tmp_path, *options) as third:
            await first.wait()
            assert third.stderr is not None
            while b"child started" not in (line := await third.stderr.readline()):
                assert line, "the agent ended"


async def test_a_state_folder_that_is_a_file_is_told_in_words(api: InventoryApi, tmp_path: Path) -> None:
    await asyncio.to_thread((tmp_path / "state").write_text, "a file")
    config = str(kubeconfig(api.url, tmp_path))
    async with agent(tmp_path, "--node", "n1", "--source", "none", "--kubeconfig", config) as process:
        _, errors = await process.communicate()
    assert process.returncode == 2
    [line] = errors.decode().splitlines()
    assert line.startswith(f"wrong setting: the state folder {tmp_path / 'state'} cannot be used: ")
    assert "VGPU_AGENT_STATE_FOLDER" in line


def is_held(lock: Path) -> bool:
    if not lock.exists():
        return False
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
