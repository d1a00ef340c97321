"""What an inventory's status says about its node."""

from dataclasses import replace

import pytest

from vgpu.core.facts import CardFact, InventoryFact, NodeFact
from vgpu.core.inventory_status import Condition, inventory_status
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.views import CardView, Holder, HolderState, NodeView, Orphan


def card(index: int, **changes: object) -> CardFact:
    fact = CardFact(
        uuid=f"GPU-{index}", index=index, model="A100", memory_mib=40960, cores=100, slots=10, healthy=True
    )
    return replace(fact, **changes)  # type: ignore[arg-type]


def holder(name: str, state: HolderState = HolderState.RUNNING, **changes: object) -> Holder:
    made = Holder(
        uid=f"uid-{name}",
        namespace="team",
        name=name,
        slots=1,
        memory_mib=4096,
        cores=30,
        exclusive=False,
        state=state,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def view(*cards: CardView, **changes: object) -> NodeView:
    facts = tuple(shown.fact for shown in cards)
    inventory = InventoryFact(node="node-a", slot_resource="volcano.sh/vgpu-number", cards=facts)
    made = NodeView(name="node-a", inventory=inventory, cards=cards, effective_slots=20)
    return replace(made, **changes)  # type: ignore[arg-type]


def ready(status_view: NodeView) -> Condition:
    return next(c for c in inventory_status(status_view).conditions if c.type == "Ready")


def test_a_card_lists_its_holders_by_name_and_sums_them() -> None:
    status = inventory_status(view(CardView(card(0), (holder("b"), holder("a", memory_mib=1000, cores=5)))))
    assert [h.name for h in status.cards[0].holders] == ["a", "b"]
    assert (status.cards[0].used_slots, status.cards[0].used_memory_mib, status.cards[0].used_cores) == (
        2,
        5096,
        35,
    )


def test_a_booking_is_not_shown_before_it_is_seen_bound() -> None:
    booked = inventory_status(view(CardView(card(0), (holder("a", HolderState.BOOKED),))))
    assert booked == inventory_status(view(CardView(card(0))))


def test_cards_and_holders_in_another_order_give_the_same_status() -> None:
    first = view(CardView(card(0), (holder("a"), holder("b"))), CardView(card(1)))
    second = view(CardView(card(1)), CardView(card(0), (holder("b"), holder("a"))))
    assert inventory_status(first) == inventory_status(second)


def test_totals_count_capacity_of_healthy_cards_and_use_of_all() -> None:
    totals = inventory_status(view(CardView(card(0, healthy=False), (holder("a"),)), CardView(card(1)))).totals
    assert (totals.healthy_cards, totals.cards) == (1, 2)
    assert (totals.used_memory_mib, totals.memory_mib) == (4096, 40960)
    assert (totals.used_cores, totals.cores, totals.used_slots, totals.slots) == (30, 100, 1, 20)


def test_an_orphaned_card_is_listed_without_capacity_and_said_in_a_condition() -> None:
    status = inventory_status(view(CardView(card(0)), orphans=(Orphan("GPU-gone", holder("a")),)))
    assert [(c.uuid, c.slots, c.used_memory_mib) for c in status.cards] == [
        ("GPU-0", 10, 0),
        ("GPU-gone", 0, 4096),
    ]
    assert [c.reason for c in status.conditions] == [Reason.READY, Reason.ORPHANED_CARDS]


def test_a_closed_node_is_not_ready_with_the_gates_own_words() -> None:
    closed = Refusal(Reason.NO_ALLOCATABLE, "kubelet offers no volcano.sh/vgpu-number")
    condition = ready(view(CardView(card(0)), closed=closed))
    assert (condition.status, condition.reason, condition.message) == (False, closed.reason, closed.message)


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        (Reason.INVENTORY_INVALID, "problem"),
        (Reason.READ_ERROR, "read_error"),
        (Reason.ISOLATION_ERROR, "isolation_error"),
    ],
)
def test_what_is_wrong_with_an_inventory_is_said_on_it(reason: Reason, problem: str) -> None:
    """Its author looks there; the gate's own text, equal on all nodes, cannot say it."""
    one = view(CardView(card(0)))
    assert one.inventory is not None
    wrong = replace(one.inventory, **{problem: "spec.gpus: nonsense"})  # type: ignore[arg-type]
    condition = ready(replace(one, inventory=wrong, closed=Refusal(reason, "its status says why")))
    assert (condition.status, condition.reason) == (False, reason)
    assert "spec.gpus: nonsense" in condition.message


def test_a_node_without_any_healthy_card_is_not_ready() -> None:
    condition = ready(view(CardView(card(0, healthy=False, health_reason="XID-79"))))
    assert (condition.status, condition.reason) == (False, Reason.CARDS_UNHEALTHY)
    assert "GPU-0 (XID-79)" in condition.message


def test_one_sick_card_of_two_leaves_the_node_ready_and_is_named() -> None:
    condition = ready(view(CardView(card(0, healthy=False)), CardView(card(1))))
    assert (condition.status, condition.reason) == (True, Reason.READY)
    assert "1 of 2 cards are healthy" in condition.message
    assert "GPU-0" in condition.message


def test_r39_pods_on_a_sick_card_are_named_beside_its_reason() -> None:
    sick = card(0, healthy=False, health_reason="Xid 79: the card has fallen off the bus")
    condition = ready(view(CardView(sick, (holder("b"), holder("a"))), CardView(card(1))))
    assert "GPU-0 (Xid 79: the card has fallen off the bus; held by team/a, team/b)" in condition.message


def test_r42_the_pod_on_a_card_that_was_replaced_is_named() -> None:
    status = inventory_status(view(CardView(card(0)), orphans=(Orphan("GPU-old", holder("a")),)))
    assert "GPU-old (held by team/a)" in status.conditions[1].message


def test_r08_an_overbooked_card_is_said_in_a_condition_with_the_names_of_all_its_pods() -> None:
    """kubelet can give one card's share twice only behind our back; then both pods must be found by a person."""
    both = (holder("a", exclusive=True), holder("b"), holder("new", HolderState.BOOKED))
    status = inventory_status(view(CardView(card(0), both, overbooked=True)))
    assert status.conditions[1].reason is Reason.OVERBOOKED
    assert "GPU-0 (held by team/a, team/b)" in status.conditions[1].message
    assert status.cards[0].overbooked


def offering(slots: int, *cards: CardView, **of_inventory: object) -> list[Condition]:
    node = NodeFact("node-a", "uid", frozenset({("volcano.sh/vgpu-number", slots)}))
    made = view(*cards, node=node)
    assert made.inventory is not None
    made = replace(made, inventory=replace(made.inventory, **of_inventory))  # type: ignore[arg-type]
    return [c for c in inventory_status(made).conditions if c.type == "SlotsMismatch"]


@pytest.mark.parametrize(
    ("slots", "want"),
    [
        pytest.param(160, "another device plugin registers the same resource", id="r31 two plugins"),
        pytest.param(8, "the device plugin offers fewer", id="r36 a list cut off"),
    ],
)
def test_slots_that_contradict_the_cards_are_said_in_a_condition(slots: int, want: str) -> None:
    """R31, R36: physical counts of another plugin, or a list too long for kubelet, are told."""
    [condition] = offering(slots, CardView(card(0)), CardView(card(1)))
    assert (condition.status, condition.reason) == (True, Reason.SLOTS_MISMATCH)
    assert f"offers {slots} of volcano.sh/vgpu-number, the healthy cards have 20 slots" in condition.message
    assert want in condition.message


@pytest.mark.parametrize("slots", [0, 10, 15, 20], ids=["closed", "as healthy", "on the way", "not told yet"])
def test_slots_that_a_sick_card_explains_are_no_contradiction(slots: int) -> None:
    """kubelet hears of a sick card seconds after the inventory; 0 is the gate's own reason."""
    assert offering(slots, CardView(card(0)), CardView(card(1, healthy=False))) == []


def test_cards_that_could_not_be_read_contradict_nothing() -> None:
    assert offering(160, CardView(card(0)), read_error="NVML: driver not loaded") == []
