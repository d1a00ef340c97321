"""A small random cluster that drives a ledger: the truth, what the ledger was told of it, and the deciders.

`truth` is what the API server holds. `told` is what the ledger has been shown: both are equal unless the watch
has a gap, and a relist makes them equal again. Operations are by name, each with two small numbers, so that a
run is a list of (name, a, b): readable, repeatable, made from random bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.core import building
from tests.core.building import INIT, SIDECAR, SLOTS, make_card, make_node, make_request, share, want
from vgpu.core.facts import (
    AssignmentSource,
    CardFact,
    InventoryFact,
    NodeFact,
    Phase,
    PodFact,
    Taint,
)
from vgpu.core.ledger import Booking, Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import CardPolicy, PodRequest, Selection

Step = tuple[str, int, int]
NODES = ("a", "b")
POLICIES = Policies()
CARD_MIB = 100
MOST_PODS = 9

REQUESTS: tuple[PodRequest, ...] = (
    make_request(want(1, 30, 20)),
    make_request(want(1)),
    make_request(want(2, 40)),
    make_request(want(1, 10, 100)),
    make_request(want(1, 10, 50)),
    make_request(want(1, 60, kind=INIT, name="i"), want(1, 30, 30, name="x"), want(1, 30, 30, name="y")),
    make_request(
        want(1, 20, kind=SIDECAR, name="s"),
        want(2, 50, kind=INIT, name="i"),
        want(1, 40, 10, name="x"),
        sidecars_before=(("i", ("s",)),),
    ),
    make_request(want(1, percent=50)),
    make_request(want(3, 10), card_policies=(CardPolicy.SPREAD,)),
    make_request(want(1, percent=100, name="x"), want(1, 10, name="y")),
    make_request(want(1, 50), card_policies=(CardPolicy.MUTEX,)),
    make_request(want(2, 20), selection=Selection(numa_bind=True)),
)


@dataclass
class Facts:
    """Everything that exists, by key."""

    nodes: dict[str, NodeFact] = field(default_factory=dict)
    inventories: dict[str, InventoryFact] = field(default_factory=dict)
    pods: dict[str, PodFact] = field(default_factory=dict)

    def copy(self) -> "Facts":
        return Facts(dict(self.nodes), dict(self.inventories), dict(self.pods))


def fresh_ledger(facts: Facts, make: Callable[[], Ledger] = Ledger) -> Ledger:
    """A ledger built from a list, in an order of its own."""
    ledger = make()
    for pod in sorted(facts.pods.values(), key=lambda pod: pod.uid[::-1]):
        ledger.put_pod(pod)
    for inventory in facts.inventories.values():
        ledger.put_inventory(inventory)
    for node in reversed(facts.nodes.values()):
        ledger.put_node(node)
    return ledger


class World:
    """See the module. `outside`: facts not of our making may have filled a card over its capacity."""

    def __init__(self, make: Callable[[], Ledger] = Ledger) -> None:
        self.make = make
        self.ledger = make()
        self.truth = Facts()
        self.told = Facts()
        self.gap = False
        self.outside = False
        self.flying: dict[str, Booking] = {}
        self.late: dict[str, Booking] = {}
        self.decided: list[Placement] = []
        self.older: dict[str, PodFact] = {}
        self.removed: dict[str, CardFact] = {}
        self.lost_cards: dict[str, tuple[CardFact, ...]] = {}
        self._count = 0
        for number, name in enumerate(NODES):
            self.put_node(make_node(name, 12))
            cards = [self.new_card(index) for index in range(2 + number)]
            self.put_inventory(InventoryFact(name, SLOTS, tuple(cards)))

    # What exists, and what of it is told.

    def new_card(self, index: int) -> CardFact:
        self._count += 1
        return make_card(f"GPU-{self._count}", index, memory_mib=CARD_MIB, slots=4, numa_node=index % 2)

    def put_node(self, fact: NodeFact) -> None:
        self.truth.nodes[fact.name] = fact
        if not self.gap:
            self.told.nodes[fact.name] = fact
            self.ledger.put_node(fact)

    def drop_node(self, name: str) -> None:
        fact = self.truth.nodes.pop(name, None)
        if fact is not None and not self.gap:
            self.told.nodes.pop(name, None)
            self.ledger.drop_node(name, fact.uid)

    def put_inventory(self, fact: InventoryFact) -> None:
        self.truth.inventories[fact.node] = fact
        if not self.gap:
            self.told.inventories[fact.node] = fact
            self.ledger.put_inventory(fact)

    def drop_inventory(self, name: str) -> None:
        if self.truth.inventories.pop(name, None) is not None and not self.gap:
            self.told.inventories.pop(name, None)
            self.ledger.drop_inventory(name)

    def put_pod(self, fact: PodFact) -> None:
        self.older[fact.uid] = self.truth.pods.get(fact.uid, fact)
        self.truth.pods[fact.uid] = fact
        if not self.gap:
            self.told.pods[fact.uid] = fact
            self.ledger.put_pod(fact)

    def drop_pod(self, uid: str) -> None:
        self.older.pop(uid, None)
        if self.truth.pods.pop(uid, None) is not None and not self.gap:
            self.told.pods.pop(uid, None)
            self.ledger.drop_pod(uid)

    def change_pod(self, a: int, which: Callable[[PodFact], bool], **fields: Any) -> None:
        pod = self.pick(a, which)
        if pod is not None:
            self.put_pod(replace(pod, **fields))

    def pick(self, a: int, which: Callable[[PodFact], bool]) -> PodFact | None:
        pods = [pod for pod in self.truth.pods.values() if which(pod)]
        return pods[a % len(pods)] if pods else None

    def relist(self) -> None:
        """One consistent list: what vanished unseen is dropped by uid, then everything is put."""
        for uid in self.told.pods.keys() - self.truth.pods.keys():
            self.ledger.drop_pod(uid)
        for name, node in self.told.nodes.items():
            if name not in self.truth.nodes or self.truth.nodes[name].uid != node.uid:
                self.ledger.drop_node(name, node.uid)
        for name in self.told.inventories.keys() - self.truth.inventories.keys():
            self.ledger.drop_inventory(name)
        for fact in self.truth.nodes.values():
            self.ledger.put_node(fact)
        for inventory in self.truth.inventories.values():
            self.ledger.put_inventory(inventory)
        for pod in self.truth.pods.values():
            self.ledger.put_pod(pod)
        self.gap = False
        self.told = self.truth.copy()

    def restart(self) -> None:
        """Another process leads: bookings are lost, what was sent may still be carried out."""
        self.gap = False
        self.told = self.truth.copy()
        self.ledger = fresh_ledger(self.told, self.make)
        self.outside = self.outside or bool(self.flying) or bool(self.late)

    # Decisions of ours.

    def decide(self, a: int, b: int) -> Booking | None:
        """Place and book a pod that the ledger takes for pending, on a node that it knows."""
        pods = [pod for pod in self.ledger.pending() if not self.ledger.booking(pod.uid)]
        return self.decide_for(pods[a % len(pods)], NODES[b % len(NODES)]) if pods else None

    def decide_for(self, pod: PodFact, node: str) -> Booking | None:
        """Place and book this pod on this node."""
        view = self.ledger.view(node)
        if view is None or pod.request is None:
            return None
        placement = place(view, pod.request, pod.uid, POLICIES)
        if isinstance(placement, Refusal):
            return None
        self._count += 1
        booking = Booking(pod.uid, pod.namespace, pod.name, view.name, f"nonce-{self._count}", placement)
        self.ledger.book(booking)
        self.decided.append(placement)
        return booking

    def carry_out(self, booking: Booking) -> bool:
        """The API server's side of a Binding: only a live, unbound pod of this uid is bound."""
        pod = self.truth.pods.get(booking.uid)
        if pod is None or pod.node or pod.terminating:
            return False
        assignment = building.make_assignment(*booking.placement.containers, node=booking.node)
        self.put_pod(replace(pod, node=booking.node, assignment=replace(assignment, nonce=booking.nonce)))
        return True

    def settle(self, booking: Booking, carried_out: bool) -> None:
        """The writer knows now: a definite refusal un-books, unless an event was quicker."""
        if not carried_out:
            self.ledger.unbook(booking.uid, booking.nonce)

    def legacy_assignment(self, node: str, b: int) -> PodFact:
        """A pod that another system put on a card which it names by index."""
        self._count += 1
        card = share(f"index:{b % 3}", 40, 0, whole=b % 4 == 0)
        uid = f"old-{self._count}"
        return building.bound_pod(uid, building.holds(card), node=node, source=AssignmentSource.VOLCANO_DP)


def bound(pod: PodFact) -> bool:
    return bool(pod.node)


def unbound(pod: PodFact) -> bool:
    return not pod.node and pod.wants_gpus


def alive(pod: PodFact) -> bool:
    return bound(pod) and not pod.ended


REFUSED = Refusal(Reason.INVALID_REQUEST, "vgpu-memory is not a quantity")
TAINT = frozenset({Taint("maintenance", "", "NoSchedule")})
ENDED = (Phase.SUCCEEDED, Phase.FAILED)
