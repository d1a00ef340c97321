"""The API server killed, slow, refusing, or without the history that a watch needs, while pods are bound."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devcluster import Cluster
from devcluster.faults import Fault, Rule
from devcluster.waiting import wait_until
from tests.cluster.burst import CARDS, INVENTORIES, LOOK_SECONDS, Case, World, burst_world
from tests.cluster.burst_pods import mixed_pods, whole_pods

pytestmark = pytest.mark.cluster

BINDING = r"^/api/v1/namespaces/default/pods/[^/]+/binding"
WATCH = r"[?&]watch="
PODS_PER_CASE = 80
ALWAYS = 10**9
IN_FLIGHT = 20
"""Bindings that may be under way when the API server is killed: their audit records may be lost."""


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """20 nodes and the running product, with the Lease's times as they are shipped."""
    with burst_world(cluster) as running:
        yield running


@pytest.fixture
def case(world: World) -> Iterator[Case]:
    """One judged scenario."""
    with world.judged() as started:
        yield started


def after_bindings(world: World, number: int) -> Rule:
    """A rule that does nothing but tell when so many Bindings have been answered."""
    rule = Rule("POST", BINDING, Fault.ANSWERED, first=number, last=number)
    world.proxy.rules.append(rule)
    return rule


def test_api_server_killed_and_started_again_while_pods_are_bound(world: World, case: Case) -> None:
    reached = after_bindings(world, 20)
    uids = case.create(mixed_pods(PODS_PER_CASE))
    wait_until(reached.done.is_set, "20 bindings", 60)
    world.cluster.restart_apiserver()
    case.settle(uids, swallowed=IN_FLIGHT, answers=(0, 429, 500, 503, 504))


def test_deletions_that_a_stopped_watch_missed_are_found_after_compaction(world: World, case: Case) -> None:
    """The operator hears nothing while pods and a node go; what it asks for then is history no more (410)."""
    with world.spare_node(CARDS) as spare:
        full = case.create(whole_pods(21, "full", number=CARDS))
        case.wait_bound(full)
        case.check_world()
        [on_spare] = [name for name, where in case.bound().items() if where == spare]
        freed = [name for name in ("full-1", "full-2", "full-3") if name != on_spare]
        relists = relists_of(world)
        with deaf_operator(world):
            case.delete([on_spare, *freed])
            world.cluster.api.delete(f"/api/v1/nodes/{spare}")
            world.cluster.api.delete(f"{INVENTORIES}/{spare}")
            assert case.viewed_shares() != case.held_shares(), "the operator must not have noticed"
            world.cluster.forget_history()
        wait_until(lambda: relists_of(world) > relists, "the operator to list anew", 60, LOOK_SECONDS)
        case.check_world()
        later = case.create(whole_pods(2 * CARDS * len(freed), "later"))
        want = 20 - len(freed) + CARDS * len(freed)
        wait_until(lambda: len(case.bound()) == want, "what was freed to be given away", 60, LOOK_SECONDS)
        bound = case.bound()
        assert spare not in bound.values()
        case.settle({name: uid for name, uid in {**full, **later}.items() if name in bound})


def test_a_pod_that_was_bound_and_deleted_while_nothing_was_heard_holds_nothing_afterwards(
    world: World, case: Case
) -> None:
    """Known only by the binder's own read and write: no list, and no difference of two, tells of its end."""
    relists = relists_of(world)
    with deaf_operator(world):
        case.wait_bound(case.create(whole_pods(1, "unseen", number=CARDS)))
        case.delete(["unseen-0"])
        assert case.viewed_shares() != case.held_shares(), "the operator must not have noticed"
        world.cluster.forget_history()
    wait_until(lambda: relists_of(world) > relists, "the operator to list anew", 60, LOOK_SECONDS)
    case.check_world()


@contextmanager
def deaf_operator(world: World) -> Iterator[None]:
    """Inside the block the operator's watches bring nothing and new ones are refused; reads and writes go on."""
    deaf = Rule("GET", WATCH, Fault.STATUS, last=ALWAYS, status=503)
    world.proxy.rules.append(deaf)
    world.proxy.silence()
    world.proxy.cut_streams()
    wait_until(lambda: deaf.fired > 0, "the operator to ask again in vain")
    yield
    world.proxy.speak()
    world.proxy.rules.remove(deaf)


def relists_of(world: World) -> float:
    """How often the leader has listed anew."""
    leader = world.operators.leader()
    return leader.metric("vgpu_watch_relists_total") if leader else 0.0


@pytest.mark.parametrize(
    ("method", "path", "seconds"),
    [("POST", BINDING, 2.0), (".*", ".*", 1.0)],
    ids=["bindings", "everything"],
)
def test_slow_api_server_delays_pods_and_nothing_else(
    world: World, case: Case, method: str, path: str, seconds: float
) -> None:
    slow = Rule(method, path, Fault.SLOW, last=ALWAYS, delay_seconds=seconds)
    world.proxy.rules.append(slow)
    case.settle(case.create(mixed_pods(PODS_PER_CASE // 2)))
    assert slow.fired >= PODS_PER_CASE // 2
    assert world.operators.leader() is not None


def test_api_server_slower_than_the_lease_allows_ends_the_leadership_for_a_while(world: World, case: Case) -> None:
    """Every request takes longer than a renewal may: nobody leads, so nobody writes; afterwards all goes on."""
    slow = Rule(".*", ".*", Fault.SLOW, last=ALWAYS, delay_seconds=2.5)
    world.proxy.rules.append(slow)
    leader = world.operators.leader()
    assert leader is not None
    uids = case.create(mixed_pods(PODS_PER_CASE // 2))
    wait_until(lambda: leader.metric("vgpu_leader") == 0, "the leadership to end", 60)
    world.proxy.rules.remove(slow)
    case.settle(uids)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_refused_bindings_are_repeated(world: World, case: Case, status: int) -> None:
    rule = Rule("POST", BINDING, Fault.STATUS, first=5, last=30, status=status)
    world.proxy.rules.append(rule)
    uids = case.create(mixed_pods(PODS_PER_CASE // 2))
    case.settle(uids)
    assert rule.fired == 26
