"""What plans hold in the ledger: for whom it counts, how long, and what a higher plan may take of it."""

from dataclasses import replace

from tests.core.building import make_request, want
from tests.core.preempt.plan_cluster import PlanCluster
from vgpu.core.preempt.facts import NodeReservation, PlanFact
from vgpu.core.preempt.plan import End, PlanEnd, hold_of, key_of
from vgpu.core.preempt.plan_step import next_actions
from vgpu.core.preempt.reservations import PlanHold, without_plans
from vgpu.core.preempt.room import fits_later, fits_now, fits_on_card
from vgpu.core.preempt.takeover import losers
from vgpu.core.views import Holder, HolderState, NodeView, Reservation

WHOLE = make_request(want(1))


def held(cluster: PlanCluster, node: str = "n1") -> set[tuple[str, str]]:
    return {(one.uid, one.uuid) for one in cluster.view(node).reservations}


def one_plan() -> tuple[PlanCluster, PlanFact]:
    cluster = PlanCluster(cards=1)
    cluster.running("l", WHOLE)
    cluster.wait("h", WHOLE)
    return cluster, cluster.plan("h", ["l"])


def marked(view: NodeView) -> set[str]:
    return {holder.uid for card in view.cards for holder in card.holders if holder.evicting}


def test_what_is_held_counts_while_the_owner_waits() -> None:
    cluster, _ = one_plan()
    assert held(cluster) == {("h", "GPU-10")}
    assert marked(cluster.view("n1")) == {"l"}
    cluster.gone("h")
    assert held(cluster) == set()
    assert marked(cluster.view("n1")) == set()


def test_another_pod_of_the_owners_name_is_not_meant() -> None:
    cluster, _ = one_plan()
    cluster.gone("h")
    cluster.wait("h-again", WHOLE, name="h")
    assert held(cluster) == set()


def test_a_victim_counts_in_later_until_it_is_leaving() -> None:
    cluster, _ = one_plan()
    own = list(cluster.view("n1").reservations)
    assert not fits_later(cluster.view("n1"), own)
    cluster.evict("l")
    assert fits_later(cluster.view("n1"), own)
    assert not fits_now(cluster.view("n1"), own)


def test_an_accepted_eviction_counts_before_its_event() -> None:
    cluster, _ = one_plan()
    cluster.ledger.plans.mark_evicted("l", "n1")
    view = cluster.view("n1")
    assert [holder.state for holder in view.cards[0].holders] == [HolderState.TERMINATING]
    assert view.leaving_slots == 1


def test_a_bound_owner_holds_its_cards_once() -> None:
    cluster, _ = one_plan()
    cluster.evict("l")
    cluster.gone("l")
    assert cluster.try_bind("h")
    assert held(cluster) == set()
    assert not cluster.view("n1").cards[0].overbooked


def test_a_booking_of_other_cards_leaves_the_planned_ones_held() -> None:
    cluster = PlanCluster(cards=2)
    for uid in ("a", "b"):
        cluster.running(uid, WHOLE)
    cluster.wait("h", WHOLE)
    cluster.plan("h", ["a"])
    (planned,) = cluster.view("n1").reservations
    cluster.gone("b")
    cluster.wait("thief", WHOLE)
    assert not cluster.try_bind("h", refused=True)
    assert held(cluster) == {("h", planned.uuid)}
    assert cluster.try_bind("thief")


def test_a_nomination_and_a_plan_for_one_pod_hold_its_card_once() -> None:
    cluster, _ = one_plan()
    cluster.evict("l")
    cluster.gone("l")
    placement = cluster.planned("h", [])
    assert placement is not None
    cluster.ledger.nominate("h", "n1", placement)
    assert len(cluster.view("n1").reservations) == 1
    cluster.ledger.drop_nomination("h")
    assert len(cluster.view("n1").reservations) == 1


def test_the_last_of_two_plans_for_one_pod_counts() -> None:
    cluster = PlanCluster(cards=2)
    for uid in ("a", "b"):
        cluster.running(uid, WHOLE)
    cluster.wait("h", WHOLE)
    first, second = cluster.plan("h", ["a"]), cluster.plan("h", ["b"])
    cards = [plan.reservations[0].reservation.uuid for plan in (first, second)]
    assert held(cluster) == {("h", cards[1])}
    cluster.ledger.plans.drop(key_of(second))
    assert held(cluster) == {("h", cards[0])}


def test_a_restart_holds_the_same_whatever_comes_first() -> None:
    cluster, _ = one_plan()
    before = cluster.view("n1")
    cluster.restart()
    assert cluster.view("n1") == before


def test_the_verdict_of_an_owner_is_its_own_on_its_planned_nodes() -> None:
    cluster, _ = one_plan()
    assert cluster.ledger.nodes_of("h") == {"n1"}


def test_of_a_gang_each_member_has_a_verdict_of_its_own_where_it_sits() -> None:
    cluster = PlanCluster(nodes=2, cards=1)
    for uid, node in (("a", "n1"), ("b", "n2")):
        cluster.running(f"l-{uid}", WHOLE, node)
        cluster.wait(uid, WHOLE)
    cards = tuple(
        NodeReservation(node, Reservation(uid, f"GPU-{node[1:]}0", 1, 0, 100, exclusive=True))
        for uid, node in (("a", "n1"), ("b", "n2"))
    )
    victims = frozenset({("l-a", "n1"), ("l-b", "n2")})
    cluster.ledger.plans.put(PlanHold("ns/g", 1, cards, victims))
    assert [cluster.ledger.nodes_of(uid) for uid in ("a", "b")] == [{"n1"}, {"n2"}]
    cluster.gone("b")
    assert cluster.ledger.nodes_of("a") == {"n1", "n2"}  # the victims' marks are gone with it
    assert marked(cluster.view("n2")) == {"l-b"}
    cluster.gone("a")
    assert (marked(cluster.view("n1")), marked(cluster.view("n2"))) == (set(), set())


def test_holding_the_same_again_changes_nothing() -> None:
    cluster, plan = one_plan()
    cluster.view("n1")
    version = cluster.ledger.version
    cluster.ledger.plans.put(hold_of(plan))
    assert cluster.ledger.version == version


def test_s33_a_higher_one_takes_the_cards_and_leaving_pods_are_not_replaced() -> None:
    cluster = PlanCluster(cards=2)
    for uid in ("a", "b"):
        cluster.running(uid, WHOLE)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", ["a"])
    cluster.step(plan)
    cluster.wait("hh", WHOLE)
    lower = list(cluster.ledger.plans.all())
    free = without_plans(cluster.view("n1"), lower)
    assert free.reservations == ()
    higher = cluster.plan("hh", [], taking=lower)
    assert [hold.plan for hold in losers(hold_of(higher), lower, cluster.ledger.view) or ()] == [key_of(plan)]
    cluster.taken_over[key_of(plan)] = key_of(higher)
    cluster.step(plan)
    assert cluster.ends[key_of(plan)].reason is PlanEnd.TAKEN_OVER
    cluster.settle()
    assert cluster.pods["hh"].node == "n1"
    assert cluster.evictions == ["a"]


def test_s33_a_lower_plan_that_still_fits_keeps_its_cards() -> None:
    cluster = PlanCluster(cards=1)
    for uid in ("a", "b"):
        cluster.running(uid, make_request(want(1, 50)))
    cluster.wait("h", make_request(want(1, 40)))
    plan = cluster.plan("h", ["a"])
    cluster.step(plan)
    cluster.wait("hh", make_request(want(1, 50)))
    higher = cluster.plan("hh", ["b"])
    assert losers(hold_of(higher), [hold_of(plan)], cluster.ledger.view) == []


def test_s33_the_weakest_plans_lose_first_and_no_more_than_needed() -> None:
    cluster = PlanCluster(cards=1)
    for uid in ("a", "b"):
        cluster.running(uid, make_request(want(1, 50)))
        cluster.wait(f"h-{uid}", make_request(want(1, 50)))
    plans = []
    for uid in ("a", "b"):
        plans.append(cluster.plan(f"h-{uid}", [uid]))
        cluster.step(plans[-1])
    cluster.wait("hh", make_request(want(1, 50)))
    lower = [hold_of(plan) for plan in plans]
    higher = cluster.plan("hh", [], taking=lower)
    lost = losers(hold_of(higher), lower, cluster.ledger.view)
    assert lost == lower[:1]


def test_who_cannot_win_takes_nothing() -> None:
    cluster, plan = one_plan()
    cluster.wait("hh", WHOLE)
    other = hold_of(replace(plan, name="other", victims=()))
    assert losers(other, [], cluster.ledger.view) is None


def test_a_plan_that_was_over_does_nothing_more() -> None:
    cluster, plan = one_plan()
    cluster.step(plan)
    cluster.gone("h")
    (end,) = next_actions(plan, cluster.world(plan), cluster.progress[key_of(plan)], 1000).actions
    assert isinstance(end, End)
    over = replace(plan, phase=end.phase)
    assert next_actions(over, cluster.world(over), cluster.progress[key_of(plan)], 1000).actions == ()


def test_sums_on_a_card_mind_every_dimension_and_who_must_be_alone() -> None:
    card = PlanCluster(cards=1).inventories["n1"].cards[0]

    def holder(**given: object) -> Holder:
        fields = {"slots": 1, "memory_mib": 10, "cores": 10, "exclusive": False, **given}
        return Holder("l", "team", "l", state=HolderState.RUNNING, **fields)  # type: ignore[arg-type]

    mine = Reservation("h", card.uuid, 1, 50, 50, exclusive=False)
    assert fits_on_card(card, [holder(memory_mib=50, cores=50), mine])
    assert not fits_on_card(card, [holder(memory_mib=51), mine])
    assert not fits_on_card(card, [holder(cores=51), mine])
    assert not fits_on_card(card, [holder(slots=10), mine])
    assert not fits_on_card(card, [holder(exclusive=True), mine])
    assert not fits_on_card(card, [holder(cores=100, memory_mib=1), replace(mine, cores=0, coreless=True)])
