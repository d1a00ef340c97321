"""What containers with cards found, held against what their own pods' annotations give them.

Enters: the stage, pods whose containers ran `LOOK` first. Leaves: a verdict: how many containers were compared,
and a sentence for each difference. Three sources, none of them the agent: what each container printed of its own
environment and mounts, what containerd was asked for, and the pod's annotation and spec. May not live here: pods.
"""

import base64
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.node import runtime
from tests.cluster.node.stage import LIBRARY, Json, NodeStage
from vgpu import names
from vgpu.units import parse_count

END = "end of what was found"
LOOK = f"env; echo; cat /proc/self/mountinfo; echo; echo {END}"
"""A container's first commands."""
OURS = ("NVIDIA_", "CUDA_")
NONCE = "VGPU_ALLOCATION"
CACHE_FOLDER = "/tmp/vgpu"
FOR_LIMITS = frozenset({"/usr/local/vgpu/libvgpu.so", CACHE_FOLDER, "/tmp/vgpulock", "/etc/ld.so.preload"})
ALL_CORES = 100

Key = tuple[str, str]
"""Names of pod and container."""
Asked = tuple[list[str], dict[str, str]]
"""Names of CDI devices, and variables."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one container found inside: variables, and mount points with the node's path behind each."""

    environment: Mapping[str, str]
    mounts: Mapping[str, str]

    @property
    def ours(self) -> dict[str, str]:
        """The variables that say which cards it has, and its limits."""
        return {name: value for name, value in self.environment.items() if name.startswith(OURS)}


@dataclass(slots=True)
class Verdict:
    """What a comparison came to."""

    compared: int = 0
    swapped: list[str] = field(default_factory=list)
    """Containers that found what another container's annotation says."""
    faults: list[str] = field(default_factory=list)
    """Every difference, swaps included."""


def judge(stage: NodeStage, pods: Mapping[str, Json]) -> Verdict:
    """Compare every container with cards of these pods, all of which have started."""
    order = _card_order(stage)
    wanted = {
        (name, container): _wanted(cards, order)
        for name, pod in pods.items()
        for container, cards in given(pod).items()
    }
    runtime_was_asked = _asked_of_runtime(stage, pods)
    verdict, nonces = Verdict(), Counter[str]()
    for key, want in wanted.items():
        pod = pods[key[0]]
        found = read_found(stage, pod, key[1])
        nonces[found.environment.get(NONCE, "")] += 1
        verdict.compared += 1
        verdict.faults += _differences(key, found, want)
        verdict.faults += _mount_faults(key, pod, found)
        verdict.faults += _runtime_faults(key, found, runtime_was_asked.get(key))
        if _limits(found.ours) != _limits(want):
            others = [other for other, its in wanted.items() if _limits(its) == _limits(found.ours)]
            verdict.swapped += [f"{key} found what {other} should" for other in others[:1]]
    verdict.faults += [
        f"the nonce {nonce} was found {count} times" for nonce, count in nonces.items() if count > 1
    ]
    verdict.faults += [fault for name, pod in pods.items() for fault in _unlike_spec(name, pod)]
    return verdict


def assert_exact(stage: NodeStage, pods: Mapping[str, Json]) -> int:
    """Every container of these pods found exactly its own; hands back how many were compared."""
    verdict = judge(stage, pods)
    assert not verdict.swapped, verdict.swapped
    assert not verdict.faults, verdict.faults
    return verdict.compared


def read_found(stage: NodeStage, pod: Json, container: str) -> Found:
    """What the container's newest run printed. Waits until it has printed all of it."""
    metadata = pod["metadata"]
    folder = stage.node.node_site.folder / "pod-logs" / f"default_{metadata['name']}_{metadata['uid']}" / container
    lines: list[str] = []

    def whole() -> bool:
        lines[:] = _printed(folder)
        return END in lines

    stage.node.wait_until(whole, f"{metadata['name']}/{container} to have printed what it found")
    environment, mounts, *_ = "\n".join(lines).split("\n\n")
    fields = [line.split(" ") for line in mounts.splitlines()]
    return Found(
        dict(line.split("=", 1) for line in environment.splitlines()), {line[4]: line[3] for line in fields}
    )


def given(pod: Json) -> dict[str, list[Json]]:
    """Cards by container, as the pod's own annotation says."""
    assignment = json.loads(pod["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION])
    assert assignment["podUid"] == pod["metadata"]["uid"]
    return {container["name"]: container["cards"] for container in assignment["containers"]}


def _wanted(cards: list[Json], order: Mapping[str, int]) -> dict[str, str]:
    """The variables that these cards stand for; the cards of these tests' pods all have limits on memory."""
    ordered = sorted(cards, key=lambda card: order[card["uuid"]])
    wanted = {"NVIDIA_VISIBLE_DEVICES": ",".join(card["uuid"] for card in ordered)}
    for number, card in enumerate(ordered):
        wanted[f"CUDA_DEVICE_MEMORY_LIMIT_{number}"] = f"{card['memoryMiB']}m"
        if 0 < card["cores"] < ALL_CORES:
            wanted["CUDA_DEVICE_SM_LIMIT"] = str(card["cores"])
    return wanted


def _limits(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the path that has the nonce in it."""
    return {name: value for name, value in environment.items() if name != "CUDA_DEVICE_MEMORY_SHARED_CACHE"}


def _differences(key: Key, found: Found, want: Mapping[str, str]) -> Iterator[str]:
    expected = {
        **want,
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{CACHE_FOLDER}/{found.environment.get(NONCE, '')}.cache",
    }
    if found.ours != expected:
        yield f"{key}: found {found.ours}, its pod's annotation says {expected}"


def _mount_faults(key: Key, pod: Json, found: Found) -> Iterator[str]:
    missing = FOR_LIMITS - found.mounts.keys()
    if missing:
        yield f"{key}: nothing is mounted at {sorted(missing)}"
        return
    own = f"/{LIBRARY.parent.name}/containers/{pod['metadata']['uid']}_{key[1]}"
    if not found.mounts[CACHE_FOLDER].endswith(own):
        yield f"{key}: its cache is {found.mounts[CACHE_FOLDER]}, and not its own"


def _runtime_faults(key: Key, found: Found, asked: Asked | None) -> Iterator[str]:
    if asked is None:
        yield f"{key}: containerd knows no such container"
        return
    devices, environment = asked
    nonce = found.environment.get(NONCE, "")
    if devices != [f"{names.CDI_KIND}={nonce}"]:
        yield f"{key}: containerd was asked for CDI devices {devices}, inside is nonce {nonce!r}"
    if {name: value for name, value in environment.items() if name.startswith(OURS)} != found.ours:
        yield f"{key}: containerd started it with other variables than it found"


def _unlike_spec(name: str, pod: Json) -> Iterator[str]:
    """The annotation itself against what the pod's spec asks for."""
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    limits = {container["name"]: container.get("resources", {}).get("limits", {}) for container in containers}
    for container, cards in given(pod).items():
        asked = limits[container]
        wanted = (parse_count(asked[names.VOLCANO_MEMORY]), parse_count(asked.get(names.VOLCANO_CORES, "0")))
        got = [(card["memoryMiB"], card["cores"]) for card in cards]
        if got != [wanted] * int(asked[names.VOLCANO_NUMBER]):
            yield f"{(name, container)}: was assigned {got}, asked for {dict(asked)}"


def _card_order(stage: NodeStage) -> dict[str, int]:
    return {gpu["uuid"]: gpu["index"] for gpu in stage.inventory(stage.node.name)["spec"]["gpus"]}


def _printed(folder: Path) -> list[str]:
    """The lines of a container's newest log, without what the runtime puts before each."""
    logs = sorted(folder.glob("*.log"), key=lambda path: int(path.stem)) if folder.exists() else []
    return [line.split(" ", 3)[3] for line in logs[-1].read_text().splitlines()] if logs else []


def _asked_of_runtime(stage: NodeStage, pods: Mapping[str, Json]) -> dict[Key, Asked]:
    """What containerd was asked for each of their newest containers, by its own records."""
    key_of = {identifier: key for name, pod in pods.items() for key, identifier in _identifiers(name, pod)}
    client = shlex.join(runtime.ctr(stage.node.node_site, ["containers", "info"]))
    text = stage.node.run("sh", "-c", f"for id in {shlex.join(key_of)}; do {client} $id; done")
    found = {}
    for record in _documents(text):
        extension = record["Extensions"]["io.cri-containerd.container.metadata"]["value"]
        config = json.loads(base64.b64decode(extension))["Metadata"]["Config"]
        devices = [device["name"] for device in config.get("CDI_devices", [])]
        environment = dict(line.split("=", 1) for line in record["Spec"]["process"]["env"])
        found[key_of[record["ID"]]] = (devices, environment)
    return found


def _identifiers(name: str, pod: Json) -> Iterator[tuple[Key, str]]:
    """Pod and container, and what containerd calls it."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in pod["status"].get(kind, ()):
            yield (name, status["name"]), status["containerID"].removeprefix("containerd://")


def _documents(text: str) -> Iterator[Json]:
    """JSON documents, one after the other."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        document, length = decoder.raw_decode(text)
        text = text[length:]
        yield document
