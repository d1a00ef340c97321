"""Pods of busybox containers that ask for cards, and what such a container finds inside.

Enters: names and amounts (MiB of each card). Leaves: pods; of running ones the environment that their first
process got, and what their annotation says that it has to be.
"""

import json
from collections.abc import Sequence

from tests.cluster.node.stage import Json, NodeStage, busybox_pod
from vgpu import names

MEMORY_LIMIT = "CUDA_DEVICE_MEMORY_LIMIT_"
SLEEPS = ("sh", "-c", "trap 'exit 1' TERM; while :; do sleep 0.2; done")
"""Ends with an error when it is told to end, so that its container starts again."""


def share(name: str, *, cards: int = 1, memory_mib: int = 4096, command: Sequence[str] = SLEEPS) -> Json:
    """A pod with a share of each of some cards."""
    return busybox_pod(
        name, command=command, limits={names.VOLCANO_NUMBER: str(cards), names.VOLCANO_MEMORY: str(memory_mib)}
    )


def whole(name: str, *, cards: int = 1, command: Sequence[str] = SLEEPS) -> Json:
    """A pod with some cards for itself."""
    return busybox_pod(name, command=command, limits={names.VOLCANO_NUMBER: str(cards)})


def plain(stage: NodeStage, name: str) -> Json:
    """A pod without cards, on the node from the start: no scheduler here is asked about it."""
    pod = busybox_pod(name, command=SLEEPS)
    pod["spec"]["nodeName"] = stage.node.name
    return pod


def container_id(stage: NodeStage, name: str) -> tuple[str, int]:
    """The pod's container and how often it was started again."""
    [status] = stage.pod(name)["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def end_container(stage: NodeStage, name: str) -> None:
    """Tell the pod's first process to end; kubelet starts the container again."""
    stage.node.kubectl("exec", name, "--", "kill", "-TERM", "1")


def restarts(stage: NodeStage, name: str) -> int:
    """How often the pod's container was started again, also while kubelet has none of it to name."""
    [status] = stage.pod(name)["status"]["containerStatuses"]
    restart_count: int = status["restartCount"]
    return restart_count


def environment(stage: NodeStage, name: str) -> dict[str, str]:
    """What the container's first process was given."""
    text = stage.node.kubectl("exec", name, "--", "cat", "/proc/1/environ")
    return dict(pair.split("=", 1) for pair in text.split("\0") if pair)


def visible(stage: NodeStage, name: str) -> set[str]:
    """The cards that the container is told to use."""
    return set(environment(stage, name)["NVIDIA_VISIBLE_DEVICES"].split(","))


def assignment(stage: NodeStage, name: str) -> Json:
    """What the operator assigned to the pod."""
    content: Json = json.loads(stage.pod(name)["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION])
    return content


def wanted(stage: NodeStage, name: str) -> dict[str, str]:
    """The cards and memory limits that the container has to find, in the order in which NVML counts the cards."""
    order = {gpu["uuid"]: gpu["index"] for gpu in stage.inventory(stage.node.name)["spec"]["gpus"]}
    [container] = assignment(stage, name)["containers"]
    cards = sorted(container["cards"], key=lambda card: order[card["uuid"]])
    limits = {f"{MEMORY_LIMIT}{number}": f"{card['memoryMiB']}m" for number, card in enumerate(cards)}
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(card["uuid"] for card in cards), **limits}


def found(stage: NodeStage, name: str) -> dict[str, str]:
    """What a container with a share found of the same."""
    inside = environment(stage, name)
    return {key: inside[key] for key in inside if key.startswith((MEMORY_LIMIT, "NVIDIA_VISIBLE_DEVICES"))}
