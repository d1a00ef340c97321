"""Objects as the API server sends them, in numbers: nodes of about 9 KB, bound pods of about 3 KB, inventories."""

import json
from typing import Any
from zlib import crc32

RESOURCE = "volcano.sh/vgpu-number"
CARDS, SLOTS, MEMORY_MIB = 8, 10, 81_920
PODS_PER_NODE = 20
IMAGES = 50


def node_name(number: int) -> str:
    """The name of that node."""
    return f"gpu-{number:05d}"


def node(number: int, beat: int = 0) -> bytes:
    """A Node; another `beat` changes an annotation, a heartbeat and the resourceVersion, as a handshake does."""
    images = [
        {"names": [f"images.example/{i}@sha256:{'0' * 64}", f"images.example/{i}:v1"], "sizeBytes": i}
        for i in range(IMAGES)
    ]
    amounts = {"cpu": "64", "memory": "528280980Ki", "pods": "250", RESOURCE: str(CARDS * SLOTS)}
    conditions = [
        {"type": kind, "status": status, "reason": "x", "lastHeartbeatTime": f"2026-01-01T00:00:{beat % 60:02d}Z"}
        for kind, status in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("Ready", "True"))
    ]
    metadata = {
        "name": node_name(number), "uid": f"node-{number}", "resourceVersion": str(1_000_000 + beat),
        "labels": {"kubernetes.io/hostname": node_name(number), "zone": f"z{number % 3}"},
        "annotations": {"volcano.sh/node-vgpu-handshake": f"Requesting_{beat}", "filler": "y" * 400},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:{i}": {} for i in range(60)}}],
    }  # fmt: skip
    status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions, "images": images}
    return _raw({"metadata": metadata, "spec": {"podCIDR": "10.0.0.0/24"}, "status": status})


def card_uuid(number: int, card: int) -> str:
    """The UUID of a node's card."""
    return f"GPU-{number:08d}-0000-0000-0000-{card:012d}"


def inventory(number: int) -> bytes:
    """The GpuNodeInventory of that node."""
    gpus = [
        {"uuid": card_uuid(number, c), "index": c, "minor": c, "pciBusId": f"0000:{c:02x}:00.0",
         "model": "NVIDIA A100", "memoryMiB": MEMORY_MIB, "cores": 100, "slots": SLOTS, "mode": "shared",
         "numaNode": c // 4, "nvlinkPeers": [], "health": "Healthy"}
        for c in range(CARDS)
    ]  # fmt: skip
    spec = {"slotResource": RESOURCE, "identity": "exact", "plugin": "vgpu", "gpus": gpus}
    metadata = {"name": node_name(number), "uid": f"inventory-{number}", "resourceVersion": "5"}
    return _raw({"metadata": metadata, "spec": spec})


def pod(number: int) -> bytes:
    """A running pod on node `number // PODS_PER_NODE`; its size varies, so that hardly two nodes are alike."""
    host, place = divmod(number, PODS_PER_NODE)
    memory_mib = 1024 * (1 + crc32(b"%d" % number) % 20)
    card = {"uuid": card_uuid(host, place % CARDS), "memoryMiB": memory_mib, "cores": 25, "whole": False}
    assignment = {
        "v": 1, "podUid": f"pod-{number}", "node": node_name(host), "nonce": f"{number:016x}",
        "containers": [{"name": "main", "cards": [card]}],
    }  # fmt: skip
    limits = {RESOURCE: "1", "volcano.sh/vgpu-memory": str(memory_mib), "volcano.sh/vgpu-cores": "25"}
    container = {
        "name": "main", "image": "x", "resources": {"limits": limits, "requests": limits},
        "env": [{"name": f"E{i}", "value": "v" * 20} for i in range(20)],
    }  # fmt: skip
    metadata = {
        "name": f"pod-{number}", "namespace": "default", "uid": f"pod-{number}", "resourceVersion": "9",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"vgpu.dev/assignment": json.dumps(assignment)},
        "managedFields": [{"manager": "x", "fieldsV1": {f"f:{i}": {} for i in range(80)}}],
    }  # fmt: skip
    spec = {"nodeName": node_name(host), "schedulerName": "vgpu-scheduler", "containers": [container]}
    running = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [running]}
    return _raw({"metadata": metadata, "spec": spec, "status": status})


def _raw(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
