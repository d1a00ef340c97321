"""What is freed on other nodes is a plan's business only where it waits for more than its own cards and pods."""

from dataclasses import replace

import pytest

from tests.core.building import make_request, want
from tests.core.preempt.plan_cluster import PlanCluster
from vgpu.core.preempt.facts import OwnerKind, PlanFact
from vgpu.core.preempt.plan import OwnerPod, OwnerState, PlanLimits, PlanWorld, Progress
from vgpu.core.preempt.plan_step import next_actions

WHOLE = make_request(want(1))


def planned() -> tuple[PlanCluster, PlanFact]:
    """A plan for one pod with one victim."""
    cluster = PlanCluster(cards=1)
    cluster.running("l", WHOLE)
    cluster.wait("h", WHOLE)
    return cluster, cluster.plan("h", ["l"])


def waits_for_others(plan: PlanFact, world: PlanWorld) -> bool:
    return next_actions(plan, world, Progress(), 1000).anywhere


def test_a_plan_that_asked_all_its_victims_waits_for_nobody_else() -> None:
    cluster, plan = planned()
    assert not cluster.step(plan).anywhere
    assert not cluster.step(plan).anywhere, "while the victim leaves"
    cluster.gone("l")
    assert not cluster.step(plan).anywhere, "while its owner is on his way to the cards"


def test_a_plan_that_may_not_evict_now_waits_for_the_evictions_of_others() -> None:
    cluster, plan = planned()
    limits = PlanLimits(max_in_flight=1, in_flight=1)
    assert waits_for_others(plan, replace(cluster.world(plan), limits=limits))


@pytest.mark.parametrize("changed", [{"barred": True}, {"away": True}], ids=str)
def test_a_plan_waits_for_its_queue_and_for_what_becomes_of_its_owner_elsewhere(changed: dict[str, bool]) -> None:
    cluster, plan = planned()
    cluster.step(plan)
    cluster.gone("l")
    owner = OwnerPod("h", OwnerState.WAITING, WHOLE, **changed)
    assert waits_for_others(plan, replace(cluster.world(plan), owners={"h": owner}))


def test_a_plan_that_spares_a_victim_may_need_it_again() -> None:
    cluster = PlanCluster(cards=2)
    cluster.running("l0", WHOLE)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", ["l0"])
    cluster.gone("l0")
    cluster.running("l1", WHOLE)
    spare = replace(plan, victims=(*plan.victims, replace(plan.victims[0], uid="l1", name="l1")))
    assert waits_for_others(spare, cluster.world(spare))


def test_a_gang_has_members_anywhere() -> None:
    cluster, plan = planned()
    gang = replace(plan, owner_kind=OwnerKind.GANG)
    assert waits_for_others(gang, cluster.world(plan))
