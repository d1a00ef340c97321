"""Units of eviction: single pods, surplus members, whole gangs; budgets and guarantees that bind them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.core.building import bound_pod, holds, make_card, make_ledger, make_request, share, want
from tests.core.preempt.queueing import CARD_MIB, NOW, make_gang, make_queue, make_workload, running, stand
from tests.core.preempt.search_world import make_problem, view_of
from vgpu.core.preempt.cluster_search import Eviction, search_cluster
from vgpu.core.preempt.cost import CostScale
from vgpu.core.preempt.facts import Amounts, DisruptionBudget, Limits, Workload
from vgpu.core.preempt.gang_search import search_gang
from vgpu.core.preempt.problem import NodeProblem
from vgpu.core.preempt.quotas import capability_needs, guarantees
from vgpu.core.preempt.seating import Member
from vgpu.core.preempt.victims import DisruptionFact, Terms, Victims, lost_work, victims_of
from vgpu.core.reasons import Refusal
from vgpu.core.request import PodRequest

ONE = make_request(want(1))


def terms(*workloads: Workload, **fields: object) -> Terms:
    return replace(Terms(CostScale.of(w.priority for w in workloads), NOW), **fields)  # type: ignore[arg-type]


def on_cards(workloads: Iterable[Workload]) -> list[Workload]:
    return [replace(w, request=ONE) for w in workloads]


def problems_of(
    victims: Victims, nodes: Mapping[str, Sequence[Workload]], request: PodRequest = ONE
) -> list[NodeProblem]:
    """Nodes where each workload holds one whole card and nothing is free."""
    problems = []
    for node, workloads in nodes.items():
        cards = [make_card(f"{node}-{i}", i, memory_mib=CARD_MIB) for i in range(len(workloads))]
        pods = [
            bound_pod(w.uid, holds(share(card.uuid, CARD_MIB, whole=True)), node=node)
            for w, card in zip(workloads, cards, strict=True)
        ]
        view = view_of(make_ledger(*pods, cards=cards, node=node), node)
        problems.append(make_problem(view, request, victims.on(node), allowances=victims.allowances))
    return problems


def went(answer: Eviction | Refusal) -> set[str]:
    assert isinstance(answer, Eviction), answer
    return {uid for unit in answer.units for uid in unit.uids}


def test_a_gangs_surplus_goes_singly_and_the_gang_goes_on() -> None:
    """S49: six run, four must; room for two is wanted."""
    gang = on_cards(make_gang("g", 6, 4))
    victims = victims_of(gang, gang, terms(*gang))
    two = make_request(want(2))
    answer = search_cluster(problems_of(victims, {"n1": gang}, two))
    assert len(went(answer)) == 2
    assert isinstance(answer, Eviction)
    assert all(not unit.whole for unit in answer.units)


def test_a_gang_goes_whole_where_its_surplus_is_not_enough() -> None:
    gang = on_cards(make_gang("g", 6, 4))
    victims = victims_of(gang, gang, terms(*gang))
    answer = search_cluster(problems_of(victims, {"n1": gang}, make_request(want(3))))
    assert went(answer) == {w.uid for w in gang}
    assert isinstance(answer, Eviction)
    assert [unit.whole for unit in answer.units] == [True]


def test_a_gang_is_never_left_with_less_than_its_minimum() -> None:
    """Whatever is asked for: all of a gang, or at most its surplus."""
    for minimum in range(1, 5):
        gang = on_cards(make_gang("g", 4, minimum))
        victims = victims_of(gang, gang, terms(*gang))
        for wanted in range(1, 5):
            gone = went(search_cluster(problems_of(victims, {"n1": gang}, make_request(want(wanted)))))
            assert len(gone) == 4 or 4 - len(gone) >= minimum


def test_a_gang_with_disruption_mode_all_goes_from_all_its_nodes_at_once() -> None:
    """S55."""
    gang = [replace(w, node=f"n{i}") for i, w in enumerate(on_cards(make_gang("g", 3, 1, disruption_all=True)))]
    victims = victims_of(gang, gang, terms(*gang))
    nodes = {w.node or "": [w] for w in gang}
    answer = search_cluster(problems_of(victims, nodes))
    assert went(answer) == {w.uid for w in gang}
    together = search_gang([Member("a", ONE), Member("b", ONE)], {ONE: problems_of(victims, nodes)})
    assert not isinstance(together, Refusal)
    assert len(together.units) == 1
    assert isinstance(answer, Eviction)
    assert together.cost == answer.cost, "it counts once"


def test_members_that_leave_already_are_no_surplus() -> None:
    gang = on_cards(make_gang("g", 5, 4))
    gang[0] = replace(gang[0], terminating=True)
    victims = victims_of(gang[1:], gang, terms(*gang))
    assert [unit.whole for unit in victims.on("n1")] == [True]


def test_a_gang_with_a_member_that_may_not_go_gives_only_its_surplus() -> None:
    gang = on_cards(make_gang("g", 4, 3))
    victims = victims_of(gang[1:], gang, terms(*gang))
    assert {unit.whole for unit in victims.on("n1")} == {False}
    minimal = on_cards(make_gang("m", 4, 4))
    refused = victims_of(minimal[1:], minimal, terms(*minimal))
    assert refused.on("n1") == ()
    assert "goes only as a whole, and team/m-0 may not go" in refused.unfit["m-1"]


def three(**fields: object) -> list[Workload]:
    """Two pods under a budget whose eviction costs least, and one without a budget."""
    pods = on_cards(running(uid, **fields) for uid in ("a", "b"))  # type: ignore[arg-type]
    return [*pods, *on_cards([running("free", priority=50)])]


@pytest.mark.parametrize(("allowed", "want_victims"), [(1, {"free"}), (2, set())])
def test_a_budget_sends_the_search_to_the_next_best_set(allowed: int, want_victims: set[str]) -> None:
    """S70: two cards are wanted, the cheapest pods are both under the budget."""
    pods = three()
    budget = (DisruptionFact("pdb", allowed, frozenset({"a", "b"})),)
    victims = victims_of(pods, pods, terms(*pods, disruptions=budget))
    gone = went(search_cluster(problems_of(victims, {"n1": pods}, make_request(want(2)))))
    assert gone >= want_victims
    assert len(gone & {"a", "b"}) <= allowed
    assert len(gone) == 2


def test_nobody_goes_where_the_budget_allows_no_set() -> None:
    """S70."""
    pods = three()
    budget = (DisruptionFact("pdb", 1, frozenset({"a", "b"})),)
    victims = victims_of(pods, pods, terms(*pods, disruptions=budget))
    assert isinstance(search_cluster(problems_of(victims, {"n1": pods}, make_request(want(3)))), Refusal)


def test_best_effort_breaks_budgets_as_little_as_it_can_and_says_so() -> None:
    """S71."""
    pods = three()
    best_effort = terms(
        *pods,
        disruptions=(DisruptionFact("pdb", 1, frozenset({"a", "b"})),),
        budget=DisruptionBudget.BEST_EFFORT,
    )
    victims = victims_of(pods, pods, best_effort)
    for wanted, violations in ((2, 0), (3, 1)):
        answer = search_cluster(problems_of(victims, {"n1": pods}, make_request(want(wanted))))
        assert isinstance(answer, Eviction)
        assert best_effort.scale.unpack(answer.cost).violations == violations


def test_a_pod_under_two_budgets_never_goes() -> None:
    """S72."""
    pods = three()
    budgets = tuple(DisruptionFact(key, 5, frozenset({"a"})) for key in ("one", "other"))
    victims = victims_of(pods, pods, terms(*pods, disruptions=budgets))
    assert {unit.key for unit in victims.on("n1")} == {"b", "free"}
    assert "several disruption budgets" in victims.unfit["a"]


def test_a_pod_that_no_budget_covers_goes_like_any_other() -> None:
    """S73."""
    pods = on_cards([running("plain")])
    budget = (DisruptionFact("pdb", 0, frozenset({"someone"})),)
    victims = victims_of(pods, pods, terms(*pods, disruptions=budget))
    assert went(search_cluster(problems_of(victims, {"n1": pods}))) == {"plain"}


def test_who_saved_its_work_a_minute_ago_goes() -> None:
    """S27."""
    pods = on_cards([running("a"), running("saved", checkpoint_seconds=NOW - 60), running("c")])
    victims = victims_of(pods, pods, terms(*pods))
    assert went(search_cluster(problems_of(victims, {"n1": pods}))) == {"saved"}


@pytest.mark.parametrize(
    ("fields", "want_work"),
    [
        ({"started_seconds": NOW - 100}, 100_000),
        ({"started_seconds": NOW - 100, "checkpoint_seconds": NOW - 10}, 10_000),
        ({"started_seconds": NOW - 100, "checkpoint_seconds": NOW - 500}, 100_000),
        ({"started_seconds": None}, 0),
        ({"started_seconds": NOW + 50}, 0),
    ],
    ids=["since start", "since checkpoint", "checkpoint of an earlier life", "not started", "clock behind"],
)
def test_lost_work_is_what_was_done_since_it_was_saved(fields: dict[str, Any], want_work: int) -> None:
    assert lost_work(running("a", **fields), NOW) == want_work


def test_no_other_queue_is_brought_under_its_guarantee() -> None:
    """S61: four cards run, three are guaranteed: one may go, two may not."""
    pods = on_cards(running(f"p{i}", "lent") for i in range(4))
    standing = stand(
        [make_queue("lent", 3, guarantee=Limits(cards_thousandths=3000)), make_queue("mine", 4)], *pods
    )
    keeps = guarantees(standing, "mine")
    assert [(allowance.key, allowance.allowed) for allowance in keeps] == [("guarantee cards of lent", 1000)]
    victims = victims_of(pods, pods, terms(*pods, keeps=keeps))
    assert len(went(search_cluster(problems_of(victims, {"n1": pods})))) == 1
    assert isinstance(search_cluster(problems_of(victims, {"n1": pods}, make_request(want(2)))), Refusal)


def test_a_queue_at_its_capability_takes_the_room_from_its_own_pods() -> None:
    """S63: the cheaper victim is another queue's, but the own queue is full."""
    own, other = on_cards([running("own", "mine", priority=50)]), on_cards([running("other", "rest")])
    pods = [*own, *other]
    mine = make_queue("mine", 1, capability=Limits(cards_thousandths=1000))
    standing = stand([mine, make_queue("rest")], *pods)
    needs = capability_needs(standing, "mine", Amounts(1000, 0, 0), pods)
    victims = victims_of(pods, pods, terms(*pods))
    problem = problems_of(victims, {"n1": pods})[0]
    assert went(search_cluster([problem])) == {"other"}
    assert went(search_cluster([replace(problem, needs=needs)])) == {"own"}


def test_a_queue_with_room_under_its_capability_needs_nothing() -> None:
    mine = make_queue("mine", 1, capability=Limits(cards_thousandths=5000))
    waiting = make_workload("w", "mine")
    assert capability_needs(stand([mine], waiting), "mine", waiting.claim, []) == ()
    assert capability_needs(stand([mine]), "unknown", waiting.claim, []) == ()


def test_units_are_the_same_in_whatever_order_workloads_come() -> None:
    """S26."""
    gang = on_cards(make_gang("g", 3, 2))
    pods = [*gang, *on_cards(running(f"p{i}") for i in range(4))]
    one, other = victims_of(pods, pods, terms(*pods)), victims_of(pods[::-1], pods[::-1], terms(*pods))
    assert one.units == other.units
    assert one.allowances == other.allowances
