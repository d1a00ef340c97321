"""S32-S41, S44, S70-S72: while victims leave. The hole is held for one, and made once."""

import pytest

from devcluster.kwok import COMPLETE_ANNOTATION
from tests.cluster.preempt.objects import HIGH, LOW, MIDDLE, Ask, Kind
from tests.cluster.preempt.stage import Case

pytestmark = pytest.mark.cluster
PEACEFUL = {"withinQueue": "Never", "reclaimAcrossQueues": "Never"}
"""Of a queue whose pods wait for room and take none."""


def two_queues(case: Case, cards: int = 4) -> tuple[Kind, Kind]:
    """Lingering victims of a queue that deserves nothing, and preemptors of one that deserves everything."""
    low, high = case.queue("low"), case.queue("high", deserved={"cards": str(cards)})
    return Kind(queue=low, priority=LOW, linger=True), Kind(queue=high, priority=HIGH)


def test_s32_a_pod_that_would_fit_the_hole_waits(case: Case) -> None:
    case.node(2)
    low, high = two_queues(case)
    case.run("low", low, 2)
    case.pod("h", high.but(ask=Ask(number=2)))
    first, second = case.wait_leaving("low", 2)
    case.pod("thief", Kind(queue=case.queue("thieves", preemption=PEACEFUL), priority=MIDDLE))
    case.let_go(first)
    case.wait_refused("thief", "nobody may be evicted")
    assert case.node_of("h") == case.node_of("thief") == ""
    case.let_go(second)
    case.wait_bound("h")
    assert case.node_of("thief") == ""


def test_s33_a_stronger_one_takes_the_hole_over_without_more_evictions(case: Case) -> None:
    case.node(2)
    team = Kind(queue=case.queue("team"), linger=True)
    case.run("low", team, 2)
    both = team.but(ask=Ask(number=2), linger=False)
    h = case.pod("h", both.but(priority=MIDDLE))
    case.may_plan_again.add(h)
    leaving = case.wait_leaving("low", 2)
    hh = case.pod("hh", both.but(priority=HIGH))
    case.plan_for(hh)
    case.let_go(*leaving)
    case.wait_bound("hh")
    assert case.node_of("h") == ""
    assert sorted(case.evictions()) == leaving


def test_s34_what_a_controller_makes_anew_does_not_take_the_hole(case: Case) -> None:
    case.node(2)
    low, high = two_queues(case)
    case.run("low", low, 2)
    case.pod("h", high.but(ask=Ask(number=2)))
    first, second = case.wait_leaving("low", 2)
    case.wait(lambda: len(case.waiting("low")) == 2, "the controller to have made new pods")
    case.let_go(first)
    for name in case.waiting("low"):
        case.wait_refused(name, "nobody may be evicted")
    case.let_go(second)
    case.wait_bound("h")
    assert case.running("low") == {}


def test_s35_a_pod_that_takes_nothing_from_the_hole_is_placed(case: Case) -> None:
    case.node(2)
    low, high = two_queues(case)
    case.pod("keeps", high.but(ask=Ask(percent=50, cores=50)))
    case.wait_bound("keeps")
    case.run("low", low)
    case.pod("h", high)
    [leaving] = case.wait_leaving("low", 1)
    case.pod("small", low.but(ask=Ask(percent=25, cores=25), linger=False))
    case.wait_bound("small")
    assert case.cards("small") == case.cards("keeps")
    assert case.node_of("h") == ""
    case.let_go(leaving)
    case.wait_bound("h")


def test_s36_a_card_is_not_given_out_again_before_its_pod_is_gone(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    [victim] = case.run("low", low.but(extra={"terminationGracePeriodSeconds": 600}))
    h = case.pod("h", high)
    case.wait_leaving("low", 1)
    case.wait_phase(h, "Draining")
    case.wait(
        lambda: victim in case.plans()[0]["status"].get("waitsFor", ""), "the plan to name whom it waits for"
    )
    assert "Draining" in case.cluster.kubectl("get", "gpupreemptions", "-n", case.namespace)
    case.wait_told("h", victim)
    assert case.node_of("h") == ""
    case.let_go(victim)
    case.wait_bound("h")


def test_s40_room_elsewhere_ends_the_wait(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    [victim] = case.run("low", low)
    h = case.pod("h", high)
    case.wait_leaving("low", 1)
    case.wait_phase(h, "Draining")
    other = case.node(1)
    case.wait_bound("h")
    assert case.node_of("h") == other
    assert case.evictions() == [victim]
    case.let_go(victim)
    case.wait_running("low", 1)


def test_s41_a_victim_that_ends_by_itself_is_counted(case: Case) -> None:
    """One eviction at a time: the second victim ends while the first is on its way, and is not asked to go."""
    case.node(2)
    low = Kind(queue=case.queue("low"), linger=True)
    high = case.queue("high", deserved={"cards": "2"}, preemption={"maxInFlight": 1})
    case.run("low", low, 2)
    case.pod("h", Kind(queue=high, priority=HIGH, ask=Ask(number=2)))
    [first] = case.wait_leaving("low", 1)
    [second] = case.running("low")
    body = {"metadata": {"annotations": {COMPLETE_ANNOTATION: "Succeeded"}}}
    case.cluster.api.patch(f"{case.pods_path}/{second}", body)
    case.wait(lambda: case.pods()[second]["status"]["phase"] == "Succeeded", "the second to have ended")
    case.let_go(first)
    case.wait_bound("h")
    assert case.evictions() == [first]


def test_a_queue_with_max_in_flight_evicts_one_after_the_other(case: Case) -> None:
    case.node(2)
    high = case.queue("high", deserved={"cards": "2"}, preemption={"maxInFlight": 1})
    case.run("low", Kind(queue=case.queue("low"), linger=True), 2)
    case.pod("h", Kind(queue=high, priority=HIGH, ask=Ask(number=2)))
    [first] = case.wait_leaving("low", 1)
    assert case.evictions() == [first]
    case.let_go(first)
    second = case.wait_eviction(2)
    case.let_go(second)
    case.wait_bound("h")
    assert case.evictions() == [first, second]


def test_a_victim_that_never_ends_keeps_its_card_and_the_owner_goes_elsewhere(case: Case) -> None:
    """The victim never ends: after its grace and the time-outs the owner is planned for elsewhere."""
    case.node(1)
    other = case.node(1)
    low = Kind(queue=case.queue("low"), linger=True, extra={"terminationGracePeriodSeconds": 1})
    high = case.queue("high", deserved={"cards": "2"}, preemption={"stuckTimeout": "2s"})
    case.run("low", low, 2)
    case.may_plan_again.add(case.pod("h", Kind(queue=high, priority=HIGH)))
    [stuck] = case.wait_leaving("low", 1)
    case.wait(lambda: len(case.evictions()) == 2, "a second plan, since the first victim does not end")
    [second] = [name for name in case.evictions() if name != stuck]
    case.let_go(second)
    case.wait_bound("h")
    assert case.node_of("h") in (other, case.nodes[0])
    assert stuck in case.terminating("low"), "its card stays its own until it is gone"


def test_s70_a_budget_is_kept_and_the_next_best_goes(case: Case) -> None:
    """The cheapest set would take two pods under one budget, which allows one."""
    case.node(2)
    low, high = two_queues(case)
    low = low.but(linger=False)
    case.run("kept", low, 2)
    case.budget("kept", "kept", 1)
    case.pod("h", high.but(ask=Ask(number=2)))
    case.wait_refused("h", "EvictionLimits")
    assert case.evictions() == []
    case.node(1)
    case.run("dear", low.but(priority=MIDDLE))
    case.pod("h1", high)
    case.wait_bound("h1")
    assert len(case.evictions()) == 1


def test_s71_best_effort_takes_more_than_the_budget_allows_only_where_it_must(case: Case) -> None:
    case.node(2)
    low = Kind(queue=case.queue("low"))
    high = case.queue("high", deserved={"cards": "2"}, preemption={"disruptionBudget": "BestEffort"})
    case.run("kept", low)
    case.run("free", low.but(priority=MIDDLE))
    case.budget("kept", "kept", 0)
    case.pod("h", Kind(queue=high, priority=HIGH))
    case.wait_bound("h")
    assert [name.partition("-")[0] for name in case.evictions()] == ["free"]


def test_s72_a_pod_under_two_budgets_is_left_alone(case: Case) -> None:
    case.node(2)
    low, high = two_queues(case)
    low = low.but(linger=False)
    case.run("twice", low)
    for name in ("one", "two"):
        case.budget(name, "twice", 1)
    case.run("free", low.but(priority=MIDDLE))
    case.pod("h", high)
    case.wait_bound("h")
    assert [name.partition("-")[0] for name in case.evictions()] == ["free"]


def test_s44_an_eviction_that_the_budget_refuses_is_not_forced(case: Case) -> None:
    """The budget comes after the decision could have known it: nobody is deleted instead."""
    case.node(1)
    low, high = two_queues(case)
    case.run("kept", low.but(linger=False))
    case.budget("kept", "kept", 0)
    case.pod("h", high)
    case.wait_refused("h", "EvictionLimits")
    assert len(case.running("kept")) == 1
    deletions = [
        e for e in case.cluster.audit_events(case.since).events if (e.verb, e.resource) == ("delete", "pods")
    ]
    assert [event.name for event in deletions if event.namespace == case.namespace] == []
