"""The quick look at a node: never dearer than the truth, and as good as the search's own rough bound."""

from random import Random

import pytest

from tests.core.preempt.search_world import brute_force, random_problem
from vgpu.core.preempt import glance
from vgpu.core.preempt.glance import Glance
from vgpu.core.preempt.node_search import NodeSearch
from vgpu.core.preempt.problem import NodeProblem

SEEDS = range(600)


def looked_at(problem: NodeProblem) -> int | None:
    return Glance(problem.request, problem.policies).bound(problem)


def too_high(seeds: range = SEEDS) -> list[int]:
    """Seeds whose glance says more than the eviction costs, or that there is none where there is."""
    wrong = []
    for seed in seeds:
        problem = random_problem(Random(seed))
        least = brute_force(problem)
        bound = looked_at(problem)
        if least is not None and (bound is None or bound > least):
            wrong.append(seed)
    return wrong


def test_a_glance_never_says_more_than_the_truth() -> None:
    assert too_high() == []


def test_without_sharing_a_cost_over_the_cards_that_a_pod_spans_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glance, "_shares", lambda problem, cards, taken: [unit.cost for unit in problem.units])
    assert too_high() != []


def test_a_glance_is_at_least_as_good_as_the_searchs_rough_bound() -> None:
    """But for what is lost where costs are divided, card by card."""
    for seed in SEEDS:
        problem = random_problem(Random(seed))
        rough, bound = NodeSearch(problem).bound(rough=True), looked_at(problem)
        if rough is None or bound is None:
            assert rough is bound is None
        else:
            assert rough - 100 <= bound


def test_one_look_after_another_sees_each_node_as_it_is() -> None:
    """What is kept between nodes of one request is not what differs between them."""
    request = random_problem(Random(0)).request
    kept = None
    for seed in range(200):
        found = random_problem(Random(seed))
        problem = NodeProblem(found.view, request, "new", found.policies, found.units, found.allowances)
        kept = kept or Glance(request, problem.policies)
        assert kept.bound(problem) == looked_at(problem)
