"""A gang with a plan loses a member before it runs: its cards stay held, and who replaces it takes them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.core.building import bound_pod, holds, make_request, want
from tests.core.preempt.plan_cluster import PlanCluster
from tests.core.preempt.queueing import make_queue, make_workload, stand
from tests.core.preempt.test_gang_plan import PAIR, gang_plan
from vgpu.core.facts import AssignedCard
from vgpu.core.preempt import endings, gang_seats, needed, plan_step, situation
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.preempt.gang_seats import asks_for, succeeded, with_successors
from vgpu.core.preempt.plan import Evict, Nominate, PlanEnd, PlanLimits, Succeed, key_of
from vgpu.core.preempt.rank import Rank
from vgpu.core.preempt.reservations import PlanHold, PlanHolds
from vgpu.core.request import PodRequest

VICTIMS = ["l1", "l2"]
HOLD_SECONDS = PlanLimits().hold_timeout_seconds


def planned() -> tuple[PlanCluster, PlanFact]:
    """Four cards, a pair of them for each of two members, and a victim on each pair."""
    cluster = PlanCluster()
    for uid in VICTIMS:
        cluster.running(uid, PAIR)
    return cluster, gang_plan(cluster, ["g1", "g2"], VICTIMS)


def draining() -> tuple[PlanCluster, PlanFact]:
    """Both victims leave."""
    cluster, plan = planned()
    cluster.step(plan)
    return cluster, plan


def kinds(cluster: PlanCluster, plan: PlanFact) -> list[type]:
    return [type(action) for action in cluster.step(plan).actions]


def now(cluster: PlanCluster, plan: PlanFact) -> PlanFact:
    return cluster.plans[key_of(plan)]


def now_bound(cluster: PlanCluster) -> set[str]:
    return {uid for uid, pod in cluster.pods.items() if pod.node}


def end_of(cluster: PlanCluster, plan: PlanFact) -> PlanEnd:
    return cluster.ends[key_of(plan)].reason


def test_cards_of_a_member_that_is_gone_are_nobody_elses() -> None:
    cluster, plan = draining()
    cluster.gone("g2")
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.wait("thief", PAIR)
    assert not cluster.try_bind("thief")
    assert kinds(cluster, plan) == []
    assert not cluster.try_bind("thief")


def test_who_replaces_it_takes_its_seat_and_nobody_else_goes() -> None:
    cluster, plan = draining()
    cluster.gone("g2")
    cluster.step(plan)
    cluster.member("g3", "g", PAIR)
    assert cluster.step(plan).actions == (Succeed("g2", "g3"),)
    cluster.settle()
    assert {cluster.pods[uid].node for uid in ("g1", "g3")} == {"n1"}
    assert (cluster.evictions, end_of(cluster, plan)) == (VICTIMS, PlanEnd.OWNER_BOUND)


def test_nobody_goes_and_nobody_is_sent_while_a_seat_is_empty() -> None:
    cluster, plan = planned()
    cluster.gone("g2")
    assert kinds(cluster, plan) == []
    cluster.member("g3", "g", PAIR)
    cluster.step(plan)
    cluster.step(plan)
    assert cluster.evictions == VICTIMS
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.gone("g3")
    assert kinds(cluster, plan) == []
    cluster.member("g4", "g", PAIR)
    assert kinds(cluster, plan) == [Succeed]
    assert kinds(cluster, plan) == [Nominate, Nominate]


def test_a_gang_that_loses_a_bound_member_is_decided_on_anew() -> None:
    """It may have had to go for another: what was held for it is that one's then."""
    cluster, plan = draining()
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.step(plan)
    assert cluster.try_bind("g1")
    cluster.gone("g1")
    assert {one.uid for one in cluster.view("n1").reservations} == {"g2"}
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert (end.reason, end.replan) == (PlanEnd.OWNER_CHANGED, True)


@pytest.mark.parametrize("dies_after", [0, 1])
def test_s42_a_restart_goes_on_with_the_same_plan_whether_the_seat_was_written_or_not(dies_after: int) -> None:
    cluster, plan = draining()
    cluster.gone("g2")
    cluster.restart()
    cluster.wait("thief", PAIR)
    for uid in VICTIMS:
        cluster.gone(uid)
    assert not cluster.try_bind("thief")
    cluster.member("g3", "g", PAIR)
    cluster.step(plan, most=dies_after)
    cluster.restart()
    assert not cluster.try_bind("thief")
    assert now(cluster, plan).successors == ((("g2", "g3"),) if dies_after else ())
    cluster.settle()
    assert {cluster.pods[uid].node for uid in ("g1", "g3")} == {"n1"}
    assert cluster.evictions == VICTIMS


def test_a_member_that_waits_without_cards_takes_the_seat_and_the_oldest_first() -> None:
    cluster, plan = draining()
    cluster.minimums["g"] = 2
    cluster.member("spare1", "g", PAIR)
    cluster.member("spare2", "g", PAIR)
    cluster.gone("g1")
    assert cluster.step(plan).actions == (Succeed("g1", "spare1"),)
    assert now(cluster, plan).owner_uids == ("spare1", "g2")


def test_two_that_are_gone_are_replaced_one_by_one_and_the_first_keeps_its_seat() -> None:
    cluster, plan = draining()
    cluster.member("g0", "g", make_request(want(1)))  # somebody is left
    cluster.gone("g1")
    cluster.gone("g2")
    cluster.step(plan)
    for uid in ("g3", "g4"):
        cluster.member(uid, "g", PAIR)
        assert kinds(cluster, plan) == [Succeed]
    assert now(cluster, plan).owner_uids == ("g3", "g4")
    cluster.gone("g3")
    cluster.member("g5", "g", PAIR)
    cluster.settle()
    assert now_bound(cluster) == {"g4", "g5"}


def test_a_gang_of_which_nobody_is_left_holds_nothing_at_once() -> None:
    cluster, plan = draining()
    for uid in ("g1", "g2", *VICTIMS):
        cluster.gone(uid)
    cluster.step(plan)
    assert end_of(cluster, plan) is PlanEnd.OWNER_GONE
    cluster.wait("other", PAIR)
    assert cluster.try_bind("other")


def test_a_seat_waits_for_as_long_as_the_queue_says_and_no_longer() -> None:
    cluster, plan = planned()
    cluster.gone("g2")
    step = cluster.step(plan)
    assert step.wake_seconds == cluster.now_seconds + HOLD_SECONDS
    cluster.now_seconds += HOLD_SECONDS - 1
    assert kinds(cluster, plan) == []
    cluster.now_seconds += 1
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert (end.reason, end.replan, end.release, end.avoid_nodes) == (
        PlanEnd.HOLD_EXPIRED,
        False,
        frozenset(),
        frozenset(),
    )
    assert (cluster.evictions, cluster.view("n1").reservations) == ([], ())


def test_the_time_that_cards_stand_free_counts_too() -> None:
    cluster, plan = draining()
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.step(plan)
    cluster.now_seconds += HOLD_SECONDS - 1
    cluster.gone("g2")
    assert kinds(cluster, plan) == []
    cluster.now_seconds += 1
    cluster.step(plan)
    assert end_of(cluster, plan) is PlanEnd.HOLD_EXPIRED


def test_a_gang_that_is_whole_again_has_the_whole_time_and_all_its_tries() -> None:
    cluster, plan = draining()
    for uid in VICTIMS:
        cluster.gone(uid)
    for _ in range(3):
        cluster.step(plan)
        for uid in ("g1", "g2"):
            cluster.ledger.drop_nomination(uid)
    cluster.now_seconds += HOLD_SECONDS - 1
    cluster.gone("g2")
    cluster.step(plan)
    cluster.member("g3", "g", PAIR)
    cluster.step(plan)
    cluster.now_seconds += HOLD_SECONDS - 1
    assert kinds(cluster, plan) == [Nominate, Nominate]


def test_who_comes_at_the_last_moment_is_in_time() -> None:
    cluster, plan = draining()
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.step(plan)
    cluster.gone("g2")
    cluster.step(plan)
    cluster.member("g3", "g", PAIR)
    cluster.now_seconds += HOLD_SECONDS
    assert kinds(cluster, plan) == [Succeed]


def test_who_asks_for_something_else_takes_no_seat_and_the_gang_is_decided_on_anew() -> None:
    cluster, plan = draining()
    cluster.gone("g2")
    cluster.member("other", "g", make_request(want(1)))
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert (end.reason, end.replan) == (PlanEnd.OWNER_CHANGED, True)


@pytest.mark.parametrize("begun", [False, True], ids=["nobody was evicted yet", "victims leave"])
def test_a_gang_that_needs_more_than_is_held_goes_nowhere_and_is_decided_on_anew_once_it_is_whole(
    begun: bool,
) -> None:
    cluster, plan = draining() if begun else planned()
    cluster.minimums["g"] = 3
    if begun:
        for uid in VICTIMS:
            cluster.gone(uid)
    assert kinds(cluster, plan) == []
    assert cluster.step(plan).short
    cluster.now_seconds += HOLD_SECONDS - 1
    assert kinds(cluster, plan) == []
    cluster.member("g3", "g", PAIR)
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert (end.reason, end.replan, end.avoid_nodes) == (PlanEnd.OWNER_CHANGED, True, frozenset())
    assert "needs more" in end.message
    assert cluster.evictions == (VICTIMS if begun else [])


def test_a_gang_that_needs_more_and_does_not_get_them_in_time_gives_everything_back() -> None:
    cluster, plan = planned()
    cluster.minimums["g"] = 3
    assert cluster.step(plan).wake_seconds == cluster.now_seconds + HOLD_SECONDS
    cluster.now_seconds += HOLD_SECONDS
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert (end.reason, end.avoid_nodes, cluster.evictions) == (PlanEnd.HOLD_EXPIRED, frozenset(), [])


def test_a_gang_that_needs_more_than_was_held_once_all_of_that_is_bound_has_had_its_plan() -> None:
    cluster, plan = draining()
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.step(plan)
    assert cluster.try_bind("g1")
    assert cluster.try_bind("g2")
    cluster.minimums["g"] = 3
    cluster.step(plan)
    assert end_of(cluster, plan) is PlanEnd.OWNER_BOUND


def test_a_gang_that_needs_fewer_now_gives_the_seat_up_and_starts() -> None:
    cluster, plan = draining()
    cluster.gone("g2")
    cluster.minimums["g"] = 1
    cluster.step(plan)
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.wait("other", PAIR)
    assert cluster.try_bind("other")
    cluster.settle()
    assert end_of(cluster, plan) is PlanEnd.OWNER_BOUND
    assert now_bound(cluster) == {"g1", "other"}


def test_a_seat_that_another_member_has_filled_unseen_is_in_nobody_s_way() -> None:
    """He was bound there for a process that died before it could say whose seat he had."""
    cluster, half = PlanCluster(cards=1), make_request(want(1, 50))
    cluster.running("l1", make_request(want(1)))
    plan = gang_plan(cluster, ["g1", "g2"], ["l1"], half)
    cluster.step(plan)
    cluster.gone("l1")
    cluster.gone("g2")
    cluster.member("g3", "g", half)
    share = AssignedCard("GPU-10", 50, 0, whole=False)
    cluster.put(bound_pod("g3", holds(share), request=half))
    cluster.settle()
    assert (end_of(cluster, plan), now_bound(cluster)) == (PlanEnd.OWNER_BOUND, {"g1", "g3"})


def test_a_gang_that_runs_without_a_bound_member_goes_on() -> None:
    cluster, plan = draining()
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.step(plan)
    assert cluster.try_bind("g1")
    cluster.minimums["g"] = 1
    cluster.gone("g1")
    cluster.settle()
    assert (end_of(cluster, plan), now_bound(cluster)) == (PlanEnd.OWNER_BOUND, {"g2"})


def test_a_gang_of_which_nothing_is_known_yet_keeps_its_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start its pods may be seen before its PodGroup."""
    cluster, plan = draining()
    cluster.gone("g2")
    known = cluster.gang
    monkeypatch.setattr(cluster, "gang", lambda plan: replace(known(plan), lacks=None))
    assert kinds(cluster, plan) == []
    assert {one.uid for one in cluster.view("n1").reservations} == {"g1", "g2"}


def test_what_speaks_against_a_victim_is_not_asked_while_a_seat_is_empty() -> None:
    """Whoever is not whole is not entitled either: that comes back with the member."""
    cluster, plan = planned()
    cluster.objections["l1"] = "the gang is not entitled"
    cluster.gone("g2")
    assert kinds(cluster, plan) == []
    cluster.member("g3", "g", PAIR)
    cluster.objections.clear()
    cluster.step(plan)
    assert kinds(cluster, plan)[:2] == [Evict, Evict]


def test_room_elsewhere_for_those_who_are_left_is_no_room_for_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, plan = planned()
    cluster.gone("g2")
    cluster.look_elsewhere = True
    placement = cluster.planned("g1", VICTIMS)
    assert placement is not None
    monkeypatch.setattr(cluster, "_elsewhere", lambda uids: (("g1", placement),))
    assert kinds(cluster, plan) == []


def test_s33_a_higher_one_takes_the_cards_whether_a_seat_is_empty_or_not() -> None:
    cluster, plan = draining()
    cluster.gone("g2")
    cluster.taken_over[key_of(plan)] = "team/higher"
    cluster.step(plan)
    assert end_of(cluster, plan) is PlanEnd.TAKEN_OVER


def test_a_gang_of_which_only_others_are_there_is_nobody_s_to_take_over() -> None:
    _, plan = planned()
    standing, none = stand([make_queue()]), Rank(entitled=False, priority=-1)
    alone = PlanHold("team/h", 1, plan.reservations)
    for hold, lower in ((alone, [alone]), (replace(alone, kept=alone.uids), [])):
        world = DecisionWorld({}, {}, standing, ((hold, none),))
        assert world.plans_around([make_workload("hh", priority=100)])[0] == lower


def test_what_a_bound_member_left_is_not_held_by_another_word_of_the_plan_either() -> None:
    cluster, plan = draining()
    for uid in VICTIMS:
        cluster.gone(uid)
    cluster.step(plan)
    assert cluster.try_bind("g1")
    cluster.gone("g1")
    hold = cluster.ledger.plans.get(key_of(plan))
    assert hold is not None
    cluster.ledger.plans.put(replace(hold, victims=frozenset()))
    assert {one.uid for one in cluster.view("n1").reservations} == {"g2"}


WATCHED: dict[str, tuple[object, str, object, Callable[[], None]]] = {
    "an empty seat is held": (
        PlanHolds,
        "_is_empty",
        lambda *given: False,
        test_cards_of_a_member_that_is_gone_are_nobody_elses,
    ),
    "somebody takes it": (
        situation,
        "takers",
        lambda *given: {},
        test_who_replaces_it_takes_its_seat_and_nobody_else_goes,
    ),
    "only who asks for the same": (
        gang_seats,
        "asks_for",
        lambda *given: True,
        test_who_asks_for_something_else_takes_no_seat_and_the_gang_is_decided_on_anew,
    ),
    "what is not needed is given up": (
        plan_step,
        "_given_up",
        lambda state: (),
        test_a_gang_that_needs_fewer_now_gives_the_seat_up_and_starts,
    ),
    "the time begins anew": (
        plan_step,
        "_begun_anew",
        lambda state: state.progress,
        test_a_gang_that_is_whole_again_has_the_whole_time_and_all_its_tries,
    ),
    "an empty seat is needed": (
        needed,
        "empty_in",
        lambda plan, world: needed.NONE_EMPTY,
        test_nobody_goes_and_nobody_is_sent_while_a_seat_is_empty,
    ),
}


@pytest.mark.parametrize("rule", WATCHED)
def test_each_rule_is_missed_when_it_is_off(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    where, name, off, watches = WATCHED[rule]
    monkeypatch.setattr(where, name, off)
    with pytest.raises((AssertionError, KeyError)):
        watches()


ENDS = {
    "_owner_gone": test_a_gang_of_which_nobody_is_left_holds_nothing_at_once,
    "_not_whole_in_time": test_a_seat_waits_for_as_long_as_the_queue_says_and_no_longer,
}


@pytest.mark.parametrize("rule", ENDS)
def test_each_end_is_missed_when_it_is_off(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    left = tuple(one for one in endings.ENDINGS if one.__name__ != rule)
    assert len(left) == len(endings.ENDINGS) - 1
    monkeypatch.setattr(plan_step, "ENDINGS", left)
    with pytest.raises((AssertionError, KeyError)):
        ENDS[rule]()


# Who has which seat.


def test_the_spec_keeps_its_uids_and_the_last_successor_counts() -> None:
    _, plan = planned()
    once = succeeded(plan, {"g2": "g3"})
    twice = succeeded(once, {"g3": "g4"})
    assert (once.owner_uids, once.successors) == (("g1", "g3"), (("g2", "g3"),))
    assert (twice.owner_uids, twice.successors) == (("g1", "g4"), (("g2", "g4"),))
    assert {card.reservation.uid for card in twice.reservations} == {"g1", "g4"}
    assert with_successors(twice, {}) == plan


@pytest.mark.parametrize(
    "nonsense", [{"nobody": "g3"}, {"g2": "g1"}, {"g1": "g2"}], ids=["no such seat", "has one", "another's"]
)
def test_successors_that_cannot_be_are_left_out(nonsense: dict[str, str]) -> None:
    _, plan = planned()
    assert with_successors(plan, nonsense) == plan


def test_of_two_seats_one_pod_has_one() -> None:
    _, plan = planned()
    assert with_successors(plan, {"g1": "g3", "g2": "g3"}).owner_uids == ("g3", "g2")


TWO = make_request(want(1, 30, 10, name="a"), want(1, 40, name="b"))
REQUESTS: dict[str, tuple[PodRequest, PodRequest]] = {
    "whole cards": (PAIR, make_request(want(1))),
    "a share": (make_request(want(2, 25)), make_request(want(2, 26))),
    "cores": (make_request(want(1, 25, 30)), make_request(want(1, 25, 20))),
    "no cores": (make_request(want(1, 25)), make_request(want(1, 25, 1))),
    "fewer cards": (make_request(want(2, 25)), make_request(want(1, 25))),
    "more cards": (make_request(want(1, 25)), make_request(want(2, 25))),
    "two containers": (TWO, make_request(want(1, 30, 10, name="a"), want(1, 30, name="b"))),
}


@pytest.mark.parametrize(("request_", "other"), REQUESTS.values(), ids=REQUESTS)
def test_a_seat_fits_who_asks_for_just_that_whoever_is_on_its_cards(
    request_: PodRequest, other: PodRequest
) -> None:
    cluster = PlanCluster()
    cluster.running("l", make_request(want(1, 20)))
    cluster.wait("h", request_)
    plan = cluster.plan("h", ["l"])
    cluster.running("guest", make_request(want(1, 10, 5)))
    view = cluster.view("n1")
    assert asks_for(request_, plan.reservations, view)
    assert not asks_for(other, plan.reservations, view)
    assert not asks_for(request_, plan.reservations, replace(view, inventory=None))
    assert not asks_for(request_, plan.reservations, replace(view, cards=()))
