"""Facts of the watches reach the ledger; what cannot be read is named once and disturbs nobody."""

import json
import logging

import pytest

from tests.controller.cluster_facts import inventory, ledger_of, node, pending
from vgpu.api.inventory_status import InventoryStatus
from vgpu.controller.sinks import NodeSink, PodSink, SeenInventory, with_status
from vgpu.core.facts import InventoryFact
from vgpu.kube.objects import Decoded, Key


class Pokes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_an_equal_fact_pokes_nobody() -> None:
    pokes, ledger = Pokes(), ledger_of("node-a")
    sink = NodeSink(ledger, pokes)
    sink.put(node("node-a"))
    assert pokes.count == 0
    sink.put(node("node-a", unschedulable=True))
    assert pokes.count == 1


def test_the_deletion_of_an_older_node_of_the_same_name_drops_nothing() -> None:
    pokes, ledger = Pokes(), ledger_of("node-a")
    sink = NodeSink(ledger, pokes)
    sink.drop(Key("", "node-a", "uid-of-another"))
    view = ledger.view("node-a")
    assert view is not None
    assert view.node is not None
    assert pokes.count == 0


def test_an_unreadable_object_is_named_once_and_again_when_its_fault_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = ledger_of()
    sink = PodSink(ledger, Pokes())
    with caplog.at_level(logging.WARNING):
        for fault in ("spec: not a map", "spec: not a map", "metadata: no uid"):
            sink.malformed(Key("team", "bad", "u"), fault)
        sink.put(pending("good"))
    assert [record.getMessage() for record in caplog.records] == [
        "unreadable Pod team/bad: spec: not a map",
        "unreadable Pod team/bad: metadata: no uid",
    ]
    assert ledger.find_pod("team", "good") is not None


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({"summary": {"cards": "1/1"}}, "1/1"),
        ({"summary": "nonsense"}, ""),
        (None, ""),
    ],
    ids=["readable", "unreadable", "absent"],
)
def test_an_inventorys_status_is_read_beside_its_fact(status: object, want: str) -> None:
    fact = inventory("node-a")

    def decode(raw: bytes) -> Decoded[InventoryFact]:
        return Decoded(Key("", "node-a", "u"), "7", fact)

    document = {"status": status} if status is not None else {}
    seen = with_status(decode)(json.dumps(document).encode())
    assert seen.fact == SeenInventory(fact, seen.fact.status)
    summary = seen.fact.status.summary
    assert (summary.cards if summary else "") == want
    assert status is not None or seen.fact.status == InventoryStatus()
