"""The plan of a gang whose members are booked while they wait for each other."""

from collections.abc import Iterable

from tests.core.building import make_request, want
from tests.core.preempt.plan_cluster import PlanCluster, without
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.preempt.plan import Nominate, PlanEnd, key_of
from vgpu.core.preempt.problem import with_reservation
from vgpu.core.request import PodRequest

PAIR = make_request(want(2))


def gang_plan(
    cluster: PlanCluster, members: Iterable[str], victims: list[str], request: PodRequest = PAIR
) -> PlanFact:
    """Room for all members on the one node, where these victims are."""
    view, seats = without(cluster.view("n1"), victims), []
    for uid in members:
        cluster.wait(uid, request)
        placement = place(view, request, uid, Policies())
        assert isinstance(placement, Placement)
        view = with_reservation(view, uid, placement)
        seats.append((uid, placement))
    return cluster.plan("g", victims, seats)


def drained() -> tuple[PlanCluster, PlanFact]:
    """Both members are nominated to cards that are free."""
    cluster = PlanCluster()
    victims = ["l1", "l2"]
    for uid in victims:
        cluster.running(uid, PAIR)
    plan = gang_plan(cluster, ["g1", "g2"], victims)
    cluster.step(plan)
    for uid in victims:
        cluster.gone(uid)
    assert [type(action) for action in cluster.step(plan).actions] == [Nominate, Nominate]
    return cluster, plan


def test_s52_a_plan_goes_on_while_members_are_booked_one_after_another() -> None:
    cluster, plan = drained()
    cluster.book("g1")
    assert cluster.step(plan).actions == ()
    cluster.book("g2")
    assert cluster.step(plan).actions == ()
    for uid in ("g1", "g2"):
        cluster.ledger.unbook(uid, "nonce")
        assert cluster.try_bind(uid)
        if uid == "g1":
            assert cluster.step(plan).actions == ()
    cluster.step(plan)
    assert cluster.ends[key_of(plan)].reason is PlanEnd.OWNER_BOUND


def test_s52_members_that_waited_in_vain_are_sent_again() -> None:
    cluster, plan = drained()
    for uid in ("g1", "g2"):
        cluster.book(uid)
    cluster.step(plan)
    for uid in ("g1", "g2"):
        cluster.ledger.unbook(uid, "nonce")
    assert [type(action) for action in cluster.step(plan).actions] == [Nominate, Nominate]
