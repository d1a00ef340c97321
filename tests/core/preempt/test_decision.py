"""Decisions on whole plans: the acceptance table's rows from the question to the bound pod."""

from dataclasses import replace

import pytest

from tests.core.building import make_request, want
from tests.core.preempt.decided import Decided
from tests.core.preempt.plan_cluster import PlanCluster
from vgpu.core.facts import Scheduling
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.decision_world import Avoid
from vgpu.core.preempt.facts import Gang, Limits, QueueFact
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.plan import PlanEnd, key_of
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.swaps import Swap
from vgpu.core.reasons import Reason
from vgpu.core.request import Selection
from vgpu.core.terms import OwnerRef

WHOLE = make_request(want(1))
QUARTERS = make_request(want(4, percent=25))
SIXTY = make_request(want(4, percent=60))
TWO_QUEUES = {
    "low": QueueFact("low", deserved=Limits(cards_thousandths=0)),
    "high": QueueFact("high", deserved=Limits(cards_thousandths=4000)),
}


def make(**fields: object) -> Decided:
    cluster = PlanCluster()
    cluster.inventories = {
        name: replace(one, cards=tuple(replace(card, memory_mib=32_768) for card in one.cards))
        for name, one in cluster.inventories.items()
    }
    cluster.nodes = {name: replace(node, pods=110) for name, node in cluster.nodes.items()}
    cluster.restart()
    return Decided(cluster, **fields)  # type: ignore[arg-type]


def refusal(answer: Plan | No) -> Reason:
    assert isinstance(answer, No), answer
    return answer.reason


def test_s01_s02_each_owner_evicts_one_and_each_end_brings_one_back() -> None:
    made = make(queues=TWO_QUEUES)
    for i in range(4):
        made.low(f"l{i}", WHOLE, queue="low")
    for i in range(4):
        made.preempt(f"h{i}", WHOLE, queue="high")
        assert len(made.cluster.evictions) == i + 1
        assert made.recover() == []
    assert len(set().union(*(made.cluster.uuids(f"h{i}") for i in range(4)))) == 4
    for i in range(4):
        made.cluster.gone(f"h{i}")
        assert len(made.recover()) == 1
    running = [pod.uid for pod in made.cluster.pods.values() if pod.node]
    assert len(set().union(*(made.cluster.uuids(uid) for uid in running))) == len(running) == 4


@pytest.mark.parametrize(
    ("low", "high", "evicted"),
    [
        pytest.param(QUARTERS, SIXTY, 3, id="S03-S04"),
        pytest.param(QUARTERS, make_request(want(4)), 4, id="S05-S06"),
        pytest.param(WHOLE, SIXTY, 4, id="S07-S08"),
    ],
)
def test_s03_to_s08_the_fewest_go_and_all_of_them_come_back(low: object, high: object, evicted: int) -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", low)  # type: ignore[arg-type]
    made.preempt("h", high)  # type: ignore[arg-type]
    assert len(set(made.cluster.evictions)) == len(made.cluster.evictions) == evicted
    assert len(made.cluster.uuids("h")) == 4
    assert made.recover() == []
    made.cluster.gone("h")
    assert len(made.recover()) == evicted
    assert sum(1 for pod in made.cluster.pods.values() if pod.node) == 4


def test_s09_lower_classes_go_first_then_who_loses_least() -> None:
    made = make()
    for uid, priority, started in (("a", 50, 900), ("b", 10, 100), ("c", 10, 800), ("d", 50, 990)):
        made.low(uid, WHOLE, priority=priority, started_seconds=started)
    assert made.victims("h", WHOLE) == ["c"]
    assert made.victims("h2", make_request(want(3))) == ["b", "c", "d"]


def test_s11_equal_priority_evicts_nobody() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE, priority=100)
    answer = made.ask("h", WHOLE)
    assert refusal(answer) is Reason.NO_LOWER_RANK
    assert isinstance(answer, No)
    assert "makes room" not in answer.refusal.message, "where nobody may go nodes do not matter"


def test_s14_one_pod_rather_than_two() -> None:
    made = make()
    made.low("half1", make_request(want(1, percent=50)))
    made.low("half2", make_request(want(1, percent=50)))
    for i in range(3):
        made.low(f"whole{i}", WHOLE, priority=99 if i else 0)
    assert made.victims("h", WHOLE) == ["whole0"]


def test_s17_one_card_is_cleared_and_sums_over_cards_are_not_room() -> None:
    made = make()
    for i in range(2):
        made.low(f"whole{i}", WHOLE, priority=200)
    for i in range(2):
        made.low(f"half{i}", make_request(want(1, percent=60)))
    assert len(made.victims("h", make_request(want(1, percent=80)))) == 1


def test_s18_idle_room_costs_nobody_anything() -> None:
    made = make()
    for i in range(3):
        made.low(f"l{i}", WHOLE)
    assert made.victims("h", WHOLE) == []
    assert len(made.victims("h2", make_request(want(2)))) == 1


def test_s24_only_allowed_cards_are_cleared() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE)
    (uuid,) = made.cluster.uuids("l2")
    only = make_request(want(1), selection=Selection(use_uuids=frozenset({uuid})))
    assert made.victims("h", only) == ["l2"]
    other = make_request(want(1), selection=Selection(use_uuids=frozenset({"GPU-none"})))
    assert refusal(made.ask("h2", other)) is Reason.CARD_SELECTION


def test_s26_the_same_question_has_the_same_answer() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE)
    assert made.ask("h", WHOLE) == made.ask("h", WHOLE)


def test_s27_the_one_with_a_fresh_checkpoint_goes() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE, checkpoint_seconds=940 if i == 2 else None)
    assert made.victims("h", WHOLE) == ["l2"]


def test_s28_nobody_goes_where_cpu_stays_short() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE)
    node = replace(made.cluster.nodes["n1"], cpu_millicores=8000)
    made.cluster.ledger.put_node(node)
    wants = {"h": Scheduling(cpu_millicores=4000), **{f"l{i}": Scheduling(cpu_millicores=1000) for i in range(4)}}
    made.more = {"scheduling": wants, "uses": {"n1": NodeUse(8000, 0, 10)}}
    assert made.victims("h", WHOLE) == ["l0", "l1", "l2", "l3"]
    made.more = {
        "scheduling": {**wants, "h": Scheduling(cpu_millicores=4001)},
        "uses": {"n1": NodeUse(8000, 0, 10)},
    }
    assert refusal(made.ask("h", WHOLE)) is Reason.OTHER_FILTERS


def test_s29_s81_protected_kinds_of_pods_are_never_chosen() -> None:
    made = make()
    kinds = ({"preemptable": False}, {"daemonset_or_mirror": True}, {"owner": OwnerRef()}, {"legacy": True})
    for i, marks in enumerate(kinds):
        made.low(f"l{i}", WHOLE, **marks)
    assert refusal(made.ask("h", WHOLE)) is Reason.NEVER_A_VICTIM
    made.marks["l2"]["evict_opt_in"] = True
    assert made.victims("h", WHOLE) == ["l2"]


def test_s30_where_no_set_suffices_nobody_goes_and_the_node_is_named() -> None:
    made = make()
    made.low("old", WHOLE, legacy=True)
    for i in range(3):
        made.low(f"l{i}", WHOLE)
    answer = made.ask("h", make_request(want(4)))
    assert isinstance(answer, No)
    assert "n1" in answer.refusal.message


def test_s33_a_higher_one_takes_the_cards_the_loser_is_made_anew_and_nobody_goes_twice() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE, priority=0 if i == 0 else 300)
    cluster = made.cluster
    answer = made.ask("h", WHOLE)
    assert isinstance(answer, Plan)
    plan = cluster.plan("h", [one.uid for one in answer.victims], answer.seats)
    cluster.step(plan)
    higher = made.ask("hh", WHOLE, priority=200)
    assert isinstance(higher, Plan)
    assert (higher.victims, higher.takes) == ((), (key_of(plan),))
    taker = cluster.plan("hh", [], higher.seats)
    cluster.taken_over[key_of(plan)] = key_of(taker)
    cluster.step(plan)
    assert cluster.ends[key_of(plan)].reason is PlanEnd.TAKEN_OVER
    cluster.settle()
    assert cluster.pods["hh"].node == "n1"
    assert cluster.evictions == ["l0"]
    assert refusal(made.ask("h", WHOLE)) is Reason.NO_LOWER_RANK


def test_s33_an_equal_one_takes_nothing() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE, priority=0 if i == 0 else 300)
    answer = made.ask("h", WHOLE)
    assert isinstance(answer, Plan)
    made.cluster.step(made.cluster.plan("h", ["l0"], answer.seats))
    assert isinstance(made.ask("other", WHOLE), No)


def test_s62_a_queue_that_is_not_reclaimable_does_not_lose_by_making_room_in_itself() -> None:
    """The plan of its own pod holds the card: another queue may take that no more than the pod that ran there."""
    closed, other = QueueFact("q", reclaimable=False), QueueFact("other", deserved=Limits(4000))
    made = make(queues={"q": closed, "other": other})
    for i in range(4):
        made.low(f"l{i}", WHOLE)
    answer = made.ask("own", WHOLE)
    assert isinstance(answer, Plan)
    made.cluster.step(made.cluster.plan("own", [one.uid for one in answer.victims], answer.seats))
    assert refusal(made.ask("h", WHOLE, queue="other")) is Reason.QUEUE_NOT_RECLAIMABLE


def test_a_stuck_victims_card_is_not_chosen_again() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE)
    answer = made.ask("h", WHOLE)
    assert isinstance(answer, Plan)
    first = answer.victims[0].uid
    cluster = made.cluster
    plan = cluster.plan("h", [first], answer.seats)
    cluster.step(plan)
    cluster.now_seconds += 90
    cluster.step(plan)
    end = cluster.ends[key_of(plan)]
    assert made.victims("h", WHOLE) == []
    again = made.ask("h", WHOLE, Avoid(end.avoid_victims, end.avoid_nodes, end.stuck))
    assert isinstance(again, Plan)
    assert [one.uid for one in again.victims] != [first]
    assert len(again.victims) == 1


def test_s44_what_a_budget_refused_is_left_out_of_the_next_plan() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE)
    (first,) = made.victims("h", WHOLE)
    again = made.ask("h", WHOLE, Avoid(victims=frozenset({first})))
    assert isinstance(again, Plan)
    assert [one.uid for one in again.victims] != [first]


def test_s52_s57_a_gang_gets_all_its_cards_or_evicts_nobody() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE, priority=0 if i < 2 else 300)
    gang = Gang("g", 2)
    for uid in ("g0", "g1", "g2"):
        made.marks[uid] = {"priority": 100, "gang": gang}
        made.cluster.wait(uid, WHOLE)
    both = made.decide(["g0", "g1"])
    assert isinstance(both, Plan)
    assert sorted(one.uid for one in both.victims) == ["l0", "l1"]
    assert {one.reservation.uid for one in both.reservations} == {"g0", "g1"}
    assert isinstance(made.decide(["g0", "g1", "g2"]), No)


def test_s58_a_queue_takes_back_what_it_deserves_and_stops() -> None:
    two = Limits(cards_thousandths=2000)
    made = make(queues={name: QueueFact(name, deserved=two) for name in ("a", "b")})
    for i in range(4):
        made.low(f"a{i}", WHOLE, queue="a")
    for i in range(2):
        made.preempt(f"b{i}", WHOLE, queue="b", priority=0)
    assert len(made.cluster.evictions) == 2
    assert isinstance(made.ask("b2", WHOLE, queue="b", priority=0), No)


def test_s61_s62_guarantee_and_reclaimable_are_kept() -> None:
    one = Limits(cards_thousandths=3000)
    lender = QueueFact("a", guarantee=one, deserved=one)
    made = make(queues={"a": lender, "b": replace(TWO_QUEUES["high"], name="b")})
    for i in range(4):
        made.low(f"a{i}", WHOLE, queue="a")
    assert len(made.victims("b0", WHOLE, queue="b")) == 1
    assert isinstance(made.ask("b1", make_request(want(2)), queue="b"), No)
    made.queues = {**made.queues, "a": replace(lender, reclaimable=False)}
    assert refusal(made.ask("b2", WHOLE, queue="b")) in (Reason.QUEUE_NOT_RECLAIMABLE, Reason.VICTIM_ENTITLED)


def test_s63_a_queue_at_its_capability_evicts_only_its_own() -> None:
    cap = Limits(cards_thousandths=1000)
    made = make(queues={"q": QueueFact("q"), "small": QueueFact("small", deserved=cap, capability=cap)})
    made.low("own", WHOLE, queue="small", priority=100)
    for i in range(3):
        made.low(f"l{i}", WHOLE)
    assert refusal(made.ask("h", WHOLE, queue="small")) is Reason.QUEUE_CAPABILITY
    made.marks["own"]["priority"] = 1
    assert made.victims("h", WHOLE, queue="small") == ["own"]


def test_s75_a_protected_victim_is_waited_for_until_a_known_moment() -> None:
    made = make(queues={"q": QueueFact("q", min_runtime_preempt_seconds=300)})
    for i in range(4):
        made.low(f"l{i}", WHOLE, started_seconds=880 + i)
    answer = made.ask("h", WHOLE)
    assert isinstance(answer, No)
    assert (answer.reason, answer.until_seconds) == (Reason.PROTECTED, 1180)
    made.cluster.now_seconds = 1180
    assert made.victims("h", WHOLE) == ["l0"]


def in_turn(one: str, other: str) -> list[Swap]:
    return [Swap(one, other, 990), Swap(other, one, 990), Swap(one, other, 990)]


def test_s78_a_pair_that_swapped_too_often_is_frozen() -> None:
    made = make()
    for i in range(4):
        made.low(f"l{i}", WHOLE)
    made.more = {"swaps": tuple(swap for i in range(4) for swap in in_turn("rs-h", f"rs-l{i}"))}
    answer = made.ask("h", WHOLE)
    assert isinstance(answer, No)
    assert (answer.reason, answer.until_seconds) == (Reason.SWAP_FROZEN, 1590)
    made.more = {"swaps": made.more["swaps"][:-3]}
    assert made.victims("h", WHOLE) == ["l3"]


def test_s83_nobody_goes_before_the_queues_waiting_time_is_over() -> None:
    made = make(queues={"q": QueueFact("q", wait_before_seconds=1300)})
    for i in range(4):
        made.low(f"l{i}", WHOLE)
    answer = made.ask("h", WHOLE)
    assert isinstance(answer, No)
    assert (answer.reason, answer.until_seconds) == (Reason.WAIT_BEFORE, 1300)


def test_the_rule_names_the_rights_that_are_used() -> None:
    made = make(queues=TWO_QUEUES)
    for i in range(4):
        made.low(f"l{i}", WHOLE, queue="low")
    answer = made.ask("h", WHOLE, queue="high")
    assert isinstance(answer, Plan)
    assert (answer.rule, answer.exact) == ("ReclaimAcrossQueues", True)
