"""Each invariant's check is able to fail: with the rule that it guards switched off, random runs find it."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.core.happenings import HAPPENINGS, steps_from
from tests.core.invariants import check_all
from tests.core.world import Step, World
from vgpu.core import gate, hold, recount, search, site
from vgpu.core.facts import NodeFact, PodFact
from vgpu.core.fit import Bases, bases_of
from vgpu.core.ledger import Ledger
from vgpu.core.reasons import Reason
from vgpu.core.views import CardView, NodeView, Reservation

RUNS = 400


def failure_of(steps: list[Step], make: Callable[[], Ledger] = Ledger) -> str:
    """What the checks say to these steps, "" when all is well."""
    try:
        world = World(make)
        for name, a, b in steps:
            HAPPENINGS[name](world, a, b)
            check_all(world)
    except AssertionError as error:
        return str(error) or repr(error)
    return ""


def first_failure(make: Callable[[], Ledger] = Ledger, runs: int = RUNS) -> str:
    """The first failure among random runs; they are the same runs each time."""
    all_steps = (steps_from(random.Random(seed).randbytes(120)) for seed in range(runs))
    return next(filter(None, (failure_of(steps, make) for steps in all_steps)), "")


def test_with_every_rule_in_force_the_same_runs_pass() -> None:
    assert first_failure(runs=40) == ""


def allow(monkeypatch: pytest.MonkeyPatch, *reasons: Reason) -> None:
    """Card fit no longer minds these reasons."""
    real = search.blocked

    def lenient(*given: Any) -> Reason | None:
        reason = real(*given)
        return None if reason in reasons else reason

    monkeypatch.setattr(search, "blocked", lenient)


@pytest.mark.parametrize(
    "reason", [Reason.INSUFFICIENT_MEMORY, Reason.INSUFFICIENT_SLOTS, Reason.INSUFFICIENT_CORES], ids=str
)
def test_i1_fails_when_a_card_may_be_overfilled(monkeypatch: pytest.MonkeyPatch, reason: Reason) -> None:
    allow(monkeypatch, reason)
    assert "I1" in first_failure()


def test_i1_fails_when_overbooking_is_not_shown() -> None:
    class Blind(Ledger):
        def view(self, node: str) -> NodeView | None:
            view = super().view(node)
            return view and replace(view, cards=tuple(replace(card, overbooked=False) for card in view.cards))

    assert "I1" in first_failure(Blind)


def test_i2_fails_when_a_pod_may_join_one_that_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, Reason.EXCLUSIVE_HOLDER, Reason.CARD_NOT_EMPTY)
    assert "I2" in first_failure()


def test_i3_fails_when_terminating_pods_count_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = site.is_live_gpu_pod
    monkeypatch.setattr(site, "is_live_gpu_pod", lambda pod: real(pod) and not pod.terminating)
    assert "I3" in first_failure()


def test_i3_fails_when_ended_pods_go_on_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "is_live_gpu_pod", lambda pod: pod.wants_gpus)
    assert "I3" in first_failure()


def test_i3_fails_when_a_booking_outlives_its_pods_event() -> None:
    class Clinging(Ledger):
        def _end_booking(self, uid: str) -> bool:
            return False

    assert "I3" in first_failure(Clinging)


def test_i3_fails_when_a_pod_that_is_booked_and_shown_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    real = hold.hold_of
    monkeypatch.setattr(hold, "hold_of", lambda pod: replace(real(pod), holders=real(pod).holders * 2))
    assert "I3" in first_failure()


def test_i3_fails_when_an_event_without_a_node_ends_a_booking() -> None:
    class Forgetful(Ledger):
        def put_pod(self, fact: PodFact) -> bool:
            changed = super().put_pod(fact)
            booking = self.booking(fact.uid)
            if booking is not None and not fact.node and changed:
                self.unbook(fact.uid, booking.nonce)
            return changed

    assert "I3" in first_failure(Forgetful)


def test_i4_fails_when_orphans_are_dropped() -> None:
    class Tidy(Ledger):
        def view(self, node: str) -> NodeView | None:
            view = super().view(node)
            return view and replace(view, orphans=())

    assert "I4" in first_failure(Tidy)


def test_i4_fails_when_a_container_may_get_one_card_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def repeat(cards: Iterable[Any], number: int) -> list[tuple[Any, ...]]:
        return [(next(iter(cards)),) * number]

    monkeypatch.setattr(search, "combinations", repeat)
    assert "I4" in first_failure()


def test_i5_fails_when_a_deletion_is_missed() -> None:
    class Deaf(Ledger):
        def drop_pod(self, uid: str) -> bool:
            return False

    assert "I" in first_failure(Deaf)


@pytest.mark.parametrize("field", ["terminating", "admitted"])
def test_i5_fails_when_a_change_of_a_pod_is_not_recounted(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    ignore(monkeypatch, field)
    assert "I5" in first_failure() or "I3" in first_failure()


def test_i5_fails_when_it_goes_unnoticed_that_an_unknown_pod_began_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [("pod_created", 0, 0), ("bound_without_assignment", 0, 1), ("pod_admitted", 0, 0),
             ("pod_admitted", 0, 1)]  # fmt: skip
    assert failure_of(steps) == ""
    ignore(monkeypatch, "ever_ran")
    assert "I5" in failure_of(steps)


def ignore(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """A change of this field of a pod is not seen."""
    fields = ["assignment", "wants_gpus", "terminating", "admitted", "ever_ran", "name"]
    fields.remove(field)
    monkeypatch.setattr(site, "_seen_by_recount", lambda pod: [getattr(pod, name) for name in fields])


def test_i5_fails_when_an_inventory_merges_into_the_old_one() -> None:
    class Merging(Ledger):
        def put_inventory(self, fact: Any) -> bool:
            before = self._inventories.get(fact.node)
            if before is not None:
                known = {card.uuid for card in fact.cards}
                kept = tuple(card for card in before.cards if card.uuid not in known)
                fact = replace(fact, cards=(*fact.cards, *kept))
            return super().put_inventory(fact)

    assert "I5" in first_failure(Merging)


def test_i6_fails_when_equal_facts_are_not_recognised() -> None:
    class Busy(Ledger):
        def put_node(self, fact: NodeFact) -> bool:
            changed = super().put_node(fact)
            self._touch(fact.name)
            return changed

    assert "I6" in first_failure(Busy)


@pytest.mark.parametrize(
    ("rules", "number"),
    [
        # Without the Node nothing is allocatable either: two rules guard it.
        ({"_node_gone", "_no_allocatable"}, "I13: the node is gone"),
        ({"_read_error"}, "I13: readError"),
        ({"_isolation_error"}, "I13: isolationError"),
        ({"_no_allocatable"}, "I13: kubelet offers nothing"),
        ({"_agent_down"}, "I13: the agent is down"),
        ({"_inventory_invalid"}, "I14"),
    ],
    ids=lambda given: given if isinstance(given, str) else "+".join(sorted(given)),
)
def test_i13_and_i14_fail_when_gate_rules_are_off(
    monkeypatch: pytest.MonkeyPatch, rules: set[str], number: str
) -> None:
    left = tuple(rule for rule in gate._RULES if rule.__name__ not in rules)
    assert len(left) == len(gate._RULES) - len(rules)
    monkeypatch.setattr(gate, "_RULES", left)
    monkeypatch.setattr(recount, "_effective_slots", lambda *given: 1000)
    assert number in first_failure()


def test_i13_fails_when_a_deleted_inventory_goes_on_counting() -> None:
    class Clinging(Ledger):
        def drop_inventory(self, node: str) -> bool:
            return False

    assert "I13: there is no inventory" in first_failure(Clinging) or "I5" in first_failure(Clinging)


def test_i13_fails_when_unhealthy_cards_are_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = search.unselected

    def lenient(card: CardView, selection: Any) -> Reason | None:
        reason = real(card, selection)
        return None if reason is Reason.CARDS_UNHEALTHY else reason

    monkeypatch.setattr(search, "unselected", lenient)
    assert "I13" in first_failure()


def test_i14_fails_when_a_bad_pod_disturbs_the_nodes() -> None:
    class Panicking(Ledger):
        def put_pod(self, fact: PodFact) -> bool:
            if fact.refusal is not None:
                for node in list(self.nodes()):
                    self.drop_inventory(node)
            return super().put_pod(fact)

    assert "I14" in first_failure(Panicking)


def test_t2_fails_when_what_is_held_for_others_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_now(card: CardView, others: Iterable[Reservation] = ()) -> Bases:
        return bases_of(card)

    monkeypatch.setattr(search, "bases_of", only_now)
    assert "T2" in first_failure(runs=3000)
