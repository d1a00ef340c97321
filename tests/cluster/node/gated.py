"""Pods that kubelet has admitted and that start none of their containers with cards before they are let through.

Enters: the stage, pods. Leaves: the same pods with a first init container, without cards, that waits for a file on
the node. Between its start and that file all of a pod's Allocate calls are answered and none of its containers
with cards was asked for.
"""

from pathlib import Path

from tests.cluster.node.stage import PATIENCE_SECONDS, Json, NodeStage, busybox_container

FOLDER = Path("/var/lib/vgpu/gate")
"""As the node knows it, and inside the waiting container as well."""
OPEN = "open"
WAITS = f"until [ -e {FOLDER}/{OPEN} ]; do sleep 0.2; done"
GATE = "gate"


def gated(pod: Json) -> Json:
    """The pod with the waiting container before all others."""
    container = busybox_container(GATE, command=["sh", "-c", WAITS])
    container["volumeMounts"] = [{"name": GATE, "mountPath": str(FOLDER)}]
    spec = pod["spec"]
    spec["initContainers"] = [container, *spec.get("initContainers", [])]
    spec["volumes"] = [{"name": GATE, "hostPath": {"path": str(FOLDER), "type": "DirectoryOrCreate"}}]
    return pod


def close_gate(stage: NodeStage) -> None:
    """Nobody is let through from now on."""
    (stage.outside(FOLDER) / OPEN).unlink(missing_ok=True)


def open_gate(stage: NodeStage) -> None:
    """All are let through."""
    stage.outside(FOLDER).mkdir(exist_ok=True)
    (stage.outside(FOLDER) / OPEN).touch()


def wait_at_gate(stage: NodeStage, *pod_names: str) -> None:
    """Wait until each of these pods has come so far."""

    def waiting() -> bool:
        pods = stage.items()
        return all(_first_runs(pods[name]) for name in pod_names)

    stage.node.wait_until(waiting, f"{len(pod_names)} pods to wait at the gate", PATIENCE_SECONDS)


def _first_runs(pod: Json) -> bool:
    statuses = pod["status"].get("initContainerStatuses", [])
    return any(status["name"] == GATE and "running" in status["state"] for status in statuses)
