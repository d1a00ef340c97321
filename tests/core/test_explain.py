"""What a pending pod is told."""

from dataclasses import replace

import pytest

from vgpu.core.explain import (
    EVENT_BYTES,
    explain,
    notes_on,
    tally,
    verdict,
    waiting_reason,
)
from vgpu.core.facts import (
    AssignedCard,
    AssignedContainer,
    AssignmentFact,
    AssignmentSource,
    CardFact,
    Phase,
    PodFact,
)
from vgpu.core.nearness import closest_words, freest_card
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest, PodRequest
from vgpu.core.terms import PodTerms
from vgpu.core.views import CardView, Holder, HolderState, NodeView
from vgpu.core.wanted import wanted_words

FULL = Refusal(Reason.INSUFFICIENT_MEMORY, "no card has 4096 MiB free")
DOWN = Refusal(Reason.AGENT_DOWN, "the node's agent is not ready")
SHARE = CardRequest(memory_mib=4096, cores=30)
OTHER = Refusal(Reason.SLOT_RESOURCE_MISMATCH, "the node advertises nvidia.com/gpu")


def asks(card: CardRequest = SHARE, number: int = 1) -> PodRequest:
    return PodRequest("volcano.sh/vgpu-number", (ContainerRequest("main", ContainerKind.APP, number, card),))


def pod(**changes: object) -> PodFact:
    made = PodFact(uid="u1", namespace="team", name="job", wants_gpus=True, request=asks())
    return replace(made, **changes)  # type: ignore[arg-type]


def node(name: str, free_mib: int) -> NodeView:
    fact = CardFact(uuid=f"GPU-{name}", index=0, model="A100", memory_mib=40960, cores=100, slots=10, healthy=True)
    card = CardView(fact, used_memory_mib=40960 - free_mib)
    return NodeView(name=name, cards=(card,), effective_slots=10, used_slots=3)


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        (asks(), "1 card of 4096 MiB, 30 cores"),
        (asks(number=2), "2 cards of 4096 MiB, 30 cores each"),
        (asks(CardRequest(memory_percent=50)), "1 card of 50 % of the card's memory"),
        (asks(CardRequest()), "1 whole card (memory given: none or 0)"),
        (asks(CardRequest(), number=25), "25 whole cards (memory given: none or 0)"),
        (asks(CardRequest(cores=30), number=2), "2 whole cards (memory given: none or 0), 30 cores each"),
    ],
)
def test_the_request_is_said_in_words_with_its_default_named(request_: PodRequest, want: str) -> None:
    assert wanted_words(request_) == want


def test_several_containers_are_named() -> None:
    two = replace(asks(), containers=(*asks().containers, *replace(asks()).containers))
    assert wanted_words(two) == "main: 1 card of 4096 MiB, 30 cores; main: 1 card of 4096 MiB, 30 cores"


def test_the_reason_nearest_to_a_placement_wins_over_the_most_frequent_one() -> None:
    refused = {"a": FULL, "b": DOWN, "c": DOWN, "d": OTHER, "e": OTHER, "f": OTHER}
    said = verdict(pod(), tally([], refused))
    assert said.reason is Reason.INSUFFICIENT_MEMORY
    assert "0 of 6 nodes fit: 1 InsufficientMemory, 2 AgentDown, 3 SlotResourceMismatch" in said.message


def test_the_message_names_the_node_with_most_left() -> None:
    nodes = [(node("a", 1000), FULL), (node("b", 3000), FULL), (node("c", 40960), DOWN)]
    words = closest_words((view, freest_card(view), refusal) for view, refusal in nodes)
    assert words.startswith("best node b: 7 of 10 slots free, its freest card has 3000 of 40960 MiB")


def test_a_pod_that_only_other_filters_refuse_gets_kube_schedulers_words() -> None:
    said = verdict(pod(unschedulable=True, unschedulable_message="0/3 nodes: Insufficient cpu"), tally(["a"], {}))
    assert said.reason is Reason.OTHER_FILTERS
    assert "the cards fit on 1 node (a)" in said.message
    assert "0/3 nodes: Insufficient cpu" in said.message


def test_a_pod_whose_cards_fit_and_that_was_not_refused_has_no_reason() -> None:
    assert waiting_reason(pod(), tally(["a"], {"b": FULL})) is None


def test_an_unreadable_request_is_its_own_reason() -> None:
    refusal = Refusal(Reason.INVALID_REQUEST, "volcano.sh/vgpu-number: -1 is negative")
    said = verdict(pod(request=None, refusal=refusal), None)
    assert (said.reason, said.message) == (refusal.reason, refusal.message)


def test_a_cluster_without_any_gpu_says_so() -> None:
    said = verdict(pod(), tally([], {}))
    assert said.reason is Reason.NO_INVENTORY
    assert "no node of the cluster lists any GPU" in said.message


def test_a_message_is_never_longer_than_an_event_takes() -> None:
    long = pod(unschedulable=True, unschedulable_message="é" * 2000)
    said = verdict(long, tally(["a"], {}))
    assert len(said.message.encode()) <= EVENT_BYTES
    assert said.message.endswith("...")


def test_the_full_answer_has_every_node_and_card() -> None:
    nodes = [(node("b", 3000), FULL), (node("a", 9000), None)]
    answer = explain(pod(), tally(["a"], {"b": FULL}), nodes)
    assert [(n.node, n.refusal, n.cards[0].why) for n in answer.nodes] == [
        ("a", None, ""),
        ("b", FULL, "InsufficientMemory"),
    ]
    assert answer.fitting == ("a",)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        (
            {"node": "a", "refusal": Refusal(Reason.INVALID_REQUEST, "-1 is negative")},
            "its request could not be placed: -1 is negative",
        ),
        (
            {"scheduler_name": "default-scheduler"},
            "it names the scheduler default-scheduler: ours does not place it",
        ),
        ({"gated": True}, "a scheduling gate holds it back"),
        ({"terms": PodTerms(problems=("its label x is no number",))}, "its label x is no number"),
        ({"assignment_problem": "it names another pod"}, "its assignment is ignored: it names another pod"),
    ],
)
def test_what_stands_beside_the_verdict_is_noted(changes: dict[str, object], want: str) -> None:
    waiting = pod(**{"scheduler_name": "ours", **changes})
    assert notes_on(waiting, "ours") == [want]
    assert notes_on(pod(scheduler_name="ours", queue="there"), "ours") == []


def test_a_pod_that_its_queue_does_not_let_start_is_told_so_although_its_cards_fit() -> None:
    barred = Refusal(Reason.QUEUE_NOT_FOUND, "there is no GpuQueue x")
    answer = explain(pod(), tally({"a": 1}, {}), [(node("a", 0), None)], barred=barred)
    assert answer.verdict.reason is Reason.QUEUE_NOT_FOUND
    assert answer.verdict.message.endswith("; there is no GpuQueue x")
    assert answer.fitting == ("a",)


def test_a_pod_refused_for_its_own_request_fits_on_no_node() -> None:
    refusal = Refusal(Reason.INVALID_REQUEST, "volcano.sh/vgpu-number: -1 is negative")
    answer = explain(pod(request=None, refusal=refusal), None, [(node("a", 9000), None)])
    assert (answer.verdict.reason, answer.verdict.message) == (refusal.reason, refusal.message)
    assert (answer.fitting, answer.nodes) == ((), ())


HELD = AssignmentFact(
    AssignmentSource.VGPU,
    "a",
    "nonce",
    (AssignedContainer("main", ContainerKind.APP, (AssignedCard("GPU-a", 4096, 30, whole=False),)),),
)


@pytest.mark.parametrize(
    ("changes", "reason", "want"),
    [
        (
            {"node": "a", "assignment": HELD, "phase": Phase.RUNNING},
            None,
            "bound to a on cards GPU-a (4096 MiB, 30 cores); Running",
        ),
        (
            {"node": "a", "assignment": HELD, "phase": Phase.RUNNING, "terminating": True},
            None,
            "bound to a on cards GPU-a (4096 MiB, 30 cores); being deleted",
        ),
        (
            {"node": "a", "assignment": HELD, "phase": Phase.SUCCEEDED},
            None,
            "bound to a and over (Succeeded): it holds no cards",
        ),
        (
            {"node": "a"},
            Reason.BOUND_WITHOUT_ASSIGNMENT,
            "bound to a without a readable assignment of cards; Pending",
        ),
        ({"phase": Phase.FAILED}, None, "it is over (Failed) and was never bound"),
    ],
)
def test_a_pod_that_waits_for_no_cards_has_no_verdict_of_not_fitting(
    changes: dict[str, object], reason: Reason | None, want: str
) -> None:
    answer = explain(pod(**changes), tally([], {"a": FULL}), [(node("a", 0), FULL)])
    assert (answer.verdict.reason, answer.verdict.message) == (reason, want)
    assert (answer.counts, answer.fitting, answer.nodes) == ((), (), ())


def test_a_card_that_is_held_whole_has_no_free_slots_and_names_its_holder() -> None:
    free = node("a", 40960).cards[0].fact
    holder = Holder("u0", "team", "old", 1, 0, 0, exclusive=True, state=HolderState.RUNNING)
    card = CardView(free, holders=(holder,), used_slots=1, exclusive=True)
    view = NodeView(name="a", cards=(card,), effective_slots=10, used_slots=1)
    why = Refusal(Reason.EXCLUSIVE_HOLDER, "too many cards are held whole")
    assert closest_words([(view, freest_card(view), why)]) == (
        "best node a: 0 of 10 slots free, its freest card is held whole by team/old: too many cards are held whole"
    )
    [shown] = explain(pod(), tally([], {"a": why}), [(view, why)]).nodes[0].cards
    assert (shown.free_slots, shown.held_whole_by) == (0, "team/old")


def test_nodes_that_can_never_take_the_pod_come_last() -> None:
    unselected = Refusal(Reason.CARD_SELECTION, "too few cards match")
    nobody = Refusal(Reason.NO_INVENTORY, "no GpuNodeInventory")
    refused = {"a": unselected, "b": unselected, "c": nobody, "d": nobody, "e": nobody, "f": DOWN}
    assert waiting_reason(pod(), tally([], refused)) is Reason.AGENT_DOWN
    assert waiting_reason(pod(), tally([], refused, {"f"})) is Reason.CARD_SELECTION
