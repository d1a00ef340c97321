"""Placing one pod on one node: which cards, and the words of a refusal."""

import random
from itertools import combinations, product

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
    refused,
    share,
    try_place,
    uuids_of,
    want,
)
from tests.core.oracle import uses_of
from vgpu.core.facts import AssignedCard, CardFact, CardMode, Identity, Plugin, PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.reasons import Reason
from vgpu.core.request import CardPolicy, ContainerRequest, NodePolicy, PodRequest, Selection

MIXED = [
    make_card("GPU-a", 0, model="NVIDIA A100-SXM4", numa_node=0),
    make_card("GPU-b", 1, model="NVIDIA A100-SXM4", numa_node=1),
    make_card("GPU-v", 2, model="Tesla V100", numa_node=0),
    make_card("GPU-m", 3, model="NVIDIA A100-SXM4", mode=CardMode.MIG, numa_node=0),
]

SELECTIONS: dict[str, tuple[Selection, str | Reason]] = {
    "type": (Selection(use_types=("v100",)), "GPU-v"),
    "type not": (Selection(nouse_types=("A100",)), "GPU-v"),
    "both types, deny wins": (Selection(use_types=("a100", "v100"), nouse_types=("a100",)), "GPU-v"),
    "uuid": (Selection(use_uuids=frozenset({"GPU-b"})), "GPU-b"),
    "uuid is exact": (Selection(use_uuids=frozenset({"GPU"})), Reason.CARD_SELECTION),
    "uuid deny wins": (
        Selection(use_uuids=frozenset({"GPU-a", "GPU-b"}), nouse_uuids=frozenset({"GPU-a"})),
        "GPU-b",
    ),
    "unknown type": (Selection(use_types=("H100",)), Reason.CARD_SELECTION),
    "mode shared": (Selection(mode="shared"), "GPU-a"),
    "mig cards take nothing": (Selection(mode="mig"), Reason.CARD_SELECTION),
}


@pytest.mark.parametrize("case", SELECTIONS)
def test_a_selection_chooses_among_the_cards(case: str) -> None:
    selection, wanted = SELECTIONS[case]
    answer = try_place(make_ledger(cards=MIXED), make_request(want(1, 100), selection=selection))
    if isinstance(answer, Placement):
        assert uuids_of(answer) == [[wanted]]
    else:
        assert answer.reason is wanted


def test_numa_bind_keeps_a_containers_cards_on_one_numa_node() -> None:
    cards = [make_card(f"GPU-{n}", n, numa_node=n % 2) for n in range(4)]
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0", whole=True))), cards=cards)
    bound_to_numa = Selection(numa_bind=True)
    assert uuids_of(placed(ledger, make_request(want(2), selection=bound_to_numa))) == [["GPU-1", "GPU-3"]]
    assert refused(ledger, make_request(want(3), selection=bound_to_numa)).reason is Reason.NUMA_SELECTION
    unknown = make_ledger(cards=2)
    refusal = refused(unknown, make_request(want(1, 100), selection=bound_to_numa))
    assert refusal.reason is Reason.NUMA_SELECTION
    assert "inventory does not say" in refusal.message


def on_two_cards(policy: CardPolicy, *, used_mib: int = 8_000) -> list[str]:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0", used_mib))), cards=2)
    return uuids_of(placed(ledger, make_request(want(1, 4_000), card_policies=(policy,))))[0]


def test_binpack_takes_the_fullest_card_spread_the_emptiest_mutex_an_idle_one() -> None:
    assert on_two_cards(CardPolicy.BINPACK) == ["GPU-0"]
    assert on_two_cards(CardPolicy.SPREAD) == ["GPU-1"]
    assert on_two_cards(CardPolicy.MUTEX) == ["GPU-1"]
    busy = make_ledger(*(bound_pod(f"p{n}", holds(share(f"GPU-{n}", 1))) for n in range(2)))
    idle_only = make_request(want(1, 1), card_policies=(CardPolicy.MUTEX,))
    assert refused(busy, idle_only).reason is Reason.CARD_NOT_EMPTY


def test_a_whole_card_request_takes_the_smallest_idle_card() -> None:
    cards = [make_card("GPU-big", 0, memory_mib=80_000), make_card("GPU-small", 1)]
    assert uuids_of(placed(make_ledger(cards=cards), make_request())) == [["GPU-small"]]


def linked_cards(*pairs: tuple[int, int], count: int = 4) -> list[CardFact]:
    """Each link is stated by its first card only: real data is not symmetric."""
    return [
        make_card(f"GPU-{n}", n, links=frozenset(f"GPU-{b}" for a, b in pairs if a == n)) for n in range(count)
    ]


@pytest.mark.parametrize(
    ("number", "cards", "wanted"),
    [
        (2, linked_cards((1, 3)), ["GPU-1", "GPU-3"]),
        (2, linked_cards((3, 1), (0, 9)), ["GPU-1", "GPU-3"]),
        (1, linked_cards((0, 1), (2, 3), (3, 0)), ["GPU-1"]),
        (2, linked_cards(), ["GPU-0", "GPU-1"]),
        (3, linked_cards((0, 1), (2, 3), (3, 4), (2, 4), count=5), ["GPU-2", "GPU-3", "GPU-4"]),
    ],
    ids=["pair", "stated by one side, unknown peer", "single card: least connected", "no links", "triangle"],
)
def test_topology_prefers_linked_cards(number: int, cards: list[CardFact], wanted: list[str]) -> None:
    request = make_request(want(number, 100), card_policies=(CardPolicy.TOPOLOGY,))
    assert uuids_of(placed(make_ledger(cards=cards), request)) == [wanted]


def test_topology_grows_a_linked_set_on_a_node_with_very_many_cards() -> None:
    clique = list(combinations((3, 5, 8, 11, 13, 17, 19, 20), 2))
    request = make_request(want(8, 100), node_policy=NodePolicy.TOPOLOGY)
    ledger = make_ledger(cards=linked_cards(*clique, count=24))
    placement = placed(ledger, request)
    assert uuids_of(placement) == [[f"GPU-{n}" for n in (3, 5, 8, 11, 13, 17, 19, 20)]]
    assert placement.score == 9


def test_node_scores_follow_the_node_policy() -> None:
    half = make_ledger(bound_pod("old", holds(share("GPU-0", whole=True))), cards=2)
    empty = make_ledger(cards=2)
    one = {policy: make_request(want(1, 2_400), node_policy=policy) for policy in NodePolicy}
    assert placed(half, one[NodePolicy.BINPACK]).score > placed(empty, one[NodePolicy.BINPACK]).score
    assert placed(half, one[NodePolicy.SPREAD]).score < placed(empty, one[NodePolicy.SPREAD]).score
    assert placed(empty, one[NodePolicy.SPREAD]).score == 9


def test_the_assignment_says_what_each_container_gets() -> None:
    request = make_request(want(1, percent=50, cores=10, name="x"), want(1, percent=25, name="y"))
    first, second = placed(make_ledger(cards=1), request).containers
    assert first.cards == (AssignedCard("GPU-0", 12_000, 10, False),)
    assert second.cards == (AssignedCard("GPU-0", 6_000, 0, False),)
    [whole] = placed(make_ledger(cards=1), make_request()).containers
    assert whole.cards == (AssignedCard("GPU-0", 24_000, 0, True),)


def test_a_container_without_cores_is_refused_where_100_are_booked_in_the_same_pod_too() -> None:
    full = make_request(*(want(1, 10, cores, name=f"c{cores}") for cores in (60, 40, 0)))
    assert refused(make_ledger(cards=1), full).reason is Reason.INSUFFICIENT_CORES
    assert len({tuple(uuids) for uuids in uuids_of(placed(make_ledger(cards=2), full))}) == 2


def test_a_container_that_is_alone_shares_its_card_with_no_other_of_its_pod_but_with_an_init_step() -> None:
    both = make_request(want(1, name="whole"), want(1, 10, name="small"))
    assert refused(make_ledger(cards=1), both).reason in {Reason.CARD_NOT_EMPTY, Reason.EXCLUSIVE_HOLDER}
    assert len({tuple(uuids) for uuids in uuids_of(placed(make_ledger(cards=2), both))}) == 2
    steps = make_request(want(1, kind=INIT, name="init"), want(1, 10, name="app"))
    assert uuids_of(placed(make_ledger(cards=1), steps)) == [["GPU-0"], ["GPU-0"]]


# Nodes as a whole.


def test_a_pod_with_only_init_containers_is_refused_where_the_node_cannot_tell_it_apart() -> None:
    request = make_request(want(1, 10, kind=INIT))
    assert refused(make_ledger(), request).reason is Reason.ONLY_INIT_CONTAINERS
    assert placed(make_ledger(identity=Identity.DEFERRED, plugin=Plugin.HAMI), request)


def test_a_pod_that_names_another_slot_resource_does_not_fit() -> None:
    refusal = refused(make_ledger(), make_request(slot_resource="nvidia.com/gpu"))
    assert refusal.reason is Reason.SLOT_RESOURCE_MISMATCH
    assert "nvidia.com/gpu" in refusal.message


def waiting(count: int) -> PodFact:
    cards = holds(*(share(f"GPU-{n}", 10) for n in range(count)))
    return bound_pod("first", cards, admitted=False, ever_ran=False, container_running=False)


@pytest.mark.parametrize(
    ("plugin", "matches_count", "waits_with", "asks", "reason"),
    [
        (Plugin.HAMI, False, 1, 1, Reason.WAITS_FOR_ADMISSION),
        (Plugin.HAMI, True, 1, 2, Reason.WAITS_FOR_ADMISSION),
        (Plugin.VGPU, True, 1, 2, Reason.WAITS_FOR_ADMISSION),
        (Plugin.VOLCANO, False, 1, 2, Reason.WAITS_FOR_ADMISSION),
        (Plugin.VOLCANO, True, 1, 1, Reason.WAITS_FOR_ADMISSION),
        (Plugin.VOLCANO, True, 1, 2, None),
    ],
)
def test_a_deferred_node_takes_one_unconfirmed_pod(
    plugin: Plugin, matches_count: bool, waits_with: int, asks: int, reason: Reason | None
) -> None:
    """HAMi's plugin takes the first pending pod whatever its count, and so did Volcano's before 1.12."""
    ledger = make_ledger(waiting(waits_with), identity=Identity.DEFERRED, plugin=plugin)
    policies = Policies(volcano_matches_count=matches_count)
    answer = try_place(ledger, make_request(want(asks, 10)), policies=policies)
    assert (None if isinstance(answer, Placement) else answer.reason) is reason
    if not isinstance(answer, Placement):
        assert "team/first" in answer.message
    ledger.put_pod(bound_pod("first", holds(share("GPU-0", 10))))
    assert placed(ledger, make_request(want(asks, 10)))


def test_a_booking_on_a_deferred_node_makes_others_wait_and_not_its_owner() -> None:
    ledger = make_ledger(pending_pod("a"), identity=Identity.DEFERRED, plugin=Plugin.HAMI)
    small = make_request(want(1, 10))
    ledger.book(make_booking("a", placed(ledger, small, "a")))
    assert refused(ledger, small, "b").reason is Reason.WAITS_FOR_ADMISSION
    assert placed(ledger, small, "a")


@pytest.mark.parametrize(
    ("containers", "told"),
    [
        ([want(1, 10, name="x"), want(1, 10, name="y")], "x (app), y (app)"),
        ([want(1, 10, kind=INIT, name="x"), want(1, 10, name="y")], "x (init), y (app)"),
        ([want(1, 10, kind=INIT, name="x")], "x (init)"),
        ([want(1, 10, kind=SIDECAR, name="x")], "x (sidecar)"),
    ],
    ids=["two apps", "init and app", "one init container", "one sidecar"],
)
def test_volcanos_plugin_serves_one_app_container_per_pod(containers: list[ContainerRequest], told: str) -> None:
    """Its bind would be refused again and again if filter let such a pod through."""
    request = make_request(*containers)
    refusal = refused(make_ledger(identity=Identity.DEFERRED, plugin=Plugin.VOLCANO), request)
    assert refusal.reason is Reason.MULTI_CONTAINER_DEFERRED
    assert told in refusal.message
    assert placed(make_ledger(identity=Identity.DEFERRED, plugin=Plugin.HAMI), request)


def test_a_percentage_below_volcanos_unit_is_refused_before_it_is_bound() -> None:
    ledger = make_ledger(identity=Identity.DEFERRED, plugin=Plugin.VOLCANO)
    policies = Policies(volcano_unit_mib=1000)
    refusal = refused(ledger, make_request(want(1, percent=4)), policies=policies)
    assert refusal.reason is Reason.INVALID_REQUEST
    assert "one unit of 1000 MiB" in refusal.message
    assert placed(ledger, make_request(want(1, percent=5)), policies=policies)
    assert placed(make_ledger(), make_request(want(1, percent=4)), policies=policies)


def test_what_is_held_for_another_pod_is_not_taken_and_its_owner_gets_it() -> None:
    ledger = make_ledger(pending_pod("owner"), cards=1)
    request = make_request(want(1, 20_000))
    assert ledger.nominate("owner", "n1", placed(ledger, request, "owner"))
    assert refused(ledger, request, "thief").reason is Reason.HELD_FOR_ANOTHER
    assert placed(ledger, make_request(want(1, 4_000)), "small")
    assert placed(ledger, request, "owner")
    ledger.drop_nomination("owner")
    assert placed(ledger, request, "thief")


def test_what_is_held_for_others_counts_where_the_fullest_cards_are_filled_first() -> None:
    """Otherwise shares of several cards spread over all of them, and the last finds pieces on too few cards."""
    ledger = make_ledger(pending_pod("owner"), cards=3)
    held = make_request(want(1, 8_000), selection=Selection(use_uuids=frozenset({"GPU-2"})))
    assert ledger.nominate("owner", "n1", placed(ledger, held, "owner"))
    assert uuids_of(placed(ledger, make_request(want(2, 8_000)), "next")) == [["GPU-0", "GPU-2"]]
    assert uuids_of(placed(ledger, make_request(want(1, 8_000)), "next")) == [["GPU-2"]]


def test_a_share_is_given_beside_a_leaving_pod_only_if_the_owner_still_fits_later() -> None:
    ledger = make_ledger(pending_pod("owner"), cards=1)
    whole = placed(ledger, make_request(), "owner")
    ledger.put_pod(bound_pod("leaving", holds(share("GPU-0", 20_000)), terminating=True))
    ledger.nominate("owner", "n1", whole)
    assert refused(ledger, make_request(want(1, 4_000)), "small").reason is Reason.HELD_FOR_ANOTHER
    assert refused(ledger, make_request(), "owner").reason is Reason.CARD_NOT_EMPTY
    ledger.drop_pod("leaving")
    assert placed(ledger, make_request(), "owner")


def test_a_reserved_owner_without_cores_finds_cores_unbooked() -> None:
    ledger = make_ledger(pending_pod("owner"), cards=1)
    coreless = make_request(want(1, 100))
    ledger.nominate("owner", "n1", placed(ledger, coreless, "owner"))
    bind(ledger, "half", make_request(want(1, 100, 50)))
    assert refused(ledger, make_request(want(1, 100, 50)), "thief").reason is Reason.HELD_FOR_ANOTHER
    assert placed(ledger, coreless, "owner")


def test_node_slots_held_for_another_pod_are_not_taken() -> None:
    ledger = make_ledger(pending_pod("owner"), cards=2, allocatable=1)
    ledger.nominate("owner", "n1", placed(ledger, make_request(want(1, 10)), "owner"))
    assert refused(ledger, make_request(want(1, 10)), "thief").reason is Reason.HELD_FOR_ANOTHER


def test_texts_of_the_same_cause_are_equal_on_different_nodes() -> None:
    request = make_request(want(2, 20_000, 30))
    texts = set()
    for used in (5_000, 9_000):
        pods = [bound_pod(f"p{n}", holds(share(f"GPU-{n}", used))) for n in range(2)]
        texts.add(refused(make_ledger(*pods), request))
    [refusal] = texts
    wanted = "no room for 2 cards with 20000 MiB, 30 cores each"
    assert refusal.message == f"{wanted}; too few cards have that much memory free"


# The search.


def test_a_search_without_steps_left_says_so() -> None:
    """Seven times a third of a card and a bit on three cards: enough in sum, and no way to cut it."""
    request = make_request(*(want(1, 10_001 + n, name=f"c{n}") for n in range(7)))
    cards = [make_card(f"GPU-{n}", n, memory_mib=30_000) for n in range(3)]
    answer = refused(make_ledger(cards=cards), request, policies=Policies(search_steps=3))
    assert answer.reason is Reason.SEARCH_BUDGET


def test_what_is_too_little_in_sum_is_not_searched() -> None:
    """Whoever writes a pod must not decide how long a scheduler thinks."""
    request = make_request(*(want(1, 10_001 + n, name=f"c{n}") for n in range(10)))
    cards = [make_card(f"GPU-{n}", n, memory_mib=30_000) for n in range(3)]
    answer = refused(make_ledger(cards=cards), request, policies=Policies(search_steps=3))
    assert answer.reason is Reason.INSUFFICIENT_MEMORY


def test_a_first_try_without_a_step_back_always_ends() -> None:
    request = make_request(*(want(1, 900 + n, name=f"c{n}") for n in range(30)))
    assert placed(make_ledger(cards=4), request, policies=Policies(search_steps=1)).containers


def fits_by_trying_everything(ledger: Ledger, request: PodRequest) -> bool:
    """All ways of giving each container distinct cards, each way counted by the oracle."""
    view = ledger.view("n1")
    assert view is not None
    choices = [list(combinations(view.cards, container.number)) for container in request.containers]
    for groups in product(*choices):
        containers = tuple(
            holds(
                *(share(c.fact.uuid, r.card.memory_on(c.fact.memory_mib), r.card.cores, whole=r.card.alone)
                  for c in group),
                kind=r.kind,
            )
            for r, group in zip(request.containers, groups, strict=True)
        )  # fmt: skip
        uses = uses_of(containers)
        cards = [card for card in view.cards if card.fact.uuid in uses]
        if all(
            use.slots + card.used_slots <= card.fact.slots
            and use.memory_mib + card.used_memory_mib <= card.fact.memory_mib
            and use.cores + card.used_cores <= 100
            and not use.crowded
            and not card.exclusive
            and not (use.alone and card.holders)
            for card in cards
            for use in [uses[card.fact.uuid]]
        ):
            return True
    return False


def random_container(dice: random.Random, name: str) -> ContainerRequest:
    # Cores are never 0 and never 100 together here: the rule about holders without cores has its own tests.
    kind = INIT if dice.random() < 0.2 else want().kind
    memory_mib = None if dice.random() < 0.15 else dice.choice((20, 30, 40, 50, 60))
    return want(dice.choice((1, 1, 2, 3)), memory_mib, dice.choice((10, 30, 50)), kind=kind, name=name)


def test_the_search_finds_a_way_exactly_when_trying_everything_does() -> None:
    dice = random.Random(7)
    outcomes = []
    for _ in range(300):
        cards = [make_card(f"GPU-{n}", n, memory_mib=dice.choice((80, 100)), slots=3) for n in range(3)]
        pods = [bound_pod(f"p{n}", holds(share(f"GPU-{n}", dice.choice((10, 40)), 20)))
                for n in range(3) if dice.random() < 0.5]  # fmt: skip
        ledger = make_ledger(*pods, cards=cards, identity=Identity.DEFERRED, plugin=Plugin.HAMI)
        request = make_request(*(random_container(dice, f"c{n}") for n in range(dice.choice((1, 2, 3)))))
        answer = try_place(ledger, request, policies=Policies(search_steps=1_000_000))
        outcomes.append(isinstance(answer, Placement))
        assert outcomes[-1] == fits_by_trying_everything(ledger, request), (request, answer)
    assert 50 < sum(outcomes) < 250, "both outcomes are met often"


def test_the_same_question_has_the_same_answer_whatever_the_order_of_cards() -> None:
    request = make_request(want(2, 100, name="x"), want(1, 100, name="y"))
    cards = [make_card(f"GPU-{n}", n) for n in range(5)]
    answers = set()
    for seed in range(10):
        random.Random(seed).shuffle(cards)
        ledger = Ledger()
        ledger.put_node(make_node())
        ledger.put_inventory(make_inventory(tuple(cards)))
        view = ledger.view("n1")
        assert view is not None
        answers.add(place(view, request, "new", Policies()))
    assert len(answers) == 1
