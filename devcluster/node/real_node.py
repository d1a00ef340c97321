"""A whole cluster of one real node: kubelet, containerd, kube-proxy and pod addresses in namespaces of their own.

Enters: options. Leaves: a cluster whose every program runs inside, reachable from this process at the same
loopback addresses, with nothing of the machine's changed and nothing left behind. May not live here: what the
programs are told (runtime) and how the namespaces come and go (namespaces, warden, inside).
"""

import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.build import CONTAINERD, ensure_binaries
from devcluster.cluster import Cluster
from devcluster.components import SERVICE_RANGE, Options
from devcluster.credentials import Account
from devcluster.errors import ApiRefused, StartFailed
from devcluster.node import images, runtime
from devcluster.node.inside_process import InsideProcess
from devcluster.node.namespaces import Namespaces, Network
from devcluster.node.requirements import require_possible
from devcluster.probes import is_listening
from devcluster.process import Command, Process

GATE = Path(__file__).with_name("gate.py")
BRIDGE = "cni0"
ADDRESS = "10.244.0.1"
POD_RANGE = "10.244.0.0/24"
NODE_READY_TIMEOUT_SECONDS = 90.0
COMMAND_TIMEOUT_SECONDS = 120.0
CONTAINERD_NAME = "containerd"
KUBELET = "kubelet"
KUBE_PROXY = "kube-proxy"


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What the caller wants of the cluster and its node. The node and its proxy have accounts of their own."""

    name: str = "real-0"
    cluster: Options = dataclasses.field(default_factory=lambda: Options(kwok=False))
    # How often kubelet looks at its own status: 10 is its default, and what a change of allocatable can take.
    status_update_seconds: int = 10


class RealNode(Cluster):
    """Context manager: node Ready and images of busybox imported inside the block.

    Everything of Cluster holds; `start_process` and the other starters run their program inside, on the node.
    """

    def __init__(self, options: NodeOptions | None = None) -> None:
        """Choose folder, ports and accounts. Raises NotSupported where a real node cannot run."""
        require_possible()
        self.node_options = options or NodeOptions()
        self.name = self.node_options.name
        self._accounts = {
            KUBELET: Account(f"system:node:{self.name}", ("system:nodes",)),
            KUBE_PROXY: Account("system:kube-proxy"),
        }
        wanted = self.node_options.cluster
        super().__init__(dataclasses.replace(
            wanted, accounts=(*wanted.accounts, *self._accounts.values()), node_authorizer=True,
            service_account_admission=True, address=ADDRESS,
        ))  # fmt: skip
        folder = self.site.folder / "node"
        prefix_length = POD_RANGE.partition("/")[2]
        address = f"{ADDRESS}/{prefix_length}"
        self.namespaces = Namespaces(folder, self.name, Network(BRIDGE, address, SERVICE_RANGE))
        self.node_site = runtime.NodeSite(
            folder, self.name, BRIDGE, address, POD_RANGE, self.site.binaries, ensure_binaries(CONTAINERD)
        )

    @property
    def plugin_dir(self) -> Path:
        """kubelet's folder of device plugin sockets, as this process finds it."""
        return self.node_site.folder / "kubelet" / "device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        """kubelet's PodResources socket, as this process finds it."""
        return self.node_site.folder / "kubelet" / "pod-resources" / "kubelet.sock"

    @property
    def cdi_folder(self) -> Path:
        """The folder of CDI files (/var/run/cdi inside), as this process finds it."""
        return self.node_site.folder / "run" / "cdi"

    def start(self) -> None:
        """Make the namespaces, start everything, wait until the node is Ready. Raises StartFailed."""
        try:
            self.namespaces.start()
            self.expose(self.site.api_port)
            self.expose(self.site.etcd_port)
            runtime.write_cni(self.node_site)
            self.start_containerd()
            self._import_own_images()
        except BaseException:
            self.stop()
            raise
        super().start()
        try:
            self.start_kubelet()
            self.start_proxy()
            self.wait_node_ready()
            self.wait_until(self._pods_may_come, "the default service account to be made")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything inside hard, clear up the namespaces, then what a cluster leaves."""
        try:
            self.namespaces.stop()
        finally:
            super().stop()

    def enter(self, arguments: Sequence[str]) -> list[str]:
        """The command line that runs a program on the node, for subprocess and the like."""
        return self.namespaces.enter(arguments)

    def run(self, *arguments: str) -> str:
        """Run a program on the node to its end and hand back what it printed. Raises StartFailed."""
        result = subprocess.run(
            self.enter(arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=COMMAND_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        if result.returncode != 0:
            raise StartFailed(f"{' '.join(arguments)} ended with {result.returncode}: {result.stderr.strip()}")
        return result.stdout

    def ctr(self, *arguments: str) -> str:
        """Run containerd's client on kubelet's images and containers. Raises StartFailed."""
        return self.run(*runtime.ctr(self.node_site, list(arguments)))

    def import_image(self, archive: Path) -> None:
        """Make the images of an OCI archive available to pods. Raises StartFailed."""
        self.ctr("images", "import", "--local", str(archive))

    def wait_node_ready(self, timeout_seconds: float = NODE_READY_TIMEOUT_SECONDS) -> None:
        """Wait until the node says Ready. Raises StartFailed, with kubelet's last words when it ended."""
        self.wait_until(self._node_is_ready, f"node {self.name} to be Ready", timeout_seconds)

    def start_containerd(self) -> None:
        """Start containerd and wait until it answers; running containers go on. Raises StartFailed."""
        path = f"{self.node_site.containerd.folder}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        process = self._run(CONTAINERD_NAME, runtime.containerd(self.node_site), {"PATH": path})
        socket_path = self.node_site.folder / runtime.CONTAINERD_SOCKET.relative_to("/")
        self._wait_up(process, lambda: _accepts(socket_path))

    def start_kubelet(self) -> None:
        """Start kubelet; it takes some seconds until its sockets are there and the node is Ready."""
        arguments = runtime.kubelet(
            self.node_site,
            self.kubeconfig(self._accounts[KUBELET].token),
            self.namespaces.control_group,
            self.node_options.status_update_seconds,
        )
        self._run(KUBELET, arguments)

    def start_proxy(self) -> None:
        """Start kube-proxy; it takes a moment until Services have their addresses."""
        kubeconfig = self.kubeconfig(self._accounts[KUBE_PROXY].token)
        self._run(KUBE_PROXY, runtime.kube_proxy(self.node_site, kubeconfig))

    def _import_own_images(self) -> None:
        for content in (images.pause(), images.busybox()):
            name = content.name.rpartition("/")[2].replace(":", "-")
            self.import_image(images.write_image(content, self.node_site.folder / f"{name}.tar"))

    def _node_is_ready(self) -> bool:
        self.processes[KUBELET].require_alive()
        self.processes[CONTAINERD_NAME].require_alive()
        try:
            node = self.api.get(f"/api/v1/nodes/{self.name}")
        except ApiRefused:
            return False  # not registered yet
        conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", ())}
        return conditions.get("Ready") == "True"

    def _pods_may_come(self) -> bool:
        try:
            self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except ApiRefused:
            return not self.options.controller_manager  # nobody would make it
        return True

    def _launch(self, command: Command) -> Process:
        return InsideProcess(dataclasses.replace(command, arguments=self.enter(command.arguments)))

    def expose(self, port: int) -> None:
        """Let this process reach a port of the node's loopback at the same port of its own. Raises StartFailed."""
        arguments = [sys.executable, "-I", "-S", str(GATE), str(self.namespaces.pid), str(port)]
        name = f"gate-{port}"
        gate = Process(Command(name, arguments, self.site.folder / f"{name}.log", {}))
        self.processes[name] = gate
        self._wait_up(gate, lambda: is_listening(port))


def _accepts(path: Path) -> bool:
    """Whether something takes connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
