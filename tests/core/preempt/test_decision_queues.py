"""Whole decisions: queues, rights and cards together. Node as in the acceptance table: 4 cards of 32,768 MiB."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.core.building import bind, bound_pod, make_card, make_ledger, make_node, make_request, want
from tests.core.preempt.queueing import CARD_MIB, NOW, make_queue, make_workload, running, stand
from vgpu.core.facts import PodFact, Scheduling
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement
from vgpu.core.preempt.cluster_search import SearchCache
from vgpu.core.preempt.decision import Plan, choose, decide
from vgpu.core.preempt.decision_world import Avoid, DecisionWorld
from vgpu.core.preempt.facts import Amounts, Gang, Limits, QueueFact, Workload
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.pool import pool_for
from vgpu.core.preempt.problem import Need
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.quotas import capability_needs
from vgpu.core.preempt.rank import Rank
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.reasons import Reason
from vgpu.core.request import PodRequest

WHOLE = make_request(want(1))


class Cluster:
    """Nodes with pods that were placed as any pod is, and the queues."""

    def __init__(self, *queues: QueueFact, nodes: int = 1) -> None:
        self.queues = queues or (make_queue("q", 4),)
        self.ledgers: dict[str, Ledger] = {}
        self.workloads: dict[str, Workload] = {}
        for n in range(1, nodes + 1):
            cards = [make_card(f"GPU-{n}{i}", i, memory_mib=CARD_MIB) for i in range(4)]
            self.ledgers[f"n{n}"] = make_ledger(cards=cards, node=f"n{n}")
            self.ledgers[f"n{n}"].put_node(make_node(f"n{n}", pods=110))

    def run(
        self, uid: str, request: PodRequest = WHOLE, node: str = "n1", queue: str = "q", **fields: Any
    ) -> None:
        """A running pod with its cards."""
        placed = bind(self.ledgers[node], uid, request, node)
        assert isinstance(placed, Placement), placed
        shares = [
            (c.number, 1000 if c.card.alone else (c.card.memory_percent or 0) * 10) for c in request.containers
        ]
        size = sum(number * share for number, share in shares)
        given = {"node": node, "request": request, "amounts": Amounts(size), "claim": Amounts(size), **fields}
        self.workloads[uid] = running(uid, queue, **given)

    def leave(self, uid: str) -> None:
        """The eviction was accepted; the pod drains."""
        workload = self.workloads[uid]
        ledger = self.ledgers[workload.node or ""]
        fact = ledger.pod(uid)
        assert isinstance(fact, PodFact)
        ledger.put_pod(replace(fact, terminating=True))
        self.workloads[uid] = replace(workload, terminating=True)

    def ask(self, *preemptors: Workload, cache: SearchCache | None = None, **fields: Any) -> Plan | No:
        return decide(self.world(*preemptors, **fields), preemptors, NOW, cache=cache)

    def world(self, *preemptors: Workload, **fields: Any) -> DecisionWorld:
        """As it stands with these pods waiting."""
        workloads = {**self.workloads, **{pod.uid: pod for pod in preemptors}}
        standing = stand(self.queues, *workloads.values())
        views = {name: view for name, ledger in self.ledgers.items() if (view := ledger.view(name)) is not None}
        return DecisionWorld(views, workloads, standing, **fields)

    def hold(self, uid: str, plan: Plan) -> PlanHold:
        """The plan is kept: its cards are held and its victims are to go."""
        hold = PlanHold(f"team/{uid}", 0, plan.reservations, frozenset((v.uid, v.node) for v in plan.victims))
        for node in hold.nodes:
            self.ledgers[node].put_pod(PodFact(uid, "team", uid, wants_gpus=True, request=WHOLE))
            self.ledgers[node].plans.put(hold)
        return hold


def high(
    uid: str = "H", request: PodRequest = WHOLE, queue: str = "q", size: int = 1000, **fields: Any
) -> Workload:
    given = {"request": request, "priority": 100, "claim": Amounts(size), "amounts": Amounts(size), **fields}
    return make_workload(uid, queue, created_seconds=10, **given)


def made(answer: Plan | No) -> Plan:
    assert isinstance(answer, Plan), answer
    return answer


def refused(answer: Plan | No) -> No:
    assert isinstance(answer, No), answer
    return answer


def uids(answer: Plan | No) -> set[str]:
    return {victim.uid for victim in made(answer).victims}


LOW_HIGH = (make_queue("low", 0), make_queue("high", 4))
EQUAL = Rank(entitled=True, priority=100)
"""Of a pod of class 100 within what its queue deserves."""


def full_of_low(request: PodRequest = WHOLE, *queues: QueueFact) -> Cluster:
    cluster = Cluster(*(queues or LOW_HIGH))
    for number in range(4):
        cluster.run(f"L{number}", request, queue="low")
    return cluster


def test_a_whole_card_is_taken_back_from_one_pod_and_that_card_is_given() -> None:
    """S01."""
    cluster = full_of_low()
    answer = made(cluster.ask(high(queue="high")))
    (victim,) = answer.victims
    held = cluster.ledgers["n1"].pod(victim.uid)
    assert held is not None
    assert held.assignment is not None
    assert answer.seats[0][1].containers[0].cards[0].uuid == held.assignment.containers[0].cards[0].uuid
    assert (answer.rule, answer.exact) == ("ReclaimAcrossQueues", True)


@pytest.mark.parametrize(
    ("row", "low", "wanted", "want_count"),
    [
        ("S03", make_request(want(4, None, percent=25)), make_request(want(4, None, percent=60)), 3),
        ("S05", make_request(want(4, None, percent=25)), make_request(want(4)), 4),
        ("S07", WHOLE, make_request(want(4, None, percent=60)), 4),
    ],
)
def test_the_seed_cases_evict_as_many_as_they_say(
    row: str, low: PodRequest, wanted: PodRequest, want_count: int
) -> None:
    answer = full_of_low(low).ask(high(request=wanted, queue="high", size=4000))
    assert len(uids(answer)) == want_count, row


def test_equal_priority_evicts_nobody_and_says_why() -> None:
    """S11."""
    cluster = Cluster(make_queue("q", 5))
    for number in range(4):
        cluster.run(f"L{number}")
    no = refused(cluster.ask(high(priority=0)))
    assert no.reason is Reason.NO_LOWER_RANK


def test_idle_room_elsewhere_is_a_decision_without_victims() -> None:
    """S18."""
    cluster = full_of_low()
    cluster.ledgers["n2"] = make_ledger(cards=[make_card("GPU-2", memory_mib=CARD_MIB)], node="n2")
    cluster.ledgers["n2"].put_node(make_node("n2", pods=110))
    answer = made(cluster.ask(high(queue="high")))
    assert (answer.victims, answer.seats[0][1].node, answer.rule) == ((), "n2", "room without eviction")


def test_who_is_leaving_already_makes_the_room() -> None:
    """S33."""
    cluster = full_of_low()
    cluster.leave("L2")
    assert uids(cluster.ask(high(queue="high"))) == set()


def test_nobody_goes_whom_another_plan_evicts_already() -> None:
    """I10."""
    cluster = full_of_low()
    answer = made(cluster.ask(high(queue="high")))
    first = uids(answer)
    hold = cluster.hold("H", answer)
    plans = ((hold, EQUAL),)
    second = uids(cluster.ask(high("H2", queue="high"), plans=plans))
    assert len(second) == 1
    assert second.isdisjoint(first)
    assert uids(cluster.ask(high("H", queue="high"), plans=plans)) == first, "it is its own plan"
    lower = ((hold, Rank(entitled=False, priority=100)),)
    assert uids(cluster.ask(high("H2", queue="high"), plans=lower)) == first, "that plan may be taken over"


def test_equal_pods_share_a_pool_and_a_cache_and_get_what_each_would_get_alone() -> None:
    """I10: one after another, each with the plans of those before it."""
    cluster = full_of_low()
    pods = [high(f"H{number}", queue="high") for number in range(5)]
    pool, cache = pool_for(cluster.world(*pods), pods[:1], NOW), SearchCache()
    assert not isinstance(pool, No)
    plans: list[tuple[PlanHold, Rank]] = []
    gone: list[str] = []
    for pod in pods[:4]:
        world = cluster.world(*pods, plans=tuple(plans))
        answer = choose(world, [pod], pool, cache)
        assert answer == decide(world, [pod], NOW)
        gone += uids(answer)
        plans.append((cluster.hold(pod.uid, made(answer)), EQUAL))
    assert sorted(gone) == ["L0", "L1", "L2", "L3"]
    assert isinstance(choose(cluster.world(*pods, plans=tuple(plans)), pods[4:], pool, cache), No)


def test_two_plans_do_not_take_more_of_a_gang_together_than_it_can_spare() -> None:
    cluster = Cluster(*LOW_HIGH)
    for number in range(4):
        cluster.run(f"L{number}", queue="low", gang=Gang("low", 3))
    first = made(cluster.ask(high(queue="high")))
    assert len(first.victims) == 1
    plans = ((cluster.hold("H", first), EQUAL),)
    assert isinstance(cluster.ask(high("H2", queue="high"), plans=plans), No)
    for uid in uids(first):
        cluster.leave(uid)
    assert len(uids(cluster.ask(high("H2", queue="high"), plans=plans))) == 3, "what is left goes whole"


def test_a_gang_does_not_go_whole_from_another_node_while_a_plan_takes_one_of_it() -> None:
    """I10."""
    cluster = Cluster(*LOW_HIGH, nodes=2)
    for number in range(8):
        cluster.run(f"L{number}", node=f"n{number // 4 + 1}", queue="low", gang=Gang("low", 7))
    answer = made(cluster.ask(high(queue="high")))
    assert len(uids(answer)) == 1, "the surplus"
    hold = cluster.hold("H", answer)
    assert isinstance(cluster.ask(high("H2", queue="high"), plans=((hold, EQUAL),)), No)


def test_s86_what_a_plans_victims_leave_beyond_its_need_is_room_for_the_next_before_they_are_asked() -> None:
    """Four sharers leave four cards for the first, who wants one: the next three evict nobody, the fifth four."""
    quarter = make_request(want(4, percent=25))
    cluster = Cluster(*LOW_HIGH[:1], make_queue("high", 8), nodes=2)
    for number in range(8):
        cluster.run(f"L{number}", quarter, node=f"n{number // 4 + 1}", queue="low")
    plans: list[tuple[PlanHold, Rank]] = []
    gone: list[int] = []
    for number in range(5):
        pod = high(f"H{number}", queue="high")
        answer = made(cluster.ask(pod, plans=tuple(plans)))
        gone.append(len(answer.victims))
        plans.append((cluster.hold(pod.uid, answer), EQUAL))
    assert gone == [4, 0, 0, 0, 4]


def test_s63_a_queue_at_its_capability_counts_who_goes_for_another_plan_of_it_already() -> None:
    """The sharers give the queue four cards back for the one that the first wants."""
    quarter = make_request(want(4, percent=25))
    cluster = Cluster(make_queue("q", 0, capability=Limits(8000)), nodes=2)
    for number in range(8):
        cluster.run(f"L{number}", quarter, node=f"n{number // 4 + 1}")
    first = made(cluster.ask(high()))
    hold = cluster.hold("H", first)
    assert len(first.victims) == 4
    second = cluster.ask(high("H2"), plans=((hold, Rank(entitled=False, priority=100)),))
    assert uids(second) == set()


def test_who_was_to_go_for_a_plan_that_is_taken_over_is_not_counted_on() -> None:
    cluster = full_of_low()
    hold = cluster.hold("H", made(cluster.ask(high(queue="high"))))
    lower = ((hold, Rank(entitled=False, priority=100)),)
    answer = made(cluster.ask(high("H2", queue="high"), plans=lower))
    assert uids(answer) == {victim for victim, _ in hold.victims}, "it goes for H2 now, by its own name"


def test_nobody_goes_on_a_node_whose_cpu_would_not_do() -> None:
    """S28: 1000 of 4000 millicores would be given free, 2000 are wanted and none are free."""
    cluster = full_of_low()
    cluster.ledgers["n1"].put_node(make_node("n1", cpu_millicores=4000, memory_mib=100, pods=10))
    fields: dict[str, Any] = {
        "scheduling": {
            "H": Scheduling(cpu_millicores=2000),
            **{f"L{i}": Scheduling(cpu_millicores=1000) for i in range(4)},
        },
        "uses": {"n1": NodeUse(4000, 0, 4)},
    }
    assert len(uids(cluster.ask(high(queue="high"), **fields))) == 2, "two give enough CPU"
    fields["scheduling"]["H"] = Scheduling(cpu_millicores=5000)
    assert isinstance(cluster.ask(high(queue="high"), **fields), No)


def test_a_node_that_the_pods_selector_excludes_is_left_alone() -> None:
    """S28."""
    cluster = full_of_low()
    fields: dict[str, Any] = {"scheduling": {"H": Scheduling(node_selector=frozenset({("zone", "b")}))}}
    no = refused(cluster.ask(high(queue="high"), **fields))
    assert no.reason is Reason.OTHER_FILTERS
    assert "n1: its labels do not match the node selector" in no.refusal.message


def test_members_that_ask_for_different_cards_may_need_different_nodes() -> None:
    """S28: no single node would take both."""
    cluster = two_full_nodes(8)
    for name, zone in (("n1", "a"), ("n2", "b")):
        cluster.ledgers[name].put_node(make_node(name, pods=110, labels=frozenset({("zone", zone)})))
    gang = Gang("g", 2)
    pods = [high("ga", WHOLE, "high", gang=gang), high("gb", make_request(want(2)), "high", 2000, gang=gang)]
    zones = {uid: Scheduling(node_selector=frozenset({("zone", uid[1])})) for uid in ("ga", "gb")}
    answer = made(cluster.ask(*pods, scheduling=zones))
    assert {uid: placement.node for uid, placement in answer.seats} == {"ga": "n1", "gb": "n2"}
    assert len(answer.victims) == 3


def test_nodes_where_an_earlier_plan_failed_are_left_alone() -> None:
    cluster = two_full_nodes(8)
    pod = high(queue="high")
    answer = made(decide(cluster.world(pod), [pod], NOW, Avoid(nodes=frozenset({"n1"}))))
    assert answer.seats[0][1].node == "n2"
    no = refused(decide(cluster.world(pod), [pod], NOW, Avoid(nodes=frozenset({"n1", "n2"}))))
    assert no.reason is Reason.OTHER_FILTERS
    assert "n1: an earlier plan" in no.refusal.message


def test_nobody_goes_when_no_set_suffices() -> None:
    """S30."""
    no = refused(full_of_low().ask(high(request=make_request(want(1, CARD_MIB + 1)), queue="high")))
    assert no.reason is Reason.INSUFFICIENT_MEMORY
    assert "n1" in no.refusal.message


def test_a_queue_takes_back_what_it_deserves_and_stops() -> None:
    """S58: A deserves 4 and has 8 cards, B deserves 4."""
    cluster = Cluster(make_queue("A", 4), make_queue("B", 4), nodes=2)
    for number in range(8):
        cluster.run(f"a{number}", node=f"n{number // 4 + 1}", queue="A", created_seconds=number)
    gone: set[str] = set()
    for number in range(4):
        answer = cluster.ask(high(f"b{number}", queue="B", priority=0))
        (victim,) = uids(answer)
        gone.add(victim)
        placement = made(answer).seats[0][1]
        ledger = cluster.ledgers[placement.node]
        ledger.drop_pod(victim)
        del cluster.workloads[victim]
        ledger.put_pod(bound_pod(f"b{number}", *placement.containers, node=placement.node, request=WHOLE))
        cluster.workloads[f"b{number}"] = running(f"b{number}", "B", node=placement.node, request=WHOLE)
    assert gone == {"a4", "a5", "a6", "a7"}, "the first four are entitled"
    assert isinstance(cluster.ask(high("b9", queue="B", priority=0)), No)


def test_a_guarantee_is_kept() -> None:
    """S61."""
    lent = make_queue("low", Limits(cards_thousandths=3000), guarantee=Limits(cards_thousandths=3000))
    cluster = full_of_low(WHOLE, lent, make_queue("high", 4))
    assert len(uids(cluster.ask(high(queue="high")))) == 1
    assert isinstance(cluster.ask(high(request=make_request(want(2)), queue="high", size=2000)), No)


def test_who_is_within_a_guarantee_is_passed_over_for_one_that_costs_more() -> None:
    """S61."""
    kept = Limits(cards_thousandths=1000)
    cluster = Cluster(make_queue("kept", 0, guarantee=kept), make_queue("low", 0), make_queue("high", 4))
    cluster.run("cheap", queue="kept", started_seconds=NOW)
    for number in range(3):
        cluster.run(f"L{number}", queue="low", priority=50)
    (victim,) = uids(cluster.ask(high(queue="high")))
    assert victim in {"L0", "L1", "L2"}


def test_a_queue_over_its_capability_evicts_nobody() -> None:
    """S63."""
    capped = make_queue("high", 1, capability=Limits(cards_thousandths=1000))
    no = refused(
        full_of_low(WHOLE, make_queue("low", 0), capped).ask(
            high(request=make_request(want(2)), queue="high", size=2000)
        )
    )
    assert no.reason is Reason.QUEUE_CAPABILITY


def test_what_a_capability_lacks_is_said_in_cards_and_under_its_own_reason() -> None:
    queue = make_queue("q", 4, capability=Limits(cards_thousandths=1500))
    standing = stand([queue], running("mine"))
    (short,) = capability_needs(standing, "q", Amounts(1000), ())
    refusal = short.refusal(1, short.missing(1))
    assert refusal.reason is Reason.QUEUE_CAPABILITY
    assert refusal.message == "cards within the capability of queue q: 1 wanted, 0.5 too few"
    cpu = Need("CPU millicores", 500, 100).refusal(2, 900)
    assert (cpu.reason, cpu.message) == (Reason.OTHER_FILTERS, "CPU millicores: 1000 wanted, 900 too few")


def test_a_waiting_only_pod_evicts_nobody() -> None:
    """S67."""
    no = refused(full_of_low().ask(high(queue="high", preempt_never=True)))
    assert no.reason is Reason.PREEMPTION_NEVER


def test_a_protected_pod_tells_when_it_may_go() -> None:
    """S75: five minutes are its due, two have passed."""
    low = make_queue("low", 0, min_runtime_reclaim_seconds=300)
    cluster = Cluster(low, make_queue("high", 4))
    for number in range(4):
        cluster.run(f"L{number}", queue="low", started_seconds=NOW - 120)
    no = refused(cluster.ask(high(queue="high")))
    assert (no.reason, no.until_seconds) == (Reason.PROTECTED, NOW + 180)


def gang_of(count: int, request: PodRequest, size: int) -> Sequence[Workload]:
    gang = Gang("g", count)
    return [high(f"g{number}", request, "high", size, gang=gang) for number in range(count)]


def two_full_nodes(deserved: int) -> Cluster:
    cluster = Cluster(make_queue("low", 0), make_queue("high", deserved), nodes=2)
    for number in range(8):
        cluster.run(f"L{number}", node=f"n{number // 4 + 1}", queue="low")
    return cluster


def test_a_gang_gets_all_its_cards_or_nobody_goes() -> None:
    """S52."""
    pair = make_request(want(2))
    answer = made(two_full_nodes(8).ask(*gang_of(4, pair, 2000)))
    assert len(answer.victims) == 8
    assert len({card.uuid for _, placed in answer.seats for card in placed.containers[0].cards}) == 8
    assert isinstance(two_full_nodes(10).ask(*gang_of(5, pair, 2000)), No)


def test_a_gang_goes_whole_and_the_plan_says_what_goes_together() -> None:
    """S55."""
    cluster = Cluster(*LOW_HIGH, nodes=2)
    for number in range(8):
        gang = Gang("low", 8)
        cluster.run(f"L{number}", node=f"n{number // 4 + 1}", queue="low", gang=gang)
    answer = made(cluster.ask(high(queue="high")))
    assert len(answer.victims) == 8
    assert set(answer.units.values()) == {"gang low"}
    assert answer.cost.broken == 1


def test_the_same_question_has_the_same_answer_with_and_without_what_was_kept() -> None:
    """S26, S85."""
    cluster, cache = full_of_low(), SearchCache()
    asked = [cluster.ask(high(queue="high"), cache=kept) for kept in (None, cache, cache, None)]
    assert all(answer == asked[0] for answer in asked)


def test_every_victim_has_a_right_against_it() -> None:
    """I8: nobody goes over whom the preemptor has no right, however cheap."""
    cluster = Cluster(make_queue("low", 0), make_queue("high", 4))
    for number in range(4):
        cluster.run(f"L{number}", queue="low", preemptable=number == 3, priority=90 if number == 3 else 0)
    assert uids(cluster.ask(high(queue="high"))) == {"L3"}
