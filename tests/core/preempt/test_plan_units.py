"""A gang that is evicted whole goes whole: once the first of it has gone, its rest follows."""

from dataclasses import replace

import pytest

from tests.core.building import make_request, want
from tests.core.preempt.plan_cluster import PlanCluster
from vgpu.core.preempt import plan_step
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.preempt.plan import Evict, PlanEnd, PlanLimits, Step, key_of

WHOLE = make_request(want(1))
ENTITLED = "its gang is within what its queue deserves"


def gang_of_victims(count: int, *, singles: int = 0) -> tuple[PlanCluster, PlanFact, list[str]]:
    """A full node, a gang on its first cards, and a plan that needs all of them."""
    cluster = PlanCluster(nodes=2, cards=count + singles)
    uids = [f"m{number}" for number in range(count)] + [f"s{number}" for number in range(singles)]
    for uid in uids:
        cluster.running(uid, WHOLE)
    for uid in uids[:count]:
        cluster.units[uid] = "gang"
    cluster.wait("h", make_request(want(count + singles)))
    return cluster, cluster.plan("h", uids), uids


def evicted_by(step: Step) -> list[str]:
    return [action.uid for action in step.actions if isinstance(action, Evict)]


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "leaving"])
def test_the_rest_of_a_gang_goes_though_it_became_entitled(gone: bool) -> None:
    cluster, plan, uids = gang_of_victims(3)
    cluster.limits = PlanLimits(max_in_flight=1)
    assert evicted_by(cluster.step(plan)) == uids[:1]
    if gone:
        cluster.gone(uids[0])
    cluster.objections = dict.fromkeys(uids[1:], ENTITLED)
    cluster.settle()
    assert sorted(cluster.evictions) == uids
    assert cluster.ends[key_of(plan)].reason is PlanEnd.OWNER_BOUND


def test_nobody_of_a_gang_goes_that_became_entitled_before() -> None:
    cluster, plan, uids = gang_of_victims(3)
    cluster.objections = dict.fromkeys(uids, ENTITLED)
    cluster.step(plan)
    assert cluster.evictions == []
    assert cluster.ends[key_of(plan)].reason is PlanEnd.VICTIM_CHANGED


def test_room_elsewhere_spares_a_gang_only_before_the_first_of_it_went() -> None:
    for asked in (False, True):
        cluster, plan, uids = gang_of_victims(2)
        cluster.limits = PlanLimits(max_in_flight=1)
        cluster.look_elsewhere = False
        if asked:
            assert evicted_by(cluster.step(plan)) == uids[:1]
            cluster.gone(uids[0])
        cluster.look_elsewhere = True
        cluster.settle()
        assert cluster.evictions == (uids if asked else [])
        ends = PlanEnd.OWNER_BOUND if asked else PlanEnd.ROOM_ELSEWHERE
        assert cluster.ends[key_of(plan)].reason is ends


def test_a_gang_is_gone_whole_before_its_plan_ends_because_of_another_victim() -> None:
    cluster, plan, uids = gang_of_victims(2, singles=1)
    cluster.limits = PlanLimits(max_in_flight=1)
    assert evicted_by(cluster.step(plan)) == uids[:1]
    cluster.gone(uids[0])
    cluster.objections = {"s0": "its class is critical now"}
    cluster.settle()
    assert cluster.evictions == uids[:2]
    end = cluster.ends[key_of(plan)]
    assert end.reason is PlanEnd.VICTIM_CHANGED
    assert end.avoid_victims == {"s0"}


def test_one_that_never_ends_lets_the_plan_end_where_no_more_may_be_asked() -> None:
    cluster, plan, _ = gang_of_victims(2)
    cluster.limits = PlanLimits(max_in_flight=1)
    cluster.step(plan)
    cluster.limits = replace(cluster.limits, in_flight=1)
    cluster.now_seconds += 30 + 60
    cluster.step(plan)
    assert cluster.ends[key_of(plan)].reason is PlanEnd.VICTIM_STUCK


def test_the_rest_is_not_asked_once_the_owner_is_gone() -> None:
    cluster, plan, uids = gang_of_victims(2)
    cluster.limits = PlanLimits(max_in_flight=1)
    cluster.step(plan)
    cluster.gone("h")
    cluster.step(plan)
    assert cluster.evictions == uids[:1]
    assert cluster.ends[key_of(plan)].reason is PlanEnd.OWNER_GONE


def test_the_rule_is_missed_when_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpu.core.preempt.situation.has_left", lambda state: False)
    with pytest.raises(AssertionError):
        test_the_rest_of_a_gang_goes_though_it_became_entitled(True)
    monkeypatch.undo()
    monkeypatch.setattr(plan_step, "UNITS_FIRST", frozenset())
    with pytest.raises(AssertionError):
        test_a_gang_is_gone_whole_before_its_plan_ends_because_of_another_victim()
