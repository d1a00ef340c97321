"""S86, small: a full cluster and many who want in at once. The size of the row is measured by benchmarks.s86."""

import pytest

from tests.cluster.preempt.objects import HIGH, LOW, Kind, bare_pod
from tests.cluster.preempt.stage import Case
from tests.cluster.preempt.trace import histories

pytestmark = pytest.mark.cluster
NODES, CARDS, SETS, WANTED = 20, 8, 4, 10


def test_s86_ten_at_once_on_a_full_cluster_take_ten_cards_for_ten_victims_and_few_writes(case: Case) -> None:
    for _ in range(NODES):
        case.node(CARDS)
    low = Kind(queue=case.queue("low"), priority=LOW)
    high = Kind(queue=case.queue("high", deserved={"cards": str(NODES * CARDS)}), priority=HIGH)
    names = [f"low-{number}" for number in range(SETS)]
    for name in names:
        case.start(name, low, NODES * CARDS // SETS)
    for name in names:
        case.wait_running(name, NODES * CARDS // SETS)
    wanted = [f"h-{number}" for number in range(WANTED)]
    case.cluster.create_all(case.pods_path, [bare_pod(name, high) for name in wanted])
    case.wait_bound(*wanted)
    uids = {name: case.uid(name) for name in wanted}
    for name in names:
        case.end_workload(name)
    case.wait(lambda: not case.plans(), "the plans to be gone once nothing is owed")
    found = histories(case.cluster.audit_events(case.since).events, uids, case.recorder.plans)
    assert [len(one.victims) for one in found] == [1] * WANTED
    assert sorted(case.evictions()) == sorted(victim for one in found for victim in one.victims)
    assert len(set(case.cards(*wanted))) == WANTED
    over = {one.name: one.writes for one in found if one.writes.total() > one.writes_allowed}
    assert not over
