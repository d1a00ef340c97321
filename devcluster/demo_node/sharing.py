"""Chapters 4 and 5: pods with shares and whole cards, what their containers see, and that all is given back.

Enters: the scene with the product at work. Leaves: claims. May not live here: how containers get their cards.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from devcluster.demo.books import faults, held_pairs, shown_holders
from devcluster.demo.stage import Stage
from devcluster.demo_node.scene import PODS, Object, Scene
from devcluster.node.images import BUSYBOX_IMAGE
from vgpu import names

SHARE = {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "8000", names.VOLCANO_CORES: "20"}
LARGER_SHARE = {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "24000", names.VOLCANO_CORES: "50"}
WHOLE = {names.VOLCANO_NUMBER: "1"}
# The first two ask for equally many cards at once: what a plugin that guesses gives to the wrong pod.
ASKED: Mapping[str, Mapping[str, str]] = {"note": SHARE, "serve": LARGER_SHARE, "train": WHOLE}
# What it prints is whole when its last line is there.
WANTED = "^(NVIDIA_VISIBLE_DEVICES|CUDA_DEVICE_(MEMORY|SM)_LIMIT.*)="
LOOK_INSIDE = f"env | grep -E '{WANTED}' | sort; echo end; exec sleep 3600"


def show_pods(scene: Scene, stage: Stage) -> None:
    """Pods are placed and started, and each container sees its own pod's cards and limits."""
    stage.chapter(
        "Every container gets its own pod's cards",
        "Three pods at once, each with one card's share or a whole card; each prints what it finds inside.",
    )
    for name, limits in ASKED.items():
        scene.node.api.post(PODS, _pod(name, limits))
    scene.wait(stage, lambda: _phases(scene) == {"Running"}, f"{len(ASKED)} pods to run")
    scene.wait(
        stage,
        lambda: shown_holders(scene.inventories()) == held_pairs(scene.pods()),
        "the inventory to show every pod",
    )
    stage.command("kubectl get pods")
    stage.output(scene.node.kubectl("get", "pods"))
    seen = {name: _inside(scene, name) for name in ASKED}
    assigned = {pod["metadata"]["name"]: _assigned(pod) for pod in scene.pods()}
    rows = [(name, "\n".join(f"{key}={value}" for key, value in found.items())) for name, found in seen.items()]
    stage.table(("POD", "WHAT ITS CONTAINER FINDS"), rows)
    stage.claim(
        "each container sees exactly the cards and limits of its own pod's assignment",
        f"{sum(seen[name] == assigned[name] for name in ASKED)} of {len(ASKED)} containers agree with their pod",
        seen == assigned,
    )
    _claim_books(scene, stage)


def show_end(scene: Scene, stage: Stage) -> None:
    """The pods are deleted and their cards are free."""
    stage.chapter("What pods held is free again", "The pods are deleted; nothing else is done.")
    stage.command("kubectl delete pods --all")
    with stage.working("deleting the pods"):
        scene.node.kubectl("delete", "pods", "--all", "--wait=true")
    scene.wait(stage, lambda: not shown_holders(scene.inventories()), "the inventory to show free cards")
    stage.command("kubectl get gpunodeinventory")
    stage.output(scene.node.kubectl("get", "gpunodeinventory"))
    left = shown_holders(scene.inventories())
    stage.claim(
        "no card is held and the node offers its slots as before",
        f"{len(left)} holders, {scene.allocatable()} {names.VOLCANO_NUMBER}",
        not left and scene.allocatable() > 0,
    )


def _claim_books(scene: Scene, stage: Stage) -> None:
    stage.command("kubectl get gpunodeinventory")
    stage.output(scene.node.kubectl("get", "gpunodeinventory"))
    pods, inventories = scene.pods(), scene.inventories()
    found, held, shown = faults(inventories, pods), held_pairs(pods), shown_holders(inventories)
    stage.claim(
        "the inventory shows exactly these holders, and no card is over its memory, cores or slots",
        f"{len(held)} assignments, {len(shown ^ held)} shown otherwise; {'; '.join(found[:3]) or 'no fault'}",
        len(held) == len(ASKED) and shown == held and not found,
    )


def _pod(name: str, limits: Mapping[str, str]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", LOOK_INSIDE],
        "resources": {"limits": dict(limits)},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": name}, "spec": spec}


def _phases(scene: Scene) -> set[str]:
    return {pod["status"]["phase"] for pod in scene.pods()}


def _inside(scene: Scene, name: str) -> dict[str, str]:
    """What the container printed of its environment."""
    printed: list[str] = []

    def whole() -> bool:
        printed[:] = scene.node.kubectl("logs", name).splitlines()
        return "end" in printed

    scene.node.wait_until(whole, f"the output of pod {name}")
    return dict(line.split("=", 1) for line in printed if "=" in line)


def _assigned(pod: Object) -> dict[str, str]:
    """What the container of a pod has to find, by its pod's annotation."""
    [container] = json.loads(pod["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION])["containers"]
    cards: Sequence[Mapping[str, Any]] = container["cards"]
    wanted = {"NVIDIA_VISIBLE_DEVICES": ",".join(card["uuid"] for card in cards)}
    for number, card in enumerate(cards):
        if not card.get("whole", False):
            wanted[f"CUDA_DEVICE_MEMORY_LIMIT_{number}"] = f"{card['memoryMiB']}m"
            wanted["CUDA_DEVICE_SM_LIMIT"] = str(card["cores"])
    return wanted
