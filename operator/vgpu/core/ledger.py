"""The ledger: `holds = f(inventories, pods)`, kept from facts as they come, one node recounted at a time.

Enter: facts (put_/drop_), bookings and nominations. Leave: NodeViews, pending pods, and what changed since it
was last asked. One owner calls it; no clock, no I/O, no Kubernetes JSON. A fact equal to the previous one is
nothing: no version, no recount. Pods count by spec.nodeName and uid, whatever becomes of Node and inventory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from vgpu.core.booking import Booking
from vgpu.core.changes import ChangeLog, Changes
from vgpu.core.facts import InventoryFact, NodeFact, PodFact
from vgpu.core.gate import GateLimits
from vgpu.core.hold import Hold, hold_by
from vgpu.core.pending import PendingPods, turned_down
from vgpu.core.placement import Placement
from vgpu.core.preempt.reservations import PlanHolds
from vgpu.core.recount import NodeFacts, recount, reservations_of
from vgpu.core.site import Site
from vgpu.core.views import HolderState, NodeView, Reservation

__all__ = ["Booking", "Changes", "Ledger", "Placement"]


class Ledger:
    """`recounts` rises with each recount; `plans`: what plans hold in *later*; `node_facts`: every Node, live."""

    def __init__(self, limits: GateLimits | None = None) -> None:
        self.recounts = 0
        self._limits = limits or GateLimits()
        self._log = ChangeLog()
        self._nodes: dict[str, NodeFact] = {}
        self.node_facts: Mapping[str, NodeFact] = self._nodes
        self._inventories: dict[str, InventoryFact] = {}
        self._pods: dict[str, PodFact] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._pending = PendingPods()
        self._sites: dict[str, Site] = {}
        self._bookings: dict[str, Booking] = {}
        self._booked_while_bound: set[str] = set()
        self._nominations: dict[str, Placement] = {}
        self.plans = PlanHolds(self._pending.__contains__, self._touch_all, self._pods.get)
        self._views: dict[str, NodeView] = {}

    @property
    def version(self) -> int:
        """Raised by anything that can change a verdict: facts, bookings, nominations."""
        return self._log.version

    def put_node(self, fact: NodeFact) -> bool:
        """Fold a Node. True when a verdict can change; labels that no pending pod names are only stored."""
        before = self._nodes.get(fact.name)
        if before == fact:
            return False
        self._nodes[fact.name] = fact
        if before is None or before.slots_allocatable != fact.slots_allocatable:
            self._site(fact.name).clear_refusals()
            self._touch(fact.name)
            return True
        view = self._views.get(fact.name)
        if view is not None:
            self._views[fact.name] = replace(view, node=fact)
        only_labels = replace(before, labels=fact.labels) == fact
        if only_labels and not self._pending.name_any_label(before.labels ^ fact.labels):
            return False
        self._log.raise_version(fact.name, view)
        return True

    def drop_node(self, name: str, uid: str) -> bool:
        """Fold the deletion of the Node with this uid; a Node re-created under the name stays."""
        known = self._nodes.get(name)
        if known is None or known.uid != uid:
            return False
        del self._nodes[name]
        self._site(name).clear_refusals()
        self._touch(name)
        return True

    def put_inventory(self, fact: InventoryFact) -> bool:
        """Fold an inventory: it replaces the node's cards, it never merges into them."""
        if self._inventories.get(fact.node) == fact:
            return False
        self._inventories[fact.node] = fact
        self._site(fact.node).clear_refusals()
        self._touch(fact.node)
        return True

    def drop_inventory(self, node: str) -> bool:
        """Fold the deletion of a node's inventory: nothing new there, and every assignment stays."""
        if self._inventories.pop(node, None) is None:
            return False
        self._site(node).clear_refusals()
        self._touch(node)
        return True

    def put_pod(self, fact: PodFact) -> bool:
        """Fold a pod. Pods without GPUs are not kept, unless they are agents of ours."""
        before = self._pods.get(fact.uid)
        if before == fact:
            return False
        if before is not None and before.node and not fact.node:
            return False  # a uid's nodeName is never taken back: this event is older than what we know
        if not (fact.wants_gpus or fact.assignment is not None or fact.agent_pod_ready is not None):
            return self.drop_pod(fact.uid)
        self._pods[fact.uid] = fact
        self._by_name[fact.namespace, fact.name] = fact.uid
        waited = fact.uid in self._pending
        if self._pending.put(fact):
            self._log.note_pod(fact.uid)
            if waited != (fact.uid in self._pending):
                self.plans.turn(fact.uid)
        if before is not None and before.node and before.node != fact.node:
            self._leave(before)
        self._settle(before, fact)
        if fact.node:
            self._arrive(before, fact)
        return True

    def drop_pod(self, uid: str) -> bool:
        """Fold the deletion of a pod: it holds nothing any more, booked or bound."""
        booked = self._end_booking(uid)
        self.drop_nomination(uid)
        self.plans.forget(uid)
        fact = self._pods.pop(uid, None)
        if fact is None:
            return booked
        if self._by_name.get((fact.namespace, fact.name)) == uid:
            del self._by_name[fact.namespace, fact.name]
        if self._pending.drop(uid):
            self._log.note_pod(uid)
            self.plans.turn(uid)
        if fact.node:
            self._leave(fact)
        return True

    def book(self, booking: Booking) -> None:
        """Hold the placement's cards from now on. ValueError when this uid is booked or assigned already."""
        fact = self._pods.get(booking.uid)
        if booking.uid in self._bookings or (fact is not None and fact.node and fact.assignment):
            raise ValueError(f"pod {booking.namespace}/{booking.name} ({booking.uid}) holds cards already")
        self.drop_nomination(booking.uid)
        self._bookings[booking.uid] = booking
        if fact is not None and fact.node:
            self._booked_while_bound.add(booking.uid)
        self._site(booking.node).booked.add(booking.uid)
        self._touch(booking.node)

    def unbook(self, uid: str, nonce: str) -> bool:
        """End the booking with this nonce: it is known not to have been carried out. False: no such booking."""
        booking = self._bookings.get(uid)
        return booking is not None and booking.nonce == nonce and self._end_booking(uid)

    def booking(self, uid: str) -> Booking | None:
        """The live booking of this pod."""
        return self._bookings.get(uid)

    def bookings(self) -> Iterable[Booking]:
        """All live bookings."""
        return self._bookings.values()

    def nominate(self, uid: str, node: str, placement: Placement, *, to_come: bool = False) -> bool:
        """Hold the placement in *later* for this pod, in place of what was held before. False, and nothing is
        held, unless it is pending (`to_come`: or not known yet) and not booked."""
        self.drop_nomination(uid)
        if uid in self._bookings or not (uid in self._pending or (to_come and uid not in self._pods)):
            return False
        self._nominations[uid] = replace(placement, node=node)
        self._site(node).nominated.add(uid)
        self._touch(node)
        return True

    def drop_nomination(self, uid: str) -> bool:
        """End what is held for this pod. False: nothing was."""
        if (placement := self._nominations.pop(uid, None)) is None:
            return False
        self._site(placement.node).nominated.discard(uid)
        self._touch(placement.node)
        return True

    def nomination(self, uid: str) -> Placement | None:
        """What is held for this pod."""
        return self._nominations.get(uid)

    def view(self, node: str) -> NodeView | None:
        """The node as it stands; None when nothing is known of it."""
        view = self._views.get(node)
        if view is None and self._exists(node):
            view = self._views[node] = recount(self._facts_of(node), self._log.generation(node))
            self.recounts += 1
        return view

    def nodes(self) -> Iterable[str]:
        """Every node that a Node, an inventory, a GPU pod, a booking or a nomination names."""
        return self._nodes.keys() | self._inventories | {n for n, site in self._sites.items() if not site.empty}

    def pod(self, uid: str) -> PodFact | None:
        """The pod of this uid, if it has to do with GPUs."""
        return self._pods.get(uid)

    def find_pod(self, namespace: str, name: str) -> PodFact | None:
        """The pod that bears this name now."""
        uid = self._by_name.get((namespace, name))
        return None if uid is None else self._pods[uid]

    def pending(self) -> Iterable[PodFact]:
        """GPU pods that are neither bound nor ended."""
        return self._pending.all()

    def changed_since(self, version: int) -> list[str] | None:
        """Nodes with a change after this version that can alter a verdict; None = too long ago, read all."""
        return self._log.since(version)

    def nodes_of(self, uid: str) -> frozenset[str]:
        """Nodes where this pod itself counts or is held for: there its verdict is its own."""
        fact, booking, held = self._pods.get(uid), self._bookings.get(uid), self._nominations.get(uid)
        names = {fact.node if fact else "", booking.node if booking else "", held.node if held else ""}
        return frozenset(names - {""}) | self.plans.nodes_of(uid)

    def frees(self) -> bool:
        """True when something may fit that did not fit at the last take_changes."""
        return self._log.frees(self.view)

    def take_changes(self) -> Changes:
        """What changed since the last call, compared with the state at that call."""
        changes = self._log.take(self.view)
        for name in changes.nodes:
            if not self._exists(name):
                self._sites.pop(name, None)
                self._log.forget(name)
        return changes

    def _site(self, node: str) -> Site:
        return self._sites.setdefault(node, Site())

    def _exists(self, node: str) -> bool:
        site = self._sites.get(node)
        return node in self._nodes or node in self._inventories or (site is not None and not site.empty)

    def _touch(self, node: str) -> None:
        self._log.touch(node, self._views.pop(node, None))

    def _touch_all(self, nodes: Iterable[str]) -> None:
        for node in sorted(nodes):
            self._touch(node)

    def _arrive(self, before: PodFact | None, fact: PodFact) -> None:
        if self._site(fact.node).fold(fact, before):
            self._touch_all(self.plans.nodes_of(fact.uid) | {fact.node})

    def _leave(self, fact: PodFact) -> None:
        if self._site(fact.node).drop_pod(fact.uid):
            self._touch(fact.node)

    def _settle(self, before: PodFact | None, fact: PodFact) -> None:
        """End what counts only until this fact, and show a deletion mark on a booking that goes on."""
        if fact.node or fact.ended or turned_down(before, fact, self._nominations.get(fact.uid)):
            self.drop_nomination(fact.uid)
        if (booking := self._bookings.get(fact.uid)) is None:
            return
        shown = bool(fact.node) and (fact.assignment is not None or fact.uid not in self._booked_while_bound)
        if shown or fact.ended:
            self._end_booking(fact.uid)
        elif before is None or before.terminating != fact.terminating or before.admitted != fact.admitted:
            self._touch(booking.node)

    def _end_booking(self, uid: str) -> bool:
        if (booking := self._bookings.pop(uid, None)) is None:
            return False
        self._booked_while_bound.discard(uid)
        self._site(booking.node).booked.discard(uid)
        self._touch(booking.node)
        return True

    def _facts_of(self, node: str) -> NodeFacts:
        site = self._sites.get(node) or Site()
        return NodeFacts(
            name=node,
            node=self._nodes.get(node),
            inventory=self._inventories.get(node),
            pods=tuple(site.pods.values()),
            assigned=site.assigned(),
            booked=tuple(self._booked_hold(uid) for uid in site.booked),
            reservations=self._reservations(node, site),
            agents_ready=tuple(site.agents.values()),
            refused_in_a_row=site.refused_in_a_row,
            limits=self._limits,
            evicted=self.plans.evicted(node),
            displaced=self.plans.displaced(node),
        )

    def _booked_hold(self, uid: str) -> Hold:
        booking, fact = self._bookings[uid], self._pods.get(uid)
        state = HolderState.TERMINATING if fact and fact.terminating else HolderState.BOOKED
        return hold_by(booking, state, fact is not None and fact.admitted, booking.placement.containers)

    def _reservations(self, node: str, site: Site) -> tuple[Reservation, ...]:
        nominated = reservations_of((uid, self._nominations[uid]) for uid in site.nominated)
        booked = reservations_of((uid, self._bookings[uid].placement) for uid in site.booked)
        return self.plans.reservations_on(node, nominated, booked)
