"""Free room is offered to a gang as a whole or not at all, in the order of service."""

from dataclasses import replace
from typing import Any

from tests.core.building import POLICIES, make_inventory, make_node, make_request, pending_pod, want
from vgpu.core.facts import Identity, Scheduling
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.gang_offer import GangClaim, GangOffer, Room, SingleClaim, offer_gangs
from vgpu.core.views import NodeView

WHOLE = make_request(want(1))
PAIR = make_request(want(2))


def nodes(*cards: int, **fields: Any) -> list[NodeView]:
    """Nodes n0, n1... with so many cards each."""
    views = []
    for number, count in enumerate(cards):
        ledger = Ledger()
        name = f"n{number}"
        ledger.put_node(make_node(name, cpu_millicores=64_000, memory_mib=100_000, pods=100))
        ledger.put_inventory(make_inventory(count, name, **fields))
        view = ledger.view(name)
        assert view is not None
        views.append(view)
    return views


def gang(key: str, members: int, missing: int, order: int = 0, request: Any = WHOLE, **fields: Any) -> GangClaim:
    pods = tuple(pending_pod(f"{key}{number}", request, **fields) for number in range(members))
    return GangClaim(key, pods, missing, (order,))


def single(uid: str, order: int, request: Any = WHOLE) -> SingleClaim:
    return SingleClaim(pending_pod(uid, request), (order,))


def where(offer: GangOffer) -> dict[str, str]:
    return {pod.uid: placement.node for pod, placement in offer.seats}


def test_s52_all_required_members_or_none() -> None:
    offers, short = offer_gangs([gang("g", 4, 4, request=PAIR)], [], Room(nodes(4, 4), POLICIES))
    assert sorted(where(offers[0]).values()) == ["n0", "n0", "n1", "n1"]
    assert short == {}
    offers, short = offer_gangs([gang("g", 4, 4, request=PAIR)], [], Room(nodes(4, 3), POLICIES))
    assert (offers, short) == ([], {"g": 3})


def test_s53_surplus_members_take_what_is_idle() -> None:
    offers, _ = offer_gangs([gang("g", 4, 2)], [], Room(nodes(3), POLICIES))
    assert len(offers[0].seats) == 3


def test_s57_two_gangs_that_each_fit_half_and_one_gets_all() -> None:
    claims = [gang("b", 4, 4, order=2), gang("a", 4, 4, order=1)]
    offers, short = offer_gangs(claims, [], Room(nodes(3, 3), POLICIES))
    assert ([offer.key for offer in offers], short) == (["a"], {"b": 2})


def test_a_gang_that_does_not_fit_leaves_the_room_to_the_next() -> None:
    claims = [gang("a", 4, 4, order=1), gang("b", 2, 2, order=2)]
    offers, _ = offer_gangs(claims, [], Room(nodes(3), POLICIES))
    assert [offer.key for offer in offers] == ["b"]


def test_single_pods_of_higher_rank_come_first_and_those_of_lower_rank_do_not() -> None:
    room = Room(nodes(4), POLICIES)
    assert offer_gangs([gang("g", 4, 4, order=2)], [single("s", 1)], room)[0] == []
    assert len(offer_gangs([gang("g", 4, 4, order=2)], [single("s", 3)], room)[0]) == 1


def test_the_largest_members_are_seated_first() -> None:
    small = tuple(pending_pod(f"s{n}", make_request(want(1, 6_000))) for n in range(4))
    mixed = GangClaim("g", (*small, pending_pod("w0", WHOLE)), 5, (0,))
    offers, _ = offer_gangs([mixed], [], Room(nodes(1, 1), POLICIES))
    assert len(offers[0].seats) == 5


def test_cpu_of_members_on_one_node_adds_up() -> None:
    heavy = Scheduling(cpu_millicores=20_000)
    room = Room(nodes(8), POLICIES)
    assert len(offer_gangs([gang("g", 3, 3, scheduling=heavy)], [], room)[0]) == 1
    assert offer_gangs([gang("g", 4, 4, scheduling=heavy)], [], room) == ([], {"g": 3})
    used = replace(room, uses={"n0": NodeUse(cpu_millicores=10_000)})
    assert offer_gangs([gang("g", 3, 3, scheduling=heavy)], [], used) == ([], {"g": 2})


def test_a_node_takes_no_more_members_than_it_admits_at_once() -> None:
    room = Room(nodes(8), POLICIES, most_unadmitted=3)
    assert offer_gangs([gang("g", 4, 4)], [], room) == ([], {"g": 3})


def test_a_deferred_node_takes_one_member_at_a_time() -> None:
    room = Room(nodes(8, 8, identity=Identity.DEFERRED), POLICIES)
    assert offer_gangs([gang("g", 3, 3)], [], room) == ([], {"g": 2})


def test_a_queue_that_is_full_keeps_its_gang_back() -> None:
    claims = [gang("a", 2, 2, order=1), gang("b", 2, 2, order=2)]
    offers, short = offer_gangs(claims, [], Room(nodes(8), POLICIES), lambda served, claim: not served)
    assert ([offer.key for offer in offers], short) == (["a"], {"b": -1})


def test_the_hold_of_an_offer_names_every_card_once() -> None:
    offers, _ = offer_gangs([gang("g", 4, 4, request=PAIR)], [], Room(nodes(4, 4), POLICIES))
    hold = offers[0].hold("gang g")
    assert len({(card.node, card.reservation.uuid) for card in hold.cards}) == 8
    assert hold.uids == {"g0", "g1", "g2", "g3"}


def test_many_equal_gangs_get_each_card_once() -> None:
    claims = [gang(f"g{number}", 2, 2, order=number) for number in range(20)]
    offers, short = offer_gangs(claims, [], Room(nodes(4, 4), POLICIES))
    cards = [(card.node, card.reservation.uuid) for offer in offers for card in offer.hold("x").cards]
    assert (len(offers), len(cards), len(set(cards)), len(short)) == (4, 8, 8, 16)
