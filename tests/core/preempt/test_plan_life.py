"""A plan from its creation to its end, on the rows of the acceptance table that need no search and no cluster."""

from dataclasses import replace

import pytest

from tests.core.building import make_request, want
from tests.core.preempt.plan_cluster import DRAINING, PlanCluster
from vgpu.core.facts import AssignedCard, AssignedContainer
from vgpu.core.placement import Placement
from vgpu.core.preempt import plan_step
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.preempt.plan import Evict, Nominate, PlanEnd, PlanLimits, key_of
from vgpu.core.recount import reservations_of
from vgpu.core.request import ContainerKind

WHOLE = make_request(want(1))
QUARTERS = make_request(want(4, percent=25))
SIXTY = make_request(want(4, percent=60))
FOUR_WHOLE = make_request(want(4))


def end_of(cluster: PlanCluster, plan: object) -> PlanEnd:
    return cluster.ends[key_of(plan)].reason  # type: ignore[arg-type]


def full_of_whole(cluster: PlanCluster, node: str = "n1") -> list[str]:
    uids = [f"{node}-l{i}" for i in range(len(cluster.view(node).cards))]
    for uid in uids:
        cluster.running(uid, WHOLE, node)
    return uids


def test_s01_each_owner_gets_the_card_of_its_one_victim() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cards = {uid: cluster.uuids(uid) for uid in victims}
    for number, victim in enumerate(victims):
        cluster.wait(f"h{number}", WHOLE)
        cluster.plan(f"h{number}", [victim])
        cluster.settle()
        assert cluster.uuids(f"h{number}") == cards[victim]
    assert cluster.evictions == victims


def test_s03_the_fourth_victim_is_spared_when_three_are_enough() -> None:
    cluster = PlanCluster()
    victims = [f"l{i}" for i in range(4)]
    for uid in victims:
        cluster.running(uid, QUARTERS)
    cluster.wait("h", SIXTY)
    plan = cluster.plan("h", victims)
    cluster.settle()
    assert cluster.evictions == victims[:3]
    assert end_of(cluster, plan) is PlanEnd.OWNER_BOUND
    assert len(cluster.uuids("h")) == 4


@pytest.mark.parametrize("cards", [("GPU-10", "GPU-11"), ("GPU-11", "GPU-10")], ids=" ".join)
def test_containers_that_differ_are_sent_to_just_what_is_held_for_each(cards: tuple[str, str]) -> None:
    """The other way round they would fit too, and what is held and sent to would together be more than either."""
    cluster, request = PlanCluster(cards=2), make_request(want(1, 30, 30, name="x"), want(1, 30, name="y"))
    cluster.wait("h", request)
    x, y = (AssignedCard(uuid, 30, cores, whole=False) for uuid, cores in zip(cards, (30, 0), strict=True))
    apart = (AssignedContainer("x", ContainerKind.APP, (x,)), AssignedContainer("y", ContainerKind.APP, (y,)))
    plan = cluster.plan("h", [], [("h", Placement("n1", apart, 2))])
    [sent] = [action for action in cluster.step(plan).actions if isinstance(action, Nominate)]
    assert set(reservations_of((("h", sent.placement),))) == {one.reservation for one in plan.reservations}


def test_s05_the_owner_is_sent_to_its_cards_only_when_the_last_victim_is_gone() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", FOUR_WHOLE)
    plan = cluster.plan("h", victims)
    cluster.step(plan)
    for uid in victims:
        step = cluster.step(plan)
        assert not any(isinstance(action, Nominate) for action in step.actions)
        assert not cluster.try_bind("h")
        cluster.gone(uid)
    assert [type(action) for action in cluster.step(plan).actions] == [Nominate]
    assert cluster.try_bind("h")


def test_s13_nobody_is_evicted_on_a_node_that_takes_nothing() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", victims[:1])
    cluster.ledger.put_node(replace(cluster.nodes["n1"], slots_allocatable=frozenset()))
    cluster.step(plan)
    assert cluster.evictions == []
    assert end_of(cluster, plan) is PlanEnd.NODE_CLOSED
    assert cluster.ends[key_of(plan)].avoid_nodes == {"n1"}


def test_s13_a_node_that_closes_while_victims_leave_keeps_the_plan() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", make_request(want(2)))
    cluster.limits = PlanLimits(max_in_flight=1)
    plan = cluster.plan("h", victims[:2])
    cluster.step(plan)
    cluster.ledger.put_node(replace(cluster.nodes["n1"], slots_allocatable=frozenset()))
    assert cluster.step(plan).actions == ()
    cluster.ledger.put_node(cluster.nodes["n1"])
    cluster.settle()
    assert cluster.evictions == victims[:2]
    assert cluster.pods["h"].node == "n1"


@pytest.mark.parametrize("asked", [True, False], ids=["victims leave", "nobody was asked"])
def test_s13_a_node_that_is_deleted_ends_the_plan_at_once(asked: bool) -> None:
    """It does not open again, so the owner need not wait for the hold to expire."""
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", victims[:1])
    if asked:
        cluster.step(plan)
    cluster.ledger.drop_node("n1", cluster.nodes["n1"].uid)
    cluster.step(plan)
    assert cluster.evictions == (victims[:1] if asked else [])
    assert end_of(cluster, plan) is PlanEnd.NODE_CLOSED
    assert cluster.ends[key_of(plan)].replan
    assert cluster.ends[key_of(plan)].avoid_nodes == frozenset()  # one that comes again by this name is another


def test_s25_a_card_that_falls_ill_ends_the_plan_before_anyone_goes() -> None:
    cluster = PlanCluster(cards=1)
    victims = full_of_whole(cluster)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", victims)
    inventory = cluster.inventories["n1"]
    cluster.ledger.put_inventory(replace(inventory, cards=(replace(inventory.cards[0], healthy=False),)))
    cluster.step(plan)
    assert cluster.evictions == []
    assert end_of(cluster, plan) is PlanEnd.CARDS_LOST


def test_s28_a_node_that_refuses_for_other_reasons_ends_the_plan() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", victims[:1])
    cluster.obstacles["h"] = "too little CPU even without the victims"
    cluster.step(plan)
    assert cluster.evictions == []
    assert end_of(cluster, plan) is PlanEnd.LOST_OTHER


def test_s32_s34_neither_another_pod_nor_the_victims_own_successor_takes_what_is_drained() -> None:
    cluster = PlanCluster(cards=1)
    cluster.running("l", make_request(want(1, 80)))
    cluster.wait("h", make_request(want(1, 90)))
    plan = cluster.plan("h", ["l"])
    cluster.step(plan)
    cluster.gone("l")
    cluster.wait("m", make_request(want(1, 50)))
    cluster.wait("l-again", make_request(want(1, 80)))
    assert not cluster.try_bind("m")
    assert not cluster.try_bind("l-again")
    cluster.settle()
    assert cluster.pods["h"].node == "n1"


def test_s35_what_leaves_the_owner_whole_is_placed_at_once() -> None:
    cluster = PlanCluster(cards=1)
    cluster.running("l", make_request(want(1, 80)))
    cluster.wait("h", make_request(want(1, 90)))
    cluster.step(cluster.plan("h", ["l"]))
    cluster.wait("small", make_request(want(1, 10)))
    cluster.wait("larger", make_request(want(1, 11)))
    assert not cluster.try_bind("larger")
    assert cluster.try_bind("small")
    cluster.settle()
    assert cluster.pods["h"].node == "n1"


def test_s36_a_victim_with_a_long_grace_keeps_its_card() -> None:
    cluster = PlanCluster(cards=1)
    cluster.grace_seconds = 600
    cluster.running("l", WHOLE)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", ["l"])
    cluster.step(plan)
    cluster.now_seconds += 599
    step = cluster.step(plan)
    assert step.actions == ()
    assert step.wake_seconds == 1000 + 600 + 60
    assert not cluster.try_bind("h")


def test_s38_an_owner_that_goes_before_the_first_eviction_costs_nobody_anything() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", FOUR_WHOLE)
    plan = cluster.plan("h", victims)
    cluster.gone("h")
    cluster.step(plan)
    assert cluster.evictions == []
    assert end_of(cluster, plan) is PlanEnd.OWNER_GONE
    assert cluster.view("n1").leaving_slots == 0


def test_an_owner_that_goes_on_the_way_cancels_what_was_not_sent() -> None:
    cluster = PlanCluster()
    cluster.limits = PlanLimits(max_in_flight=1)
    victims = full_of_whole(cluster)
    cluster.wait("h", FOUR_WHOLE)
    plan = cluster.plan("h", victims)
    cluster.step(plan)
    cluster.gone("h")
    cluster.settle()
    assert cluster.evictions == victims[:1]
    assert end_of(cluster, plan) is PlanEnd.OWNER_GONE


def test_s40_room_on_another_node_ends_the_plan_and_spares_who_was_not_asked() -> None:
    cluster = PlanCluster(nodes=2)
    victims, others = full_of_whole(cluster), full_of_whole(cluster, "n2")
    cluster.look_elsewhere = True
    cluster.limits = PlanLimits(max_in_flight=1)
    cluster.wait("h", make_request(want(2)))
    plan = cluster.plan("h", victims[:2])
    cluster.step(plan)
    for uid in others[:2]:
        cluster.gone(uid)
    cluster.step(plan)
    cluster.bind_nominated()
    assert end_of(cluster, plan) is PlanEnd.ROOM_ELSEWHERE
    assert cluster.pods["h"].node == "n2"
    assert cluster.evictions == victims[:1]


def shared_victims(cluster: PlanCluster) -> tuple[list[str], PlanFact, PlanFact]:
    """Four sharers go for `h`, who wants one of their four cards; `next` takes another, and evicts nobody."""
    victims = [f"l{i}" for i in range(4)]
    for uid in victims:
        cluster.running(uid, QUARTERS)
    cluster.wait("h", WHOLE)
    cluster.wait("next", WHOLE)
    first = cluster.plan("h", victims)
    return victims, first, cluster.plan("next", [], counting_on(cluster, "next", victims))


def counting_on(cluster: PlanCluster, uid: str, victims: list[str]) -> list[tuple[str, Placement]]:
    placement = cluster.planned(uid, victims)
    assert placement is not None
    return [(uid, placement)]


def test_who_counts_on_anothers_victims_gets_his_card_when_they_are_gone() -> None:
    cluster = PlanCluster()
    victims, first, second = shared_victims(cluster)
    cluster.step(second)
    assert key_of(second) in cluster.plans, "nobody was asked to go yet"
    cluster.settle()
    assert cluster.evictions == victims
    assert [end_of(cluster, plan) for plan in (first, second)] == [PlanEnd.OWNER_BOUND] * 2
    assert cluster.uuids("h").isdisjoint(cluster.uuids("next"))


def test_who_counts_on_anothers_victims_is_decided_on_anew_when_they_are_not_to_go_any_more() -> None:
    cluster = PlanCluster()
    _, first, second = shared_victims(cluster)
    cluster.gone("h")
    cluster.step(first)
    cluster.step(second)
    assert cluster.evictions == []
    assert cluster.ends[key_of(second)].replan, cluster.ends


def test_s41_a_victim_that_ends_by_itself_counts_and_the_rest_is_spared() -> None:
    cluster = PlanCluster(cards=1)
    for uid in ("a", "b"):
        cluster.running(uid, make_request(want(1, 50)))
    cluster.wait("h", make_request(want(1, 50)))
    plan = cluster.plan("h", ["b"])
    cluster.gone("a")
    cluster.settle()
    assert cluster.evictions == []
    assert cluster.pods["h"].node == "n1"
    assert end_of(cluster, plan) is PlanEnd.OWNER_BOUND


@pytest.mark.parametrize("dies_after", range(7))
@pytest.mark.parametrize("in_flight", [None, 1])
def test_s42_whoever_dies_at_any_step_the_same_victims_go_once(dies_after: int, in_flight: int | None) -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.limits = PlanLimits(max_in_flight=in_flight)
    cluster.wait("h", make_request(want(3)))
    plan = cluster.plan("h", victims[:3])
    cluster.step(plan, most=dies_after)
    cluster.restart()
    for uid in victims[:3]:
        if key_of(plan) in cluster.plans:
            cluster.step(plan, most=dies_after)
        cluster.restart()
        if cluster.pods[uid].terminating:
            cluster.gone(uid)
    cluster.settle()
    assert sorted(cluster.evictions) == victims[:3]
    assert len(cluster.uuids("h")) == 3


def test_s44_a_refused_eviction_is_asked_again_and_then_the_plan_is_made_anew_without_it() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", make_request(want(2)))
    plan = cluster.plan("h", victims[:2])
    cluster.refusing[victims[0]] = 1000
    cluster.limits = PlanLimits(max_in_flight=1)
    for _ in range(2):
        cluster.step(plan)
        step = cluster.step(plan)
        assert (step.actions, step.wake_seconds) == ((), cluster.now_seconds + 10)
        cluster.now_seconds += 10
    cluster.step(plan)
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert end.reason is PlanEnd.DISRUPTION_BUDGET
    assert end.replan
    assert end.avoid_victims == {victims[0]}
    assert cluster.evictions == [victims[0]] * 3


def test_s44_a_refusal_that_passes_leads_on_with_the_same_victims() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", make_request(want(2)))
    plan = cluster.plan("h", victims[:2])
    cluster.refusing[victims[1]] = 2
    for _ in range(4):
        cluster.step(plan)
        cluster.now_seconds += 10
    cluster.settle()
    assert cluster.evictions == [victims[0], *[victims[1]] * 3]
    assert cluster.pods["h"].node == "n1"


def test_a_victim_that_may_not_go_any_more_ends_the_plan() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", victims[:1])
    cluster.objections[victims[0]] = "its class is critical now"
    cluster.step(plan)
    assert cluster.evictions == []
    assert cluster.ends[key_of(plan)].avoid_victims == {victims[0]}


def test_an_owner_whose_binding_is_on_its_way_keeps_its_plan() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", victims[:1])
    cluster.step(plan)
    cluster.gone(victims[0])
    cluster.step(plan)
    cluster.book("h")
    assert cluster.step(plan).actions == ()
    cluster.ledger.unbook("h", "nonce")
    assert cluster.try_bind("h")
    cluster.step(plan)
    assert end_of(cluster, plan) is PlanEnd.OWNER_BOUND


def test_s48_failed_binds_keep_the_cards_are_bounded_and_cost_no_new_victims() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", victims[:1])
    cluster.step(plan)
    cluster.gone(victims[0])
    cluster.wait("thief", WHOLE)
    for _ in range(3):
        cluster.step(plan)
        assert not cluster.try_bind("h", refused=True)
        assert not cluster.try_bind("thief")
    cluster.step(plan)
    assert end_of(cluster, plan) is PlanEnd.BIND_FAILED
    assert cluster.evictions == victims[:1]
    assert cluster.try_bind("thief")


def test_a_stuck_victim_ends_the_plan_and_its_card_stays_occupied() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", victims[:1])
    cluster.step(plan)
    cluster.now_seconds += 30 + 60
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert (end.reason, end.replan, end.stuck) == (PlanEnd.VICTIM_STUCK, True, {victims[0]})
    assert not cluster.try_bind("h")


def test_an_eviction_that_keeps_failing_ends_the_plan_which_is_made_anew_without_it() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.wait("h", FOUR_WHOLE)
    plan = cluster.plan("h", victims)
    cluster.fails_since = {victims[0]: cluster.now_seconds}
    step = cluster.step(plan, most=0)
    assert step.wake_seconds == cluster.now_seconds + 60
    cluster.now_seconds += 59
    cluster.step(plan, most=0)
    assert cluster.ends == {}
    cluster.now_seconds += 1
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert (end.reason, end.replan, end.avoid_victims) == (PlanEnd.EVICTION_FAILED, True, {victims[0]})
    assert "the API is ill" in end.message


def test_one_that_may_be_leaving_is_asked_again_beside_max_in_flight_and_spared_last() -> None:
    cluster = PlanCluster(cards=2)
    victims = full_of_whole(cluster)
    cluster.wait("h", make_request(want(2)))
    plan = cluster.plan("h", victims)
    cluster.unsure = {victims[1]}
    cluster.limits = PlanLimits(max_in_flight=1, in_flight=1)
    assert cluster.step(plan, most=0).actions == (Evict(victims[1]),)
    cluster.unsure = set()
    assert cluster.step(plan, most=0).actions == ()
    card = PlanCluster(cards=1)
    for uid in ("a", "b"):
        card.running(uid, make_request(want(1, percent=50)))
    card.wait("h", make_request(want(1, percent=50)))
    plan = card.plan("h", ["a", "b"])
    assert Evict("a") in card.step(plan, most=0).actions
    card.unsure = {"b"}
    assert Evict("b") in card.step(plan, most=0).actions
    assert Evict("a") not in card.step(plan, most=0).actions


def test_s52_a_gang_is_sent_to_its_cards_all_at_once() -> None:
    cluster = PlanCluster(nodes=2, cards=2)
    victims = full_of_whole(cluster) + full_of_whole(cluster, "n2")
    plan, owners = gang_plan(cluster, victims)
    cluster.step(plan)
    for uid in victims[:-1]:
        cluster.gone(uid)
        assert not any(isinstance(action, Nominate) for action in cluster.step(plan).actions)
    cluster.gone(victims[-1])
    sent = [action.uid for action in cluster.step(plan).actions if isinstance(action, Nominate)]
    assert sent == owners
    cluster.bind_nominated()
    assert {cluster.pods[uid].node for uid in owners} == {"n1", "n2"}


def test_s54_one_stuck_victim_makes_the_whole_hold_of_a_gang_expire() -> None:
    cluster = PlanCluster(nodes=2, cards=2)
    victims = full_of_whole(cluster) + full_of_whole(cluster, "n2")
    plan, _ = gang_plan(cluster, victims)
    cluster.step(plan)
    for uid in victims[:-1]:
        cluster.gone(uid)
    cluster.now_seconds += 30 + 60
    assert cluster.step(plan).actions == ()
    cluster.now_seconds += 300
    cluster.step(plan)
    assert end_of(cluster, plan) is PlanEnd.HOLD_EXPIRED
    assert all(not cluster.view(node).reservations for node in ("n1", "n2"))


def test_a_gang_of_which_only_some_are_bound_gives_those_up_when_the_hold_expires() -> None:
    cluster = PlanCluster(nodes=2, cards=2)
    victims = full_of_whole(cluster) + full_of_whole(cluster, "n2")
    plan, owners = gang_plan(cluster, victims)
    cluster.step(plan)
    for uid in victims:
        cluster.gone(uid)
    cluster.step(plan)
    assert cluster.try_bind(owners[0], "n1")
    cluster.ledger.drop_nomination(owners[1])
    cluster.step(plan)
    assert {r.uid for r in cluster.view("n2").reservations} == {owners[1]}
    cluster.ledger.drop_nomination(owners[1])
    cluster.now_seconds += 300
    cluster.step(plan)
    assert cluster.ends[key_of(plan)].release == {owners[0]}


def gang_plan(cluster: PlanCluster, victims: list[str]) -> tuple[object, list[str]]:
    """A gang of two pods with two cards each, one on each node."""
    owners = ["g0", "g1"]
    members = []
    for uid, node in zip(owners, ("n1", "n2"), strict=True):
        cluster.wait(uid, make_request(want(2)))
        placement = cluster.planned(uid, victims, node)
        assert placement is not None
        members.append((uid, placement))
    return cluster.plan("g0", victims, members), owners


def test_s55_a_gang_that_goes_whole_is_spared_whole_or_not_at_all() -> None:
    cluster = PlanCluster(cards=2)
    for uid in ("a", "b"):
        cluster.running(uid, WHOLE)
        cluster.units[uid] = "gang"
    cluster.wait("h", WHOLE)
    plan = cluster.plan("h", ["a", "b"])
    cluster.step(plan, most=1)
    assert cluster.evictions == ["a"]
    cluster.restart()
    cluster.settle()
    assert cluster.evictions == ["a", "b"]


def test_max_in_flight_paces_evictions() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.limits = PlanLimits(max_in_flight=2, in_flight=1)
    cluster.wait("h", FOUR_WHOLE)
    plan = cluster.plan("h", victims)
    assert [action for action in cluster.step(plan).actions if isinstance(action, Evict)] == [Evict(victims[0])]


def test_draining_is_said_once_when_the_last_eviction_is_sent() -> None:
    cluster = PlanCluster()
    victims = full_of_whole(cluster)
    cluster.limits = PlanLimits(max_in_flight=1)
    cluster.wait("h", make_request(want(2)))
    plan = cluster.plan("h", victims[:2])
    cluster.step(plan)
    assert cluster.plans[key_of(plan)].phase is not DRAINING
    cluster.step(plan)
    assert cluster.plans[key_of(plan)].phase is DRAINING
    assert cluster.step(plan).actions == ()


WATCHED = {
    "_owner_bound": test_s03_the_fourth_victim_is_spared_when_three_are_enough,
    "_owner_gone": test_s38_an_owner_that_goes_before_the_first_eviction_costs_nobody_anything,
    "_room_elsewhere": test_s40_room_on_another_node_ends_the_plan_and_spares_who_was_not_asked,
    "_other_filters": test_s28_a_node_that_refuses_for_other_reasons_ends_the_plan,
    "_node_closed": test_s13_nobody_is_evicted_on_a_node_that_takes_nothing,
    "_cards_lost": test_s25_a_card_that_falls_ill_ends_the_plan_before_anyone_goes,
    "_victim_changed": test_a_victim_that_may_not_go_any_more_ends_the_plan,
    "_budget": test_s44_a_refused_eviction_is_asked_again_and_then_the_plan_is_made_anew_without_it,
    "_eviction_fails": test_an_eviction_that_keeps_failing_ends_the_plan_which_is_made_anew_without_it,
    "_stuck": test_a_stuck_victim_ends_the_plan_and_its_card_stays_occupied,
    "_hold_expired": test_s54_one_stuck_victim_makes_the_whole_hold_of_a_gang_expire,
    "_bind_failed": test_s48_failed_binds_keep_the_cards_are_bounded_and_cost_no_new_victims,
}


@pytest.mark.parametrize("rule", WATCHED)
def test_each_rule_that_ends_a_plan_is_missed_when_it_is_off(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    left = tuple(one for one in plan_step.ENDINGS if one.__name__ != rule)
    assert len(left) == len(plan_step.ENDINGS) - 1
    monkeypatch.setattr(plan_step, "ENDINGS", left)
    with pytest.raises((AssertionError, KeyError)):
        WATCHED[rule]()
