"""A pod that no node would ever take has no share of what its queue deserves, until one would."""

from dataclasses import replace
from typing import Any

import pytest

from tests.core.building import make_card, make_inventory, make_node, make_request, pending_pod, want
from tests.core.preempt.roster_world import Told
from vgpu.core.facts import InventoryFact, LabelRequirement, NodeFact, Plugin, PodFact, Scheduling, Taint
from vgpu.core.intree import obstacle
from vgpu.core.preempt import entitlement, homes
from vgpu.core.preempt.facts import Limits, QueueFact
from vgpu.core.request import PodRequest, Selection

GOLD = frozenset({("tier", "gold")})
WHOLE = make_request(want())


def node(name: str = "n1", **fields: Any) -> NodeFact:
    return make_node(name, **{"cpu_millicores": 8_000, "memory_mib": 8_000, "pods": 110, **fields})


def told(*nodes: NodeFact, cards: int = 2) -> Told:
    """Nodes with so many cards each, and a queue that deserves one card."""
    made = Told()
    for name in ("n1", "n2", "n3"):
        made.ledger.drop_node(name, f"uid-{name}")
    for fact in nodes or (node(),):
        made.put_node(fact)
        made.put_inventory(make_inventory(cards, fact.name))
    made.put_queue(QueueFact("default", deserved=Limits(1000)))
    return made


def pod(uid: str = "p", request: PodRequest = WHOLE, priority: int = 0, **asks: Any) -> PodFact:
    return replace(pending_pod(uid, request, priority=priority), scheduling=Scheduling(**asks))


def why(it: Told, uid: str = "p") -> str:
    return it.roster.workloads[uid].nowhere_why


def entitled(it: Told) -> set[str]:
    return set(it.roster.standing().entitled)


def test_who_fits_no_node_leaves_what_the_queue_deserves_to_others_until_there_is_one() -> None:
    it = told()
    it.put_pod(pod("imposs", priority=9, node_selector=GOLD))
    it.put_pod(pod("low"))
    assert entitled(it) == {"low"}
    it.put_node(node("n2", labels=GOLD))
    assert entitled(it) == {"low"}, "it has no cards"
    it.put_inventory(make_inventory(1, "n2"))
    assert entitled(it) == {"imposs"}
    it.ledger.drop_node("n2", "uid-n2")
    assert entitled(it) == {"low"}


def test_with_the_rule_switched_off_it_takes_it_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes.Homes, "why_nowhere", lambda *_, **__: "")
    it = told()
    it.put_pod(pod("imposs", priority=9, node_selector=GOLD))
    it.put_pod(pod("low"))
    assert entitled(it) == {"imposs"}


@pytest.mark.parametrize(
    ("asks", "fields", "word"),
    [
        ({"node_selector": GOLD}, {}, "node selector"),
        ({"required_terms": ((LabelRequirement("tier", "In", ("gold",)),),)}, {}, "node affinity"),
        ({}, {"taints": frozenset({Taint("dedicated", "", "NoSchedule")})}, "dedicated"),
        ({}, {"unschedulable": True}, "unschedulable"),
        ({"cpu_millicores": 9_000}, {}, "CPU"),
        ({"memory_mib": 9_000}, {}, "memory"),
    ],
)
def test_what_kube_schedulers_own_filters_never_let_through_has_no_home(
    asks: dict[str, Any], fields: dict[str, Any], word: str
) -> None:
    it = told(node(**fields))
    it.put_pod(pod(**asks))
    assert why(it).startswith("no node would take the pod whoever left it: n1: ")
    assert word in why(it)
    it.put_node(node(labels=GOLD, cpu_millicores=16_000, memory_mib=16_000))
    assert why(it) == ""


def test_one_node_has_to_do_in_everything() -> None:
    """The one that its selector names is too small, the large one is another."""
    it = told(node("n1", labels=GOLD), node("n2"))
    it.put_inventory(make_inventory(4, "n2"))
    it.put_pod(pod("p", make_request(want(3)), node_selector=GOLD))
    it.put_pod(pod("q", make_request(want(3))))
    assert "3 distinct cards" in why(it)
    assert why(it, "q") == ""
    it.put_inventory(make_inventory(4, "n1"))
    assert why(it) == ""


@pytest.mark.parametrize(
    ("request_", "inventory"),
    [
        (make_request(slot_resource="nvidia.com/gpu"), make_inventory(2)),
        (make_request(selection=Selection(use_uuids=frozenset({"GPU-0"}))), make_inventory([make_card("GPU-9")])),
        (make_request(want(name="a"), want(name="b")), make_inventory(2, plugin=Plugin.VOLCANO)),
        (
            make_request(want(2), selection=Selection(numa_bind=True)),
            make_inventory([make_card(f"GPU-{i}", i, numa_node=i) for i in range(2)]),
        ),
    ],
    ids=["another slot resource", "another card is named", "Volcano's plugin", "one NUMA node"],
)
def test_what_an_empty_node_would_refuse_has_no_home(request_: PodRequest, inventory: InventoryFact) -> None:
    it = told()
    it.put_inventory(inventory)
    it.put_pod(pod("p", request_))
    assert why(it) != "" or it.roster.workloads["p"].inactive_why


def test_neither_health_nor_who_is_there_counts() -> None:
    it = told(cards=1)
    it.put_pod(replace(pod("runs"), node="n1"))
    it.put_pod(pod("p"))
    it.put_inventory(make_inventory([make_card("GPU-0", healthy=False)]))
    assert why(it) == ""


def test_who_runs_has_a_home() -> None:
    it = told()
    it.put_pod(replace(pod("p", node_selector=GOLD), node="n1"))
    assert (why(it), entitled(it)) == ("", {"p"})


def test_the_reason_follows_the_nodes_that_it_names() -> None:
    it = told()
    it.put_pod(pod("p", node_selector=GOLD))
    it.put_node(node(unschedulable=True))
    assert "unschedulable" in why(it)


class TestCost:
    @pytest.fixture
    def looks(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Names of nodes that were looked at for some pod."""
        seen: list[str] = []

        def noting(fact: NodeFact, asks: Scheduling) -> str:
            seen.append(fact.name)
            return obstacle(fact, asks)

        monkeypatch.setattr("vgpu.core.preempt.homes.obstacle", noting)
        return seen

    def test_equal_pods_are_looked_for_once_and_again_only_where_something_changed(self, looks: list[str]) -> None:
        it = told(*(node(f"n{i}") for i in range(50)))
        for i in range(20):
            it.put_pod(pod(f"p{i}", node_selector=GOLD))
        assert all(why(it, f"p{i}") for i in range(20))
        assert len(looks) <= 50 + homes.NAMED_NODES
        looks.clear()
        it.put_node(node("n30", cpu_millicores=1))
        assert why(it, "p0")
        assert set(looks) == {"n30"}

    def test_who_has_a_home_is_looked_at_only_when_that_changes(self, looks: list[str]) -> None:
        it = told(*(node(f"n{i}") for i in range(50)))
        it.put_pod(pod("p"))
        assert (why(it), len(looks)) == ("", 1)
        [home] = looks
        looks.clear()
        it.put_node(node("n49" if home != "n49" else "n48", unschedulable=True))
        it.put_pod(pod("more"))
        assert (why(it, "more"), looks) == ("", [])
        it.put_node(node(home, unschedulable=True))
        assert (why(it), looks[0]) == ("", home)

    def test_nothing_is_kept_of_pods_that_are_gone_or_run(self) -> None:
        it = told()
        it.put_pod(pod("p", node_selector=GOLD))
        it.put_pod(pod("q", node_selector=GOLD))
        assert why(it)
        it.drop_pod("p")
        it.put_pod(replace(it.truth.pods["q"], node="n1"))
        assert why(it, "q") == ""
        assert not it.roster._homes._questions


def test_the_walk_leaves_out_who_has_no_home() -> None:
    it = told()
    it.put_pod(pod("p", node_selector=GOLD))
    waiting = it.roster.workloads["p"]
    assert not entitlement.counts(waiting, it.roster.queues["default"])
    assert entitlement.counts(replace(waiting, nowhere_why=""), it.roster.queues["default"])
