"""Many pods find their places with work that grows with pods and nodes, not with their product."""

import pytest

from tests.core.building import POLICIES, make_inventory, make_node, make_request, pending_pod, want
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import best_placement, take
from vgpu.core.placement import Placement
from vgpu.core.preempt.spots import PIECE, Answers, Spots, kind_of
from vgpu.core.views import NodeView

EIGHT = make_request(want(8, cores=100))


def nodes(count: int, cards: int = 8) -> list[NodeView]:
    ledger = Ledger()
    for number in range(count):
        ledger.put_node(make_node(f"n{number:03}", pods=100))
        ledger.put_inventory(make_inventory(cards, f"n{number:03}"))
    return [view for number in range(count) if (view := ledger.view(f"n{number:03}")) is not None]


def one_by_one(views: list[NodeView], pods: list[PodFact]) -> list[Placement | None]:
    """As it is defined: every node is asked for every pod."""
    scratch, found = {view.name: view for view in views}, []
    for pod in pods:
        placement = best_placement(scratch.values(), pod, POLICIES)
        if placement is not None:
            take(scratch, pod, placement)
        found.append(placement)
    return found


def everywhere(view: NodeView, pod: PodFact) -> bool:
    return True


@pytest.mark.parametrize("cards", [[1] * 30, [3] * 12, [1, 2, 3, 4] * 4, [4, 1, 4, 2, 8, 1] * 3])
def test_the_same_places_as_if_every_node_were_asked_for_every_pod(cards: list[int]) -> None:
    pods = [pending_pod(f"p{number}", make_request(want(count))) for number, count in enumerate(cards)]
    spots, expected = Spots(nodes(4), Answers(POLICIES), everywhere), one_by_one(nodes(4), pods)
    assert any(expected)
    assert [spots.seat(pod) for pod in pods] == expected


def test_equal_pods_ask_a_node_once_until_one_goes_there() -> None:
    answers = Answers(POLICIES)
    spots = Spots(nodes(64), answers, everywhere)
    assert all(spots.seat(pending_pod(f"p{number}", EIGHT)) for number in range(64))
    assert answers.asked <= 2 * 64


def test_a_node_that_stands_as_it_did_is_not_asked_again() -> None:
    answers, views, request = Answers(POLICIES), nodes(16), EIGHT
    for _ in range(3):
        Spots(views, answers, everywhere).seat(pending_pod("p", request))
    assert answers.asked == 16


def test_a_pods_own_node_that_stands_as_it_did_is_not_asked_again() -> None:
    answers, views, pod = Answers(POLICIES), nodes(1), pending_pod("p", EIGHT)
    first, again = answers.on_own(views[0], pod), answers.on_own(views[0], pod)
    assert (first, answers.asked) == (again, 1)
    answers.on_own(views[0], pending_pod("q", EIGHT))
    assert answers.asked == 2


def test_what_is_asked_comes_in_pieces() -> None:
    answers = Answers(POLICIES)
    pieces = Spots(nodes(100), answers, everywhere).ask(kind_of(pending_pod("p", EIGHT)))
    asked = 0
    for _ in pieces:
        assert answers.asked - asked <= PIECE
        asked = answers.asked
    assert answers.asked == 100


def test_a_copy_goes_on_apart() -> None:
    spots = Spots(nodes(1), Answers(POLICIES), everywhere)
    twin = spots.copy(everywhere)
    assert twin.seat(pending_pod("a", EIGHT)) is not None
    assert twin.seat(pending_pod("b", EIGHT)) is None
    assert spots.seat(pending_pod("c", EIGHT)) is not None
