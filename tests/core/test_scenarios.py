"""Scenarios from public bug reports, by number (what went wrong, and what must hold), as far as the core goes."""

import random
from dataclasses import replace
from functools import partial

import pytest

from tests.core.building import (
    INIT,
    SIDECAR,
    bind,
    bound_pod,
    holds,
    make_booking,
    make_card,
    make_inventory,
    make_ledger,
    make_node,
    make_request,
    pending_pod,
    placed,
    put_all,
    refused,
    share,
    try_place,
    uuids_of,
    want,
)
from vgpu.core.facts import Phase, PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement
from vgpu.core.reasons import Reason
from vgpu.core.views import CardView, HolderState

WHOLE = make_request()


def view_of(ledger: Ledger, node: str = "n1") -> list[CardView]:
    view = ledger.view(node)
    assert view is not None
    return list(view.cards)


def holders(ledger: Ledger, node: str = "n1") -> dict[str, list[str]]:
    return {card.fact.uuid: [holder.uid for holder in card.holders] for card in view_of(ledger, node)}


def test_r01_a_deleted_inventory_frees_no_card_that_is_in_use() -> None:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0", 24_000, whole=True))))
    ledger.drop_inventory("n1")
    assert refused(ledger, WHOLE).reason is Reason.NO_INVENTORY
    ledger.put_inventory(make_inventory())
    assert holders(ledger) == {"GPU-0": ["old"], "GPU-1": []}
    assert uuids_of(placed(ledger, WHOLE)) == [["GPU-1"]]


@pytest.mark.parametrize("terminating", [True, False])
def test_r03_a_replacement_gets_released_cards_only_after_the_old_pod_is_gone(terminating: bool) -> None:
    pods = [bound_pod(f"p{n}", holds(*(share(f"GPU-{2 * n + k}", 24_000, whole=True) for k in range(2))))
            for n in range(4)]  # fmt: skip
    ledger = make_ledger(*pods, cards=8)
    if terminating:
        ledger.put_pod(replace(pods[1], terminating=True))
        assert refused(ledger, make_request(want(2))).reason is Reason.EXCLUSIVE_HOLDER
    ledger.drop_pod("p1")
    assert uuids_of(placed(ledger, make_request(want(2)))) == [["GPU-2", "GPU-3"]]


def test_r09_a_burst_never_overfills_the_last_card_in_any_order_of_events() -> None:
    full = [bound_pod(f"full-{n}", holds(share(f"GPU-{n}", 24_000))) for n in range(7)]
    request = make_request(want(1, 12_000))
    for seed in range(1000):
        shuffled = random.Random(seed)
        ledger = Ledger()
        steps = [partial(ledger.put_node, make_node()), partial(ledger.put_inventory, make_inventory(8))]
        steps += [partial(ledger.put_pod, pod) for pod in full]
        shuffled.shuffle(steps)
        for step in steps:
            step()
        late: list[PodFact] = []
        answers = []
        for uid in shuffled.sample(["a", "b", "c"], 3):
            answer = try_place(ledger, request, uid)
            answers.append(answer)
            if isinstance(answer, Placement):
                ledger.book(make_booking(uid, answer))
                late.append(bound_pod(uid, *answer.containers))
            if late and shuffled.random() < 0.5:
                ledger.put_pod(late.pop())
        put_all(ledger, late)
        fits = [answer for answer in answers if isinstance(answer, Placement)]
        assert len(fits) == 2
        assert view_of(ledger)[7].used_memory_mib == 24_000
        assert not any(card.overbooked for card in view_of(ledger))


def test_r10_bulk_submission_gives_the_layout_of_one_at_a_time() -> None:
    request = make_request(want(1, 12_000))
    slow, fast = make_ledger(cards=8), make_ledger(cards=8)
    for n in range(16):
        bind(slow, f"p{n}", request)
    booked = []
    for n in range(16):
        booked.append(placed(fast, request, f"p{n}"))
        fast.book(make_booking(f"p{n}", booked[-1]))
    for n in reversed(range(16)):
        fast.put_pod(bound_pod(f"p{n}", *booked[n].containers, request=request))
    assert fast.view("n1") == slow.view("n1")
    assert [card.used_slots for card in view_of(fast)] == [2] * 8
    assert refused(fast, request).reason is Reason.INSUFFICIENT_MEMORY


def test_r11_cores_are_never_overfilled_and_100_means_alone() -> None:
    ledger = make_ledger(cards=2)
    half = make_request(want(1, 1000, 50))
    answers = [bind(ledger, f"p{n}", half) for n in range(5)]
    assert [isinstance(answer, Placement) for answer in answers] == [True] * 4 + [False]
    assert refused(ledger, make_request(want(1, 1000))).reason is Reason.INSUFFICIENT_CORES

    ledger = make_ledger(cards=1)
    bind(ledger, "all", make_request(want(1, 1000, 100)))
    assert refused(ledger, make_request(want(1, 1000))).reason is Reason.EXCLUSIVE_HOLDER
    ledger = make_ledger(cards=1)
    bind(ledger, "small", make_request(want(1, 1000)))
    assert refused(ledger, make_request(want(1, 1000, 100))).reason is Reason.CARD_NOT_EMPTY


def test_r13_every_container_of_a_pod_takes_its_own_slot_and_memory() -> None:
    ledger = make_ledger(cards=1)
    request = make_request(*(want(1, 5_000, name=f"c{n}") for n in range(3)))
    bind(ledger, "three", request)
    [card] = view_of(ledger)
    assert (card.used_slots, card.used_memory_mib) == (3, 15_000)
    assert refused(ledger, request).reason is Reason.INSUFFICIENT_MEMORY


def test_r14_capacity_is_what_the_agent_says_is_usable() -> None:
    ledger = make_ledger(cards=[make_card("GPU-0", memory_mib=14_800)])
    assert refused(ledger, make_request(want(1, 15_000))).reason is Reason.INSUFFICIENT_MEMORY
    [container] = placed(ledger, make_request(want(1, percent=50))).containers
    assert container.cards[0].memory_mib == 7_400


def test_r15_a_pod_absent_from_the_relist_is_released_at_once() -> None:
    everything = [share(f"GPU-{n}", 24_000, whole=True) for n in range(8)]
    ledger = make_ledger(bound_pod("old", holds(*everything)), cards=8)
    assert refused(ledger, make_request(want(8))).reason is Reason.EXCLUSIVE_HOLDER
    ledger.take_changes()
    ledger.drop_pod("old")
    assert ledger.take_changes().freed == {"n1"}
    assert len(uuids_of(placed(ledger, make_request(want(8))))[0]) == 8


def test_r17_a_terminating_pod_counts_before_and_after_a_restart() -> None:
    leaving = bound_pod("old", holds(share("GPU-0", whole=True)), terminating=True)
    before = make_ledger(cards=1)
    before.put_pod(replace(leaving, terminating=False))
    before.put_pod(leaving)
    after = make_ledger(leaving, cards=1)
    assert before.view("n1") == after.view("n1")
    assert view_of(after)[0].holders[0].state is HolderState.TERMINATING
    assert refused(after, WHOLE).reason is Reason.EXCLUSIVE_HOLDER
    after.put_pod(replace(leaving, phase=Phase.FAILED, container_running=False))
    assert placed(after, WHOLE)


def test_r20_the_same_assignment_applied_twice_counts_once() -> None:
    ledger = make_ledger(pending_pod("p"))
    placement = placed(ledger, make_request(want(1, 1_000)), "p")
    ledger.book(make_booking("p", placement))
    assert view_of(ledger)[0].used_slots == 1
    shown = bound_pod("p", *placement.containers)
    ledger.put_pod(shown)
    version = ledger.version
    for _ in range(3):
        assert not ledger.put_pod(replace(shown))
    assert view_of(ledger)[0].used_slots == 1
    assert ledger.version == version


def test_r21_a_holder_of_a_card_that_is_not_in_the_inventory_is_shown_as_orphan() -> None:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-1", 24_000, whole=True))))
    ledger.put_inventory(make_inventory(1))
    view = ledger.view("n1")
    assert view is not None
    assert [(orphan.uuid, orphan.holder.uid, orphan.holder.state) for orphan in view.orphans] == [
        ("GPU-1", "old", HolderState.ORPHAN)
    ]
    ledger.put_inventory(make_inventory(2))
    assert holders(ledger)["GPU-1"] == ["old"]
    assert uuids_of(placed(ledger, WHOLE)) == [["GPU-0"]]


def test_r23_an_inventory_replaces_the_nodes_cards_and_does_not_merge() -> None:
    ledger = make_ledger(cards=2)
    ledger.put_inventory(make_inventory([make_card("GPU-9")]))
    assert list(holders(ledger)) == ["GPU-9"]
    ledger.put_inventory(make_inventory([]))
    assert holders(ledger) == {}


def test_r27_a_node_whose_plugin_is_gone_takes_nothing_and_keeps_its_pods() -> None:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0"))))
    ledger.put_node(make_node(allocatable=0))
    assert refused(ledger, make_request(want(1, 1_000))).reason is Reason.NO_ALLOCATABLE
    assert holders(ledger)["GPU-0"] == ["old"]
    ledger.put_node(make_node())
    ledger.put_pod(PodFact("agent", "vgpu-system", "agent", node="n1", agent_pod_ready=False))
    assert refused(ledger, make_request(want(1, 1_000))).reason is Reason.AGENT_DOWN


def test_r28_a_node_is_usable_again_when_it_recovers_with_unchanged_content() -> None:
    ledger = make_ledger()
    ledger.put_node(make_node(allocatable=0))
    assert refused(ledger, WHOLE).reason is Reason.NO_ALLOCATABLE
    ledger.take_changes()
    ledger.put_node(make_node())
    assert ledger.take_changes().freed == {"n1"}
    assert placed(ledger, WHOLE)


def test_r31_effective_slots_are_the_lower_of_inventory_and_allocatable() -> None:
    cards = [make_card(f"GPU-{n}", n, healthy=n != 3) for n in range(8)]
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0"))), cards=cards, allocatable=80)
    one = make_request(want(1, 1_000))
    seen = []
    for allocatable in (80, 0, 8, 80):
        ledger.put_node(make_node(allocatable=allocatable))
        view = ledger.view("n1")
        assert view is not None
        seen.append((view.effective_slots, isinstance(try_place(ledger, one), Placement)))
        assert holders(ledger)["GPU-0"] == ["old"]
    assert seen == [(70, True), (0, False), (8, True), (70, True)]
    ledger.put_node(make_node(allocatable=1))
    assert refused(ledger, one).reason is Reason.INSUFFICIENT_SLOTS


def test_r38_one_lost_card_does_not_block_the_other_seven() -> None:
    cards = [make_card(f"GPU-{n}", n, healthy=n != 3) for n in range(8)]
    ledger = make_ledger(bound_pod("on-lost", holds(share("GPU-3"))), cards=cards)
    assert placed(ledger, WHOLE)
    [chosen] = uuids_of(placed(ledger, make_request(want(7))))
    assert "GPU-3" not in chosen
    assert refused(ledger, make_request(want(8))).reason is Reason.CARDS_UNHEALTHY
    assert holders(ledger)["GPU-3"] == ["on-lost"]


def test_r41_no_way_of_choosing_takes_an_unhealthy_card() -> None:
    cards = [make_card("GPU-0", 0, healthy=False), make_card("GPU-1", 1)]
    ledger = make_ledger(cards=cards)
    for number in (1, 2):
        for memory_mib in (None, 100):
            answer = try_place(ledger, make_request(want(number, memory_mib)))
            chosen = uuids_of(answer) if isinstance(answer, Placement) else []
            assert "GPU-0" not in str(chosen)
    assert refused(ledger, make_request(want(2, 100))).reason is Reason.CARDS_UNHEALTHY


def test_r42_a_swapped_card_starts_clean_and_its_index_is_no_identity() -> None:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0", whole=True))), cards=1)
    ledger.put_inventory(make_inventory([make_card("GPU-new", 0)]))
    view = ledger.view("n1")
    assert view is not None
    assert [orphan.uuid for orphan in view.orphans] == ["GPU-0"]
    assert uuids_of(placed(ledger, WHOLE)) == [["GPU-new"]]


@pytest.mark.parametrize(
    ("cards", "memory_mib", "number", "reason"),
    [
        (1, 24_000, 2, Reason.MORE_CARDS_THAN_NODE),
        (1, 3_000, 9, Reason.MORE_CARDS_THAN_NODE),
        (2, 24_001, 2, Reason.INSUFFICIENT_MEMORY),
    ],
)
def test_r49_more_than_a_node_has_is_said_in_plain_words(
    cards: int, memory_mib: int, number: int, reason: Reason
) -> None:
    refusal = refused(make_ledger(cards=cards), make_request(want(number, memory_mib)))
    assert refusal.reason is reason
    if reason is Reason.MORE_CARDS_THAN_NODE:
        assert "a container cannot get more cards than the node has" in refusal.message


def test_r52_init_steps_are_a_maximum_and_a_sidecar_counts_with_the_app() -> None:
    ledger = make_ledger(cards=1)
    request = make_request(
        want(1, 20_000, kind=INIT, name="fetch"),
        want(1, 2_000, kind=SIDECAR, name="proxy"),
        want(1, 18_000, kind=INIT, name="warm"),
        want(1, 10_000, name="main"),
        sidecars_before=(("fetch", ()), ("warm", ("proxy",))),
    )
    bind(ledger, "p", request)
    [card] = view_of(ledger)
    # fetch alone 20000; proxy + warm 20000; proxy + main 12000
    assert (card.used_slots, card.used_memory_mib) == (2, 20_000)
    assert placed(ledger, make_request(want(1, 4_000)))
    assert refused(ledger, make_request(want(1, 4_001))).reason is Reason.INSUFFICIENT_MEMORY
