"""Status of inventories is written when it differs from what the watch shows, and only then."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.controller.cluster_facts import bound, inventory, ledger_of
from vgpu.api.inventory_status import MAX_SHOWN_CARDS, InventoryStatus
from vgpu.api.model import MAX_CARDS, MAX_MEMORY_MIB
from vgpu.controller.fence import Fence
from vgpu.controller.status import StatusPublisher, status_model
from vgpu.core.facts import AssignedCard
from vgpu.core.inventory_status import inventory_status
from vgpu.core.ledger import Ledger
from vgpu.errors import ApiUnavailable
from vgpu.settings import OperatorSettings
from vgpu.units import MAX_COUNT


@dataclass
class Sink:
    written: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    down: bool = False
    first: asyncio.Event = field(default_factory=asyncio.Event)
    second: asyncio.Event = field(default_factory=asyncio.Event)

    async def apply_inventory_status(self, node: str, status: Mapping[str, Any]) -> None:
        if self.down:
            raise ApiUnavailable(503, "", "down")
        self.written.append((node, status))
        self.first.set()
        if len(self.written) == 2:
            self.second.set()


@dataclass
class Bench:
    ledger: Ledger
    sink: Sink
    publisher: StatusPublisher
    fence: Fence

    async def settle(self) -> None:
        self.publisher.mark(self.ledger.nodes())
        await asyncio.sleep(0.02)

    @property
    def last(self) -> InventoryStatus:
        return InventoryStatus.model_validate(self.sink.written[-1][1])


@asynccontextmanager
async def bench(*nodes: str, **settings: Any) -> AsyncIterator[Bench]:
    ledger, sink, fence = ledger_of(*nodes), Sink(), Fence(10, 4)
    fence.renewed(asyncio.get_running_loop().time())
    quick: dict[str, Any] = {
        "status_interval_seconds": 0,
        "status_settle_seconds": 0,
        "status_writes_per_second": 1000,
    }
    chosen = OperatorSettings(**{**quick, **settings})
    publisher = StatusPublisher(ledger, sink, fence, chosen)
    task = asyncio.ensure_future(publisher.run())
    try:
        yield Bench(ledger, sink, publisher, fence)
    finally:
        assert not task.done(), "it has ended by itself"
        task.cancel()
        await asyncio.wait({task})


async def test_an_empty_status_is_filled_once() -> None:
    async with bench("node-a") as it:
        it.publisher.saw("node-a", InventoryStatus())
        await it.settle()
        await it.settle()
        assert [node for node, _ in it.sink.written] == ["node-a"]
        assert it.last.summary.memory_mib == "0/40960"


async def test_an_object_that_shows_the_right_status_is_not_written() -> None:
    async with bench("node-a") as it:
        it.publisher.saw("node-a", InventoryStatus())
        await it.settle()
        shown = it.last
    async with bench("node-a") as again:
        again.publisher.saw("node-a", shown)
        await again.settle()
        assert again.sink.written == []


async def test_a_status_that_somebody_else_altered_is_put_right() -> None:
    async with bench("node-a") as it:
        it.publisher.saw("node-a", InventoryStatus())
        await it.settle()
        altered = it.last.model_copy(update={"gpus": ()})
        it.publisher.saw("node-a", altered)
        await it.settle()
        assert len(it.sink.written) == 2
        assert [gpu.uuid for gpu in it.last.gpus] == ["GPU-node-a-0"]


async def test_a_holder_appears_with_its_amounts() -> None:
    async with bench("node-a") as it:
        it.publisher.saw("node-a", InventoryStatus())
        it.ledger.put_pod(bound("one", "node-a"))
        await it.settle()
        holder = it.last.gpus[0].holders[0]
        assert (holder.name, holder.memory_mib, holder.state.value) == ("one", 4096, "running")
        assert (it.last.gpus[0].used_memory_mib, it.last.totals.used_slots) == (4096, 1)


async def test_a_condition_keeps_its_time_while_it_stays_true() -> None:
    async with bench("node-a") as it:
        it.publisher.saw("node-a", InventoryStatus())
        await it.settle()
        old = it.last.conditions[0].model_copy(update={"last_transition_time": "2020-01-01T00:00:00Z"})
        it.publisher.saw("node-a", it.last.model_copy(update={"conditions": (old,)}))
        it.ledger.put_pod(bound("one", "node-a"))
        await it.settle()
        assert it.last.conditions[0].last_transition_time == "2020-01-01T00:00:00Z"
        it.ledger.put_inventory(inventory("node-a", read_error="NVML: driver not loaded"))
        await it.settle()
        assert it.last.conditions[0].reason == "ReadError"
        assert it.last.conditions[0].last_transition_time > "2020-01-01T00:00:00Z"


async def test_changes_within_the_interval_become_one_write() -> None:
    async with bench("node-a", status_interval_seconds=0.5) as it:
        it.publisher.saw("node-a", InventoryStatus())
        await it.settle()
        for name in ("one", "two", "three"):
            it.ledger.put_pod(bound(name, "node-a"))
            it.publisher.mark(["node-a"])
        async with asyncio.timeout(10):
            await it.sink.second.wait()
        assert len(it.sink.written) == 2
        assert it.last.totals.used_slots == 3


async def test_a_node_that_goes_on_changing_is_written_once_it_rests() -> None:
    async with bench("node-a", status_settle_seconds=0.2, status_interval_seconds=60) as it:
        it.publisher.saw("node-a", InventoryStatus())
        for name in ("one", "two", "three"):
            it.ledger.put_pod(bound(name, "node-a"))
            it.publisher.mark(["node-a"])
            await asyncio.sleep(0)
        assert it.sink.written == []
        async with asyncio.timeout(10):
            await it.sink.first.wait()
        assert it.last.totals.used_slots == 3


async def test_a_node_that_never_rests_is_written_after_the_interval() -> None:
    async with bench("node-a", status_settle_seconds=3600, status_interval_seconds=0.1) as it:
        it.publisher.saw("node-a", InventoryStatus())
        async with asyncio.timeout(10):
            await it.sink.first.wait()


async def test_a_deleted_inventory_is_left_alone() -> None:
    async with bench("node-a") as it:
        it.publisher.saw("node-a", InventoryStatus())
        it.publisher.gone("node-a")
        await it.settle()
        assert it.sink.written == []


async def test_a_process_that_does_not_lead_writes_nothing() -> None:
    async with bench("node-a") as it:
        it.fence.lost()
        it.publisher.saw("node-a", InventoryStatus())
        await it.settle()
        assert it.sink.written == []


def test_amounts_beyond_what_an_object_may_say_are_cut_and_never_raise() -> None:
    """Cards of the largest size that an inventory may name, and holders whose sum no object can say."""
    ledger = ledger_of("node-a")
    cards = tuple(replace(card, memory_mib=MAX_MEMORY_MIB) for card in inventory("node-a", cards=MAX_CARDS).cards)
    ledger.put_inventory(replace(inventory("node-a"), cards=cards))
    for name in ("one", "two"):
        ledger.put_pod(bound(name, "node-a", memory_mib=MAX_COUNT))
    view = ledger.view("node-a")
    assert view is not None
    model = status_model(inventory_status(view))
    assert model.totals is not None
    assert model.totals.memory_mib == MAX_CARDS * MAX_MEMORY_MIB
    assert model.totals.used_memory_mib == MAX_COUNT


def test_lost_cards_beyond_what_an_object_may_list_are_cut() -> None:
    ledger = ledger_of("node-a")
    pod = bound("one", "node-a")
    assert pod.assignment is not None
    lost = tuple(AssignedCard(f"GPU-lost-{i}", 1, 0, whole=False) for i in range(MAX_SHOWN_CARDS + 5))
    containers = (replace(pod.assignment.containers[0], cards=lost),)
    ledger.put_pod(replace(pod, assignment=replace(pod.assignment, containers=containers)))
    view = ledger.view("node-a")
    assert view is not None
    shown = status_model(inventory_status(view)).gpus
    assert len(shown) == MAX_SHOWN_CARDS
    assert shown[0].uuid == "GPU-node-a-0"
