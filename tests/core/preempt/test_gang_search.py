"""Room for a gang: all members or nobody goes, at the least cost."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from tests.core.building import INIT, bound_pod, holds, make_card, make_ledger, make_request, share, want
from tests.core.preempt.gang_world import brute_force_gang, overfull, random_gang_problem
from tests.core.preempt.search_world import CARD_MIB, SCALE, make_problem, unit_of, view_of, whole_unit
from vgpu.core.preempt import gang_search
from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.gang_menu import combine
from vgpu.core.preempt.gang_search import GangEviction, search_gang
from vgpu.core.preempt.problem import Need, NodeProblem, with_reservation
from vgpu.core.preempt.seating import Member
from vgpu.core.reasons import Refusal
from vgpu.core.request import PodRequest


@cache
def case(seed: int) -> tuple[list[Member], list[NodeProblem], int | None]:
    members, problems = random_gang_problem(Random(seed))
    return members, problems, brute_force_gang(members, problems)


def wrong_answers(seeds: range) -> Iterator[str]:
    """Exact answers that are not the least, answers that are less than the least, seats that are not there."""
    for seed in seeds:
        members, problems, least = case(seed)
        answer = search_gang(members, {members[0].request: problems})
        if isinstance(answer, Refusal):
            if least is not None:
                yield f"{seed}: refused, and {least} would do"
        elif least is None or answer.cost < least or (answer.exact and answer.cost != least):
            yield f"{seed}: {answer.cost} in place of {least}"
        elif overfull(answer, problems) or len(answer.seats) != len(members):
            yield f"{seed}: {overfull(answer, problems)}"


def test_the_menu_finds_the_same_cost_as_trying_every_set_on_two_nodes() -> None:
    assert list(wrong_answers(range(300))) == []


def test_nearly_all_answers_are_proven_least() -> None:
    """Only gangs that span both nodes and shared allowances may leave a plan unproven."""
    answers = []
    for seed in range(300):
        members, problems, _ = case(seed)
        answer = search_gang(members, {members[0].request: problems})
        answers += [answer.exact] if isinstance(answer, GangEviction) else []
    assert sum(answers) > 0.9 * len(answers)


@pytest.mark.soak
def test_the_menu_finds_the_same_cost_for_long() -> None:
    for start in range(10_000, 20_000, 500):
        assert list(wrong_answers(range(start, start + 500))) == []
        case.cache_clear()


def test_without_counting_a_gang_once_the_comparison_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_search, "_with_costs", lambda problem, spans: problem)
    assert any(wrong_answers(range(300)))


def test_without_the_allowances_of_all_nodes_together_the_comparison_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gang_search, "_price", lambda units, allowances: sum(unit.cost for unit in units))
    assert any(wrong_answers(range(300)))


def test_with_few_steps_all_members_still_get_cards_that_are_there() -> None:
    """S31 for a gang: not proven least, and still enough."""
    unproven = 0
    for seed in range(300):
        members, problems, least = case(seed)
        answer = search_gang(members, {members[0].request: problems}, steps=3)
        if isinstance(answer, Refusal):
            continue
        assert least is not None
        assert answer.cost >= least
        assert overfull(answer, problems) == []
        assert len(answer.seats) == len(members)
        unproven += not answer.exact
    assert unproven > 50


def test_menus_are_mixed_at_the_least_sum() -> None:
    menus = [[(1, 5), (2, 11), (3, 12)], [(1, 1), (2, 9)], [(2, 4)]]
    assert combine(menus, 3) == (0, 1, 2)
    assert combine(menus, 1) == (0, 1, 0)
    assert combine(menus, 0) == (0, 0, 0)
    assert combine(menus, 9) is None


def whole_node(node: str, request: PodRequest, cards: int = 4, priority: int = 0) -> NodeProblem:
    """Every card whole in the hands of one pod that may go."""
    facts = [make_card(f"{node}-{i}", i, memory_mib=CARD_MIB) for i in range(cards)]
    pods = [
        bound_pod(f"{node}p{i}", holds(share(f"{node}-{i}", CARD_MIB, whole=True)), node=node)
        for i in range(cards)
    ]
    units = [unit_of(pod, priority) for pod in pods]
    return make_problem(view_of(make_ledger(*pods, cards=facts, node=node), node), request, units)


def members_of(count: int, request: PodRequest) -> list[Member]:
    return [Member(f"m{number}", request) for number in range(count)]


def found(answer: GangEviction | Refusal) -> GangEviction:
    assert isinstance(answer, GangEviction), answer
    return answer


def nodes_of(answer: GangEviction) -> list[str]:
    return sorted(seat.placement.node for seat in answer.seats)


def test_a_gang_gets_room_for_all_on_two_nodes() -> None:
    """S52: four pods of two whole cards each over two nodes of four cards."""
    request = make_request(want(2))
    answer = found(search_gang(members_of(4, request), {request: [whole_node(n, request) for n in ("a", "b")]}))
    assert nodes_of(answer) == ["a", "a", "b", "b"]
    assert len(answer.units) == 8
    held = [card.uuid for seat in answer.seats for card in seat.placement.containers[0].cards]
    assert len(set(held)) == 8


def test_nobody_goes_for_a_gang_that_does_not_fit_as_a_whole() -> None:
    """S52."""
    request = make_request(want(2))
    nodes = [whole_node("a", request), whole_node("b", request, cards=3)]
    assert isinstance(search_gang(members_of(4, request), {request: nodes}), Refusal)
    assert len(found(search_gang(members_of(3, request), {request: nodes})).units) == 6


def test_only_as_many_go_as_the_required_members_need() -> None:
    """S53: two of four are required."""
    request = make_request(want(1))
    answer = found(search_gang(members_of(2, request), {request: [whole_node("a", request)]}))
    assert len(answer.units) == 2


def test_idle_room_of_several_nodes_is_used_before_anybody_goes() -> None:
    """S18 for a gang."""
    request = make_request(want(1))
    idle = []
    for node in ("x", "y"):
        ledger = make_ledger(cards=[make_card(f"{node}-0", memory_mib=CARD_MIB)], node=node)
        idle.append(make_problem(view_of(ledger, node), request))
    answer = found(search_gang(members_of(2, request), {request: [whole_node("a", request), *idle]}))
    assert (answer.units, nodes_of(answer), answer.exact) == ((), ["x", "y"], True)


def test_members_that_share_cards_get_distinct_ones_each() -> None:
    """Cards with room for 2, 1 and 1 members; two members want two cards each: the roomy card goes to both."""
    cards = [make_card(f"a-{i}", i, memory_mib=CARD_MIB) for i in range(3)]
    half = [bound_pod(f"h{i}", holds(share(f"a-{i}", CARD_MIB // 2)), node="a") for i in (1, 2)]
    request = make_request(want(2, CARD_MIB // 2))
    problem = make_problem(view_of(make_ledger(*half, cards=cards, node="a"), "a"), request)
    answer = found(search_gang(members_of(2, request), {request: [problem]}))
    held = [sorted(card.uuid for card in seat.placement.containers[0].cards) for seat in answer.seats]
    assert sorted(held) == [["a-0", "a-1"], ["a-0", "a-2"]]


def test_a_gang_on_three_nodes_goes_once_and_whole() -> None:
    """S55: disruptionMode All; its cost counts once although two of its nodes are used."""
    request = make_request(want(1))
    problems, pods = [], []
    for node in ("a", "b", "c"):
        card = make_card(f"{node}-0", memory_mib=CARD_MIB)
        pod = bound_pod(f"{node}g", holds(share(f"{node}-0", CARD_MIB, whole=True)), node=node)
        pods.append(pod)
        problems.append(make_problem(view_of(make_ledger(pod, cards=[card], node=node), node), request))
    cost = SCALE.pack(Cost(0, SCALE.one_of(0, 3), 1, 3))
    units = [whole_unit("g", [pod], cost, [other.uid for other in pods if other is not pod]) for pod in pods]
    problems = [replace(problem, units=(unit,)) for problem, unit in zip(problems, units, strict=True)]
    answer = found(search_gang(members_of(2, request), {request: problems}))
    assert [unit.gang for unit in answer.units] == ["g"]
    assert answer.cost == cost
    assert set(answer.units[0].uids) == {"ag", "bg", "cg"}


def test_members_of_two_kinds_are_placed_the_largest_first_and_not_called_exact() -> None:
    big, small = make_request(want(4)), make_request(want(1, CARD_MIB // 2))
    problems = {request: [whole_node(n, request) for n in ("a", "b")] for request in (big, small)}
    answer = found(search_gang([Member("s", small), Member("b", big)], problems))
    assert not answer.exact
    assert len(answer.units) == 5
    assert {seat.member.uid for seat in answer.seats} == {"s", "b"}
    assert len(set(nodes_of(answer))) == 2


def test_members_with_init_containers_are_placed_too() -> None:
    request = make_request(want(1, 1000, kind=INIT, name="init"), want(2, CARD_MIB // 4))
    answer = found(search_gang(members_of(2, request), {request: [whole_node("a", request)]}))
    assert overfull(answer, [whole_node("a", request)]) == []
    assert len(answer.units) <= 4


def test_what_is_wanted_beyond_cards_counts_for_every_member() -> None:
    """S28 for a gang: CPU for one member on each node."""
    request = make_request(want(1))
    nodes = [replace(whole_node(n, request), needs=(Need("CPU", 4, 6),)) for n in ("a", "b")]
    assert nodes_of(found(search_gang(members_of(2, request), {request: nodes}))) == ["a", "b"]
    assert isinstance(search_gang(members_of(3, request), {request: nodes}), Refusal)


def test_members_do_not_stand_in_each_others_way_with_what_is_held_for_them() -> None:
    """A plan is made anew while the old reservations of the gang are still there."""
    request = make_request(want(1))
    problem = whole_node("a", request)
    first = found(search_gang(members_of(2, request), {request: [problem]}))
    ledger_view = problem.view
    for seat in first.seats:
        ledger_view = with_reservation(ledger_view, seat.member.uid, seat.placement)
    again = found(search_gang(members_of(2, request), {request: [replace(problem, view=ledger_view)]}))
    assert again.cost == first.cost
