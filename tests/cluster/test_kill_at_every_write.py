"""The operator killed (SIGKILL) at every kind of write that it does: before it is sent, sent but unanswered,
answered; then started again. Whatever the moment: every pod is bound once, with cards of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from devcluster import HOLD_ANNOTATION, Cluster
from devcluster.faults import Fault, Rule
from devcluster.operators import OPERATOR, publish_inventories
from devcluster.waiting import wait_until
from tests.cluster.burst import LEASE, Case, World, burst_world
from tests.cluster.burst_pods import gpu_container, gpu_pod, mixed_pods, small_pods, whole_pods
from tests.cluster.judge import VOLCANO
from vgpu import names

pytestmark = pytest.mark.cluster

FAULTS = (Fault.BEFORE, Fault.UNANSWERED, Fault.ANSWERED)
PODS_PER_CASE = 40
SECRETS = f"/api/v1/namespaces/{names.NAMESPACE}/secrets"


@dataclass(frozen=True)
class Moment:
    """One kind of write, and which of them, counted from the start of the case, is the last one."""

    method: str
    path: str
    number: int = 1


BINDING = r"^/api/v1/namespaces/default/pods/[^/]+/binding"
MOMENTS = {
    "first binding": Moment("POST", BINDING),
    "25th binding": Moment("POST", BINDING, 25),
    "last binding": Moment("POST", BINDING, PODS_PER_CASE),
    "inventory status": Moment("PATCH", r"/gpunodeinventories/[^/]+/status", 3),
    "renewal of the Lease": Moment("PUT", r"/leases/"),
}


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """20 nodes and the running product."""
    with burst_world(cluster) as running:
        yield running


@pytest.fixture
def case(world: World) -> Iterator[Case]:
    """One judged scenario."""
    with world.judged() as started:
        yield started


def kill_at(world: World, moment: Moment, fault: Fault) -> Rule:
    """Have the operator killed at this moment."""
    rule = Rule(moment.method, moment.path, fault, first=moment.number, last=moment.number, hook=world.crash)
    world.proxy.rules.append(rule)
    return rule


def wait_killed(world: World, rule: Rule) -> None:
    wait_until(rule.done.is_set, f"{rule.method} {rule.path} to happen", 60)
    assert not world.cluster.processes[OPERATOR].alive()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_pods_are_bound(world: World, case: Case, moment: str, fault: Fault) -> None:
    rule = kill_at(world, MOMENTS[moment], fault)
    uids = case.create(mixed_pods(PODS_PER_CASE))
    wait_killed(world, rule)
    world.revive()
    case.settle(uids)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
def test_killed_while_a_waiting_pod_is_nominated(world: World, case: Case, fault: Fault) -> None:
    """A card more wakes nobody in kube-scheduler: the operator sends the waiting pods there."""
    with world.spare_node(7) as spare:
        full = case.create(whole_pods(20, "full", number=8))
        case.wait_bound(full)
        full |= case.create(volcano_pods(1, "nearly", number=7))
        case.wait_bound(full)
        waiting = case.create(volcano_pods(5, "waiting", memory=4096))
        wait_until(lambda: told(case) >= waiting.keys(), "the pods to be told that they wait")
        rule = kill_at(world, Moment("PATCH", r"/pods/[^/]+/status"), fault)
        publish_inventories(world.cluster, [spare], 8)
        wait_killed(world, rule)
        world.revive()
        case.settle({**full, **waiting})
        case.delete(["nearly-0", *waiting])


def volcano_pods(count: int, prefix: str, **amounts: int) -> list[dict[str, Any]]:
    return [gpu_pod(f"{prefix}-{i}", gpu_container(VOLCANO, **amounts)) for i in range(count)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
def test_killed_while_a_pod_bound_by_hand_is_given_cards(world: World, case: Case, fault: Fault) -> None:
    rule = kill_at(world, Moment("PATCH", r"/pods/[^/]+/status"), fault)
    by_hand = gpu_pod("hand", gpu_container(VOLCANO, memory=4096), annotations={HOLD_ANNOTATION: "true"})
    by_hand["spec"]["nodeName"] = "volcano-0000"
    case.judge.bound_by_hand.add("default/hand")
    late = case.create([by_hand])
    wait_killed(world, rule)
    world.revive()
    case.wait_bound(late)
    case.settle(case.create(mixed_pods(PODS_PER_CASE // 2)))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
def test_killed_while_an_event_is_written(world: World, case: Case, fault: Fault) -> None:
    rule = kill_at(world, Moment("POST", r"/namespaces/default/events"), fault)
    waiting = case.create(small_pods(3, "huge", memory=50_000))
    uids = case.create(mixed_pods(PODS_PER_CASE // 2))
    wait_killed(world, rule)
    world.revive()
    case.settle(uids)
    wait_until(lambda: told(case) == waiting.keys(), "every waiting pod to be told")
    assert sorted(case.bound()) == sorted(uids)


def told(case: Case) -> set[str]:
    """Names of the living pods that have an event of the operator's; more than one for a reason is a failure."""
    uids = {pod["metadata"]["uid"]: name for name, pod in case.pods().items()}
    items = case.world.cluster.api.get("/api/v1/namespaces/default/events")["items"]
    ours = [item for item in items if item["source"].get("component") == names.OPERATOR_FIELD_MANAGER]
    about = [(item["involvedObject"]["uid"], item["reason"]) for item in ours]
    assert len(about) == len(set(about)), about
    return {uids[uid] for uid, _ in about if uid in uids}


Prepare = Callable[[World], dict[str, str]]


def without_lease(world: World) -> dict[str, str]:
    world.cluster.api.delete(LEASE)
    return {}


def with_address(world: World) -> dict[str, str]:
    """An address that an EndpointSlice may hold; nobody listens there."""
    return {"VGPU_ADVERTISE_ADDRESS": "192.0.2.7:9443"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize(
    ("moment", "prepare"),
    [
        (Moment("POST", r"/leases"), without_lease),
        (Moment("PATCH", r"/endpointslices/"), with_address),
    ],
    ids=["creation of the Lease", "EndpointSlice"],
)
def test_killed_while_it_begins_to_lead(
    world: World, case: Case, moment: Moment, prepare: Prepare, fault: Fault
) -> None:
    uids = case.create(mixed_pods(PODS_PER_CASE // 2))
    case.wait_bound(uids)
    world.crash()
    settings = prepare(world)
    rule = kill_at(world, moment, fault)
    world.revive(**settings)
    wait_killed(world, rule)
    world.revive()
    later = case.create(mixed_pods(10, "later"))
    case.settle({**uids, **later})


def test_killed_while_it_makes_the_secrets(world: World, case: Case) -> None:
    """At the first Secret and, started again, at the second. What is there in the end fits together."""
    cluster = world.cluster
    cluster.end_process("kube-scheduler")
    cluster.end_process("forwarder")
    for fault in FAULTS:
        world.crash()
        for secret in (names.EXTENDER_TLS_SECRET, names.SCHEDULER_CLIENT_SECRET):
            cluster.api.delete(f"{SECRETS}/{secret}")
        for number in (1, 2 if fault is Fault.BEFORE else 1):
            rule = kill_at(world, Moment("POST", r"/secrets", number), fault)
            world.revive()
            wait_killed(world, rule)
        world.revive()
        world.operators.wait_serving()
        assert len(cluster.api.get(SECRETS)["items"]) == 2
    world.operators.start_scheduler()
    case.settle(case.create(mixed_pods(PODS_PER_CASE // 2)))
