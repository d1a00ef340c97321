"""Status of queues is written when it differs from what the watch shows, and only then."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.controller.cluster_facts import bound, inventory, ledger_of, pending
from vgpu.api.queue import QueueStatus
from vgpu.controller.fence import Fence
from vgpu.controller.queue_status import QueueStatusPublisher
from vgpu.controller.translate.queue import SeenQueue
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.preempt.facts import Limits, QueueFact, StopPolicy
from vgpu.core.preempt.roster import Roster
from vgpu.errors import ApiUnavailable
from vgpu.settings import OperatorSettings


@dataclass
class Sink:
    written: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    down: bool = False

    async def apply_queue_status(self, name: str, status: Mapping[str, Any]) -> None:
        if self.down:
            raise ApiUnavailable(503, "", "down")
        self.written.append((name, status))


@dataclass
class Bench:
    ledger: Ledger
    roster: Roster
    sink: Sink
    publisher: QueueStatusPublisher
    fence: Fence

    def put(self, pod: PodFact) -> None:
        self.ledger.put_pod(pod)
        self.roster.put_pod(pod)

    def put_queue(self, queue: QueueFact, status: QueueStatus | None = None, fault: str = "") -> None:
        self.roster.put_queue(queue)
        self.publisher.saw(SeenQueue(queue.name, queue, status or QueueStatus(), fault))

    async def settle(self) -> None:
        self.publisher.changed(Changes())
        for _ in range(20):
            await asyncio.sleep(0.001)

    @property
    def last(self) -> QueueStatus:
        return QueueStatus.model_validate(self.sink.written[-1][1])

    @property
    def ready(self) -> tuple[str, str]:
        condition = self.last.conditions[0]
        return (condition.status.value, condition.reason)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    ledger, sink, fence = ledger_of("node-a"), Sink(), Fence(10, 4)
    fence.renewed(asyncio.get_running_loop().time())
    ledger.put_inventory(inventory("node-a", 2))
    roster = Roster(ledger)
    roster.cards_changed("node-a")
    settings = OperatorSettings(
        status_interval_seconds=0, status_settle_seconds=0, status_writes_per_second=10_000
    )
    publisher = QueueStatusPublisher(roster, sink, fence, settings)
    task = asyncio.ensure_future(publisher.run())
    try:
        yield Bench(ledger, roster, sink, publisher, fence)
    finally:
        assert not task.done(), "it has ended by itself"
        task.cancel()
        await asyncio.wait({task})


async def test_what_a_queue_uses_borrows_and_waits_for_is_written_once() -> None:
    async with bench() as it:
        it.put(bound("one", "node-a", 0, 40_960))
        it.put(bound("two", "node-a", 1, 20_480))
        it.put(pending("three", 10_240))
        it.put_queue(QueueFact("default", deserved=Limits(1000)))
        await it.settle()
        await it.settle()
        assert [name for name, _ in it.sink.written] == ["default"]
        status = it.last
        assert (status.used.cards, status.entitled.cards, status.borrowed.cards) == ("1.5", "1", "0.5")
        assert (status.pending.cards, status.pending_pods, status.used.memory_mib) == ("0.25", 1, 61_440)
        assert it.ready == ("True", "Active")


async def test_an_object_that_shows_the_right_status_is_not_written() -> None:
    async with bench() as it:
        it.put_queue(QueueFact("default"))
        await it.settle()
        shown = it.last
    async with bench() as again:
        again.put_queue(QueueFact("default"), shown)
        await again.settle()
        assert again.sink.written == []
        again.put_queue(QueueFact("default"), shown.model_copy(update={"pending_pods": 3}))
        await again.settle()
        assert again.last.pending_pods == 0, "what somebody else wrote there is put right"


@pytest.mark.parametrize(
    ("queue", "fault", "want"),
    [
        (QueueFact("q", stop_policy=StopPolicy.HOLD), "", ("False", "Held")),
        (QueueFact("q", stop_policy=StopPolicy.HOLD_AND_DRAIN), "", ("False", "Draining")),
        (QueueFact("q", capability=Limits(500)), "", ("False", "OverCapability")),
        (QueueFact("q", capability=Limits(1000)), "", ("True", "Active")),
        (QueueFact("q"), "spec.priority: must be a number", ("False", "QueueUnreadable")),
    ],
)
async def test_the_condition_says_whether_new_pods_start(
    queue: QueueFact, fault: str, want: tuple[str, str]
) -> None:
    async with bench() as it:
        it.put(bound("one", "node-a", 0, 40_960, queue="q"))
        it.put_queue(queue, fault=fault)
        await it.settle()
        assert it.ready == want
        assert it.last.used.cards == "1"


async def test_a_queue_that_never_could_be_read_is_told_so() -> None:
    async with bench() as it:
        it.publisher.saw(SeenQueue("q", None, QueueStatus(), "spec: not a map"))
        await it.settle()
        assert it.last.conditions[0].message.startswith("spec: not a map; correct the spec")


async def test_only_the_leader_writes_and_a_new_one_compares_everything() -> None:
    async with bench() as it:
        it.fence.lost()
        it.put_queue(QueueFact("default"))
        await it.settle()
        assert it.sink.written == []
        it.fence.renewed(asyncio.get_running_loop().time())
        it.publisher.start_over()
        await it.settle()
        assert len(it.sink.written) == 1


async def test_a_queue_that_is_gone_is_not_written() -> None:
    async with bench() as it:
        it.put_queue(QueueFact("default"))
        it.roster.drop_queue("default")
        it.publisher.gone("default")
        await it.settle()
        assert it.sink.written == []


async def test_the_time_of_a_condition_stays_while_its_truth_does() -> None:
    async with bench() as it:
        it.put_queue(QueueFact("default"))
        await it.settle()
        since = it.last.conditions[0].last_transition_time
        assert since
        old = it.last.conditions[0].model_copy(update={"last_transition_time": "2020-01-01T00:00:00Z"})
        it.put_queue(QueueFact("default"), it.last.model_copy(update={"conditions": (old,)}))
        it.put(pending("one"))
        await it.settle()
        assert it.last.conditions[0].last_transition_time == "2020-01-01T00:00:00Z"
