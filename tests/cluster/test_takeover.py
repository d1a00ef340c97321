"""Two replicas and one Lease: the leader killed, stopped where it stands, ended politely, while pods are bound.

Each replica has a proxy of its own, so that what each of them sent is known.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devcluster import Cluster
from devcluster.faults import Asked, Fault, FaultProxy, Rule
from devcluster.operators import OPERATOR
from devcluster.waiting import wait_until
from tests.cluster.burst import LEASE, World, burst_world
from tests.cluster.burst_pods import mixed_pods

pytestmark = pytest.mark.cluster

OTHER = "operator-1"
BINDING = r"^/api/v1/namespaces/default/pods/[^/]+/binding"
PODS_PER_CASE = 60
SHORT_LEASE = {
    "VGPU_LEASE_SECONDS": "6",
    "VGPU_RENEW_DEADLINE_SECONDS": "5",
    "VGPU_WRITE_MARGIN_SECONDS": "2.5",
    "VGPU_WRITE_SECONDS": "2",
    "VGPU_LEASE_REQUEST_SECONDS": "1",
    "VGPU_RETRY_SECONDS": "0.5",
}


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """20 nodes, the running product, a Lease that is lost soon."""
    with burst_world(cluster, **SHORT_LEASE) as running:
        yield running


@contextmanager
def another_replica(world: World) -> Iterator[FaultProxy]:
    """A second replica, warm, behind a proxy of its own; afterwards the first one is there again, alone."""
    operators, first_route = world.operators, world.operators.route
    with FaultProxy(world.cluster.kubeconfig(), world.cluster.site.folder) as proxy:
        operators.route = proxy.kubeconfig
        operators.start(OTHER)
        operators.route = first_route
        operators.wait_ready(OTHER)
        try:
            yield proxy
        finally:
            operators.kill(OTHER)
            world.revive()
            operators.wait_serving()


def fenced_writes(asked: list[Asked]) -> list[str]:
    """Every write but that of the Lease, which the API server itself refuses to who has lost it."""
    writes = [request for request in asked if request.method != "GET"]
    return [f"{request.method} {request.path}" for request in writes if not re.search(r"/leases", request.path)]


def holder(world: World) -> str:
    found: str = world.cluster.api.get(LEASE)["spec"].get("holderIdentity", "")
    return found


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.UNANSWERED, Fault.ANSWERED], ids=lambda f: f.name.lower())
def test_the_other_replica_takes_over_from_a_leader_killed_at_a_binding(world: World, fault: Fault) -> None:
    with another_replica(world), world.judged() as case:
        rule = Rule("POST", BINDING, fault, first=20, last=20, hook=world.crash)
        world.proxy.rules.append(rule)
        uids = case.create(mixed_pods(PODS_PER_CASE))
        wait_until(rule.done.is_set, "the leader to be killed", 60)
        world.operators.wait_serving(OTHER)
        case.settle(uids)


@pytest.mark.parametrize("number", [1, 20])
def test_a_leader_that_stood_still_past_its_lease_writes_nothing_more(world: World, number: int) -> None:
    """It stops with Bindings under way, and goes on when the other one has led for a while."""
    with another_replica(world), world.judged() as case:
        stop = Rule("POST", BINDING, Fault.BEFORE, number, number, hook=lambda: world.cluster.pause(OPERATOR))
        world.proxy.rules.append(stop)
        uids = case.create(mixed_pods(PODS_PER_CASE))
        wait_until(stop.done.is_set, "the leader to stand still", 60)
        before = holder(world)
        world.operators.wait_serving(OTHER)
        assert holder(world) != before
        case.wait_bound(dict(list(uids.items())[: PODS_PER_CASE // 2]))
        sent = len(world.proxy.asked)
        world.cluster.resume(OPERATOR)
        world.operators.wait_ready(OPERATOR)
        case.settle(uids)
        assert fenced_writes(world.proxy.asked[sent:]) == []
        assert len(world.proxy.asked) > sent
        assert world.operators.replicas[OPERATOR].metric("vgpu_leader") == 0


def test_a_leader_that_ends_politely_hands_over_while_pods_are_bound(world: World) -> None:
    with another_replica(world), world.judged() as case:
        asked = world.proxy.asked
        before = len(asked)
        uids = case.create(mixed_pods(PODS_PER_CASE))
        wait_until(lambda: len([a for a in asked[before:] if re.search(BINDING, a.path)]) >= 20, "20 bindings", 60)
        world.operators.stop(OPERATOR)
        assert (asked[-1].method, asked[-1].path.partition("?")[0]) == ("PUT", LEASE), "given back last"
        world.operators.wait_serving(OTHER)
        case.settle(uids)
