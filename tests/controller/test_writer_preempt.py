"""Plans, queues, gates and bare pods: what these writes leave behind."""

import json

import pytest

from tests.controller.test_preemption_object import make_write
from tests.kube.fake_api import FakeApi
from vgpu import names
from vgpu.controller.preempt.bodies import preemption_status
from vgpu.controller.writer import EventWrite, Writer
from vgpu.controller.writes import deletion_body, event_body, gate_removal_body
from vgpu.core.preempt.facts import PlanPhase
from vgpu.errors import ApiRefused
from vgpu.kube.objects import Key

PLANS = f"/apis/{names.API_VERSION}/namespaces/high/{names.PREEMPTION_PLURAL}"
QUEUES = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"


async def test_a_plan_is_created_once(api: FakeApi, writer: Writer) -> None:
    answer = json.loads(await writer.create_preemption(make_write()))
    assert api.get(PLANS, make_write().name, "high") is not None
    assert answer["metadata"]["uid"]
    with pytest.raises(ApiRefused) as refused:
        await writer.create_preemption(make_write())
    assert refused.value.status == 409
    assert writer.counts["create", names.PREEMPTION_PLURAL, "ok"] == 1


async def test_a_status_is_applied_to_an_existing_plan(api: FakeApi, writer: Writer) -> None:
    made = json.loads(await writer.create_preemption(make_write()))
    plan = Key("high", made["metadata"]["name"], made["metadata"]["uid"])
    await writer.apply_preemption_status(plan, preemption_status(PlanPhase.DRAINING, waits_for="low/l0"))
    seen = api.get(PLANS, plan.name, "high")
    assert seen is not None
    assert seen["status"] == {"phase": "Draining", "waitsFor": "low/l0"}
    with pytest.raises(ApiRefused):
        await writer.apply_preemption_status(Key("high", "gone", "u"), preemption_status(PlanPhase.BOUND))


async def test_a_deleted_plan_is_gone(api: FakeApi, writer: Writer) -> None:
    made = json.loads(await writer.create_preemption(make_write()))
    await writer.delete_preemption(Key("high", made["metadata"]["name"], made["metadata"]["uid"]))
    assert api.get(PLANS, made["metadata"]["name"], "high") is None
    assert deletion_body("u")["preconditions"] == {"uid": "u"}


async def test_a_queues_status_needs_the_queue(api: FakeApi, writer: Writer) -> None:
    with pytest.raises(ApiRefused):
        await writer.apply_queue_status("q", {"pendingPods": 1})
    api.put(QUEUES, {"metadata": {"name": "q"}, "spec": {}})
    await writer.apply_queue_status("q", {"pendingPods": 1})
    seen = api.get(QUEUES, "q")
    assert seen is not None
    assert seen["status"] == {"pendingPods": 1}


def test_a_gate_is_taken_off_by_its_name_alone() -> None:
    """A whole list would put back what another controller takes off at the same moment."""
    body = gate_removal_body(Key("n", "p", "u"), names.GANG_GATE)
    assert body["metadata"] == {"uid": "u"}
    assert body["spec"] == {"schedulingGates": [{"$patch": "delete", "name": names.GANG_GATE}]}


async def test_a_created_pod_is_given_back(api: FakeApi, writer: Writer) -> None:
    made = json.loads(await writer.create_pod("n", {"metadata": {"name": "again", "namespace": "n"}}))
    assert made["metadata"]["uid"]


def test_an_event_may_be_about_any_object() -> None:
    plan = EventWrite("n", "e", "plan", "u", "R", "m", api_version=names.API_VERSION, kind=names.PREEMPTION_KIND)
    want = {"apiVersion": names.API_VERSION, "kind": names.PREEMPTION_KIND, "namespace": "n"}
    assert event_body(plan, "now")["involvedObject"] == {**want, "name": "plan", "uid": "u"}
    queue = EventWrite("default", "e", "q", "u", "R", "m", kind=names.QUEUE_KIND, cluster_scoped=True)
    assert event_body(queue, "now")["involvedObject"]["namespace"] == ""
