"""The least eviction over several nodes."""

from dataclasses import replace
from random import Random

import pytest

from tests.core.building import bound_pod, holds, make_card, make_ledger, make_request, share, want
from tests.core.preempt.search_world import (
    CARD_MIB,
    SCALE,
    THOROUGH,
    brute_force,
    make_problem,
    random_problem,
    unit_of,
    view_of,
)
from vgpu.core.placement import Placement, place
from vgpu.core.preempt.cluster_search import Eviction, SearchCache, search_cluster
from vgpu.core.preempt.node_search import NodeSearch
from vgpu.core.preempt.problem import Need, NodeProblem, Unit
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView


def full_node(node: str, request: PodRequest, priority: int = 0, **fields: int) -> NodeProblem:
    """Two cards, each whole in the hands of one pod that may go."""
    cards = [make_card(f"{node}-{i}", i, memory_mib=CARD_MIB) for i in range(2)]
    pods = [
        bound_pod(f"{node}-p{i}", holds(share(f"{node}-{i}", CARD_MIB, whole=True)), node=node) for i in range(2)
    ]
    units = [unit_of(pod, priority, **fields) for pod in pods]
    ledger = make_ledger(*pods, cards=cards, node=node)
    return make_problem(view_of(ledger, node), request, units)


def idle_node(node: str, request: PodRequest) -> NodeProblem:
    ledger = make_ledger(cards=[make_card(f"{node}-0", memory_mib=CARD_MIB)], node=node)
    return make_problem(view_of(ledger, node), request)


def random_cluster(seed: int) -> list[NodeProblem]:
    """Some random nodes that are all asked the same question."""
    random = Random(seed)
    problems = [random_problem(random) for _ in range(random.randint(2, 4))]
    renamed = []
    for number, problem in enumerate(problems):
        units = tuple(_renamed(unit, number) for unit in problem.units)
        renamed.append(
            replace(
                problem,
                view=_renamed_view(problem, number),
                request=problems[0].request,
                units=units,
                needs=(),
            )
        )
    return renamed


def _renamed(unit: Unit, number: int) -> Unit:
    uids = tuple(f"{number}{uid}" for uid in unit.uids)
    return replace(unit, key=f"{number}{unit.key}", uids=uids, here=frozenset(uids), cost=unit.cost + number)


def _renamed_view(problem: NodeProblem, number: int) -> NodeView:
    cards = tuple(
        replace(card, holders=tuple(replace(holder, uid=f"{number}{holder.uid}") for holder in card.holders))
        for card in problem.view.cards
    )
    return replace(problem.view, name=f"n{number}", cards=cards)


def found(answer: Eviction | Refusal) -> Eviction:
    assert isinstance(answer, Eviction), answer
    return answer


def test_the_cheapest_node_is_found_whatever_the_others_are() -> None:
    for seed in range(150):
        problems = random_cluster(seed)
        answer = search_cluster(problems)
        costs = [cost for problem in problems if (cost := brute_force(problem)) is not None]
        if not costs:
            assert isinstance(answer, Refusal)
            continue
        eviction = found(answer)
        assert eviction.exact
        assert eviction.cost == min(costs)
        problem = next(p for p in problems if p.view.name == eviction.node)
        assert isinstance(place(problem.without(eviction.units), problem.request, "new", THOROUGH), Placement)


def test_bounds_that_are_too_high_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above fails when nodes are passed over wrongly."""
    honest = NodeSearch.bound

    def too_high(self: NodeSearch, *, rough: bool = False, below: int | None = None) -> int | None:
        bound = honest(self, rough=rough, below=below)
        return None if bound is None else bound * (2 if self.problem.view.name == "n0" else 1)

    monkeypatch.setattr(NodeSearch, "bound", too_high)
    for seed in range(150):
        problems = random_cluster(seed)
        answer = search_cluster(problems)
        costs = [cost for problem in problems if (cost := brute_force(problem)) is not None]
        if isinstance(answer, Eviction) and answer.cost != min(costs):
            return
    pytest.fail("nobody noticed")


def test_idle_room_on_any_node_is_used_before_anybody_goes() -> None:
    """S18."""
    request = make_request(want(1))
    answer = found(search_cluster([full_node("a", request), idle_node("b", request)]))
    assert (answer.node, answer.units, answer.cost, answer.exact) == ("b", (), 0, True)


def test_room_that_leaving_pods_make_is_used_before_anybody_goes() -> None:
    """S33: what drains already is reused."""
    request = make_request(want(1))
    card = make_card("b-0", memory_mib=CARD_MIB)
    leaver = bound_pod("leaver", holds(share("b-0", CARD_MIB, whole=True)), node="b", terminating=True)
    draining = make_problem(view_of(make_ledger(leaver, cards=[card], node="b"), "b"), request)
    answer = found(search_cluster([full_node("a", request), draining]))
    assert (answer.node, answer.units) == ("b", ())


def test_the_lower_class_goes_on_whichever_node_it_is() -> None:
    """S09."""
    request = make_request(want(1))
    answer = found(
        search_cluster([full_node("a", request, 50), full_node("b", request, 0), full_node("c", request, 50)])
    )
    assert answer.node == "b"
    assert SCALE.unpack(answer.cost).pods_by_class == (0, 0, 1)


def test_the_same_question_has_the_same_answer_in_whatever_order_nodes_come() -> None:
    """S26, S85."""
    request = make_request(want(1))
    problems = [full_node(name, request) for name in ("a", "b", "c", "d")]
    answers = []
    for seed in range(10):
        Random(seed).shuffle(problems)
        answers.append(search_cluster(problems))
    assert all(answer == answers[0] for answer in answers)


def test_nobody_goes_on_a_node_that_lacks_something_beyond_cards() -> None:
    """S28: the victims give 1 CPU each, 4 are wanted and 2 are free."""
    request = make_request(want(1))
    cheap, dear = full_node("a", request, 0), full_node("b", request, 50)
    starved = replace(cheap, needs=(Need("CPU", 4, 1, (("a-p0", 1), ("a-p1", 1))),))
    assert found(search_cluster([starved, dear])).node == "b"
    both = replace(cheap, needs=(Need("CPU", 4, 2, (("a-p0", 1), ("a-p1", 1))),))
    assert len(found(search_cluster([both, dear])).units) == 2, (
        "two of the low class rather than one of the higher"
    )


def test_nobody_goes_on_a_closed_node() -> None:
    """S13."""
    request = make_request(want(1))
    problem = full_node("a", request)
    closed = replace(
        problem, view=replace(problem.view, closed=Refusal(Reason.NO_ALLOCATABLE, "no slots offered"))
    )
    answer = search_cluster([closed])
    assert isinstance(answer, Refusal)
    assert answer.reason is Reason.NO_ALLOCATABLE
    assert "a: no slots offered" in answer.message


def test_nobody_goes_where_the_pod_would_be_refused_afterwards() -> None:
    request = make_request(want(1))
    foreign = replace(request, slot_resource="nvidia.com/gpu")
    answer = search_cluster([replace(full_node("a", request), request=foreign)])
    assert isinstance(answer, Refusal)
    assert answer.reason is Reason.SLOT_RESOURCE_MISMATCH


def test_the_refusal_names_a_node_and_what_is_missing_there() -> None:
    """S30."""
    answer = search_cluster([full_node("a", make_request(want(1, CARD_MIB + 1)))])
    assert isinstance(answer, Refusal)
    assert answer.reason is Reason.INSUFFICIENT_MEMORY
    assert "a: no room for 1 card with 32769 MiB" in answer.message


def test_a_spent_up_budget_marks_the_plan_as_not_exact() -> None:
    """S31."""
    request = make_request(want(2))
    answer = found(search_cluster([full_node("a", request), full_node("b", request)], steps=1))
    assert not answer.exact
    assert len(answer.units) == 2


class TestCache:
    """What is kept of nodes changes no answer."""

    def test_answers_are_the_same_as_without_it(self) -> None:
        cache = SearchCache()
        for seed in range(60):
            problems = random_cluster(seed)
            for _ in range(2):
                assert search_cluster(problems, cache) == search_cluster(problems)

    def test_a_change_of_the_view_or_of_who_may_go_is_seen(self) -> None:
        cache, request = SearchCache(), make_request(want(1))
        problem, other = full_node("a", request), full_node("b", request, 50)
        assert found(search_cluster([problem, other], cache)).node == "a"
        assert found(search_cluster([replace(problem, units=()), other], cache)).node == "b"
        assert found(search_cluster([problem, other], cache)).node == "a"
        shut = replace(problem.view, closed=Refusal(Reason.READ_ERROR, "unreadable"))
        assert found(search_cluster([replace(problem, view=shut), other], cache)).node == "b"
