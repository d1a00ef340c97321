"""Lingering pods of an inventory: what becomes a fact, and what closes the node instead."""

from typing import Any

import pytest

from tests.controller.kubernetes_json import encode, gpu_json, inventory_json
from vgpu.controller.translate import Translator
from vgpu.core.facts import InventoryFact, LingeringCard, LingeringPod
from vgpu.settings import OperatorSettings


def inventory(*lingering: Any, previous: InventoryFact | None = None) -> InventoryFact:
    document = inventory_json(gpus=[gpu_json("GPU-a", 0)], lingering=list(lingering))
    return Translator(OperatorSettings(), lambda node: previous).decode_inventory(encode(document)).fact


def pod_json(uid: str = "u1", *cards: dict[str, Any]) -> dict[str, Any]:
    return {"namespace": "team", "name": "p", "uid": uid, "cards": list(cards) or [card_json()]}


def card_json(uuid: str = "GPU-a", **changes: Any) -> dict[str, Any]:
    return {"uuid": uuid, "slots": 1, "memoryMiB": 4096, "cores": 30, **changes}


def test_a_lingering_pod_is_read() -> None:
    fact = inventory(pod_json("u1", card_json("GPU-b", whole=True), card_json()))
    cards = (LingeringCard("GPU-a", 1, 4096, 30, whole=False), LingeringCard("GPU-b", 1, 4096, 30, whole=True))
    assert fact.lingering == (LingeringPod("u1", "team", "p", cards),)
    assert fact.problem == ""


def test_order_is_no_content_and_none_is_as_good_as_an_empty_list() -> None:
    assert inventory(pod_json("u1"), pod_json("u2")) == inventory(pod_json("u2"), pod_json("u1"))
    document = inventory_json(gpus=[gpu_json("GPU-a", 0)], lingering=None)
    decode = Translator(OperatorSettings(), lambda node: None).decode_inventory
    assert decode(encode(document)).fact == inventory()


@pytest.mark.parametrize(
    "broken",
    [7, {"uid": "u2"}, pod_json("u2", card_json(memoryMiB=-1)), pod_json("u2", card_json(slots="two"))],
    ids=["no pod", "no cards", "negative", "no number"],
)
def test_one_that_cannot_be_read_closes_the_node_and_the_others_count(broken: Any) -> None:
    fact = inventory(pod_json("u1"), broken)
    assert fact.problem.startswith("spec.lingering[1]")
    assert [pod.uid for pod in fact.lingering] == ["u1"]


def test_an_inventory_that_cannot_be_read_keeps_those_last_read() -> None:
    known = inventory(pod_json("u1"))
    document = inventory_json(plugin="x")
    fact = Translator(OperatorSettings(), lambda node: known).decode_inventory(encode(document)).fact
    assert fact.problem != ""
    assert fact.lingering == known.lingering
