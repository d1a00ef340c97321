"""Simulated nodes: what they look like and how many are made quickly.

Enters: a shape and a count. Leaves: Node objects, already Ready, whose pods kwok plays.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from devcluster.api import ApiClient, Json
from devcluster.kwok import SIMULATED_LABEL

PARALLEL_REQUESTS = 12


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What a node offers. `resources` are extended resources by name, for example slots."""

    resources: Mapping[str, int] = field(default_factory=dict)
    cpu: str = "64"
    memory: str = "512Gi"
    pods: int = 250
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    ready: bool = True


def create_nodes(api: ApiClient, names: Sequence[str], shape: NodeShape) -> None:
    """Create the nodes in parallel. Raises ApiRefused for the first that is refused."""
    create_all(api, "/api/v1/nodes", [node_object(name, shape) for name in names])


def create_all(api: ApiClient, path: str, objects: Sequence[Json]) -> None:
    """Create objects of one collection in parallel. Raises ApiRefused for the first that is refused."""
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        for _ in pool.map(lambda item: api.post(path, item), objects):
            pass


def set_allocatable(api: ApiClient, node: str, resource: str, value: int) -> None:
    """Set what the node says it can hand out of one resource now; its capacity stays."""
    api.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": {resource: str(value)}}})


def set_ready(api: ApiClient, node: str, ready: bool) -> None:
    """Set the node's Ready condition, as its kubelet would."""
    path = f"/api/v1/nodes/{node}/status"
    body = {"status": {"conditions": [_ready_condition(ready)]}}
    api.patch(path, body, "application/strategic-merge-patch+json")


def node_object(name: str, shape: NodeShape) -> Json:
    """The Node as the API takes it. The API server keeps a status that comes with a new Node."""
    amounts = {resource: str(value) for resource, value in shape.resources.items()}
    amounts |= {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods)}
    spec: dict[str, Any] = {"taints": [dict(taint) for taint in shape.taints]} if shape.taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {SIMULATED_LABEL: "true", "kubernetes.io/hostname": name, **shape.labels},
            "annotations": dict(shape.annotations),
        },
        "spec": spec,
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [_ready_condition(shape.ready)],
            "nodeInfo": dict.fromkeys(
                ("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
                 "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID"), "simulated",
            ),
        },
    }  # fmt: skip


def _ready_condition(ready: bool) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "Simulated",
        "message": "set by the development cluster",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
