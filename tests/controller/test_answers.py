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
from vgpu.controller.explain_text import explanation_text
from vgpu.controller.preempt.held_words import HeldWords
from vgpu.controller.preempt.plan_book import PlanBook
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Booking, Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import NodeReservation, OwnerKind, PlanFact, QueueFact
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.roster import Roster
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
    message = answers.verdict(pods[1]).message
    assert "40960 MiB and 100 cores free, held for another pod: " in message
    assert "what is free is held for another pod" in message
    ledger.book(Booking("uid-held", "team", "held", "node-a", "nonce", placement))
    assert [answers.reason(pod) for pod in pods] == [None, Reason.INSUFFICIENT_MEMORY]


def held_on_one_of(cards: int, full: int) -> tuple[Ledger, PodFact]:
    """A node of so many cards, of which `full` are taken whole and one is held for a pod that waits."""
    ledger = ledger_of("node-a")
    ledger.put_inventory(inventory("node-a", cards=cards))
    for number in range(full):
        ledger.put_pod(bound(f"old-{number}", "node-a", number, memory_mib=CARD_MIB))
    waits = pending("held", CARD_MIB)
    ledger.put_pod(waits)
    view = ledger.view("node-a")
    assert view is not None
    placement = place(view, request(CARD_MIB), waits.uid, Policies())
    assert isinstance(placement, Placement)
    cards_held = tuple(NodeReservation("node-a", one) for one in reservations_of(((waits.uid, placement),)))
    ledger.plans.put(PlanHold("team/plan", 1, cards_held))
    return ledger, waits


def test_beside_a_card_that_is_held_it_is_not_said_that_all_are_taken() -> None:
    """However many others are: the held one is what is nearest to being free."""
    ledger, _ = held_on_one_of(4, 3)
    other = pending("other", CARD_MIB)
    ledger.put_pod(other)
    answers = Answers(ledger, index_of(ledger), names.SCHEDULER_NAME, held_for=lambda uid: f"whom? {uid}")
    said = answers.verdict(other)
    assert said.reason is Reason.HELD_FOR_ANOTHER
    assert "what is free is held for another pod" in said.message
    [node_said] = answers.question(other).answer().nodes
    assert [card.held_for for card in node_said.cards] == [(), (), (), ("whom? uid-held",)]
    text = explanation_text(answers.question(other).answer())
    assert "HeldForAnother: held for whom? uid-held" in text


def test_a_pod_for_which_cards_are_held_is_not_told_of_other_nodes() -> None:
    ledger, waits = held_on_one_of(1, 0)
    ledger.put_pod(bound("old", "node-a", 0, memory_mib=CARD_MIB, terminating=True))
    answers = answers_of(ledger)
    assert answers.reason(waits) is None
    said = answers.verdict(waits)
    assert said.reason is None
    assert "cards are held for it on node-a until they are free" in said.message


def test_a_card_whose_holder_is_leaving_says_so() -> None:
    ledger = ledger_of("node-a")
    ledger.put_pod(bound("old", "node-a", 0, memory_mib=CARD_MIB - 1, terminating=True))
    new = pending("new", CARD_MIB)
    ledger.put_pod(new)
    answer = answers_of(ledger).question(new).answer()
    assert answer.nodes[0].cards[0].leaving == ("team/old",)
    assert "team/old leaving" in explanation_text(answer)


def test_for_whom_a_card_is_held_by_what_and_until_when() -> None:
    ledger, waits = held_on_one_of(1, 0)
    roster = Roster(ledger)
    roster.put_queue(QueueFact("default", hold_timeout_seconds=90))
    roster.put_pod(waits)
    book = PlanBook(ledger.plans)
    words = HeldWords(ledger, roster, book)
    assert words.of(waits.uid) == "team/held by team/plan until it is bound"
    hold = ledger.plans.get("team/plan")
    assert hold is not None
    plan = PlanFact(
        "uid-plan", "team", "plan", OwnerKind.POD, "held", (waits.uid,), hold.cards, (), "WithinQueue", True, 0
    )
    book.adopt(plan)
    assert words.of(waits.uid) == (
        "team/held by plan team/plan until it is bound, at most 1 min 30 s after those who leave are gone"
    )


def test_a_bound_pod_is_asked_of_no_node() -> None:
    ledger = ledger_of("node-a")
    ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
    pod = ledger.find_pod("team", "old")
    assert pod is not None
    answer = answers_of(ledger).question(pod).answer()
    assert answer.verdict.message == "bound to node-a on cards GPU-node-a-0 (whole); Running"
    assert (answer.verdict.reason, answer.nodes) == (None, ())
