"""R08, I3: a pod deleted by force counts on its cards as long as its node's agent sees a process of it, once."""

from dataclasses import replace

import pytest

from tests.core.building import (
    bound_pod,
    holds,
    make_booking,
    make_inventory,
    make_ledger,
    make_request,
    placed,
    refused,
    share,
    try_place,
    want,
)
from vgpu.core import recount
from vgpu.core.facts import LingeringCard, LingeringPod
from vgpu.core.inventory_status import Condition, InventoryStatus, inventory_status
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement
from vgpu.core.reasons import Reason
from vgpu.core.views import CardView, HolderState

HALF = make_request(want(1, 12_000))


def lingering(uid: str = "gone", memory_mib: int = 20_000, card: str = "GPU-0", **fields: object) -> LingeringPod:
    taken = replace(LingeringCard(card, 1, memory_mib, 10, whole=False), **fields)  # type: ignore[arg-type]
    return LingeringPod(uid, "team", uid, (taken,))


def tell(ledger: Ledger, *pods: LingeringPod) -> None:
    """The agent's word, by the inventory."""
    ledger.put_inventory(make_inventory(1, lingering=pods))


def card_of(ledger: Ledger) -> CardView:
    view = ledger.view("n1")
    assert view is not None
    return view.cards[0]


def status_of(ledger: Ledger) -> InventoryStatus:
    view = ledger.view("n1")
    assert view is not None
    return inventory_status(view)


def condition(ledger: Ledger) -> Condition | None:
    return next((c for c in status_of(ledger).conditions if c.type == "PodsLinger"), None)


def test_a_lingering_pod_keeps_its_cards_until_the_agent_says_that_it_is_gone() -> None:
    ledger = make_ledger(cards=1)
    tell(ledger, lingering())
    assert refused(ledger, HALF).reason is Reason.INSUFFICIENT_MEMORY
    card = card_of(ledger)
    assert (card.used_slots, card.used_memory_mib, card.used_cores, card.overbooked) == (1, 20_000, 10, False)
    ledger.take_changes()
    tell(ledger)
    assert ledger.take_changes().freed == {"n1"}
    assert placed(ledger, HALF).node == "n1"


def test_without_the_rule_its_card_would_be_given_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recount, "_lingering", lambda *_: [])
    ledger = make_ledger(cards=1)
    tell(ledger, lingering())
    assert isinstance(try_place(ledger, HALF), Placement)


def test_what_it_leaves_may_be_used_unless_it_is_alone_on_the_card() -> None:
    ledger = make_ledger(cards=1)
    tell(ledger, lingering(memory_mib=10_000))
    placed(ledger, HALF)
    tell(ledger, lingering(memory_mib=10_000, whole=True))
    assert refused(ledger, HALF).reason is Reason.EXCLUSIVE_HOLDER


def test_it_takes_slots_of_the_node() -> None:
    ledger = make_ledger(cards=1, allocatable=1)
    tell(ledger, lingering(memory_mib=1))
    assert refused(ledger, HALF).reason is Reason.INSUFFICIENT_SLOTS


@pytest.mark.parametrize("terminating", [False, True], ids=["running", "terminating"])
def test_a_pod_that_the_ledger_still_knows_counts_once(terminating: bool) -> None:
    """The agent's watch may be ahead of the operator's."""
    pod = bound_pod("gone", holds(share("GPU-0", 12_000)), terminating=terminating)
    ledger = make_ledger(pod, cards=1)
    before = card_of(ledger)
    tell(ledger, lingering(memory_mib=12_000))
    assert card_of(ledger) == before
    assert condition(ledger) is None
    ledger.drop_pod("gone")
    assert [(h.uid, h.state) for h in card_of(ledger).holders] == [("gone", HolderState.LINGERING)]
    assert card_of(ledger).used_memory_mib == 12_000


def test_a_booked_pod_counts_once() -> None:
    ledger = make_ledger(cards=1)
    ledger.book(make_booking("gone", placed(ledger, HALF, "gone")))
    tell(ledger, lingering(memory_mib=12_000))
    assert card_of(ledger).used_memory_mib == 12_000


def test_without_that_rule_it_would_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recount._lingering
    monkeypatch.setattr(recount, "_lingering", lambda facts, _: real(replace(facts, pods=()), set()))
    ledger = make_ledger(bound_pod("gone", holds(share("GPU-0", 12_000))), cards=1)
    tell(ledger, lingering(memory_mib=12_000))
    assert card_of(ledger).used_memory_mib == 24_000


def test_a_pod_that_ended_counts_while_its_agent_sees_a_process() -> None:
    """Its end is what the API server was told; the processes are there."""
    ledger = make_ledger(bound_pod("gone", holds(share("GPU-0"))), cards=1)
    ledger.drop_pod("gone")
    tell(ledger, lingering())
    assert refused(ledger, HALF).reason is Reason.INSUFFICIENT_MEMORY


def test_it_counts_now_and_not_later() -> None:
    """It is on its way out: what is held for another on its card is held for when it is gone."""
    ledger = make_ledger(cards=1)
    tell(ledger, lingering())
    [holder] = card_of(ledger).holders
    assert holder.leaving
    view = ledger.view("n1")
    assert view is not None
    assert view.leaving_slots == 1


def test_on_a_card_that_the_node_lost_it_is_an_orphans_holder() -> None:
    ledger = make_ledger(cards=1)
    tell(ledger, lingering(card="GPU-9"))
    view = ledger.view("n1")
    assert view is not None
    assert [(o.uuid, o.holder.uid, o.holder.state) for o in view.orphans] == [
        ("GPU-9", "gone", HolderState.LINGERING)
    ]


def test_the_status_shows_it_and_a_condition_names_it_with_those_that_it_keeps_waiting() -> None:
    waiting = bound_pod("next", holds(share("GPU-0", 20_000)), ever_ran=False, container_running=False)
    ledger = make_ledger(waiting, cards=1)
    tell(ledger, lingering())
    [shown] = [h for h in status_of(ledger).cards[0].holders if h.uid == "gone"]
    assert (shown.state, shown.memory_mib) == (HolderState.LINGERING, 20_000)
    said = condition(ledger)
    assert said is not None
    assert (said.status, said.reason) == (True, Reason.PODS_LINGER)
    assert "team/gone (uid gone, on GPU-0)" in said.message
    assert "waiting until they end: team/next" in said.message
    tell(ledger)
    assert condition(ledger) is None


@pytest.mark.parametrize(
    "beside",
    [
        bound_pod("next", holds(share("GPU-0", 1_000)), ever_ran=False),
        bound_pod("next", holds(share("GPU-0", 20_000)), ever_ran=True),
    ],
    ids=["has room beside it", "runs already"],
)
def test_who_does_not_wait_for_it_is_not_said_to(beside: object) -> None:
    ledger = make_ledger(beside, cards=1)  # type: ignore[arg-type]  # a PodFact
    tell(ledger, lingering())
    said = condition(ledger)
    assert said is not None
    assert "team/next" not in said.message
