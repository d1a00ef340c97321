"""Pods that only their queue bars are woken when it lets them start, once, and no others."""

from dataclasses import dataclass, field

import pytest

from tests.controller.cluster_facts import bound, inventory, ledger_of, pending
from vgpu.controller.fence import Fence
from vgpu.controller.queue_waiters import QueueWaiters, queue_says
from vgpu.core.facts import PodFact
from vgpu.core.filtering import FilterAnswer
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.preempt.facts import Limits, QueueFact, StopPolicy
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.preempt.roster import Roster
from vgpu.core.reasons import Reason

HELD = QueueFact("default", stop_policy=StopPolicy.HOLD)
OPEN = QueueFact("default")


@dataclass
class Bench:
    ledger: Ledger
    roster: Roster
    waiters: QueueWaiters
    fence: Fence
    woken: list[Changes] = field(default_factory=list)

    def put_queue(self, queue: QueueFact) -> None:
        self.roster.put_queue(queue)
        self.waiters.queues_changed()

    def put(self, pod: PodFact) -> None:
        self.ledger.put_pod(pod)
        self.roster.put_pod(pod)

    def bar(self, *names: str) -> None:
        for name in names:
            pod = pending(name)
            self.put(pod)
            self.waiters.answered(pod, FilterAnswer([], no_fit_anywhere=True, barred=True))


@pytest.fixture
def it() -> Bench:
    ledger, fence = ledger_of("node-a", "node-b"), Fence(10, 4, lambda: 0.0)
    fence.renewed(0.0)
    roster, woken = Roster(ledger), list[Changes]()
    for node in ("node-a", "node-b"):
        ledger.put_inventory(inventory(node))
        roster.cards_changed(node)
    roster.put_queue(HELD)
    waiters = QueueWaiters(ledger, QueueGate(roster), fence, woken.append)
    return Bench(ledger, roster, waiters, fence, woken)


def test_all_nodes_are_looked_at_once_when_the_queue_goes_on(it: Bench) -> None:
    it.bar("one", "two")
    it.put_queue(OPEN)
    assert [changes.freed for changes in it.woken] == [{"node-a", "node-b"}]
    it.put_queue(QueueFact("default", priority=1))
    it.waiters.changed(Changes())
    assert len(it.woken) == 1, "nothing new may start"


def test_each_time_that_it_goes_on_counts(it: Bench) -> None:
    it.bar("one")
    for queue in (OPEN, HELD, OPEN):
        it.put_queue(queue)
    assert len(it.woken) == 2


def test_a_pod_that_ends_makes_room_under_the_capability(it: Bench) -> None:
    running = bound("running", "node-a", memory_mib=40_960)
    it.put(running)
    it.put_queue(QueueFact("default", capability=Limits(1000)))
    it.bar("one")
    it.waiters.changed(Changes())
    assert it.woken == []
    it.ledger.drop_pod(running.uid)
    it.roster.drop_pod(running.uid)
    it.waiters.changed(Changes())
    assert len(it.woken) == 1


def test_nobody_is_woken_for_pods_that_were_not_barred_or_are_gone(it: Bench) -> None:
    it.bar("gone", "answered")
    it.ledger.drop_pod("uid-gone")
    it.roster.drop_pod("uid-gone")
    it.waiters.changed(Changes(pods=frozenset({"uid-gone"})))
    it.waiters.answered(pending("answered"), FilterAnswer(["node-a"]))
    it.put_queue(OPEN)
    assert it.woken == []


def test_a_new_leader_finds_out_who_is_barred(it: Bench) -> None:
    it.put(pending("one"))
    it.waiters.start_over()
    it.put_queue(OPEN)
    assert len(it.woken) == 1


def test_who_does_not_lead_wakes_nobody(it: Bench) -> None:
    it.bar("one")
    it.fence.lost()
    it.put_queue(OPEN)
    assert it.woken == []


def test_what_its_queue_has_against_a_pod_is_asked_of_those_alone_who_are_told_why_they_wait(it: Bench) -> None:
    it.put(pending("one"))
    it.put(pending("gated", gated=True))
    said = [queue_says(it.ledger, QueueGate(it.roster), uid) for uid in ("uid-one", "uid-gated", "uid-gone")]
    assert said == [Reason.QUEUE_STOPPED, None, None]
