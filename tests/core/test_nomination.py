"""Who is sent where when something becomes free: in rank order, as many as fit together and no more."""

from dataclasses import replace

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, inventory, ledger_of, node, pending, request
from vgpu import names
from vgpu.core.facts import Identity, Phase, PodFact, Scheduling, Taint
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import Nomination, Turns, nominate, nominate_one, waits_for_us
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.views import NodeView

HALF = CARD_MIB // 2


def views(ledger: Ledger) -> list[NodeView]:
    return [view for name in sorted(ledger.nodes()) if (view := ledger.view(name)) is not None]


def cluster(*nodes: str) -> Ledger:
    ledger = ledger_of(*nodes)
    for name in nodes:
        ledger.put_node(node(name, pods=110, memory_mib=10**6))
    return ledger


def sent(nominations: list[Nomination]) -> list[tuple[str, str]]:
    return [(n.pod.name, n.placement.node) for n in nominations]


def choose(ledger: Ledger, *pods: PodFact, limit: int = 100) -> list[tuple[str, str]]:
    return sent(nominate(views(ledger), pods, Policies(), limit))


def test_as_many_as_fit_and_no_more() -> None:
    pods = [pending(f"p{i}", memory_mib=HALF) for i in range(5)]
    assert choose(cluster("n1"), *pods) == [("p0", "n1"), ("p1", "n1")]


def test_higher_priority_first_then_the_older_then_the_uid() -> None:
    young = pending("a", CARD_MIB, created="2026-01-02T00:00:00Z")
    old = pending("z", CARD_MIB, created="2026-01-01T00:00:00Z")
    urgent = pending("m", CARD_MIB, created="2026-01-03T00:00:00Z", priority=10)
    twin = replace(old, uid="uid-y", name="y")
    ledger = cluster("n1", "n2", "n3", "n4")
    assert [name for name, _ in choose(ledger, young, old, twin, urgent)] == ["m", "y", "z", "a"]


def test_a_smaller_pod_of_lower_rank_goes_where_a_larger_one_does_not_fit() -> None:
    ledger = cluster("n1")
    ledger.put_pod(bound("old", "n1", memory_mib=HALF))
    large, small = pending("large", CARD_MIB, priority=5), pending("small", HALF)
    assert choose(ledger, large, small) == [("small", "n1")]


def test_who_books_no_cores_finds_some_unbooked_when_it_comes() -> None:
    """The next one, on the same card, would book all that are left."""
    ledger = cluster("n1")
    ledger.put_pod(bound("old", "n1", memory_mib=1000, cores=40))
    coreless = pending("coreless", 1000, priority=5)
    all_left, some_left = (pending(f"wants-{n}", 1000, request=request(1000, n)) for n in (60, 59))
    assert choose(ledger, coreless, all_left) == [("coreless", "n1")]
    assert choose(ledger, coreless, some_left) == [("coreless", "n1"), ("wants-59", "n1")]


def test_the_limit_holds() -> None:
    pods = [pending(f"p{i}", memory_mib=1000) for i in range(5)]
    assert len(choose(cluster("n1"), *pods, limit=3)) == 3


def test_cards_of_a_leaving_pod_are_not_given_to_two() -> None:
    """Half the card is free now, and half after the other has left: one pod fits now, the second does not."""
    ledger = cluster("n1")
    ledger.put_pod(bound("leaving", "n1", memory_mib=HALF, terminating=True))
    assert choose(ledger, pending("a", HALF), pending("b", HALF)) == [("a", "n1")]


def test_what_is_held_for_another_pod_is_not_given_away() -> None:
    ledger, held = cluster("n1"), pending("held", CARD_MIB)
    ledger.put_pod(held)
    view = ledger.view("n1")
    assert view is not None
    assert held.request is not None
    placement = place(view, held.request, held.uid, Policies())
    assert isinstance(placement, Placement)
    ledger.nominate(held.uid, "n1", placement)
    assert choose(ledger, pending("other", CARD_MIB, priority=100)) == []
    assert choose(ledger, pending("other", CARD_MIB, priority=100), held) == [("held", "n1")]


def test_only_one_pod_at_a_time_goes_to_a_deferred_node() -> None:
    ledger = cluster("n1")
    ledger.put_inventory(inventory("n1", cards=4, identity=Identity.DEFERRED))
    pods = [pending(f"p{i}") for i in range(3)]
    assert choose(ledger, *pods) == [("p0", "n1")]
    ledger.put_pod(bound("waits", "n1", admitted=False))
    assert choose(ledger, *pods) == []


@pytest.mark.parametrize(
    ("change", "scheduling"),
    [
        ({"unschedulable": True}, Scheduling()),
        ({"taints": frozenset({Taint("gpu", "", "NoSchedule")})}, Scheduling()),
        ({}, Scheduling(node_selector=frozenset({("pool", "x")}))),
        ({}, Scheduling(cpu_millicores=10**9)),
    ],
    ids=["cordoned", "tainted", "selector", "cpu"],
)
def test_nodes_that_in_tree_filters_refuse_are_left_out(change: dict[str, object], scheduling: Scheduling) -> None:
    ledger = cluster("n1")
    ledger.put_node(replace(node("n1", pods=110, memory_mib=10**6), **change))  # type: ignore[arg-type]
    assert choose(ledger, pending("p", scheduling=scheduling)) == []


def test_closed_nodes_and_pods_without_a_request_are_left_out() -> None:
    ledger = cluster("n1")
    assert choose(ledger, pending("p", request=None)) == []
    ledger.put_node(node("n1", slots_allocatable=frozenset(), pods=110, memory_mib=10**6))
    assert choose(ledger, pending("p")) == []


def test_a_pod_with_preferences_is_woken_without_a_node_but_takes_its_room() -> None:
    soft = pending("a", CARD_MIB, scheduling=Scheduling(soft_preferences=True))
    chosen = nominate(views(cluster("n1")), [soft, pending("b", CARD_MIB)], Policies(), 10)
    assert [(n.pod.name, n.node) for n in chosen] == [("a", None)]


def test_the_first_node_that_takes_the_pod_is_chosen_for_a_missed_sample() -> None:
    ledger = cluster("n1", "n2", "n3")
    ledger.put_node(node("n1", unschedulable=True, pods=110, memory_mib=10**6))
    ledger.put_pod(bound("old", "n2", memory_mib=CARD_MIB))
    found = nominate_one(views(ledger), pending("p"), Policies())
    assert found is not None
    assert found.node == "n3"
    assert nominate_one(views(ledger)[:2], pending("p"), Policies()) is None


@pytest.mark.parametrize(
    "change",
    [
        {"unschedulable": False},
        {"node": "n1"},
        {"terminating": True},
        {"gated": True},
        {"request": None},
        {"scheduler_name": "default-scheduler"},
        {"phase": Phase.FAILED},
    ],
    ids=str,
)
def test_only_pods_that_our_scheduler_has_put_aside_are_woken(change: dict[str, object]) -> None:
    pod = pending("p")
    assert waits_for_us(pod, names.SCHEDULER_NAME)
    assert not waits_for_us(replace(pod, **change), names.SCHEDULER_NAME)  # type: ignore[arg-type]


def test_turns_decide_who_is_served_and_who_is_left_out() -> None:
    pods = [pending(name, CARD_MIB) for name in ("a", "b", "c", "d")]
    turns = Turns(
        key=lambda pod: (-ord(pod.name),),
        admits=lambda served, pod: pod.name != "c" and len(served) < 2,
        alone=lambda pod: pod.name != "d",
    )
    chosen = nominate(views(cluster("n1", "n2", "n3", "n4")), pods, Policies(), 10, turns)
    assert [one.pod.name for one in chosen] == ["b", "a"]
    assert nominate_one(views(cluster("n1")), pods[2], Policies(), turns) is None


def test_equal_pods_are_sent_where_they_would_go_were_each_judged_anew() -> None:
    names_ = [f"n{i}" for i in range(5)]
    equal = [pending(f"p{i:02d}", memory_mib=CARD_MIB // 4, created=f"{i:02d}") for i in range(30)]
    unlike = [replace(pod, scheduling=Scheduling(memory_mib=1 + i)) for i, pod in enumerate(equal)]
    assert choose(cluster(*names_), *equal) == choose(cluster(*names_), *unlike)
    assert len(choose(cluster(*names_), *equal)) == 20
