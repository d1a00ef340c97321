"""The operator as a real process on a development cluster, with kube-scheduler in front of it.

Enters: a cluster on which the manifests are installed. Leaves: replicas under the operator's own account, started,
stopped and killed; the forwarder that stands in for the Service; kube-scheduler with the extender. For tests, the
demo and benchmarks alike.
"""

import base64
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devcluster import Cluster
from devcluster.ports import free_ports
from devcluster.product import ROOT, install, scheduler_config
from vgpu import names

OPERATOR = "operator-0"
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One operator process and where it listens."""

    name: str
    extender_port: int
    http_port: int

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one page; status 0 when nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str) -> float:
        """The sum of all series of one metric; 0 when there is none."""
        _, text = self.get("/metrics")
        lines = (line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@dataclass(slots=True)
class Operators:
    """The operator's replicas on one cluster. `settings` are VGPU_... variables for all of them.

    `route` makes the kubeconfig for a token where replicas do not talk to the API server directly.
    """

    cluster: Cluster
    settings: Mapping[str, str] = field(default_factory=dict)
    replicas: dict[str, Replica] = field(default_factory=dict)
    forwarded_port: int = 0
    route: Callable[[str], Path] | None = None

    def start(self, name: str = OPERATOR, *, token: str | None = None, **settings: str) -> Replica:
        """Start a replica under the operator's account; comes back at once."""
        extender_port, http_port = free_ports(2)
        token = token or self.cluster.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
        environment = {
            "PYTHONPATH": str(ROOT / "operator"),
            "VGPU_EXTENDER_HOST": "127.0.0.1",
            "VGPU_EXTENDER_PORT": str(extender_port),
            "VGPU_ADVERTISE_ADDRESS": f"127.0.0.1:{extender_port}",
            "VGPU_HTTP_HOST": "127.0.0.1",
            "VGPU_HTTP_PORT": str(http_port),
            **self.settings,
            **settings,
        }
        kubeconfig = str((self.route or self.cluster.kubeconfig)(token))
        arguments = [sys.executable, "-m", "vgpu.controller.main", "run", "--kubeconfig", kubeconfig]
        self.cluster.start_process(name, arguments, environment)
        self.cluster.expose(http_port)
        self.replicas[name] = Replica(name, extender_port, http_port)
        return self.replicas[name]

    def stop(self, name: str = OPERATOR) -> None:
        """End a replica as kubelet does: SIGTERM first."""
        self.cluster.processes.pop(name).terminate(STOP_SECONDS)
        del self.replicas[name]

    def kill(self, name: str = OPERATOR) -> None:
        """End a replica with SIGKILL."""
        self.cluster.end_process(name)
        del self.replicas[name]

    def log(self, name: str = OPERATOR) -> str:
        """What a replica has logged so far."""
        path = self.cluster.site.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def leader(self) -> Replica | None:
        """The replica that serves as the leader now."""
        leading = [r for r in self.replicas.values() if r.metric("vgpu_leader") == 1]
        return leading[0] if len(leading) == 1 else None

    def wait_ready(self, name: str = OPERATOR, timeout_seconds: float = 60) -> None:
        """Wait until a replica's view is whole."""
        replica = self.replicas[name]

        def ready() -> bool:
            self.cluster.processes[name].require_alive()
            return replica.get("/readyz")[0] == 200

        self.cluster.wait_until(ready, f"{name} to be ready", timeout_seconds)

    def wait_serving(self, name: str = OPERATOR, timeout_seconds: float = 60) -> None:
        """Wait until a replica answers kube-scheduler."""
        replica = self.replicas[name]

        def serving() -> bool:
            self.cluster.processes[name].require_alive()
            return replica.metric("vgpu_serving") == 1

        self.cluster.wait_until(serving, f"{name} to serve as the leader", timeout_seconds)

    def start_scheduler(self, *, percentage_of_nodes: int | None = None) -> None:
        """Start the forwarder and kube-scheduler; the first leader must have made the certificates."""
        [self.forwarded_port] = free_ports(1)
        self.cluster.start_forwarder(
            self.forwarded_port,
            namespace=names.NAMESPACE,
            lease=names.LEASE_NAME,
            annotation=names.LEASE_ADDRESS_ANNOTATION,
        )
        config = scheduler_config(
            self.cluster,
            f"https://127.0.0.1:{self.forwarded_port}/v1",
            self.client_files(),
            percentage_of_nodes=percentage_of_nodes,
        )
        token = self.cluster.token_for_service_account(names.NAMESPACE, names.SCHEDULER_ACCOUNT)
        self.cluster.start_scheduler(config, token=token)

    def client_files(self) -> Path:
        """A folder with ca.crt, tls.crt and tls.key of the scheduler, from the Secret that the leader made."""
        folder = self.cluster.site.folder / names.SCHEDULER_CLIENT_SECRET
        folder.mkdir(exist_ok=True)
        path = f"/api/v1/namespaces/{names.NAMESPACE}/secrets/{names.SCHEDULER_CLIENT_SECRET}"
        for key, value in self.cluster.api.get(path)["data"].items():
            (folder / key).write_bytes(base64.b64decode(value))
        return folder


def start_product(cluster: Cluster, **settings: str) -> Operators:
    """Install the manifests and start one replica and the scheduler; comes back when pods can be placed."""
    install(cluster)
    operators = Operators(cluster, settings)
    operators.start()
    operators.wait_serving()
    operators.start_scheduler()
    return operators


def stop_product(operators: Operators) -> None:
    """End every process that was started for `operators`."""
    for name in ["kube-scheduler", "forwarder", *operators.replicas]:
        if name in operators.cluster.processes:
            operators.cluster.end_process(name)
    operators.replicas.clear()


def inventory_document(node: str, cards: int, *, memory_mib: int = 40_960, slots: int = 10) -> dict[str, Any]:
    """A node's inventory of equal cards, as an agent would publish it."""
    gpus = [
        {
            "uuid": f"GPU-{node}-{index}",
            "index": index,
            "model": "NVIDIA A100-SXM4-40GB",
            "memoryMiB": memory_mib,
            "cores": 100,
            "slots": slots,
            "mode": "shared",
            "health": "Healthy",
        }
        for index in range(cards)
    ]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.INVENTORY_KIND,
        "metadata": {"name": node},
        "spec": {"slotResource": names.VOLCANO_NUMBER, "identity": "exact", "plugin": "vgpu", "gpus": gpus},
    }


def publish_inventories(cluster: Cluster, nodes: Sequence[str], cards: int) -> None:
    """Apply inventories as an administrator, where no agents run."""
    documents = [inventory_document(node, cards) for node in nodes]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    cluster.kubectl("apply", "--server-side", "--field-manager", names.AGENT_FIELD_MANAGER, "-f", "-", input=text)


def gpu_pod(name: str, *, memory_mib: int | None = 4096, number: int = 1, cores: int = 0) -> dict[str, Any]:
    """A pod that asks for cards by the volcano preset and names our scheduler."""
    limits = {names.VOLCANO_NUMBER: str(number)}
    if memory_mib is not None:
        limits[names.VOLCANO_MEMORY] = str(memory_mib)
    if cores:
        limits[names.VOLCANO_CORES] = str(cores)
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container]},
    }
