"""Pods that were bound without an assignment: cards where they are, or left alone."""

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, inventory, ledger_of
from vgpu.core.facts import Identity, Phase, PodFact
from vgpu.core.late_assignment import place_late
from vgpu.core.placement import Placement, Policies
from vgpu.core.reasons import Reason, Refusal


def stray(name: str = "stray", **changes: object) -> PodFact:
    fresh = {
        "assignment": None,
        "phase": Phase.PENDING,
        "admitted": False,
        "container_running": False,
        "ever_ran": False,
    }
    return bound(name, "n1", **{**fresh, **changes})


def decide(pod: PodFact, *others: PodFact, identity: Identity = Identity.EXACT) -> Placement | Refusal | None:
    ledger = ledger_of("n1")
    ledger.put_inventory(inventory("n1", identity=identity))
    for other in (*others, pod):
        ledger.put_pod(other)
    view = ledger.view("n1")
    assert view is not None
    return place_late(view, pod, Policies())


def test_a_pod_that_never_ran_on_an_exact_node_gets_cards_there() -> None:
    decision = decide(stray())
    assert isinstance(decision, Placement)
    assert decision.containers[0].cards[0].uuid == "GPU-n1-0"


def test_without_room_it_is_left_with_the_reason() -> None:
    decision = decide(stray(), bound("old", "n1", memory_mib=CARD_MIB))
    assert isinstance(decision, Refusal)


def test_an_unreadable_request_is_left_with_its_refusal() -> None:
    refusal = Refusal(Reason.INVALID_REQUEST, "vgpu-number is -1")
    assert decide(stray(request=None, refusal=refusal)) == refusal


@pytest.mark.parametrize(
    "change",
    [
        {"ever_ran": True},
        {"daemonset_or_mirror": True},
        {"terminating": True},
        {"phase": Phase.FAILED},
        {"wants_gpus": False, "request": None, "agent_pod_ready": True},
    ],
    ids=str,
)
def test_pods_that_may_run_or_do_not_ask_are_never_touched(change: dict[str, object]) -> None:
    assert decide(stray(**change)) is None


def test_pods_on_deferred_nodes_are_never_touched() -> None:
    assert decide(stray(), identity=Identity.DEFERRED) is None


def test_a_pod_with_an_assignment_is_never_touched() -> None:
    assert decide(bound("fine", "n1")) is None
