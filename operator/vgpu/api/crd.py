"""Turns the models into crds/*.yaml: `python -m vgpu.api.crd crds`.

Models enter, YAML text leaves. What a field is stands in its model; here stands what kubectl shows of a kind.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from vgpu import names
from vgpu.api.inventory import GpuNodeInventory
from vgpu.api.preemption import ENDED, PARTIAL, GpuPreemption
from vgpu.api.queue import GpuQueue
from vgpu.api.schema import structural_schema

HEADER = "# Made from the models by `make crds`. A change belongs there.\n"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; priority 1 is shown with -o wide only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def document(self) -> dict[str, Any]:
        """The column as the CRD states it."""
        base: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**base, "priority": self.priority} if self.priority else base


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of ours and how kubectl shows it."""

    model: type[BaseModel]
    kind: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool
    columns: tuple[Column, ...]


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_READY = '.status.conditions[?(@.type=="Ready")]'
_ENDED = f'.status.conditions[?(@.type=="{ENDED}")]'
_PARTIAL = f'.status.conditions[?(@.type=="{PARTIAL}")]'

KINDS = (
    Kind(
        GpuNodeInventory,
        names.INVENTORY_KIND,
        names.INVENTORY_PLURAL,
        ("gni",),
        False,
        (
            Column("Cards", ".status.summary.cards"),
            Column("Slots", ".status.summary.slots"),
            Column("Memory MiB", ".status.summary.memoryMiB"),
            Column("Cores", ".status.summary.cores"),
            Column("Ready", f"{_READY}.status"),
            Column("Reason", f"{_READY}.reason"),
            _AGE,
            Column("Resource", ".spec.slotResource", priority=1),
            Column("Plugin", ".spec.plugin", priority=1),
            Column("Identity", ".spec.identity", priority=1),
            Column("Driver", ".spec.driverVersion", priority=1),
            Column("Message", f"{_READY}.message", priority=1),
        ),
    ),
    Kind(
        GpuQueue,
        names.QUEUE_KIND,
        names.QUEUE_PLURAL,
        ("gq", "gpuq"),
        False,
        (
            Column("Deserved", ".spec.deserved.cards"),
            Column("Capability", ".spec.capability.cards"),
            Column("Used", ".status.used.cards"),
            Column("Entitled", ".status.entitled.cards"),
            Column("Borrowed", ".status.borrowed.cards"),
            Column("Pending", ".status.pending.cards"),
            Column("State", f"{_READY}.reason"),
            _AGE,
            Column("Priority", ".spec.priority", "integer", priority=1),
            Column("Waiting pods", ".status.pendingPods", "integer", priority=1),
            Column("Message", f"{_READY}.message", priority=1),
        ),
    ),
    Kind(
        GpuPreemption,
        names.PREEMPTION_KIND,
        names.PREEMPTION_PLURAL,
        ("gpup",),
        True,
        (
            Column("Owner", ".spec.owner.name"),
            Column("Phase", ".status.phase"),
            Column("Victims", ".spec.victimNames"),
            Column("Rule", ".spec.rule"),
            Column("Partial", f"{_PARTIAL}.status"),
            _AGE,
            Column("Nodes", ".spec.nodeNames", priority=1),
            Column("Ended", f"{_ENDED}.reason", priority=1),
            Column("Exact", ".spec.exact", "boolean", priority=1),
            Column("Message", f"{_ENDED}.message", priority=1),
            Column("Why partial", f"{_PARTIAL}.message", priority=1),
        ),
    ),
)


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind."""
    schema = structural_schema(kind.model)
    for field in ("apiVersion", "kind"):
        schema["properties"][field] = {"type": "string"}
    schema["properties"]["metadata"] = {"type": "object"}
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.document() for column in kind.columns],
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {**schema, "required": ["spec"]}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": list(kind.short_names),
                "categories": ["vgpu"],
            },
            "versions": [version],
        },
    }


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice out twice: kubectl users should not have to read anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def files() -> dict[str, str]:
    """File name and text of every CRD."""
    return {
        f"{kind.plural}.yaml": HEADER + yaml.dump(definition(kind), Dumper=_Plain, sort_keys=False, width=110)
        for kind in KINDS
    }


def main(arguments: Sequence[str]) -> int:
    """Write every file into the one folder named by `arguments`."""
    if len(arguments) != 1:
        print("usage: python -m vgpu.api.crd FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    for name, text in files().items():
        (folder / name).write_text(text)
        print(f"wrote {folder / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
