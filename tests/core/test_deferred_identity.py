"""R05 on deferred nodes: the plugins guess whose an Allocate is, so there must never be anything to guess.

The plugins' ways of guessing are modelled from what they are known to do: HAMi's, and Volcano's before 1.12, take
the first waiting pod of the node; Volcano's from 1.12 on the one with the earliest time among those of this count.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.core.building import bound_pod, make_booking, make_card, make_ledger, make_request, try_place, want
from vgpu.core import placement
from vgpu.core.facts import Identity, Plugin
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement, Policies

Guess = Callable[[list["Waiting"], int], "Waiting | None"]
PODS = 24


@dataclass(frozen=True)
class Waiting:
    """A pod that is bound and not admitted, as a plugin sees it. `time` is in whole seconds."""

    uid: str
    cards: int
    time: int


def first_waiting(waiting: list[Waiting], cards: int) -> Waiting | None:
    return min(waiting, key=lambda pod: pod.uid, default=None)


def earliest_of_this_count(waiting: list[Waiting], cards: int) -> Waiting | None:
    alike = [pod for pod in waiting if pod.cards == cards]
    return min(alike, key=lambda pod: (pod.time, pod.uid), default=None)


def swaps(plugin: Plugin, policies: Policies, guess: Guess, counts: tuple[int, ...], seed: int) -> tuple[int, int]:
    """(pods served, pods that were given another's cards) when kubelet asks in an order of its own."""
    draw = random.Random(seed)
    cards = [make_card(f"GPU-{n}", n, slots=PODS) for n in range(4)]
    ledger = make_ledger(cards=cards, identity=Identity.DEFERRED, plugin=plugin)
    queue = {f"pod-{draw.random()}": draw.choice(counts) for _ in range(PODS)}
    waiting: list[Waiting] = []
    served = wrong = 0
    for _ in range(PODS):
        waiting += bind_what_may_be(ledger, queue, policies)
        asked = draw.choice(waiting)
        wrong += guess(waiting, asked.cards) != asked
        served += 1
        waiting.remove(asked)
        pod = ledger.pod(asked.uid)
        assert pod is not None
        # A container that crashes at once and starts again asks nobody anew.
        ledger.put_pod(replace(pod, admitted=True, ever_ran=True, container_running=draw.random() < 0.7))
        if draw.random() < 0.5:
            ledger.drop_pod(asked.uid)
    assert (queue, waiting) == ({}, [])
    return served, wrong


def bind_what_may_be(ledger: Ledger, queue: dict[str, int], policies: Policies) -> list[Waiting]:
    """Bind every pod of the queue that is let through now."""
    bound = []
    for uid, cards in list(queue.items()):
        answer = try_place(ledger, make_request(want(cards, 10)), uid, policies=policies)
        if isinstance(answer, Placement):
            del queue[uid]
            ledger.book(make_booking(uid, answer))
            pod = bound_pod(uid, *answer.containers, admitted=False, ever_ran=False, container_running=False)
            ledger.put_pod(pod)
            bound.append(Waiting(uid, cards, time=7))
    return bound


CASES = [
    pytest.param(Plugin.HAMI, Policies(), first_waiting, id="HAMi"),
    pytest.param(Plugin.HAMI, Policies(volcano_matches_count=True), first_waiting, id="HAMi, Volcano elsewhere"),
    pytest.param(Plugin.VOLCANO, Policies(), first_waiting, id="Volcano before 1.12"),
    pytest.param(Plugin.VOLCANO, Policies(volcano_matches_count=True), earliest_of_this_count, id="Volcano 1.12"),
]


@pytest.mark.parametrize("counts", [(1,), (1, 2, 4)], ids=["same count", "different counts"])
@pytest.mark.parametrize(("plugin", "policies", "guess"), CASES)
def test_r05_no_plugin_ever_has_two_pods_to_choose_from(
    plugin: Plugin, policies: Policies, guess: Guess, counts: tuple[int, ...]
) -> None:
    for seed in range(3):
        assert swaps(plugin, policies, guess, counts, seed) == (PODS, 0)


@pytest.mark.parametrize(("plugin", "policies", "guess"), CASES)
def test_r05_without_the_serialisation_pods_are_swapped(
    monkeypatch: pytest.MonkeyPatch, plugin: Plugin, policies: Policies, guess: Guess
) -> None:
    """Shows that the check above can fail."""
    monkeypatch.setattr(placement, "_waits_for_admission", lambda *given: None)
    _, wrong = swaps(plugin, policies, guess, (1, 2), seed=1)
    assert wrong > 0


def test_r05_matching_counts_with_a_plugin_that_does_not_would_swap_pods() -> None:
    """Why the setting is off unless a person says that the plugin is new enough."""
    _, wrong = swaps(Plugin.VOLCANO, Policies(volcano_matches_count=True), first_waiting, (1, 2, 3), seed=1)
    assert wrong > 0
