"""What is left of a plan that is over: free cards that nobody else holds, while their owner has nothing else."""

from tests.core.building import make_request, want
from tests.core.preempt.plan_cluster import PlanCluster
from vgpu.core.preempt.facts import NodeReservation, PlanFact
from vgpu.core.preempt.leftover import left_of
from vgpu.core.preempt.plan import hold_of, key_of
from vgpu.core.preempt.reservations import LEFT_OVER, PlanHold
from vgpu.core.views import Reservation

WHOLE, TWO = make_request(want(1)), make_request(want(2))


def two_cards() -> tuple[PlanCluster, PlanFact]:
    """Two pods run on two cards, and both are to go for one that needs both."""
    cluster = PlanCluster(cards=2)
    cluster.running("l1", WHOLE)
    cluster.running("l2", WHOLE)
    cluster.wait("h", TWO)
    return cluster, cluster.plan("h", ["l1", "l2"])


def ended(cluster: PlanCluster, plan: PlanFact) -> PlanHold:
    """The plan is over: what it held."""
    cluster.ledger.plans.drop(key_of(plan))
    return hold_of(plan)


def left(cluster: PlanCluster, hold: PlanHold, avoid: frozenset[str] = frozenset()) -> set[str]:
    found = left_of(hold, cluster.ledger.view, avoid)
    assert not found.victims
    return {card.reservation.uuid for card in found.cards}


def card_of(cluster: PlanCluster, uid: str) -> str:
    assignment = cluster.pods[uid].assignment
    assert assignment is not None
    return assignment.containers[0].cards[0].uuid


def test_a_card_is_left_once_its_victim_leaves_or_is_gone() -> None:
    cluster, plan = two_cards()
    hold, first, second = ended(cluster, plan), card_of(cluster, "l1"), card_of(cluster, "l2")
    assert left(cluster, hold) == set()
    cluster.evict("l1")
    assert left(cluster, hold) == {first}
    cluster.gone("l1")
    cluster.evict("l2")
    assert left(cluster, hold) == {first, second}


def test_what_another_holds_is_not_left_and_does_not_open_the_rest() -> None:
    cluster, plan = two_cards()
    hold, first, second = ended(cluster, plan), card_of(cluster, "l1"), card_of(cluster, "l2")
    cluster.gone("l1")
    cluster.gone("l2")
    cluster.wait("taker", WHOLE)
    taken = NodeReservation("n1", Reservation("taker", first, 1, 0, 0, True))
    cluster.ledger.plans.put(PlanHold("ns/taker", 1, (taken,)))
    assert left(cluster, hold) == {second}


def test_nothing_is_left_on_nodes_on_which_the_owner_cannot_start() -> None:
    cluster, plan = two_cards()
    hold = ended(cluster, plan)
    cluster.gone("l1")
    assert left(cluster, hold, frozenset({"n1"})) == set()


def test_it_counts_while_its_owner_waits_and_has_no_other_plan() -> None:
    cluster, plan = two_cards()
    hold, plans = ended(cluster, plan), cluster.ledger.plans
    cluster.gone("l1")
    kept = left_of(hold, cluster.ledger.view)
    plans.put(kept)
    assert [one.uid for one in cluster.view("n1").reservations] == ["h"]
    assert plans.left() == [kept]
    assert list(plans.all()) == []

    other = NodeReservation("n1", Reservation("h", card_of(cluster, "l2"), 1, 0, 0, True))
    plans.put(PlanHold("ns/other", LEFT_OVER + 1, (other,)))
    assert [one.uuid for one in cluster.view("n1").reservations] == [card_of(cluster, "l2")]
    assert [one.plan for one in plans.all()] == ["ns/other"]

    plans.drop("ns/other")
    assert len(cluster.view("n1").reservations) == 1
    cluster.gone("h")
    assert cluster.view("n1").reservations == ()
    plans.drop(kept.plan)
    assert plans.left() == []
