"""What one preemption costs the API server, and that nothing is written once it is over."""

import time
from collections import Counter

import pytest

from tests.cluster.preempt.objects import HIGH, LOW, Ask, Kind
from tests.cluster.preempt.stage import Case

pytestmark = pytest.mark.cluster

QUIET_SECONDS = 5.0
BEYOND_VICTIMS = 6
"""The plan, two words of its status, a nomination, the binding, the plan's deletion (preemption.md 3)."""


def test_a_preemption_costs_as_many_writes_as_victims_and_six_and_then_none(case: Case) -> None:
    case.node()
    team = case.queue("team")
    case.run("low", Kind(queue=team, priority=LOW, ask=Ask(number=4, percent=25)), 4)
    case.wait(lambda: not case.plans(), "no plan to be there")
    before = Counter(case.writes())
    case.pod("h", Kind(queue=team, priority=HIGH, ask=Ask(number=4, percent=60)))
    case.wait_bound("h")
    case.end_workload("low")
    case.wait(lambda: not case.plans(), "the plan to be gone once nothing is owed")
    made = Counter(case.writes()) - before
    counted = {what: count for what, count in made.items() if _counts(what)}
    assert len(case.evictions()) == 3
    assert sum(counted.values()) <= 3 + BEYOND_VICTIMS, counted
    case.wait(lambda: _quiet(case), "nothing to be written any more")


def _counts(what: str) -> bool:
    """Events and what inventories and queues show come apart from that."""
    return not any(part in what for part in ("events/", "gpunodeinventories/", "gpuqueues/"))


def _quiet(case: Case) -> bool:
    before = case.writes()
    time.sleep(QUIET_SECONDS)
    return case.writes() == before
