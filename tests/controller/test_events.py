"""One event per pod and reason: when it changes, not while it stays, and not twice after a restart."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.controller.cluster_facts import CARD_MIB, bound, index_of, inventory, ledger_of, pending
from vgpu import names
from vgpu.controller.answers import Answers
from vgpu.controller.events import EventReporter, pod_event
from vgpu.controller.fence import Fence
from vgpu.controller.writer import EventWrite
from vgpu.core.ledger import Ledger
from vgpu.core.reasons import Reason, Refusal
from vgpu.errors import ApiUnavailable
from vgpu.settings import OperatorSettings


@dataclass
class Sink:
    written: list[EventWrite] = field(default_factory=list)
    down: bool = False

    async def write_event(self, event: EventWrite) -> None:
        if self.down:
            raise ApiUnavailable(503, "", "down")
        self.written.append(event)

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(event.object_name, event.reason) for event in self.written]


@dataclass
class Bench:
    ledger: Ledger
    sink: Sink
    reporter: EventReporter
    fence: Fence

    async def settle(self) -> None:
        for _ in range(10):
            self.reporter.look(asyncio.get_running_loop().time())
            await asyncio.sleep(0.003)


@asynccontextmanager
async def bench(*nodes: str, sink: Sink | None = None, **settings: Any) -> AsyncIterator[Bench]:
    sink = sink or Sink()
    ledger, fence = ledger_of(*nodes), Fence(10, 4)
    fence.renewed(asyncio.get_running_loop().time())
    chosen = OperatorSettings(**{"event_settle_seconds": 0, "events_per_second": 1000, **settings})
    answers = Answers(ledger, index_of(ledger), names.SCHEDULER_NAME)
    reporter = EventReporter(ledger, answers, sink, fence, chosen)
    task = asyncio.ensure_future(reporter.tell())
    try:
        yield Bench(ledger, sink, reporter, fence)
    finally:
        assert not task.done(), "it has ended by itself"
        task.cancel()
        await asyncio.wait({task})


async def test_a_pending_pod_is_told_its_reason_once() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        await it.settle()
        assert it.sink.told == [("new", "ExclusiveHolder")]
        assert "wants 1 card of 4096 MiB" in it.sink.written[0].message


async def test_a_changed_reason_is_told_and_an_old_one_not_again_within_the_interval() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        it.ledger.put_inventory(inventory("node-a", read_error="NVML: driver not loaded"))
        await it.settle()
        it.ledger.put_inventory(inventory("node-a"))
        await it.settle()
        assert it.sink.told == [("new", "ExclusiveHolder"), ("new", "ReadError")]


async def test_an_old_reason_that_came_back_is_told_after_the_interval() -> None:
    async with bench("node-a", event_repeat_seconds=0.05) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        await it.settle()
        it.ledger.put_inventory(inventory("node-a", read_error="NVML: driver not loaded"))
        await it.settle()
        it.ledger.put_inventory(inventory("node-a"))
        for _ in range(5):
            await it.settle()
        assert [reason for _, reason in it.sink.told] == ["ExclusiveHolder", "ReadError", "ExclusiveHolder"]


async def test_what_somebody_else_has_told_the_pod_is_not_told_within_the_interval() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        for name in ("new", "newer"):
            it.ledger.put_pod(pending(name))
        it.reporter.look(asyncio.get_running_loop().time())
        it.reporter.codes.tell(pending("new").uid, "ExclusiveHolder", asyncio.get_running_loop().time())
        await it.settle()
        assert it.sink.told == [("newer", "ExclusiveHolder")]


async def test_a_code_whose_write_failed_was_not_told() -> None:
    async with bench("node-a") as it:
        it.sink.down = True
        it.ledger.put_pod(pending("new", unschedulable_message="0/1"))
        await it.settle()
        assert not it.reporter.codes.was_told(pending("new").uid, "OtherFilters")


async def test_a_reason_that_does_not_last_is_not_told() -> None:
    async with bench("node-a", event_settle_seconds=0.03) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        it.reporter.look(asyncio.get_running_loop().time())
        it.ledger.put_pod(bound("new", "node-a"))
        for _ in range(3):
            await it.settle()
        assert it.sink.told == []


async def test_a_pod_that_in_tree_filters_alone_refuse_is_told_their_words() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(pending("new", unschedulable_message="0/1 nodes are available: 1 Insufficient cpu."))
        await it.settle()
        assert it.sink.told == [("new", "OtherFilters")]
        assert "1 Insufficient cpu" in it.sink.written[0].message


async def test_an_unreadable_request_is_told_by_its_own_reason() -> None:
    refusal = Refusal(Reason.INVALID_REQUEST, "volcano.sh/vgpu-number is -1")
    async with bench("node-a") as it:
        it.ledger.put_pod(pending("bad", request=None, refusal=refusal))
        await it.settle()
        assert it.sink.told == [("bad", "InvalidRequest")]


async def test_pods_of_other_schedulers_and_gated_ones_are_left_alone() -> None:
    async with bench() as it:
        it.ledger.put_pod(pending("other", scheduler_name="default-scheduler"))
        it.ledger.put_pod(pending("gated", gated=True))
        await it.settle()
        assert it.sink.told == []


async def test_a_failed_write_is_repeated() -> None:
    async with bench("node-a") as it:
        it.sink.down = True
        it.ledger.put_pod(pending("new", unschedulable_message="0/1"))
        await it.settle()
        assert it.sink.told == []
        it.sink.down = False
        it.reporter.start_over()
        await it.settle()
        assert it.sink.told == [("new", "OtherFilters")]


async def test_a_process_that_does_not_lead_tells_nothing() -> None:
    async with bench("node-a") as it:
        it.fence.lost()
        it.ledger.put_pod(pending("new"))
        await it.settle()
        assert it.sink.told == []


def test_every_process_gives_the_same_name_to_the_same_news() -> None:
    pod = pending("new")
    first = pod_event(pod, Reason.READ_ERROR, "one text")
    assert first.name == pod_event(pod, Reason.READ_ERROR, "another").name
    assert first.name != pod_event(pod, Reason.AGENT_DOWN, "one text").name
    assert first.name != pod_event(replace(pod, uid="another"), Reason.READ_ERROR, "one text").name


def test_an_event_about_a_pod_of_the_longest_name_has_a_name_wherever_that_is_cut() -> None:
    for longest in (f"{'a' * 229}-{'b' * 23}", f"{'a' * 228}.-{'b' * 23}", "a" * 253):
        name = pod_event(replace(pending("new"), name=longest), Reason.READ_ERROR, "one text").name
        assert len(name) <= 253
        assert all(re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in name.split("."))


async def test_an_event_that_cannot_be_made_keeps_no_other_pod_waiting_and_is_made_once_it_can_be() -> None:
    class Poisoned(Sink):
        sick = True

        async def write_event(self, event: EventWrite) -> None:
            if self.sick and event.object_name == "sick":
                raise ValueError("nobody foresaw this")
            await super().write_event(event)

    sink = Poisoned()
    async with bench("node-a", sink=sink) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        for name in ("sick", "well"):
            it.ledger.put_pod(pending(name))
        await it.settle()
        assert sink.told == [("well", "ExclusiveHolder")]
        sink.sick = False
        await it.settle()
        assert sink.told == [("well", "ExclusiveHolder"), ("sick", "ExclusiveHolder")]
