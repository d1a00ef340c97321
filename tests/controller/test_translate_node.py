"""Nodes and inventories: what becomes a fact, what leaves it equal, what is quarantined."""

import pytest

from tests.controller.kubernetes_json import encode, gpu_json, inventory_json, node_json
from vgpu import names
from vgpu.controller.translate import Translator
from vgpu.core.facts import Identity, InventoryFact, NodeFact, Plugin, Taint
from vgpu.errors import MalformedObject
from vgpu.settings import OperatorSettings


def translator(previous: InventoryFact | None = None) -> Translator:
    return Translator(OperatorSettings(), lambda node: previous)


def node(document: dict[str, object]) -> NodeFact:
    return translator().decode_node(encode(document)).fact


def inventory(document: dict[str, object], previous: InventoryFact | None = None) -> InventoryFact:
    return translator(previous).decode_inventory(encode(document)).fact


def test_a_node_fact_holds_what_placement_uses() -> None:
    decoded = translator().decode_node(encode(node_json("n1", slots="80")))
    assert (decoded.key.name, decoded.key.uid, decoded.resource_version) == ("n1", "node-n1", "7")
    assert decoded.fact == NodeFact(
        name="n1",
        uid="node-n1",
        slots_allocatable=frozenset({(names.VOLCANO_NUMBER, 80)}),
        taints=frozenset({Taint("gpu", "yes", "NoSchedule")}),
        labels=frozenset({("kubernetes.io/hostname", "n1"), ("pool", "gpu")}),
        cpu_millicores=64_000,
        memory_mib=512 * 1024,
        pods=110,
    )


def test_annotations_heartbeats_and_images_leave_the_fact_equal() -> None:
    first, second = node_json(), node_json(annotations={"volcano.sh/node-vgpu-register": "x"})
    second["status"]["conditions"][1]["lastHeartbeatTime"] = "2026-01-01T00:05:00Z"
    second["status"]["images"] = []
    second["metadata"]["resourceVersion"] = "8"
    assert node(first) == node(second)


@pytest.mark.parametrize(
    "change",
    [
        lambda n: n["status"]["allocatable"].update({names.VOLCANO_NUMBER: "0"}),
        lambda n: n["spec"].update({"unschedulable": True}),
        lambda n: n["spec"].update({"taints": None}),
        lambda n: n["metadata"]["labels"].update({"pool": "other"}),
        lambda n: n["status"]["conditions"][1].update({"status": "Unknown"}),
        lambda n: n["metadata"].update({"uid": "another"}),
    ],
    ids=["allocatable", "cordoned", "taints", "labels", "not ready", "re-created"],
)
def test_what_placement_uses_changes_the_fact(change: object) -> None:
    changed = node_json()
    change(changed)  # type: ignore[operator]
    assert node(changed) != node(node_json())


@pytest.mark.parametrize(
    ("text", "want"),
    [("1k", 1000), ("0", 0), ("-5", 0), ("many", 0), ("1e400", 0), ("9" * 30, 2**62)],
)
def test_allocatable_is_read_as_a_quantity_and_never_above_what_is_sane(text: str, want: int) -> None:
    assert node(node_json(slots=text)).slots_allocatable == {(names.VOLCANO_NUMBER, want)}


def test_a_node_without_status_and_spec_is_not_ready_and_offers_nothing() -> None:
    fact = node({"metadata": {"name": "bare", "uid": "u"}, "spec": None})
    assert fact == NodeFact(name="bare", uid="u", slots_allocatable=frozenset(), ready=False)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"metadata": {}}', b'{"metadata": {"name": 1.5e}}', b"\xff"])
def test_what_is_no_object_is_malformed(raw: bytes) -> None:
    for decode in (translator().decode_node, translator().decode_pod, translator().decode_inventory):
        with pytest.raises(MalformedObject):
            decode(raw)


def test_an_inventory_is_read() -> None:
    gpu = gpu_json("GPU-b", 1, numaNode=0, nvlinkPeers=["GPU-a"], minor=1, pciBusId="0:3B:0.0")
    fact = inventory(inventory_json(gpus=[gpu, gpu_json("GPU-a", 0)], identity="deferred", plugin="hami"))
    assert (fact.node, fact.slot_resource, fact.problem) == ("n1", names.VOLCANO_NUMBER, "")
    assert (fact.identity, fact.plugin) == (Identity.DEFERRED, Plugin.HAMI)
    assert [card.uuid for card in fact.cards] == ["GPU-a", "GPU-b"]
    second = fact.cards[1]
    assert (second.memory_mib, second.slots, second.healthy, second.numa_node) == (81920, 10, True, 0)
    assert second.links == {"GPU-a"}


def test_what_keeps_shares_from_being_held_is_read() -> None:
    raw = inventory_json(gpus=[gpu_json("GPU-a", 0)], isolationError="libvgpu.so is not there")
    assert inventory(raw).isolation_error == "libvgpu.so is not there"


def test_the_order_of_cards_and_the_status_leave_the_fact_equal() -> None:
    a, b = gpu_json("GPU-a", 0), gpu_json("GPU-b", 1)
    other = {**inventory_json(gpus=[b, a]), "status": {"conditions": []}}
    assert inventory(inventory_json(gpus=[a, b])) == inventory(other)


@pytest.mark.parametrize(
    "fault",
    [
        {"memoryMiB": -1},
        {"memoryMiB": 2**63},
        {"memoryMiB": "80Gi"},
        {"slots": 0},
        {"cores": 300},
        {"mode": "odd"},
    ],
    ids=str,
)
def test_a_bad_card_is_quarantined_alone_and_keeps_its_last_size(fault: dict[str, object]) -> None:
    good = [gpu_json("GPU-a", 0), gpu_json("GPU-b", 1)]
    previous = inventory(inventory_json(gpus=good))
    fact = inventory(inventory_json(gpus=[good[0], gpu_json("GPU-b", 1, **fault)]), previous)
    assert fact.problem == ""
    assert fact.cards[0].healthy
    assert not fact.cards[1].healthy
    assert fact.cards[1].memory_mib == 81920
    assert next(iter(fault)) in fact.cards[1].health_reason


def test_a_bad_card_that_was_never_good_offers_nothing() -> None:
    card = inventory(inventory_json(gpus=[gpu_json("GPU-x", memoryMiB=-1)])).cards[0]
    assert (card.uuid, card.healthy, card.memory_mib, card.slots) == ("GPU-x", False, 0, 0)


def test_an_entry_without_uuid_closes_the_node_and_keeps_the_others() -> None:
    fact = inventory(inventory_json(gpus=[gpu_json("GPU-a"), {"index": 1}, 7]))
    assert "spec.gpus[1]" in fact.problem
    assert [card.uuid for card in fact.cards] == ["GPU-a"]


def test_a_card_listed_twice_takes_nothing() -> None:
    fact = inventory(inventory_json(gpus=[gpu_json("GPU-a", 0), gpu_json("GPU-a", 1), gpu_json("GPU-b", 2)]))
    assert [(card.uuid, card.healthy) for card in fact.cards] == [("GPU-a", False), ("GPU-b", True)]


def test_an_absent_or_unknown_health_is_not_healthy() -> None:
    silent = gpu_json("GPU-a")
    del silent["health"]
    fact = inventory(inventory_json(gpus=[silent, gpu_json("GPU-b", 1, health="fine")]))
    assert [card.healthy for card in fact.cards] == [False, False]


@pytest.mark.parametrize(
    "spec",
    [{"slotResource": "cpu"}, {"slotResource": ""}, {"identity": "maybe"}, {"plugin": "x"}, {"gpus": "many"}],
    ids=str,
)
def test_a_bad_spec_closes_the_node_and_keeps_the_last_cards(spec: dict[str, object]) -> None:
    previous = inventory(inventory_json())
    fact = inventory(inventory_json(**spec), previous)  # type: ignore[arg-type]
    assert next(iter(spec)) in fact.problem
    assert fact.cards == previous.cards


def test_a_missing_spec_closes_the_node() -> None:
    document = inventory_json()
    del document["spec"]
    assert inventory(document).problem != ""


def test_a_good_object_lifts_the_quarantine() -> None:
    previous = inventory(inventory_json(plugin="x"))
    assert inventory(inventory_json(), previous) == inventory(inventory_json())
