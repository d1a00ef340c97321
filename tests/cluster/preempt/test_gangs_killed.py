"""Gangs of which some are bound when the operator or a member dies."""

import pytest

from devcluster.faults import Fault, Rule
from tests.cluster.preempt.objects import HIGH, LOW, Kind
from tests.cluster.preempt.stage import Case
from tests.cluster.preempt.test_faults import wait_killed
from tests.cluster.preempt.test_gangs import PAIR, bindings, gang_kind, world  # noqa: F401

pytestmark = pytest.mark.cluster
BINDING = r"/pods/m[^/]*/binding"


def full(case: Case) -> Kind:
    case.node()
    case.node()
    queue = case.queue("q")
    case.run("low", Kind(PAIR, queue=queue, priority=LOW), 4)
    return gang_kind("g", 4, queue=queue, priority=HIGH)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.UNANSWERED, Fault.ANSWERED], ids=lambda f: f.name.lower())
@pytest.mark.parametrize("number", [3])
def test_killed_between_bindings_of_a_gang_the_rest_follows(case: Case, number: int, fault: Fault) -> None:
    kind = full(case)
    rule = Rule("POST", BINDING, fault, first=number, last=number, hook=case.world.crash)
    case.world.proxy.rules.append(rule)
    members = [f"m{member}" for member in range(4)]
    for name in members:
        case.pod(name, kind)
    wait_killed(case, rule)
    case.world.revive()
    case.wait_bound(*members)
    assert len(case.evictions()) == 4
    assert sorted(set(bindings(case)) & {*members}) == members


def test_a_member_that_goes_while_victims_leave_and_comes_back(case: Case) -> None:
    case.node()
    case.node()
    queue = case.queue("q")
    case.run("low", Kind(PAIR, queue=queue, priority=LOW, linger=True), 4)
    kind = gang_kind("g", 4, queue=queue, priority=HIGH)
    members = [f"m{number}" for number in range(4)]
    for name in members:
        case.pod(name, kind)
    leaving = case.wait_leaving("low", 4)
    case.cluster.api.delete(f"{case.pods_path}/m2", {"gracePeriodSeconds": 0})
    again = case.pod("m2", kind)

    def has_its_seat() -> bool:
        seats = [one for plan in case.plans() for one in plan.get("status", {}).get("successors", ())]
        return again in [one["uid"] for one in seats]

    case.wait(has_its_seat, "the plan to say who has the seat")
    case.let_go(*leaving)
    case.wait_bound(*members)
    assert sorted(case.evictions()) == leaving
