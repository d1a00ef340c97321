"""S38-S48: the API server refuses, stalls, forgets; the operator is killed. The same victims, and no others."""

from dataclasses import dataclass

import pytest

from devcluster.cluster import SCHEDULER
from devcluster.faults import Fault, Rule
from devcluster.operators import OPERATOR
from devcluster.waiting import wait_until
from tests.cluster.preempt.objects import HIGH, LOW, Ask, Kind
from tests.cluster.preempt.stage import Case, World
from vgpu import names

pytestmark = pytest.mark.cluster
EVICTION = r"/pods/[^/]+/eviction"
PLAN = rf"/{names.PREEMPTION_PLURAL}(\?|$)"
QUARTERS, SIXTIES = Ask(number=4, percent=25, cores=25), Ask(number=4, percent=60, cores=60)
REPLACED = "operator-1"


def two_queues(case: Case, *, linger: bool = False) -> tuple[Kind, Kind]:
    """Victims of a queue that deserves nothing, and preemptors of one that deserves four cards."""
    low, high = case.queue("low"), case.queue("high", deserved={"cards": "4"})
    return Kind(queue=low, priority=LOW, linger=linger), Kind(queue=high, priority=HIGH)


def fail(case: Case, method: str, path: str, fault: Fault, **how: object) -> Rule:
    """Make the operator's requests of this kind fail from now on."""
    rule = Rule(method, path, fault, **how)  # type: ignore[arg-type]
    case.world.proxy.rules.append(rule)
    return rule


def test_s38_a_preemptor_that_goes_before_anybody_was_asked_costs_nobody(case: Case) -> None:
    """Its plan is on its way to the API server when it is deleted."""
    case.node(1)
    low, high = two_queues(case)
    case.run("low", low)
    rule = fail(case, "POST", PLAN, Fault.SLOW, delay_seconds=1.5)
    case.pod("h", high)
    case.wait(lambda: rule.fired > 0, "the plan to be written")
    case.delete("h")
    case.wait(rule.done.is_set, "the plan to be there")
    case.wait(lambda: case.plans() == [], "the plan to be over")
    assert case.evictions() == []
    assert len(case.running("low")) == 1


@pytest.mark.parametrize("status", [500, 503, 429], ids=str)
def test_s45_an_eviction_that_fails_is_tried_again_for_the_same_pod(case: Case, status: int) -> None:
    case.node()
    low, high = two_queues(case)
    case.run("low", low.but(ask=QUARTERS), 4)
    rule = fail(case, "POST", EVICTION, Fault.STATUS, status=status, first=2, last=3)
    case.pod("h", high.but(ask=SIXTIES))
    case.wait_bound("h")
    assert rule.fired == 2
    assert len(case.evictions()) == 3
    assert len(case.running("low")) == 1


def test_s45_an_eviction_whose_answer_is_lost_is_not_made_up_for_by_another(case: Case) -> None:
    case.node()
    low, high = two_queues(case)
    case.run("low", low.but(ask=QUARTERS), 4)
    rule = fail(case, "POST", EVICTION, Fault.UNANSWERED, first=1, last=2)
    case.pod("h", high.but(ask=SIXTIES))
    case.wait_bound("h")
    assert rule.fired == 2
    assert len(case.evictions()) == 3
    assert len(case.running("low")) == 1


def test_s47_a_victim_whose_end_was_not_seen_is_known_to_be_gone_after_the_gap(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case, linger=True)
    case.run("low", low)
    case.pod("h", high)
    [victim] = case.wait_leaving("low", 1)
    case.world.proxy.silence()
    try:
        case.let_go(victim)
        case.wait(lambda: victim not in case.pods(), "the victim to be gone")
        case.world.proxy.cut_streams()
    finally:
        case.world.proxy.speak()
    case.wait_bound("h")
    assert case.evictions() == [victim]


def test_s48_a_binding_that_fails_keeps_its_cards_and_costs_nobody_else(case: Case) -> None:
    case.node(2)
    low, high = two_queues(case)
    case.run("low", low, 2)
    rule = fail(case, "POST", r"/pods/h/binding", Fault.STATUS, status=503, first=1, last=2)
    case.pod("h", high)
    case.wait_bound("h")
    assert rule.fired == 2
    assert len(case.evictions()) == 1


@dataclass(frozen=True, slots=True)
class Moment:
    """One write of a plan's life."""

    method: str
    path: str
    number: int = 1


STATUS = rf"/{names.PREEMPTION_PLURAL}/[^/]+/status"
MOMENTS = {
    "plan": Moment("POST", PLAN),
    "first-eviction": Moment("POST", EVICTION),
    "second-eviction": Moment("POST", EVICTION, 2),
    "last-eviction": Moment("POST", EVICTION, 3),
    "draining": Moment("PATCH", STATUS),
    "nomination": Moment("PATCH", r"/pods/h/status"),
    "binding": Moment("POST", r"/pods/h/binding"),
}
FAULTS = (Fault.BEFORE, Fault.UNANSWERED, Fault.ANSWERED)


def kill_at(case: Case, moment: Moment, fault: Fault) -> Rule:
    """Have the operator killed at this write, counted from now."""
    number = moment.number
    return fail(case, moment.method, moment.path, fault, first=number, last=number, hook=case.world.crash)


def wait_killed(case: Case, rule: Rule) -> None:
    """Wait for the write and for the end of the operator."""
    wait_until(rule.done.is_set, f"{rule.method} {rule.path} to be sent", 60)
    assert not case.cluster.processes[OPERATOR].alive()


def end_unseen_by_the_scheduler(case: Case, leaving: list[str], rule: Rule) -> None:
    """kube-scheduler stands still: woken by the victims' ends it would bind the preemptor without a nomination."""
    case.cluster.pause(SCHEDULER)
    try:
        case.let_go(*leaving)
        wait_killed(case, rule)
    finally:
        case.cluster.resume(SCHEDULER)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("moment", MOMENTS)
def test_s42_killed_at_any_write_the_operator_goes_on_with_the_same_victims(
    case: Case, moment: str, fault: Fault
) -> None:
    case.node()
    low, high = two_queues(case, linger=moment == "nomination")
    case.run("low", low.but(ask=QUARTERS), 4)
    rule = kill_at(case, MOMENTS[moment], fault)
    uid = case.pod("h", high.but(ask=SIXTIES))
    if moment == "nomination":
        end_unseen_by_the_scheduler(case, case.wait_leaving("low", 3), rule)
    else:
        wait_killed(case, rule)
    case.world.revive()
    case.wait_bound("h")
    assert len(case.evictions()) == 3
    victims = {name for _, name in case.plan_for(uid).victims}
    assert set(case.evictions()) == victims
    assert len(case.running("low")) == 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
def test_s42_killed_when_the_plan_is_over_nothing_is_lost_of_what_must_come_back(case: Case, fault: Fault) -> None:
    case.node(1)
    low, high = two_queues(case, linger=True)
    [victim] = case.run("low", low)
    h = case.pod("h", high)
    case.wait_leaving("low", 1)
    case.wait_phase(h, "Draining")
    rule = kill_at(case, Moment("PATCH", STATUS), fault)
    case.let_go(victim)
    wait_killed(case, rule)
    case.world.revive()
    case.wait_bound("h")
    assert case.evictions() == [victim]
    case.delete("h")
    case.wait_running("low", 1)
    case.wait(lambda: case.plans() == [], "the debt to be paid")


def test_s42_killed_while_victims_leave_the_hole_stays_held(case: Case) -> None:
    """The new process is asked by the thief before anything else happens to the plan."""
    case.node(2)
    low, high = two_queues(case, linger=True)
    case.run("low", low, 2)
    h = case.pod("h", high.but(ask=Ask(number=2)))
    first, second = case.wait_leaving("low", 2)
    case.wait_phase(h, "Draining")
    case.world.crash()
    case.let_go(first)
    case.wait(lambda: first not in case.pods(), "the first victim to be gone")
    case.world.revive()
    peaceful = case.queue("thieves", preemption={"withinQueue": "Never"})
    case.pod("thief", Kind(queue=peaceful))
    case.wait_refused("thief", "nobody may be evicted")
    case.let_go(second)
    case.wait_bound("h")
    assert case.node_of("thief") == ""
    assert len(case.evictions()) == 2


def test_s42_deleted_while_the_operator_is_away_a_preemptor_holds_nothing(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case, linger=True)
    [victim] = case.run("low", low)
    case.pod("h", high)
    case.wait_leaving("low", 1)
    case.world.crash()
    case.cluster.api.delete(f"{case.pods_path}/h", {"gracePeriodSeconds": 0})
    case.let_go(victim)
    case.world.revive()
    case.wait_running("low", 1)
    assert case.evictions() == [victim]


def test_s43_the_replica_that_takes_over_goes_on_with_the_plan(world: World, case: Case) -> None:
    """The old leader is stopped where it stands and loses its Lease; woken again it writes nothing any more."""
    case.node(2)
    low, high = two_queues(case, linger=True)
    case.run("low", low, 2)
    world.operators.start(REPLACED)
    try:
        world.operators.wait_ready(REPLACED)
        h = case.pod("h", high.but(ask=Ask(number=2)))
        leaving = case.wait_leaving("low", 2)
        case.wait_phase(h, "Draining")
        world.cluster.pause(OPERATOR)
        world.operators.wait_serving(REPLACED)
        world.cluster.resume(OPERATOR)
        case.let_go(*leaving)
        case.wait_bound("h")
        assert sorted(case.evictions()) == leaving
    finally:
        world.operators.stop(REPLACED)
