"""Nothing of a development cluster is left behind, and its programs are built once.

Also its command line, whose cluster outlives the command that started it.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devcluster import BuildFailed, Cluster, Options, StartFailed, build
from devcluster.build import cache_root, source_key
from devcluster.folders import PREFIX, ClusterFolder
from devcluster.process import Command, Process
from devcluster.waiting import wait_until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
SLOTS = "example.com/slots"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


OWNER = """
import json, sys, threading, time
from devcluster import Cluster, Options
cluster = Cluster(Options(controller_manager=False))
# Started from a thread that has ended by the time of the kill: the children must outlive it, and not the process.
starter = threading.Thread(target=cluster.start)
starter.start()
starter.join()
pids = [process.pid for process in cluster.processes.values()]
ready = cluster.api.get("/readyz")["message"]
print(json.dumps({"pids": pids, "folder": str(cluster.site.folder), "ready": ready}))
sys.stdout.flush()
time.sleep(600)
"""


def test_nothing_is_left_of_a_cluster_whose_owner_was_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    told = json.loads(owner.stdout.readline())
    assert told["ready"] == "ok"
    assert len(told["pids"]) == 3
    assert all(alive(pid) for pid in told["pids"])
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: not any(alive(pid) for pid in told["pids"]), "the children to end with their owner")
    ClusterFolder().close()
    assert not Path(told["folder"]).exists(), "the next cluster sweeps up abandoned folders"


SLEEPER = """
import sys
from pathlib import Path
from devcluster.process import Command, Process
leashed = sys.argv[2] == "leashed"
child = Process(Command("sleeper", ["/bin/sleep", "600"], Path(sys.argv[1]) / "log", {}, leashed))
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["leashed", "free"])
def test_the_leash_is_what_ends_children(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", SLEEPER, str(tmp_path), how]
    owner = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdin is not None
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    if how == "free":
        assert alive(child)
        os.killpg(child, signal.SIGKILL)
    wait_until(lambda: not alive(child), "the child to end")


def test_a_program_that_ends_at_once_is_reported(tmp_path: Path) -> None:
    child = Process(Command("talker", ["/bin/sh", "-c", "echo the reason; exit 3"], tmp_path / "log", {}))
    wait_until(lambda: not child.alive(), "the child to end")
    with pytest.raises(StartFailed, match=r"talker ended with 3:\nthe reason"):
        child.require_alive()


def test_a_stopped_cluster_leaves_no_process_and_no_folder() -> None:
    with Cluster(Options(controller_manager=False, kwok=False, audit=False)) as cluster:
        pids = [process.pid for process in cluster.processes.values()]
        folder = cluster.site.folder
        assert folder.name.startswith(PREFIX)
        assert cluster.audit_events().events == ()
        assert len(pids) == 2
        cluster.restart_apiserver(hard=False)  # without foreign watches this is quick
        pids.append(cluster.processes["kube-apiserver"].pid)
    assert not any(alive(pid) for pid in pids)
    assert not folder.exists()


FAKE_GO = """#!/bin/sh
echo "$@" >> {folder}/calls
case "$*" in *{broken}*) echo "cannot compile"; exit 1;; esac
sleep 0.1
while [ "$1" != -o ]; do shift; done
touch "$2"
"""


def fake_go(folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    go = folder / "go"
    go.write_text(FAKE_GO.format(folder=folder, broken=broken))
    go.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(build, "find_go", lambda _: go)


def test_two_builds_at_once_build_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, monkeypatch, broken="nothing")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: build.ensure_binaries(), range(2))
    assert first == second
    assert first.path("kubectl").exists()
    assert len((tmp_path / "calls").read_text().splitlines()) == 2, "one for the control plane, one for kwok"


def test_a_failed_build_leaves_nothing_that_looks_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, monkeypatch, broken="kwok")
    with pytest.raises(BuildFailed, match="cannot compile"):
        build.ensure_binaries()
    assert not (tmp_path / "vgpu-devcluster" / source_key()).exists()


def test_up_leaves_a_cluster_that_down_ends(tmp_path: Path) -> None:
    cache = tmp_path / "vgpu-devcluster"
    cache.mkdir()
    (cache / source_key()).symlink_to(cache_root() / source_key())

    def devcluster(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "devcluster", *arguments]
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert devcluster("status").returncode == 1
    try:
        started = devcluster("up", "--nodes", "2", "--resource", f"{SLOTS}=8")
        assert started.returncode == 0, started.stderr
        assert started.stdout == f"export KUBECONFIG={cache / 'running' / 'admin.kubeconfig'}\n"
        assert devcluster("status").returncode == 0
        template = "-o=jsonpath={.items[*].status.allocatable.example\\.com/slots}"
        assert devcluster("kubectl", "get", "nodes", template).stdout == "8 8"
        processes = json.loads((cache / "running" / "state.json").read_text())["processes"]
        assert devcluster("up").stdout == started.stdout, "a second up finds the first"
    finally:
        ended = devcluster("down")
    assert ended.returncode == 0
    assert not any(alive(process["pid"]) for process in processes)
    assert devcluster("kubectl", "get", "nodes").returncode == 1
