"""Plans on the real API server, written by the operator's own account with our policies in force."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from devcluster import ApiRefused as Refused
from devcluster import Cluster
from devcluster.api import ApiClient as Client
from devcluster.product import install, remove_policies
from tests.controller.test_preemption_object import make_plan, make_write, seat
from vgpu import names
from vgpu.controller.fence import Fence
from vgpu.controller.preempt.bodies import (
    ended_condition,
    partial_condition,
    preemption_body,
    preemption_status,
)
from vgpu.controller.preempt.creating import create_or_take
from vgpu.controller.translate.preemption import decode_preemption
from vgpu.controller.writer import EventWrite, Writer
from vgpu.core.facts import AssignedCard
from vgpu.core.preempt.facts import Debt, OwnerKind, PlanPhase
from vgpu.core.preempt.plan import End, PlanEnd
from vgpu.errors import ApiRefused
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

pytestmark = pytest.mark.cluster

SPACE = "high"
PLANS = f"/apis/{names.API_VERSION}/namespaces/{SPACE}/{names.PREEMPTION_PLURAL}"
QUEUES = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"
STRANGER = "00000000-0000-0000-0000-000000000000"


@dataclass
class Desk:
    """A writer that is the operator, an administrator, and somebody with every right."""

    cluster: Cluster
    admin: Client
    intruder: Client
    reader: ApiClient
    writer: Writer

    async def read(self, namespace: str, name: str) -> bytes:
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PREEMPTION_PLURAL}/{name}"
        return await self.reader.get(path)

    async def stored(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.read(SPACE, name))
        return found


@pytest.fixture(scope="module")
def product(cluster: Cluster) -> Iterator[Cluster]:
    cluster.clear()
    install(cluster)
    cluster.ensure_namespace(SPACE)
    intruder = cluster.client(cluster.token_for_service_account("default", "intruder"))
    account = "--serviceaccount=default:intruder"
    cluster.kubectl("create", "clusterrolebinding", "intruder", "--clusterrole=cluster-admin", account)
    cluster.wait_until(lambda: _is_guarded(intruder), "the policy on plans to be in force")
    yield cluster
    cluster.kubectl("delete", "clusterrolebinding", "intruder")
    remove_policies(cluster)
    cluster.clear()


def _is_guarded(intruder: Client) -> bool:
    try:
        intruder.post(f"{PLANS}?dryRun=All", preemption_body(make_write()))
    except Refused as refusal:
        return "only the vgpu operator makes a GpuPreemption" in refusal.message
    return False


@pytest.fixture
async def desk(product: Cluster) -> AsyncIterator[Desk]:
    product.api.delete(PLANS)
    token = product.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    intruder = product.client(product.token_for_service_account("default", "intruder"))
    fence = Fence(10, 4, lambda: 0.0)
    fence.renewed(0.0)
    async with await ApiClient.connect(kubeconfig=product.kubeconfig(token), user_agent="vgpu-tests") as client:
        yield Desk(product, product.api, intruder, client, Writer(client, fence, OperatorSettings()))


async def refusal(write: Awaitable[object]) -> int:
    with pytest.raises(ApiRefused) as caught:
        await write
    return caught.value.status


async def test_a_plan_is_kept_exactly_as_it_was_decided(desk: Desk) -> None:
    cards = [AssignedCard("GPU-0", 81920, 100, whole=True), AssignedCard("MIG-GPU-1/1/0", 1, 0, whole=False)]
    plan = make_plan(seat("uid-h0", cards), seat("uid-h1", cards[1:], "n2"), victims=7, rule="ReclaimAcrossQueues")
    write = make_write(plan, owner_kind=OwnerKind.GANG, owner_name="label/high/g", owner_uids=("uid-h0", "uid-h1"))
    created = decode_preemption(await desk.writer.create_preemption(write)).fact
    watched = decode_preemption(await desk.read(SPACE, write.name)).fact
    assert created == watched
    assert watched.reservations == plan.reservations
    assert watched.victims == plan.victims
    assert (watched.rule, watched.exact, watched.generation) == (plan.rule, plan.exact, 1)
    assert watched.created_seconds > 0
    assert any(held.reservation.coreless for held in watched.reservations)


async def test_a_second_creation_takes_the_first_object(desk: Desk) -> None:
    first = await create_or_take(desk.writer, desk.read, make_write(make_plan(victims=1)))
    second = await create_or_take(desk.writer, desk.read, make_write(make_plan(victims=2)))
    assert second == first
    assert len((await asyncio.to_thread(desk.admin.get, PLANS))["items"]) == 1


async def test_a_status_replaces_what_was_said_and_equal_content_changes_nothing(desk: Desk) -> None:
    made = (await create_or_take(desk.writer, desk.read, make_write())).key
    debt = Debt("uid-rs", "ReplicaSet", "low", "train", "q", "entitled, priority 5", pods=2, lost_seconds=90)
    draining = preemption_status(PlanPhase.DRAINING, waits_for="low/l0", evictions_sent=["uid-l0"], debts=[debt])
    await desk.writer.apply_preemption_status(made, draining)
    seen = await desk.stored(made.name)
    assert seen["status"] == draining
    await desk.writer.apply_preemption_status(made, draining)
    assert (await desk.stored(made.name))["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"]
    end = ended_condition(End(PlanEnd.HOLD_EXPIRED, "too late"), 1767268800)
    aborted = preemption_status(PlanPhase.ABORTED, conditions=[end])
    await desk.writer.apply_preemption_status(made, aborted)
    assert (await desk.stored(made.name))["status"] == aborted


async def test_another_plan_of_the_name_is_not_deleted(desk: Desk) -> None:
    made = (await create_or_take(desk.writer, desk.read, make_write())).key
    assert await refusal(desk.writer.delete_preemption(Key(SPACE, made.name, STRANGER))) == 409
    assert (await desk.stored(made.name))["metadata"]["uid"] == made.uid
    await desk.writer.delete_preemption(made)
    assert await refusal(desk.writer.delete_preemption(made)) == 404
    assert await refusal(desk.writer.apply_preemption_status(made, {"phase": "Bound"})) == 404


async def test_kubectl_tells_who_waits_for_whom(desk: Desk) -> None:
    made = (await create_or_take(desk.writer, desk.read, make_write(make_plan(victims=2)))).key
    header, row = (
        await asyncio.to_thread(desk.cluster.kubectl, "get", "gpupreemptions", "-n", SPACE)
    ).splitlines()
    assert header.split() == ["NAME", "OWNER", "PHASE", "VICTIMS", "RULE", "PARTIAL", "AGE"]
    assert "low/l0, low/l1" in row
    await desk.writer.apply_preemption_status(made, preemption_status(PlanPhase.DRAINING, waits_for="low/l1"))
    row = (await asyncio.to_thread(desk.cluster.kubectl, "get", "gpup", "-n", SPACE)).splitlines()[1]
    assert "Draining" in row
    assert "True" not in row
    partial = [partial_condition("too few are bound", 1767268800)]
    await desk.writer.apply_preemption_status(made, preemption_status(PlanPhase.DRAINING, conditions=partial))
    row = (await asyncio.to_thread(desk.cluster.kubectl, "get", "gpup", "-n", SPACE)).splitlines()[1]
    assert "True" in row
    told = await asyncio.to_thread(desk.cluster.kubectl, "describe", "gpup", "-n", SPACE)
    assert "too few are bound" in told
    end = ended_condition(End(PlanEnd.HOLD_EXPIRED, "too late"), 1767268800)
    await desk.writer.apply_preemption_status(made, preemption_status(PlanPhase.ABORTED, conditions=[end]))
    wide = (await asyncio.to_thread(desk.cluster.kubectl, "get", "gpup", "-n", SPACE, "-o", "wide")).splitlines()[
        1
    ]
    assert "n1" in wide
    assert "HoldExpired" in wide
    assert "too late" in wide


async def test_nobody_else_makes_a_plan_or_changes_what_it_records(desk: Desk) -> None:
    """Whoever could would have the operator evict any pod, and create any."""
    with pytest.raises(Refused, match="only the vgpu operator makes a GpuPreemption"):
        await asyncio.to_thread(desk.intruder.post, PLANS, preemption_body(make_write()))
    made = (await create_or_take(desk.writer, desk.read, make_write())).key
    path = f"{PLANS}/{made.name}"
    with pytest.raises(Refused, match="only the vgpu operator changes the annotations"):
        await asyncio.to_thread(desk.intruder.patch, path, {"metadata": {"annotations": {"vgpu.dev/x": "y"}}})
    with pytest.raises(Refused, match="only the vgpu operator writes the status"):
        await asyncio.to_thread(desk.intruder.patch, f"{path}/status", {"status": {"phase": "Bound"}})
    await asyncio.to_thread(desk.intruder.patch, path, {"metadata": {"labels": {"seen": "yes"}}})
    await asyncio.to_thread(desk.intruder.delete, path)
    assert await refusal(desk.writer.delete_preemption(made)) == 404


async def test_events_may_be_about_plans_and_queues(desk: Desk) -> None:
    made = (await create_or_take(desk.writer, desk.read, make_write())).key
    kinds = {"api_version": names.API_VERSION}
    plan = EventWrite(SPACE, "e1", made.name, made.uid, "Evicting", "m", kind=names.PREEMPTION_KIND, **kinds)
    await desk.writer.write_event(plan)
    queue = EventWrite(
        "default", "e2", "q", "uid", "Frozen", "m", kind=names.QUEUE_KIND, cluster_scoped=True, **kinds
    )
    await desk.writer.write_event(queue)
    described = await asyncio.to_thread(desk.cluster.kubectl, "describe", "gpup", made.name, "-n", SPACE)
    assert "Evicting" in described
    stored = await asyncio.to_thread(desk.admin.get, "/api/v1/namespaces/default/events/e2")
    assert stored["involvedObject"]["kind"] == names.QUEUE_KIND


async def test_a_queues_status_is_applied(desk: Desk) -> None:
    assert await refusal(desk.writer.apply_queue_status("absent", {})) == 404
    body = {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, "metadata": {"name": "told"}, "spec": {}}
    await asyncio.to_thread(desk.admin.post, QUEUES, body)
    await desk.writer.apply_queue_status("told", {"pendingPods": 3, "used": {"cards": "250m"}})
    seen = await asyncio.to_thread(desk.admin.get, f"{QUEUES}/told")
    assert seen["status"] == {"pendingPods": 3, "used": {"cards": "250m"}}
    await asyncio.to_thread(desk.admin.delete, f"{QUEUES}/told")


async def test_without_its_components_the_operator_touches_no_pod(desk: Desk) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}], "schedulerName": "no"}}
    assert await refusal(desk.writer.create_pod(SPACE, pod)) == 403
    made = await asyncio.to_thread(desk.admin.post, f"/api/v1/namespaces/{SPACE}/pods", pod)
    assert await refusal(desk.writer.remove_gate(Key(SPACE, "p", made["metadata"]["uid"]), names.GANG_GATE)) == 403
