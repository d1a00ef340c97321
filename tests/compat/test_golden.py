"""Golden nodes and pods of every stack and encoding rule: what is read from them, word for word."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from vgpu.compat import Register, read_legacy, read_registers
from vgpu.core.facts import AssignmentFact
from vgpu.core.presets import ContainerAmounts, PresetSettings
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import ContainerKind

GOLDEN = {
    path.stem: yaml.safe_load(path.read_text()) for path in (Path(__file__).parent / "golden").glob("*.yaml")
}
STACKS = [
    "volcano-1.7-volcano-dp",
    "volcano-1.8-1.11",
    "volcano-1.12-1.15.0",
    "volcano-1.14.3-and-later",
    "hami-2.4-and-earlier",
    "hami-2.5-2.7",
    "hami-2.8-2.10",
]


def containers_of(pod: dict[str, Any]) -> list[ContainerAmounts]:
    """The containers as the translation of a pod gives them: init first, limits as text."""

    def amounts(container: dict[str, Any], kind: ContainerKind) -> ContainerAmounts:
        return ContainerAmounts(container["name"], kind, container.get("resources", {}).get("limits", {}))

    init = [
        amounts(c, ContainerKind.SIDECAR if c.get("restartPolicy") == "Always" else ContainerKind.INIT)
        for c in pod["spec"].get("initContainers", [])
    ]
    return [*init, *(amounts(c, ContainerKind.APP) for c in pod["spec"]["containers"])]


def told(fact: AssignmentFact | Refusal | None) -> dict[str, Any] | None:
    """An assignment in the short form of the golden files."""
    if fact is None:
        return None
    if isinstance(fact, Refusal):
        assert fact.reason is Reason.ASSIGNMENT_IGNORED
        return {"refused": fact.message}
    cards = {
        container.name: [
            f"{c.uuid} {c.memory_mib} {c.cores}" + (" whole" if c.whole else "") for c in container.cards
        ]
        for container in fact.containers
    }
    return {"source": fact.source.value, **cards}


def pods() -> Iterator[Any]:
    for name, golden in sorted(GOLDEN.items()):
        for pod in golden["pods"]:
            yield pytest.param(golden, pod, id=f"{name} {pod['metadata']['name']}")


def test_every_stack_of_the_version_matrix_has_a_golden_file() -> None:
    assert {f"stack-{stack}" for stack in STACKS} <= GOLDEN.keys()


@pytest.mark.parametrize(("golden", "pod"), list(pods()))
def test_a_golden_pod_holds_exactly_these_cards(golden: dict[str, Any], pod: dict[str, Any]) -> None:
    settings = PresetSettings(**golden.get("settings", {}))
    fact = read_legacy(pod["metadata"]["annotations"], pod["spec"]["nodeName"], containers_of(pod), settings)
    want = golden["want"]["assignments"][pod["metadata"]["name"]]
    got = told(fact)
    if want is not None and "refused" in want:
        assert got is not None
        assert want["refused"] in got["refused"]
    else:
        assert got == want
    if isinstance(fact, AssignmentFact):
        assert fact.node == pod["spec"]["nodeName"]
        order = [c.name for c in containers_of(pod)]
        assert [c.name for c in fact.containers] == sorted((c.name for c in fact.containers), key=order.index)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_golden_node_publishes_exactly_these_cards(name: str) -> None:
    golden = GOLDEN[name]
    node = golden["node"]
    registers = read_registers(
        node["metadata"]["annotations"],
        node.get("status", {}).get("capacity", {}),
        PresetSettings(**golden.get("settings", {})),
    )
    wanted = golden["want"]["registers"]
    assert len(registers) == len(wanted)
    for register, want in zip(registers, wanted, strict=True):
        if "refused" in want:
            assert isinstance(register, Refusal)
            assert register.reason is Reason.INVENTORY_INVALID
            assert want["refused"] in register.message
            continue
        assert isinstance(register, Register)
        assert register.source.value == want["source"]
        unstated = {"index": None, "numa_node": None, "mode": "shared"}
        assert [asdict(card) for card in register.cards] == [{**unstated, **card} for card in want["cards"]]
