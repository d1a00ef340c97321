"""Builders of Kubernetes JSON for tests: a test names only what matters."""

import json
from collections.abc import Mapping
from typing import Any

from vgpu import names

Json = dict[str, Any]


def encode(document: Json) -> bytes:
    return json.dumps(document).encode()


def node_json(name: str = "n1", *, slots: str | None = "80", annotations: Mapping[str, str] = {}) -> Json:
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    if slots is not None:
        allocatable[names.VOLCANO_NUMBER] = slots
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "resourceVersion": "7",
            "labels": {"kubernetes.io/hostname": name, "pool": "gpu"},
            "annotations": dict(annotations),
        },
        "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": allocatable,
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
            ],
            "images": [{"names": ["big"], "sizeBytes": 1}],
        },
    }


def container_json(name: str = "main", **amounts: str) -> Json:
    """`number`, `memory`, `cores` are volcano's resources; any other keyword is a resource of that name."""
    short = {"number": names.VOLCANO_NUMBER, "memory": names.VOLCANO_MEMORY, "cores": names.VOLCANO_CORES}
    return {"name": name, "resources": {"limits": {short.get(k, k): v for k, v in amounts.items()}}}


def pod_json(name: str = "p1", *, spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Json:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "9", **metadata},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [container_json(number="1")],
            **(spec or {}),
        },
        "status": {"phase": "Pending", **(status or {})},
    }


def assignment_json(pod_uid: str, node: str, *, container: str = "main", uuid: str = "GPU-a") -> str:
    card = {"uuid": uuid, "memoryMiB": 1000, "cores": 10, "whole": False}
    containers = [{"name": container, "cards": [card]}]
    return json.dumps(
        {"v": 1, "podUid": pod_uid, "node": node, "nonce": "0123456789abcdef", "containers": containers}
    )


def gpu_json(uuid: str = "GPU-a", index: int = 0, **fields: Any) -> Json:
    return {
        "uuid": uuid,
        "index": index,
        "model": "NVIDIA A100-SXM4-80GB",
        "memoryMiB": 81920,
        "cores": 100,
        "slots": 10,
        "mode": "shared",
        "health": "Healthy",
        **fields,
    }


def inventory_json(node: str = "n1", *, gpus: Any = None, **spec: Any) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.INVENTORY_KIND,
        "metadata": {"name": node, "uid": f"inventory-{node}", "resourceVersion": "3"},
        "spec": {
            "slotResource": names.VOLCANO_NUMBER,
            "identity": "exact",
            "plugin": "vgpu",
            "gpus": [gpu_json()] if gpus is None else gpus,
            **spec,
        },
    }
