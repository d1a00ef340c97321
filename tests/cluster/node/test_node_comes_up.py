"""A real kubelet and containerd run pods here, leave the machine as it was, and are gone with their owner."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devcluster import NotSupported
from devcluster.folders import ClusterFolder
from devcluster.node import BUSYBOX_IMAGE, InsideProcess, RealNode, requirements
from devcluster.node.namespaces import KERNEL_SETTINGS
from devcluster.waiting import wait_until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[3]
PODS = "/api/v1/namespaces/default/pods"
SERVES = 'mkdir /w; echo "served by $NAME" > /w/index.html; exec httpd -f -p 8080 -h /w'
CONNECTS_TO_API = (
    "until nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null; do sleep 0.1; done;"
    " cat /var/run/secrets/kubernetes.io/serviceaccount/token"
)


def pod(node: RealNode, name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A busybox pod that is bound from the start: no scheduler runs here."""
    container = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script],
                 "env": [{"name": "NAME", "value": name}]}  # fmt: skip
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node.name, "restartPolicy": "Never", "containers": [container],
                 "terminationGracePeriodSeconds": 0, **spec},
    }  # fmt: skip


def phase(node: RealNode, name: str) -> str:
    return str(node.api.get(f"{PODS}/{name}")["status"].get("phase"))


def wait_phase(node: RealNode, name: str, wanted: str) -> None:
    node.wait_until(lambda: phase(node, name) == wanted, f"pod {name} to be {wanted}", 60)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def control_groups(name: str) -> list[Path]:
    return [*Path("/sys/fs/cgroup").glob(f"{name}*"), *Path("/sys/fs/cgroup").glob(f"*/{name}*")]


def kernel_settings() -> dict[str, str]:
    return {name: Path("/proc/sys", *name.split(".")).read_text() for name in KERNEL_SETTINGS}


def container_processes(group: str) -> set[str]:
    """Processes of the containers below a node's control group."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if f"/{group}" in path.read_text():
                found.add(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_pod_runs_and_logs_and_exec_answer(real_node: RealNode) -> None:
    real_node.api.post(PODS, pod(real_node, "talker", "echo my name is $NAME; exec sleep 1000"))
    wait_phase(real_node, "talker", "Running")
    real_node.wait_until(lambda: real_node.kubectl("logs", "talker") == "my name is talker\n", "the log")
    assert real_node.kubectl("exec", "talker", "--", "sh", "-c", "echo $((6 * 7))") == "42\n"
    assert control_groups(real_node.namespaces.control_group), "containers belong below the node's own group"
    real_node.kubectl("delete", "pod", "talker")


def test_pods_reach_each_other_by_service_and_so_does_the_node(real_node: RealNode) -> None:
    real_node.api.post(PODS, pod(real_node, "web", SERVES))
    service = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    address = real_node.api.post("/api/v1/namespaces/default/services", service)["spec"]["clusterIP"]
    wait_phase(real_node, "web", "Running")
    fetch = f"until wget -q -O - http://{address}/; do sleep 0.1; done"
    real_node.api.post(PODS, pod(real_node, "caller", fetch))
    wait_phase(real_node, "caller", "Succeeded")
    assert real_node.kubectl("logs", "caller") == "served by web\n"
    assert real_node.run("busybox", "wget", "-q", "-O", "-", f"http://{address}/") == "served by web\n"
    real_node.kubectl("delete", "pod", "web", "caller")
    real_node.kubectl("delete", "service", "web")


def test_a_pod_reaches_the_api_server_and_its_token_is_its_service_accounts(real_node: RealNode) -> None:
    real_node.api.post(PODS, pod(real_node, "client", CONNECTS_TO_API))
    wait_phase(real_node, "client", "Succeeded")
    client = real_node.client(real_node.kubectl("logs", "client").strip())
    review = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert review["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    real_node.kubectl("delete", "pod", "client")


def test_a_running_pod_outlives_kubelet_and_containerd(real_node: RealNode) -> None:
    real_node.api.post(PODS, pod(real_node, "steady", "exec sleep 1000"))
    wait_phase(real_node, "steady", "Running")
    before = real_node.api.get(f"{PODS}/steady")["status"]["containerStatuses"][0]["containerID"]
    group = real_node.namespaces.control_group
    processes = container_processes(group)
    assert processes
    real_node.end_process("kubelet")
    real_node.end_process("containerd")
    assert container_processes(group) == processes
    real_node.start_containerd()
    real_node.start_kubelet()
    real_node.wait_until(real_node.pod_resources_socket.is_socket, "kubelet to be back")
    answers = "sh", "-c", "echo here"
    real_node.wait_until(lambda: _exec(real_node, "steady", *answers) == "here\n", "kubelet to answer")
    status = real_node.api.get(f"{PODS}/steady")["status"]["containerStatuses"][0]
    assert (status["containerID"], status["restartCount"]) == (before, 0)
    real_node.kubectl("delete", "pod", "steady")


def _exec(node: RealNode, name: str, *command: str) -> str:
    result = subprocess.run(
        [node.site.binaries.path("kubectl"), f"--kubeconfig={node.kubeconfig()}", "exec", name, "--", *command],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return result.stdout


def test_the_machine_keeps_its_own_network_files_and_kernel_settings(real_node: RealNode) -> None:
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert "cni0" not in links
    assert "cni0" in real_node.run("ip", "-o", "link")
    real_node.run("mkdir", "-p", "/etc/written-inside", "/var/lib/written-inside", "/run/written-inside")
    for parent in ("/etc", "/var/lib", "/run"):
        assert not Path(parent, "written-inside").exists()
    for name, wanted in KERNEL_SETTINGS.items():
        path = f"/proc/sys/{name.replace('.', '/')}"
        assert real_node.run("cat", path).strip() == wanted
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(real_node.site.folder) not in mounts


def test_a_paused_program_is_stopped_and_goes_on(real_node: RealNode) -> None:
    process = real_node.processes["kubelet"]
    assert isinstance(process, InsideProcess)
    inner = process.inner_pid
    assert inner is not None
    state = Path(f"/proc/{inner}/stat")
    real_node.pause("kubelet")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "kubelet to be stopped")
    real_node.resume("kubelet")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] != "T", "kubelet to go on")
    assert real_node.usage("kubelet").rss_bytes > 10_000_000


OWNER = """
import json, sys, time
from devcluster import Options
from devcluster.node import BUSYBOX_IMAGE, NodeOptions, RealNode
node = RealNode(NodeOptions(cluster=Options(kwok=False, audit=False)))
node.start()
container = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sleep", "1000"]}
node.api.post("/api/v1/namespaces/default/pods", {
    "metadata": {"name": "left"}, "spec": {"nodeName": node.name, "containers": [container]}})
node.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/left")
pids = [process.pid for process in node.processes.values()] + [node.namespaces.pid]
print(json.dumps({"pids": pids, "folder": str(node.site.folder)}), flush=True)
time.sleep(600)
"""


def test_nothing_is_left_of_a_node_whose_owner_was_killed(node_possible: None) -> None:
    settings = kernel_settings()
    owner = subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    told = json.loads(owner.stdout.readline())
    folder = Path(told["folder"])
    assert container_processes(folder.name), "a container runs"
    assert all(alive(pid) for pid in told["pids"])
    assert control_groups(folder.name)
    assert kernel_settings() == settings, "kubelet's settings stay inside"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: not any(alive(pid) for pid in told["pids"]), "every process to end with the owner")
    wait_until(lambda: not container_processes(folder.name), "every container to end with the owner")
    wait_until(lambda: not control_groups(folder.name), "the control groups to be removed")
    ClusterFolder().close()
    assert not folder.exists(), "the next cluster sweeps up abandoned folders"


def test_a_machine_without_the_packages_is_told_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "SEARCH_PATH", "/nonexistent")
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 0)
    reason = requirements.why_impossible()
    assert reason is not None
    assert "runc" in reason
    assert "devcluster/install-packages" in reason
    with pytest.raises(NotSupported, match="runc"):
        RealNode()


def test_a_user_without_rights_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    assert requirements.why_impossible() == "a real node needs root, for namespaces of its own"
