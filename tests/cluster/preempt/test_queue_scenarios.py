"""S58-S69 and S83: what queues deserve, keep, lend and forbid, as evictions show it."""

import pytest

from tests.cluster.preempt.objects import HIGH, LOW, MIDDLE, NEVER_CLASS, Ask, Kind
from tests.cluster.preempt.stage import Case

pytestmark = pytest.mark.cluster
TOP = 1000


def test_s58_a_queue_takes_back_what_it_deserves_and_no_more(case: Case) -> None:
    case.node(8)
    a = Kind(queue=case.queue("a", deserved={"cards": "4"}))
    b = Kind(queue=case.queue("b", deserved={"cards": "4"}))
    case.run("a", a, 8)
    case.start("b", b, 5)
    case.wait_running("b", 4)
    [fifth] = case.waiting("b")
    case.wait_told(fifth, "VictimEntitled")
    case.wait_running("a", 4)
    assert len(case.evictions()) == 4
    assert len(case.running("b")) == 4


def test_s61_a_queue_keeps_what_it_is_guaranteed(case: Case) -> None:
    """The two pods are larger than what is guaranteed, so that one of them is borrowed in part."""
    case.node(2)
    a = case.queue("a", deserved={"cards": "1500m"}, guarantee={"cards": "1500m"})
    b = case.queue("b", deserved={"cards": "2"})
    case.run("a", Kind(queue=a), 2)
    case.pod("h", Kind(queue=b, priority=HIGH))
    case.wait_told("h", "EvictionLimits")
    assert case.evictions() == []


def test_s62_a_queue_that_is_not_reclaimable_loses_nothing_to_others_but_orders_its_own(case: Case) -> None:
    case.node(1)
    a = Kind(queue=case.queue("a", reclaimable=False))
    case.run("a", a)
    case.pod("b", Kind(queue=case.queue("b", deserved={"cards": "1"}), priority=HIGH))
    case.wait_told("b", "QueueNotReclaimable")
    assert case.evictions() == []
    case.pod("own", a.but(priority=HIGH))
    case.wait_bound("own")
    assert len(case.evictions()) == 1


def test_s63_a_queue_at_its_capability_evicts_nobody(case: Case) -> None:
    case.node(2)
    full = Kind(queue=case.queue("full", deserved={"cards": "1"}, capability={"cards": "1"}), priority=MIDDLE)
    case.run("low", Kind(queue=case.queue("low")))
    case.run("full", full)
    case.pod("h", full)
    case.wait_told("h", "QueueCapability")
    assert case.evictions() == []


def test_a_pod_that_no_node_would_take_lays_nothing_open_of_what_its_queue_runs(case: Case) -> None:
    """Its queue runs what it deserves, the other one has borrowed two cards."""
    case.node(5)
    mine = Kind(queue=case.queue("mine", deserved={"cards": "2"}))
    case.run("mine", mine, 2)
    case.run("borrows", Kind(queue=case.queue("other", deserved={"cards": "1"}), priority=MIDDLE), 3)
    case.pod(
        "imposs", mine.but(ask=Ask(2), priority=HIGH, extra={"nodeSelector": {"example.com/zone": "nowhere"}})
    )
    case.wait_refused("imposs", "OtherFilters")
    case.pod("srv", Kind(queue=case.queue("srv", deserved={"cards": "1"})))
    case.wait_bound("srv")
    assert len(case.evictions()) == 1
    assert len(case.running("mine")) == 2


def test_s64_who_is_not_entitled_takes_nothing_from_who_is(case: Case) -> None:
    case.node(1)
    case.run("low", Kind(queue=case.queue("a", deserved={"cards": "1"})))
    case.pod("h", Kind(queue=case.queue("b"), priority=TOP))
    case.wait_told("h", "VictimEntitled")
    assert case.evictions() == []


def test_s65_a_borrower_takes_only_from_borrowers_under_the_threshold(case: Case) -> None:
    case.node(2)
    lender = case.queue("lender")
    borrow = {"borrowAcrossQueues": {"policy": "LowerPriority", "maxPriorityThreshold": 50}}
    [under] = case.run("under", Kind(queue=lender, priority=LOW))
    case.run("over", Kind(queue=lender, priority=60))
    borrower = Kind(queue=case.queue("borrower", preemption=borrow), priority=HIGH)
    case.pod("h1", borrower)
    case.wait_bound("h1")
    assert case.evictions() == [under]
    case.pod("h2", borrower)
    case.wait_told("h2", "PriorityThreshold")
    assert case.evictions() == [under]


def test_s67_a_pod_that_may_not_evict_waits_and_is_first_when_room_comes(case: Case) -> None:
    case.node(1)
    team = Kind(queue=case.queue("team"))
    case.pod("holder", team.but(priority=TOP))
    case.wait_bound("holder")
    case.pod("earlier", team.but(priority=MIDDLE))
    case.wait_told("earlier", "NeverAVictim")
    case.pod("patient", team.but(class_name=NEVER_CLASS))
    case.wait_told("patient", "PreemptionNever")
    assert case.evictions() == []
    case.delete("holder")
    case.wait_bound("patient")
    assert case.node_of("earlier") == ""


def test_s67_a_pod_that_may_not_evict_does_not_though_it_could(case: Case) -> None:
    case.node(1)
    team = Kind(queue=case.queue("team"))
    case.run("low", team)
    case.pod("patient", team.but(class_name=NEVER_CLASS))
    case.wait_told("patient", "PreemptionNever")
    assert case.evictions() == []


def test_s68_a_held_queue_starts_nothing_and_can_still_lose_what_it_borrowed(case: Case) -> None:
    case.node(1)
    held = case.queue("held")
    [borrowed] = case.run("borrowed", Kind(queue=held))
    case.change_queue(held, stopPolicy="Hold")
    case.pod("waits", Kind(queue=held, priority=TOP))
    case.wait_told("waits", "QueueStopped")
    assert case.evictions() == []
    case.pod("h", Kind(queue=case.queue("other", deserved={"cards": "1"})))
    case.wait_bound("h")
    assert case.evictions() == [borrowed]
    case.delete("h")
    case.wait(lambda: "h" not in case.pods(), "h to be gone")
    case.change_queue(held, stopPolicy="None")
    case.wait_bound("waits")


def test_s69_a_queue_that_deserves_less_loses_nothing_until_somebody_asks(case: Case) -> None:
    case.node()
    a = case.queue("a", deserved={"cards": "4"})
    b = case.queue("b")
    case.run("a", Kind(queue=a), 4)
    case.change_queue(a, deserved={"cards": "1"})
    case.pod("h0", Kind(queue=b))
    case.wait_told("h0", "QueuePolicy")
    assert case.evictions() == []
    case.change_queue(b, deserved={"cards": "1"})
    case.wait_bound("h0")
    assert len(case.evictions()) == 1


def test_s83_a_queue_that_waits_before_it_evicts_takes_the_room_that_comes_meanwhile(case: Case) -> None:
    case.node(1)
    case.run("low", Kind(queue=case.queue("low")))
    high = case.queue("high", deserved={"cards": "1"}, preemption={"waitBefore": "300s"})
    case.pod("h", Kind(queue=high, priority=HIGH))
    case.wait_told("h", "WaitBefore")
    case.node(1)
    case.wait_bound("h")
    assert case.evictions() == []


def test_s83_it_evicts_when_it_has_waited(case: Case) -> None:
    """No event comes at that moment: the planner wakes by itself."""
    case.node(1)
    case.run("low", Kind(queue=case.queue("low")))
    high = case.queue("high", deserved={"cards": "1"}, preemption={"waitBefore": "3s"})
    case.pod("h", Kind(queue=high, priority=HIGH))
    case.wait_told("h", "WaitBefore")
    assert case.evictions() == []
    case.wait_bound("h")
    assert len(case.evictions()) == 1


def test_s75_a_pod_is_safe_for_its_minimum_runtime_and_goes_when_it_is_over(case: Case) -> None:
    case.node(1)
    case.run("low", Kind(queue=case.queue("low", preemption={"minRuntime": {"reclaim": "4s"}})))
    case.pod("h", Kind(queue=case.queue("high", deserved={"cards": "1"}), priority=HIGH))
    case.wait_told("h", "Protected")
    assert case.evictions() == []
    case.wait_bound("h")
    assert len(case.evictions()) == 1


def test_hold_and_drain_evicts_what_runs_in_the_queue(case: Case) -> None:
    case.node(2)
    drained = case.queue("drained")
    case.run("low", Kind(queue=drained), 2)
    case.change_queue(drained, stopPolicy="HoldAndDrain")
    case.wait(lambda: len(case.evictions()) == 2, "both pods to be evicted")
    case.wait_running("low", 0)
    for name in case.waiting("low"):
        case.wait_told(name, "QueueStopped")
    case.pod("other", Kind(queue=case.queue("other"), ask=Ask(number=2)))
    case.wait_bound("other")
