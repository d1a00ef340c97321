"""Pods of every kind that ask for GPUs, by both presets' resource names.

Enters: names and amounts. Leaves: Pod objects for the API. May not live here: a cluster.
"""

from typing import Any

from tests.cluster.judge import HAMI, VOLCANO
from vgpu import names

Json = dict[str, Any]
Preset = tuple[str, ...]


def gpu_container(preset: Preset, name: str = "main", **amounts: int) -> Json:
    """A container that asks for `number` cards (1), and of each `memory` MiB, `percent`, `cores` where given."""
    keys = dict(zip(("number", "memory", "percent", "cores"), preset, strict=True))
    limits = {keys[kind]: str(amount) for kind, amount in {"number": 1, **amounts}.items()}
    return {"name": name, "image": "none", "resources": {"limits": limits}}


def gpu_pod(name: str, *containers: Json, **metadata: Any) -> Json:
    """A pod that names our scheduler."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": list(containers)},
    }


def small_pods(count: int, prefix: str, memory: int = 4096) -> list[Json]:
    """Pods with one shared card each, of both presets in turn."""
    return [gpu_pod(f"{prefix}-{i}", gpu_container((VOLCANO, HAMI)[i % 2], memory=memory)) for i in range(count)]


def whole_pods(count: int, prefix: str, number: int = 1) -> list[Json]:
    """Pods that want `number` cards for themselves, of both presets in turn."""
    return [gpu_pod(f"{prefix}-{i}", gpu_container((VOLCANO, HAMI)[i % 2], number=number)) for i in range(count)]


def mixed_pods(count: int, prefix: str = "mixed") -> list[Json]:
    """Every kind of pod in turn. 500 of them take about 60 percent of the cards of 20 nodes, so all fit."""
    return [_mixed(f"{prefix}-{i}", (VOLCANO, HAMI)[i % 2], i // 2) for i in range(count)]


def _mixed(name: str, preset: Preset, turn: int) -> Json:
    whole: tuple[dict[str, int], ...] = ({}, {"percent": 100}, {"memory": 1000, "cores": 100}, {"number": 2})
    plain = {"name": "plain", "image": "none"}
    kinds: tuple[list[Json], ...] = (
        [gpu_container(preset, memory=4096, cores=10)],
        [gpu_container(preset, memory=4096)],
        [gpu_container(preset, percent=10)],
        [gpu_container(preset, memory=8192, cores=20)],
        [gpu_container(preset, number=2, memory=2048)],
        [gpu_container(preset, memory=1000, cores=5)],
        [gpu_container(preset, memory=2048), plain, gpu_container(preset, "side", memory=1024, cores=5)],
        [gpu_container(preset, percent=7, cores=1)],
        [gpu_container(preset, memory=6000)],
        [gpu_container(preset, "main", **whole[turn // 10 % len(whole)])],
    )
    return gpu_pod(name, *kinds[turn % len(kinds)])
