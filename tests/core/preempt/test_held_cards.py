"""A pod takes of the cards that are held for it just what is held of each (T4: nobody else's plan suffers)."""

from random import Random

import pytest

from tests.core.building import holds, make_request, share, want
from tests.core.preempt.plan_cluster import CARD_MIB, PlanCluster
from tests.core.preempt.plan_soak import REQUESTS
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.preempt.gang_seats import asks_for
from vgpu.core.preempt.held_cards import place_as_held, place_on_held
from vgpu.core.preempt.plan import Nominate
from vgpu.core.recount import reservations_of
from vgpu.core.request import CardPolicy, ContainerKind, PodRequest

TWO = make_request(want(1, 30, 30, name="x"), want(1, 30, name="y"))
OTHER = make_request(want(1, 40, 50))
WITH_INIT = make_request(want(1, 60, kind=ContainerKind.INIT, name="i"), want(1, 30, 30, name="x"))
IDLE_ONLY = make_request(want(1, 30), card_policies=(CardPolicy.MUTEX,))
X_ON_11 = Placement("n1", (holds(share("GPU-11", 30, 30), name="x"), holds(share("GPU-10", 30), name="y")), 0)
ON_10 = Placement("n1", (holds(share("GPU-10", 40, 50)),), 0)


def two_plans() -> tuple[PlanCluster, PlanFact, PlanFact]:
    """`two` holds the fuller card for its container without cores; the other way round it fits there as well."""
    cluster = PlanCluster(cards=2)
    cluster.running("l", make_request(want(1, 25, 20)))
    assert cluster.uuids("l") == {"GPU-10"}
    cluster.wait("two", TWO)
    cluster.wait("other", OTHER)
    two = cluster.plan("two", [], [("two", X_ON_11)])
    return cluster, two, cluster.plan("other", [], [("other", ON_10)])


def test_containers_do_not_change_places_among_held_cards() -> None:
    cluster, two, other = two_plans()
    nominated = [action for action in cluster.step(two).actions if isinstance(action, Nominate)]
    assert [action.placement.containers for action in nominated] == [X_ON_11.containers]
    cluster.step(other)
    assert cluster.ends == {}


@pytest.mark.parametrize("sent", [True, False], ids=["sent by its plan", "before it was sent"])
def test_no_plan_ends_for_one_whose_binding_is_on_its_way(sent: bool) -> None:
    cluster, two, other = two_plans()
    if sent:
        cluster.step(two)
    cluster.book("two")
    cluster.step(other)
    assert cluster.ends == {}
    cluster.ledger.unbook("two", "nonce")
    cluster.settle()
    assert (cluster.uuids("two"), cluster.uuids("other")) == ({"GPU-10", "GPU-11"}, {"GPU-10"})


def test_whoever_leaves_held_cards_is_waited_for_and_other_cards_are_taken_at_once() -> None:
    cluster = PlanCluster(cards=3)
    cluster.running("l", make_request(want(2)))
    cluster.wait("h", make_request(want(1)))
    plan = cluster.plan("h", ["l"], [("h", Placement("n1", (holds(share("GPU-10", CARD_MIB, whole=True)),), 0))])
    cluster.step(plan)
    held = [card.reservation for card in plan.reservations]
    assert place_as_held(cluster.view("n1"), make_request(want(1)), held, Policies()) is None
    assert cluster.try_bind("h")
    assert cluster.uuids("h") == {"GPU-12"}


def test_what_is_held_otherwise_than_the_pod_asks_now_still_takes_it() -> None:
    """A card may say of itself another size than when it was planned, and a share in percent is another then."""
    cluster = PlanCluster(cards=2)
    request = make_request(want(1, percent=50))
    cluster.wait("h", request)
    plan = cluster.plan("h", [], [("h", Placement("n1", (holds(share("GPU-11", 49)),), 0))])
    held = [card.reservation for card in plan.reservations]
    assert place_as_held(cluster.view("n1"), request, held, Policies()) is None
    found = place_on_held(cluster.view("n1"), request, held, Policies())
    assert found is not None
    assert [card.uuid for card in found.containers[0].cards] == ["GPU-11"]


def test_who_takes_idle_cards_only_is_sent_to_the_one_that_is_held_and_takes_a_seat() -> None:
    """What others may have of the card later does not make it less idle now."""
    cluster = PlanCluster(cards=1)
    cluster.running("l", make_request(want(1)))
    cluster.wait("h", IDLE_ONLY)
    plan = cluster.plan("h", ["l"])
    assert asks_for(IDLE_ONLY, plan.reservations, cluster.view("n1"))
    cluster.settle()
    assert cluster.pods["h"].node == "n1"


@pytest.mark.parametrize("seed", range(200))
def test_where_a_pod_was_placed_it_fits_as_it_is_held(seed: int) -> None:
    """Beside whoever runs, and whatever is held for others since."""
    random, cluster = Random(seed), PlanCluster(cards=4)
    for number in range(random.randrange(4)):
        cluster.wait(f"l{number}", random.choice(REQUESTS))
        cluster.try_bind(f"l{number}")
    request: PodRequest = random.choice((*REQUESTS, TWO, WITH_INIT, IDLE_ONLY))
    placement = place(cluster.view("n1"), request, "h", Policies())
    if not isinstance(placement, Placement):
        return
    cluster.wait("h", request)
    cluster.plan("h", [], [("h", placement)])
    for number in range(random.randrange(4)):
        cluster.wait(f"o{number}", random.choice(REQUESTS))
        if (beside := cluster.planned(f"o{number}", ())) is not None:
            cluster.plan(f"o{number}", [], [(f"o{number}", beside)])
    held = reservations_of((("h", placement),))
    found = place_as_held(cluster.view("n1"), request, held, Policies())
    assert found is not None
    assert reservations_of((("h", found),)) == held or request is WITH_INIT
