"""The index of verdicts: always what asking every node anew would say, and only changed nodes are asked."""

import random

import pytest

from tests.core.building import (
    POLICIES,
    bound_pod,
    holds,
    make_booking,
    make_card,
    make_inventory,
    make_node,
    make_request,
    pending_pod,
    placed,
    share,
    want,
)
from tests.core.happenings import HAPPENINGS, steps_from
from tests.core.world import REQUESTS, World
from vgpu.core.index import MOST_EFFORT, FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.placement import evaluate
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import NodePolicy
from vgpu.core.search import effort_of

SMALL = make_request(want(1, 1_000))


def many_nodes(count: int) -> Ledger:
    """Node n00 is empty, each next one has a little more on its first card."""
    ledger = Ledger()
    for n in range(count):
        name = f"n{n:02}"
        ledger.put_node(make_node(name))
        ledger.put_inventory(make_inventory([make_card(f"GPU-{n}-{c}", c) for c in range(2)], name))
        if n:
            ledger.put_pod(bound_pod(f"p{n}", holds(share(f"GPU-{n}-0", 400 * n)), node=name))
    return ledger


def assert_equals_asking_anew(index: FitIndex, ledger: Ledger, uid: str) -> None:
    for request in REQUESTS:
        verdicts = index.verdicts(request, uid)
        fitting, refused = {}, {}
        for name in ledger.nodes():
            view = ledger.view(name)
            assert view is not None
            answer = evaluate(view, request, uid, POLICIES)
            if isinstance(answer, Refusal):
                refused[name] = answer
            else:
                fitting[name] = answer
        assert verdicts.fitting == {name: score // 1000 for name, score in fitting.items()}
        assert verdicts.refused == refused
        assert verdicts.best(9) == sorted(fitting, key=lambda name: (-fitting[name], name))[:9]


def test_verdicts_equal_asking_every_node_anew_after_any_events() -> None:
    for seed in range(25):
        world = World()
        index, ledger = FitIndex(world.ledger, POLICIES), world.ledger
        for name, a, b in steps_from(random.Random(seed).randbytes(90)):
            HAPPENINGS[name](world, a, b)
            if world.ledger is not ledger:
                index, ledger = FitIndex(world.ledger, POLICIES), world.ledger
            world.ledger.take_changes()
            for pod in [*world.ledger.pending(), None][:2]:
                assert_equals_asking_anew(index, world.ledger, pod.uid if pod else "nobody")


def test_only_nodes_that_changed_are_asked_again() -> None:
    ledger = many_nodes(30)
    index = FitIndex(ledger, POLICIES)
    index.verdicts(SMALL, "x")
    asked = index.evaluations
    index.verdicts(SMALL, "y")
    assert index.evaluations == asked
    ledger.put_pod(bound_pod("new", holds(share("GPU-7-1")), node="n07"))
    ledger.drop_pod("p3")
    index.verdicts(SMALL, "x")
    assert index.evaluations == asked + 2


@pytest.mark.parametrize("few", [0, 64], ids=["every node by itself", "few at once"])
def test_questions_about_some_nodes_and_about_all_agree_after_any_changes(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpu.core.index._FEW", few)
    ledger, dice = many_nodes(40), random.Random(5)
    index = FitIndex(ledger, POLICIES)
    names = sorted(ledger.nodes())
    for turn in range(60):
        ledger.drop_pod(f"p{dice.randrange(40)}")
        name = dice.choice(names)
        ledger.put_pod(bound_pod(f"p{40 + turn}", holds(share(f"GPU-{int(name[1:])}-1", 9_000)), node=name))
        some = set(dice.sample(names, 5))
        verdicts = index.verdicts(SMALL, "x", some)
        for asked in some:
            view = ledger.view(asked)
            assert view is not None
            answer = evaluate(view, SMALL, "x", POLICIES)
            if isinstance(answer, Refusal):
                assert verdicts.refusal(asked) == answer
            else:
                assert verdicts.score(asked) == answer // 1000
                assert asked in verdicts.best(5, some)
        if turn % 7 == 0:
            assert_equals_asking_anew(index, ledger, "x")


def test_nodes_that_nobody_asked_about_are_not_evaluated() -> None:
    ledger = many_nodes(200)
    index = FitIndex(ledger, POLICIES)
    index.verdicts(SMALL, "x", {"n03", "n04"})
    assert index.evaluations == 2


def test_all_nodes_are_learnt_piece_by_piece() -> None:
    ledger = many_nodes(200)
    index = FitIndex(ledger, POLICIES)
    pieces = 1
    while index.learn_some(SMALL, 30):
        pieces += 1
    assert (pieces, index.evaluations) == (7, 200)
    assert index.verdicts(SMALL, "x").whole
    assert index.evaluations == 200


def test_nodes_that_are_alike_are_asked_once() -> None:
    ledger = Ledger()
    for n in range(50):
        ledger.put_node(make_node(f"n{n}"))
        ledger.put_inventory(make_inventory([make_card(f"GPU-{n}")], f"n{n}"))
    index = FitIndex(ledger, POLICIES)
    assert len(index.verdicts(SMALL, "x").fitting) == 50
    assert index.evaluations == 1


def test_nodes_that_are_alike_but_for_their_uuids_and_order_of_cards_get_their_own_verdict() -> None:
    dice = random.Random(3)
    ledger = Ledger()
    for n in range(60):
        name = f"n{n}"
        cards = [make_card(f"GPU-{dice.random()}", c, memory_mib=100, slots=4, numa_node=c % 2) for c in range(3)]
        ledger.put_node(make_node(name, 12))
        ledger.put_inventory(make_inventory(cards, name))
        for card in dice.sample(cards, 2):
            ledger.put_pod(bound_pod(card.uuid, holds(share(card.uuid, dice.choice((20, 60)), 20)), node=name))
    index = FitIndex(ledger, POLICIES)
    assert_equals_asking_anew(index, ledger, "nobody")
    assert index.evaluations < 60 * len(REQUESTS), "some were alike"


def test_the_best_nodes_come_first_and_only_those_asked_about() -> None:
    index = FitIndex(many_nodes(40), POLICIES)
    names = [f"n{n:02}" for n in range(40)]
    verdicts = index.verdicts(SMALL, "x")
    assert verdicts.best(3, names) == ["n39", "n38", "n37"]
    assert verdicts.best(2, ["n05", "n10", "unknown", "n01"]) == ["n10", "n05"]
    assert verdicts.best(2, names + [f"unknown-{n}" for n in range(2000)]) == ["n39", "n38"]
    spread = make_request(want(1, 1_000), node_policy=NodePolicy.SPREAD)
    assert index.verdicts(spread, "x").best(2, names) == ["n00", "n01"]


def test_a_reservation_counts_against_everyone_but_its_owner() -> None:
    ledger = Ledger()
    ledger.put_node(make_node())
    ledger.put_inventory(make_inventory(1))
    ledger.put_pod(pending_pod("owner"))
    index = FitIndex(ledger, POLICIES)
    whole = make_request()
    index.verdicts(whole, "other")
    ledger.nominate("owner", "n1", placed(ledger, whole, "owner"))
    assert index.verdicts(whole, "owner").best(1) == ["n1"]
    refusal = index.verdicts(whole, "other").refusal("n1")
    assert refusal is not None
    assert refusal.reason is Reason.HELD_FOR_ANOTHER
    assert index.verdicts(whole, "owner").best(1) == ["n1"]


def test_a_node_that_is_gone_is_refused_by_name() -> None:
    ledger = many_nodes(2)
    index = FitIndex(ledger, POLICIES)
    index.verdicts(SMALL, "x")
    ledger.drop_node("n00", "uid-n00")
    ledger.drop_inventory("n00")
    ledger.take_changes()
    for name in ("n00", "never-seen"):
        refusal = index.verdicts(SMALL, "x").refusal(name)
        assert refusal is not None
        assert refusal.reason is Reason.NODE_GONE
    assert index.verdicts(SMALL, "x").best(5) == ["n01"]


def test_a_booking_between_two_questions_is_seen() -> None:
    ledger = many_nodes(2)
    ledger.put_pod(pending_pod("p"))
    index = FitIndex(ledger, POLICIES)
    whole = make_request(want(2))
    assert index.verdicts(whole, "p").best(5) == ["n00"]
    ledger.book(make_booking("p", placed(ledger, whole, "p", "n00")))
    verdicts = index.verdicts(whole, "q")
    assert verdicts.best(5) == []
    assert verdicts.counts() == {Reason.EXCLUSIVE_HOLDER: 1, Reason.CARD_NOT_EMPTY: 1}


def test_more_shapes_than_are_kept_are_still_answered() -> None:
    index = FitIndex(many_nodes(2), POLICIES)
    for memory_mib in [*range(1, 101), 1]:
        assert len(index.verdicts(make_request(want(1, memory_mib)), "x").fitting) == 2


def test_a_question_costs_no_more_than_so_much_however_dear_the_request() -> None:
    """A user chooses how many containers a pod has; kube-scheduler and the Lease wait for the answer."""
    ledger = many_nodes(200)
    index = FitIndex(ledger, POLICIES)
    dear = make_request(*(want(1, 100 + n, name=f"c{n}") for n in range(10)))
    verdicts = index.verdicts(dear, "x")
    assert not verdicts.whole
    assert 0 < index.evaluations * effort_of(dear) <= 2 * MOST_EFFORT
    before = index.evaluations
    index.learn_some(dear, 64)
    assert index.evaluations == before + 1
    while index.learn_some(dear, 64):
        pass
    assert index.verdicts(dear, "x").whole
    assert index.evaluations == 200
