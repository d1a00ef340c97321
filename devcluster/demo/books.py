"""Adds up what pods say they hold and compares it with what cards have and what inventories show.

Enters: pods and inventories as the API server gives them. Leaves: rows and faults in words. Its sums are its own:
nothing of the operator's arithmetic is used.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vgpu import names

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """One card as one pod's annotation names it."""

    pod: str
    node: str
    uuid: str
    memory_mib: int
    cores: int
    whole: bool


def held_cards(pod: Object) -> list[Held]:
    """The cards that a pod's annotation names; none without one."""
    text = pod["metadata"].get("annotations", {}).get(names.ASSIGNMENT_ANNOTATION)
    if not text:
        return []
    assignment = json.loads(text)
    return [
        Held(
            pod["metadata"]["name"],
            pod["spec"].get("nodeName", ""),
            card["uuid"],
            card["memoryMiB"],
            card["cores"],
            card.get("whole", False),
        )
        for container in assignment["containers"]
        for card in container["cards"]
    ]


def faults(inventories: Sequence[Object], pods: Iterable[Object]) -> list[str]:
    """Every way in which a card is given out that it should not be; empty when all is well."""
    cards = {gpu["uuid"]: (item["metadata"]["name"], gpu) for item in inventories for gpu in item["spec"]["gpus"]}
    by_card: dict[str, list[Held]] = defaultdict(list)
    for pod in pods:
        for held in held_cards(pod):
            by_card[held.uuid].append(held)
    found = []
    for uuid, holders in by_card.items():
        if uuid not in cards:
            found.append(f"{holders[0].pod} holds {uuid}, which no inventory lists")
        else:
            found += _card_faults(uuid, holders, *cards[uuid])
    return found


def _card_faults(uuid: str, holders: Sequence[Held], node: str, gpu: Object) -> Iterator[str]:
    for held in holders:
        if held.node != node:
            yield f"{held.pod} runs on {held.node} and holds {uuid} of {node}"
    for what, used, limit in (
        ("MiB", sum(held.memory_mib for held in holders), gpu["memoryMiB"]),
        ("percent", sum(held.cores for held in holders), gpu["cores"]),
        ("holders", len(holders), gpu["slots"]),
    ):
        if used > limit:
            yield f"{uuid}: {used} {what} of {limit}"
    if len(holders) > 1 and any(held.whole for held in holders):
        yield f"{uuid}: a whole-card holder is not alone"


def shown_holders(inventories: Iterable[Object]) -> set[tuple[str, str]]:
    """(card, pod) of every holder that the inventories' status shows."""
    return {
        (gpu["uuid"], holder["name"])
        for item in inventories
        for gpu in item.get("status", {}).get("gpus", [])
        for holder in gpu.get("holders", [])
    }


def held_pairs(pods: Iterable[Object]) -> set[tuple[str, str]]:
    """(card, pod) of every assignment that pods carry."""
    return {(held.uuid, held.pod) for pod in pods for held in held_cards(pod)}
