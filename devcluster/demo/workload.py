"""The pods of the demo: whole cards and shares of cards, asked for by both presets.

Enters: nothing. Leaves: pods as a user would write them; they name no scheduler, the cluster routes them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vgpu import names


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal pods: their name's beginning, how many, and the limits of their one container."""

    name: str
    count: int
    limits: Mapping[str, str]

    @property
    def asks(self) -> str:
        """The limits in one line."""
        return ", ".join(f"{resource}: {amount}" for resource, amount in self.limits.items())

    def pods(self) -> Iterator[dict[str, Any]]:
        """All pods of this kind."""
        return (make_pod(f"{self.name}-{number}", self.limits) for number in range(self.count))


KINDS = (
    Kind("train", 2, {names.VOLCANO_NUMBER: "8"}),
    Kind("tune", 6, {names.VOLCANO_NUMBER: "2"}),
    Kind("note", 24, {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "8000", names.VOLCANO_CORES: "20"}),
    Kind(
        "serve",
        24,
        {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY_PERCENT: "25", names.VOLCANO_CORES: "25"},
    ),
    Kind("batch", 2, {names.HAMI_NUMBER: "4"}),
    Kind("pair", 8, {names.HAMI_NUMBER: "2", names.HAMI_MEMORY_PERCENT: "50", names.HAMI_CORES: "40"}),
    Kind("infer", 24, {names.HAMI_NUMBER: "1", names.HAMI_MEMORY: "16000", names.HAMI_CORES: "30"}),
)
TOO_BIG = Kind("too-big", 1, {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "90000"})
LATE = {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "4000"}


def make_pod(name: str, limits: Mapping[str, str], *, card: str = "") -> dict[str, Any]:
    """A pod with one container; with a card's UUID it takes that card or none."""
    container = {"name": "main", "image": "none", "resources": {"limits": dict(limits)}}
    annotations = {names.VOLCANO_USE_UUID: card} if card else {}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
