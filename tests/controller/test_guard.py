"""One object's unexpected fault is told once, counted, and leaves the other objects alone."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.controller.cluster_facts import ledger_of, pending
from vgpu.api.inventory_status import InventoryStatus
from vgpu.controller.consumer import Consumer
from vgpu.controller.fence import Fence
from vgpu.controller.guard import one_object, unexpected_errors
from vgpu.controller.metrics import Metrics, Snapshot
from vgpu.controller.status import StatusPublisher
from vgpu.controller.supervisor import Supervisor
from vgpu.core.ledger import Changes
from vgpu.settings import OperatorSettings


@pytest.fixture(autouse=True)
def _nothing_counted() -> Iterator[None]:
    unexpected_errors.clear()
    yield
    unexpected_errors.clear()


def test_a_fault_is_told_once_until_it_changes_or_the_object_was_well(caplog: pytest.LogCaptureFixture) -> None:
    def meet(fault: str) -> None:
        with one_object("test", "ns/pod"):
            if fault:
                raise KeyError(fault)

    with caplog.at_level(logging.ERROR):
        for fault in ("a", "a", "b", "", "b"):
            meet(fault)
    assert len(caplog.records) == 3
    assert all("part=test object=ns/pod" in record.getMessage() for record in caplog.records)
    assert unexpected_errors["test"] == 4


async def test_cancellation_is_no_fault() -> None:
    async def work() -> None:
        with one_object("test", "ns/pod"):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert not unexpected_errors


def test_a_listener_that_fails_keeps_no_other_from_the_change() -> None:
    class Broken:
        def changed(self, changes: Changes) -> None:
            raise RuntimeError("broken")

    class Listening:
        def __init__(self) -> None:
            self.pods: set[str] = set()

        def changed(self, changes: Changes) -> None:
            self.pods |= set(changes.pods)

    ledger, listening = ledger_of("node-a"), Listening()
    consumer = Consumer(ledger, 0)
    consumer.add(Broken())
    consumer.add(listening)
    ledger.put_pod(pending("p"))
    consumer.drain()
    assert listening.pods == {"uid-p"}
    assert unexpected_errors["consumer"] == 1


class PoisonedSink:
    """Raises what nobody foresees for one node, until it is well again."""

    def __init__(self) -> None:
        self.poisoned = {"node-a"}
        self.written: list[str] = []
        self.again = asyncio.Event()

    async def apply_inventory_status(self, node: str, status: Mapping[str, Any]) -> None:
        if node in self.poisoned:
            raise ValueError("1 validation error for Totals")
        self.written.append(node)
        self.again.set()


async def test_the_status_of_the_other_nodes_goes_on_and_that_of_the_sick_one_comes_back() -> None:
    ledger, sink, fence = ledger_of("node-a", "node-b"), PoisonedSink(), Fence(10, 4)
    fence.renewed(asyncio.get_running_loop().time())
    settings = OperatorSettings(status_interval_seconds=0, status_writes_per_second=1000)
    publisher, supervisor = StatusPublisher(ledger, sink, fence, settings), Supervisor()
    supervisor.start("status", publisher.run)
    for name in ("node-a", "node-b"):
        publisher.saw(name, InventoryStatus())
    await asyncio.wait_for(sink.again.wait(), 5)
    assert (sink.written, supervisor.problems()) == (["node-b"], [])
    sink.again.clear()
    sink.poisoned.clear()
    publisher.mark(["node-a"])
    await asyncio.wait_for(sink.again.wait(), 5)
    await supervisor.stop()
    assert sink.written == ["node-b", "node-a"]
    assert unexpected_errors["status"] == 1


def test_what_was_met_is_shown_in_the_metrics() -> None:
    with one_object("status", "node-a"):
        raise RuntimeError("broken")
    snapshot = Snapshot((), {}, {}, {}, 0, 0, leading=True, serving=True)
    assert b'vgpu_unexpected_errors_total{part="status"} 1.0' in Metrics().render(snapshot)
