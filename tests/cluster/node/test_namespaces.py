"""A node's namespaces without any program on them: what keeps them, what leads into them, what ends with them."""

import http.client
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.folders import ClusterFolder
from devcluster.node.inside_process import InsideProcess
from devcluster.node.namespaces import Namespaces, Network
from devcluster.node.real_node import GATE
from devcluster.ports import free_ports
from devcluster.probes import is_listening
from devcluster.process import Command, Process
from devcluster.waiting import wait_until

pytestmark = pytest.mark.cluster

NETWORK = Network("cni0", "10.244.0.1/24", "10.96.0.0/16")


@pytest.fixture
def folder(node_possible: None) -> Iterator[Path]:
    own = ClusterFolder()
    yield own.path
    own.close()


@pytest.fixture
def namespaces(folder: Path) -> Iterator[Namespaces]:
    made = Namespaces(folder / "node", "somewhere", NETWORK)
    made.start()
    yield made
    made.stop()


def inside(namespaces: Namespaces, *arguments: str) -> InsideProcess:
    command = namespaces.enter(arguments)
    process = InsideProcess(Command("inside", command, namespaces.folder / "inside.log", {}))
    wait_until(lambda: process.inner_pid is not None, "the program to be started")
    return process


def output(namespaces: Namespaces, *arguments: str) -> str:
    command = namespaces.enter(arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def groups(name: str) -> list[Path]:
    return [*Path("/sys/fs/cgroup").glob(name), *Path("/sys/fs/cgroup").glob(f"*/{name}")]


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def fetched(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return b""
    finally:
        connection.close()


def test_a_program_inside_has_a_name_a_network_and_process_ids_of_its_own(namespaces: Namespaces) -> None:
    assert output(namespaces, "hostname") == "somewhere\n"
    assert "10.244.0.1/24" in output(namespaces, "ip", "-o", "address", "show", "cni0")
    assert output(namespaces, "readlink", "/proc/1/exe").strip() == str(Path(sys.executable).resolve())
    assert output(namespaces, "pwd").strip() == str(Path.cwd())


@pytest.mark.parametrize("folder_inside", ["/usr/local/vgpu", "/tmp/vgpulock"])
def test_the_isolation_library_and_its_locks_are_the_nodes_own(namespaces: Namespaces, folder_inside: str) -> None:
    mark = f"{folder_inside}/{namespaces.folder.parent.name}"
    output(namespaces, "touch", mark)
    assert output(namespaces, "ls", mark).strip() == mark
    assert not Path(mark).exists(), "the machine's own folder"


def test_stopping_ends_what_runs_inside_and_removes_the_control_groups(namespaces: Namespaces) -> None:
    process = inside(namespaces, "sleep", "1000")
    inner, name = process.inner_pid, namespaces.control_group
    assert inner is not None
    assert groups(name)
    namespaces.stop()
    assert not groups(name)
    wait_until(lambda: gone(inner) and not process.alive(), "the program to be gone")


def test_a_killed_warden_takes_everything_with_it_and_the_next_one_sweeps_up(
    namespaces: Namespaces, tmp_path: Path
) -> None:
    process = inside(namespaces, "sleep", "1000")
    inner, name = process.inner_pid, namespaces.control_group
    assert inner is not None
    namespaces.warden.kill()
    wait_until(lambda: gone(inner) and gone(namespaces.pid), "everything inside to be gone")
    assert groups(name), "nobody was left to remove them"
    folder = ClusterFolder()
    later = Namespaces(folder.path / "node", "later", NETWORK)
    later.start()
    try:
        assert not groups(name)
        assert groups(later.control_group), "those in use stay"
    finally:
        later.stop()
        folder.close()


def test_a_request_to_end_reaches_the_program_and_not_only_what_brought_it_in(namespaces: Namespaces) -> None:
    said = namespaces.folder / "said"
    script = f"trap 'echo goodbye > {said}; exit 0' TERM; touch {said}; while :; do sleep 0.05; done"
    process = inside(namespaces, "sh", "-c", script)
    wait_until(said.exists, "the trap to be set")
    process.terminate(10)
    assert said.read_text() == "goodbye\n"
    assert not process.alive()


def test_a_gate_leads_to_the_same_port_inside(namespaces: Namespaces) -> None:
    [port] = free_ports(1)
    (namespaces.folder / "index.html").write_text("from inside")
    serve = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "-d", str(namespaces.folder), str(port))
    server = inside(namespaces, *serve)
    assert not is_listening(port), "loopback inside is not loopback outside"
    arguments = [sys.executable, "-I", "-S", str(GATE), str(namespaces.pid), str(port)]
    gate = Process(Command("gate", arguments, namespaces.folder / "gate.log", {}))
    try:
        wait_until(lambda: fetched(port) == b"from inside", "the server inside to answer through the gate")
    finally:
        gate.kill()
        server.kill()
