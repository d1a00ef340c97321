"""The least eviction on one node: against every set of victims tried, and the rows of the acceptance table."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import pytest

from tests.core.building import bound_pod, holds, make_card, make_ledger, make_request, share, want
from tests.core.preempt.search_world import (
    CARD_MIB,
    brute_force,
    make_problem,
    random_problem,
    unit_of,
    view_of,
)
from vgpu.core.facts import AssignedCard, CardFact, PodFact
from vgpu.core.placement import Placement
from vgpu.core.preempt import cover, demand, node_search
from vgpu.core.preempt.cover import Budget, Weights
from vgpu.core.preempt.loads import spread
from vgpu.core.preempt.node_search import NodeAnswer, NodeSearch
from vgpu.core.preempt.problem import NodeProblem, Unit
from vgpu.core.reasons import Refusal
from vgpu.core.request import PodRequest, Selection

PLENTY = 1_000_000
Eaters = Sequence[tuple[str, Sequence[AssignedCard], int]]


def solve(problem: NodeProblem, below: int | None = None, steps: int = PLENTY) -> NodeAnswer | None:
    return NodeSearch(problem).solve(below, Budget(steps))


@cache
def case(seed: int) -> tuple[NodeProblem, int | None]:
    """A random problem and its least cost."""
    problem = random_problem(Random(seed))
    return problem, brute_force(problem)


def differing(seeds: range) -> Iterator[int]:
    """Seeds whose answer is not the least one."""
    for seed in seeds:
        problem, least = case(seed)
        answer = solve(problem)
        if (None if answer is None else answer.cost) != least:
            yield seed


def test_the_search_finds_the_same_cost_as_trying_every_set() -> None:
    assert list(differing(range(600))) == []


@pytest.mark.soak
def test_the_search_finds_the_same_cost_as_trying_every_set_for_long() -> None:
    for start in range(10_000, 30_000, 1000):
        assert list(differing(range(start, start + 1000))) == []
        case.cache_clear()


def test_bounds_never_exceed_the_true_cost() -> None:
    for seed in range(600):
        problem, least = case(seed)
        search = NodeSearch(problem)
        rough, exact = search.bound(rough=True), search.bound()
        if least is None:
            continue
        assert rough is not None
        assert exact is not None
        assert rough <= exact <= least


def test_a_limit_cuts_off_what_is_not_cheaper() -> None:
    for seed in range(600):
        problem, least = case(seed)
        if least:
            assert solve(problem, below=least) is None
            found = solve(problem, below=least + 1)
            assert found is not None
            assert found.cost == least


class TestSwitchedOff:
    """Each rule of the search is needed: without it the comparison above fails."""

    def test_without_sharing_a_cost_over_the_cards_that_a_pod_spans(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = Weights.of

        def unshared(units: Any, spans: Any, allowances: Any) -> Weights:
            return honest(units, [1] * len(spans), allowances)

        monkeypatch.setattr(Weights, "of", unshared)
        assert any(differing(range(600)))

    def test_without_looking_beyond_the_first_choice_of_cards(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(node_search, "spread", lambda prices, total: islice(spread(prices, total), 1))
        assert any(differing(range(600)))

    def test_without_allowances_and_gangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Weights, "penalty", lambda self, mask: 0)
        assert any(differing(range(600)))

    def test_without_the_rows_of_the_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demand.Demand, "node_rows", lambda self, copies: ())
        assert any(differing(range(600)))

    def test_without_the_rule_about_cores_that_are_all_booked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demand, "CORES_PER_CARD", 10**6)
        assert any(differing(range(600)))

    def test_when_dearer_units_are_put_aside_for_limited_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Weights, "limited", lambda self, index: False)
        assert any(differing(range(600)))

    def test_when_a_bound_is_too_high(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = cover._Search._bound
        monkeypatch.setattr(
            cover._Search, "_bound", lambda self, *given: None if (b := honest(self, *given)) is None else 2 * b
        )
        assert any(differing(range(600)))


def cards_of(count: int = 4, **fields: Any) -> list[CardFact]:
    return [make_card(f"GPU-{i}", i, **{"memory_mib": CARD_MIB, **fields}) for i in range(count)]


def percent(uuid: str, of_card: int, cores: int = 0) -> AssignedCard:
    return share(uuid, CARD_MIB * of_card // 100, cores)


def whole(uuid: str) -> AssignedCard:
    return share(uuid, CARD_MIB, whole=True)


def node_with(
    eaters: Eaters, request: PodRequest, cards: Sequence[CardFact] | None = None, **fields: Any
) -> NodeProblem:
    """A node whose pods are (uid, cards, priority), all of which may go."""
    pods = [bound_pod(uid, holds(*held)) for uid, held, _ in eaters]
    ledger = make_ledger(*pods, cards=cards or cards_of())
    units = [
        unit_of(pod, priority, **_work(pod, fields)) for pod, (_, _, priority) in zip(pods, eaters, strict=True)
    ]
    return make_problem(view_of(ledger), request, units)


def _work(pod: PodFact, fields: dict[str, Any]) -> dict[str, Any]:
    return {"lost_work": fields.get("lost_work", {}).get(pod.uid, 0)}


def went(answer: NodeAnswer | None) -> set[str]:
    assert answer is not None
    return {unit.key for unit in answer.units}


QUARTERS: Eaters = [(f"L{i}", [percent(f"GPU-{card}", 25) for card in range(4)], 0) for i in range(4)]
WHOLES: Eaters = [(f"L{i}", [whole(f"GPU-{i}")], 0) for i in range(4)]


@pytest.mark.parametrize(
    ("row", "eaters", "request_", "want_count"),
    [
        ("S01", WHOLES, make_request(want(1)), 1),
        ("S03", QUARTERS, make_request(want(4, None, percent=60)), 3),
        ("S05", QUARTERS, make_request(want(4)), 4),
        ("S07", WHOLES, make_request(want(4, None, percent=60)), 4),
    ],
)
def test_as_few_go_as_the_seed_cases_say(row: str, eaters: Eaters, request_: PodRequest, want_count: int) -> None:
    assert len(went(solve(node_with(eaters, request_)))) == want_count, row


def test_one_whole_pod_goes_rather_than_two_halves_of_its_class() -> None:
    """S14."""
    eaters: Eaters = [
        ("a", [percent("GPU-0", 50)], 50),
        ("b", [percent("GPU-0", 50)], 50),
        ("c", [whole("GPU-1")], 50),
    ]
    assert went(solve(node_with(eaters, make_request(want(1)), cards_of(2)))) == {"c"}


def test_three_of_a_low_class_go_rather_than_one_of_a_higher() -> None:
    """S15."""
    eaters: Eaters = [("a", [whole("GPU-0")], 50), *((f"b{i}", [percent("GPU-1", 30)], 0) for i in range(3))]
    assert went(solve(node_with(eaters, make_request(want(1)), cards_of(2)))) == {"b0", "b1", "b2"}


def test_room_on_two_cards_is_never_added_up() -> None:
    """S17."""
    eaters: Eaters = [("a", [percent("GPU-0", 50)], 0), ("b", [percent("GPU-1", 50)], 0)]
    assert len(went(solve(node_with(eaters, make_request(want(1, None, percent=80)), cards_of(2))))) == 1


def test_only_the_cheapest_card_is_cleared_where_three_are_free() -> None:
    """S19: a card of one pod goes before a card of two."""
    eaters: Eaters = [("a", [percent("GPU-0", 20)], 0)]
    assert went(solve(node_with(eaters, make_request(want(4))))) == {"a"}


def test_a_full_core_holder_blocks_a_pod_without_cores() -> None:
    """S21: 100 cores are booked by two holders; one of them has to go, and it is the cheaper."""
    eaters: Eaters = [("a", [percent("GPU-0", 10, 60)], 50), ("b", [percent("GPU-0", 10, 40)], 0)]
    assert went(solve(node_with(eaters, make_request(want(1, 1000)), cards_of(1)))) == {"b"}


def test_one_of_ten_tiny_pods_goes_for_a_slot() -> None:
    """S22."""
    eaters: Eaters = [(f"t{i}", [percent("GPU-0", 1)], 0) for i in range(10)]
    assert len(went(solve(node_with(eaters, make_request(want(1, 100)), cards_of(1))))) == 1


@pytest.mark.parametrize(
    ("selection", "want_victims"),
    [
        (Selection(use_uuids=frozenset({"GPU-2"})), {"L2"}),
        (Selection(nouse_uuids=frozenset({"GPU-0", "GPU-1", "GPU-2"})), {"L3"}),
    ],
    ids=["allowed", "forbidden"],
)
def test_only_cards_that_the_pod_accepts_are_cleared(selection: Selection, want_victims: set[str]) -> None:
    """S24."""
    assert went(solve(node_with(WHOLES, make_request(want(1), selection=selection)))) == want_victims


def test_an_unhealthy_card_is_never_cleared() -> None:
    """S25."""
    cards = [make_card("GPU-0", 0, memory_mib=CARD_MIB, healthy=False), *cards_of(2)[1:]]
    eaters: Eaters = [("cheap", [whole("GPU-0")], 0), ("dear", [whole("GPU-1")], 100)]
    assert went(solve(node_with(eaters, make_request(want(1)), cards))) == {"dear"}


def test_the_plan_is_the_same_in_whatever_order_units_come() -> None:
    """S26."""
    problem = node_with(WHOLES, make_request(want(2)))
    seen = set()
    for seed in range(20):
        units: list[Unit] = list(problem.units)
        Random(seed).shuffle(units)
        seen.add(frozenset(went(solve(make_problem(problem.view, problem.request, units)))))
    assert len(seen) == 1


def test_who_loses_least_work_goes() -> None:
    """S27."""
    lost = {"L0": 900_000, "L1": 60_000, "L2": 900_000, "L3": 900_000}
    assert went(solve(node_with(WHOLES, make_request(want(1)), lost_work=lost))) == {"L1"}


@pytest.mark.parametrize(
    ("request_", "want_victims"),
    [
        (make_request(want(1, 30_000)), {"memory"}),
        (make_request(want(1, 100, 60)), {"cores"}),
        (make_request(want(1, 30_000, 60)), {"memory", "cores"}),
    ],
    ids=["by memory", "by cores", "by both"],
)
def test_each_dimension_is_made_room_in_for_itself(request_: PodRequest, want_victims: set[str]) -> None:
    """S88."""
    eaters: Eaters = [("memory", [percent("GPU-0", 60, 0)], 0), ("cores", [percent("GPU-0", 1, 60)], 0)]
    assert went(solve(node_with(eaters, request_, cards_of(1)))) == want_victims


def test_pods_on_two_cards_are_counted_once_for_both() -> None:
    """A pod on both cards is dearer than a pod on one, and cheaper than two."""
    eaters: Eaters = [
        ("both", [percent("GPU-0", 60), percent("GPU-1", 60)], 0),
        ("left", [percent("GPU-2", 60)], 0),
        ("right", [percent("GPU-3", 60)], 0),
    ]
    assert went(solve(node_with(eaters, make_request(want(2))))) == {"both"}


def test_nobody_goes_for_a_pod_that_nothing_could_make_room_for() -> None:
    """S30."""
    assert solve(node_with(WHOLES, make_request(want(1, CARD_MIB + 1)))) is None


class TestBudget:
    """S31: a spent-up budget is told, and then nobody goes without whom it would do."""

    def hard(self) -> NodeProblem:
        """Sixteen cards, forty pods that span several of them."""
        random = Random(5)
        cards = cards_of(16)
        eaters: list[tuple[str, list[AssignedCard], int]] = []
        free = {card.uuid: 100 for card in cards}
        for number in range(40):
            fitting = [uuid for uuid, left in free.items() if left >= 20]
            chosen = random.sample(fitting, min(len(fitting), random.randint(2, 5)))
            for uuid in chosen:
                free[uuid] -= 20
            if chosen:
                eaters.append((f"p{number}", [percent(uuid, 20) for uuid in chosen], 0))
        return node_with(eaters, make_request(want(8, None, percent=70)), cards)

    def test_the_search_says_that_it_stopped(self) -> None:
        budget = Budget(30)
        NodeSearch(self.hard()).solve(None, budget)
        assert budget.spent_up

    def test_the_greedy_answer_spares_everybody_it_can_do_without(self) -> None:
        problem = self.hard()
        answer = NodeSearch(problem).greedy()
        assert answer is not None
        assert isinstance(problem.place_without(answer.units), Placement)
        for unit in answer.units:
            fewer = [other for other in answer.units if other is not unit]
            assert isinstance(problem.place_without(fewer), Refusal), f"{unit.key} could have stayed"

    def test_enough_steps_are_not_spent_up(self) -> None:
        budget = Budget(PLENTY)
        NodeSearch(node_with(QUARTERS, make_request(want(4)))).solve(None, budget)
        assert not budget.spent_up
