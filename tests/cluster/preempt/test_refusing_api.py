"""The API server goes on refusing what the operator asks: others go, and whoever waits is told what it says."""

import pytest

from devcluster.faults import Fault, Rule
from tests.cluster.preempt.objects import HIGH, LOW, Kind
from tests.cluster.preempt.stage import Case

pytestmark = pytest.mark.cluster
FOR_EVER = 10**6


def test_for_one_whose_eviction_fails_for_ever_another_goes(case: Case) -> None:
    case.node(2)
    low, high = case.queue("low"), case.queue("high", deserved={"cards": "2"}, preemption={"stuckTimeout": "3s"})
    case.run("low", Kind(queue=low, priority=LOW), 2)
    rules = case.world.proxy.rules
    rules.append(Rule("POST", r"/pods/[^/]+/eviction", Fault.STATUS, status=500, first=1, last=FOR_EVER))
    uid = case.pod("h", Kind(queue=high, priority=HIGH))
    case.may_plan_again.add(uid)
    case.wait(lambda: bool(case.recorder.plans_for(uid)), "a plan")
    (first,) = (name for _, name in case.recorder.plans_for(uid)[0].victims)
    rules[-1:] = [Rule("POST", rf"/pods/{first}/eviction", Fault.STATUS, status=500, first=1, last=FOR_EVER)]
    case.wait_bound("h")
    assert len(case.evictions()) == 1
    assert first not in case.evictions()
    assert first in case.running("low")
    assert "EvictionFailed" in case.told("h")
    assert first in case.told("h")


def test_a_plan_beyond_a_resource_quota_is_told_until_the_quota_is_gone(case: Case) -> None:
    case.node(1)
    queue = case.queue("q")
    case.run("low", Kind(queue=queue, priority=LOW))
    quotas = f"/api/v1/namespaces/{case.namespace}/resourcequotas"
    hard = {"count/gpupreemptions.vgpu.dev": "0"}
    case.cluster.api.post(quotas, {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    case.wait(lambda: "hard" in case.cluster.api.get(f"{quotas}/none").get("status", {}), "the quota to count")
    case.pod("h", Kind(queue=queue, priority=HIGH))
    case.wait_told("h", "PlanNotWritten")
    assert "quota" in case.told("h")
    case.wait_refused("h", "quota: none")
    assert case.evictions() == []
    case.cluster.api.delete(f"{quotas}/none")
    case.wait_bound("h")
    assert len(case.evictions()) == 1
