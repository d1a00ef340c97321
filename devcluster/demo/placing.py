"""Chapters 1 and 2: what nodes have, and pods that get their cards in the write that binds them."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from devcluster.audit import AuditEvent
from devcluster.demo import traffic
from devcluster.demo.agents import CARDS
from devcluster.demo.books import faults, held_cards, held_pairs, shown_holders
from devcluster.demo.scene import Scene
from devcluster.demo.stage import Stage
from devcluster.demo.workload import KINDS, Kind
from vgpu import names

SHOWN_PER_KIND = 2
SHOWN_UUIDS = 2


def show_nodes(scene: Scene, stage: Stage) -> None:
    """20 inventories, each written once."""
    stage.chapter(
        "Nodes say what they have, once",
        "Every node's agent applies one GpuNodeInventory; the operator adds its status: who uses what, and Ready.",
    )
    stage.wait(
        lambda: len(found := scene.inventories()) == len(scene.nodes) and all(map(scene.is_ready, found)),
        f"{len(scene.nodes)} inventories to be Ready",
    )
    stage.command("kubectl get gpunodeinventory")
    stage.output(scene.get_table())
    found = scene.inventories()
    cards = {gpu["uuid"] for item in found for gpu in item["spec"]["gpus"]}
    ready = sum(map(scene.is_ready, found))
    stage.claim(
        f"{len(scene.nodes)} nodes publish {len(scene.nodes) * CARDS} cards",
        f"{len(found)} inventories, {len(cards)} different card UUIDs, {ready} Ready",
        len(found) == ready == len(scene.nodes) and len(cards) == len(scene.nodes) * CARDS,
    )
    counted = traffic.count(scene.cluster.audit_events().events)
    writes = Counter({a: n for a, n in counted.items() if a.user == traffic.AGENT and a.verb not in traffic.READS})
    stage.claim(
        "each agent writes once, under its own pod's token",
        f"{traffic.in_words(writes)} by {len(scene.nodes)} agents",
        sum(writes.values()) == len(scene.nodes),
    )


def show_placement(scene: Scene, stage: Stage) -> None:
    """Pods of both presets, created at once."""
    stage.chapter(
        "Pods get their cards in the write that binds them",
        "Whole cards and shares, written as for Volcano and for HAMi, all at once; the UUIDs ride on the Binding.",
    )
    pods = [pod for kind in KINDS for pod in kind.pods()]
    since = scene.cluster.audit_events().position
    started = time.monotonic()
    scene.create(pods)
    stage.wait(lambda: all(pod["spec"].get("nodeName") for pod in scene.pods()), f"{len(pods)} pods to be bound")
    seconds = time.monotonic() - started
    stage.wait(
        lambda: shown_holders(scene.inventories()) == held_pairs(scene.pods()), "the inventories to show every pod"
    )
    found = scene.pods()
    stage.say(
        f"{len(found)} pods, created and bound within {seconds:.1f} s; from each kind the first {SHOWN_PER_KIND}:"
    )
    stage.table(("POD, NODE", "ITS LIMITS", f"CARDS (annotation {names.ASSIGNMENT_ANNOTATION})"), _rows(found))
    stage.command("kubectl get gpunodeinventory")
    stage.output(scene.get_table())
    _claim_bound(stage, found, scene.cluster.audit_events(since).events)
    _claim_cards(stage, found, scene.inventories())


def _claim_bound(stage: Stage, pods: Sequence[dict[str, Any]], events: Sequence[AuditEvent]) -> None:
    bindings = [event for event in events if event.verb == "create" and event.subresource == "binding"]
    done = Counter(event.name for event in bindings if event.code == 201)
    others = {event.user for event in bindings} - {traffic.OPERATOR}
    want = {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}
    repeated = [name for name, number in done.items() if number != 1]
    wanted = sum(kind.count for kind in KINDS)
    stage.claim(
        f"all {wanted} pods are bound, each by exactly one Binding, and only by the operator",
        f"{len(want)} bound, {sum(done.values())} Bindings, {len(repeated)} pods with more than one, "
        f"{len(others)} other writers",
        len(want) == wanted and set(done) == want and not repeated and not others,
    )


def _claim_cards(stage: Stage, pods: Sequence[dict[str, Any]], inventories: Sequence[dict[str, Any]]) -> None:
    found, held = faults(inventories, pods), held_pairs(pods)
    lost = [pod["metadata"]["name"] for pod in pods if not held_cards(pod)]
    stage.claim(
        "no card is over its memory, cores or slots, whole cards are alone, each UUID is of the pod's node",
        f"{len(held)} assignments on {len({uuid for uuid, _ in held})} cards added up: "
        f"{'; '.join([*found, *lost][:3]) or 'no fault'}",
        not found and not lost,
    )
    shown = shown_holders(inventories)
    stage.claim(
        "the inventories show exactly these holders",
        f"{len(shown)} holders shown, {len(shown ^ held)} differ from the pods' annotations",
        shown == held,
    )


def _rows(pods: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    return [
        _row(kind, by_name[f"{kind.name}-{number}"])
        for kind in KINDS
        for number in range(min(SHOWN_PER_KIND, kind.count))
    ]


def _row(kind: Kind, pod: dict[str, Any]) -> tuple[str, str, str]:
    held = held_cards(pod)
    lines = [f"{card.uuid} {'whole' if card.whole else f'{card.memory_mib} MiB {card.cores}%'}" for card in held]
    if len(lines) > SHOWN_UUIDS:
        lines = [lines[0], f"and {len(lines) - 1} more"]
    place = f"{pod['metadata']['name']}\n{pod['spec'].get('nodeName', '-')}"
    return place, kind.asks.replace(", ", "\n"), "\n".join(lines)
