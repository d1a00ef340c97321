"""Which node a waiting pod is told about."""

from dataclasses import replace

from tests.controller.cluster_facts import (
    CARD_MIB,
    SLOTS,
    bound,
    index_of,
    inventory,
    ledger_of,
    node,
    pending,
    request,
)
from vgpu import names
from vgpu.controller.answers import Answers
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Booking, Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import NodeReservation
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.reasons import Reason
from vgpu.core.recount import reservations_of
from vgpu.core.request import Selection


def answers_of(ledger: Ledger) -> Answers:
    return Answers(ledger, index_of(ledger), names.SCHEDULER_NAME)


def choosing(uuid: str) -> PodFact:
    return pending("new", request=replace(request(), selection=Selection(use_uuids=frozenset({uuid}))))


def test_the_closed_node_that_owns_the_chosen_card_is_named() -> None:
    ledger = ledger_of("node-a", "node-b", "node-c")
    ledger.put_node(node("node-b", slots_allocatable=frozenset({(SLOTS, 0)})))
    said = answers_of(ledger).verdict(choosing("GPU-node-b-0"))
    assert said.reason is Reason.NO_ALLOCATABLE
    assert "best node node-b: " in said.message
    assert "the device plugin of this node is not connected" in said.message


def test_a_closed_node_without_the_chosen_card_is_not_the_best_one() -> None:
    ledger = ledger_of("node-a", "node-b")
    ledger.put_node(node("node-b", slots_allocatable=frozenset({(SLOTS, 0)})))
    said = answers_of(ledger).verdict(choosing("GPU-of-nobody"))
    assert said.reason is Reason.CARD_SELECTION
    assert "best node" not in said.message
    assert "too few cards match the pod's card selection" in said.message


def test_a_chosen_card_that_is_full_is_told_as_full_and_not_as_not_chosen() -> None:
    ledger = ledger_of("node-a")
    ledger.put_node(node("node-b"))
    ledger.put_inventory(inventory("node-b", cards=8))
    ledger.put_pod(bound("old", "node-b", 3, memory_mib=CARD_MIB - 1))
    said = answers_of(ledger).verdict(choosing("GPU-node-b-3"))
    assert said.reason is Reason.INSUFFICIENT_MEMORY
    assert f"best node node-b: 79 of 80 slots free, its freest card has 1 of {CARD_MIB} MiB" in said.message


def test_a_pod_whose_cards_are_booked_or_held_by_a_plan_is_not_told_that_they_are_taken() -> None:
    ledger = ledger_of("node-a")
    pods = [pending(name, CARD_MIB) for name in ("held", "other")]
    for pod in pods:
        ledger.put_pod(pod)
    view = ledger.view("node-a")
    assert view is not None
    placement = place(view, request(CARD_MIB), "uid-held", Policies())
    assert isinstance(placement, Placement)
    cards = tuple(NodeReservation("node-a", one) for one in reservations_of((("uid-held", placement),)))
    ledger.plans.put(PlanHold("team/plan", 1, cards))
    answers = answers_of(ledger)
    assert [answers.reason(pod) for pod in pods] == [Reason.OTHER_FILTERS, Reason.HELD_FOR_ANOTHER]
    ledger.book(Booking("uid-held", "team", "held", "node-a", "nonce", placement))
    assert [answers.reason(pod) for pod in pods] == [None, Reason.INSUFFICIENT_MEMORY]


def test_a_bound_pod_is_asked_of_no_node() -> None:
    ledger = ledger_of("node-a")
    ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
    pod = ledger.find_pod("team", "old")
    assert pod is not None
    answer = answers_of(ledger).question(pod).answer()
    assert answer.verdict.message == "bound to node-a on cards GPU-node-a-0 (whole); Running"
    assert (answer.verdict.reason, answer.nodes) == (None, ())
