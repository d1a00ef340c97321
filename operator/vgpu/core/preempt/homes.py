"""Is there a node that would take such a pod, were it empty? Who has none never runs, and has no claim (4.2).

Enters: which inventories changed, Nodes as the ledger has them, pods that wait. Leaves: why no node takes the pod
whoever left it, or "". Neither health nor what runs counts, so nothing that we do changes an answer. Mutable, with
one owner. Equal pods share one question; of each a node that takes it is remembered, so that a changed node is
looked at for those alone whom it may concern. May not live here: room.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest

from vgpu.core.facts import InventoryFact, NodeFact, PodFact, Scheduling
from vgpu.core.intree import obstacle
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies, evaluate
from vgpu.core.preempt.card_kinds import CardKinds
from vgpu.core.preempt.problem import offered_slots
from vgpu.core.reasons import Refusal
from vgpu.core.request import PodRequest
from vgpu.core.views import CardView, NodeView

NAMED_NODES = 3
_REMEMBERED = 10_000
_POLICIES = Policies()
_NO_INVENTORY = "it lists no cards"
_Asked = tuple[PodRequest, Scheduling]


@dataclass(slots=True)
class _Question:
    """`home`: a node that takes such pods, "" = there is none, and `why` says so, of the nodes `named`."""

    asked: _Asked
    uids: set[str] = field(default_factory=set)
    home: str = ""
    why: str = ""
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Empty:
    """A node with nobody on it, all its cards in health. `kind`: all that a verdict depends on where no UUIDs are
    named."""

    view: NodeView
    kind: object

    @classmethod
    def of(cls, inventory: InventoryFact) -> "_Empty":
        """The node of this inventory."""
        facts = [replace(card, healthy=True, health_reason="") for card in inventory.cards]
        cards = tuple(map(CardView, facts))
        view = NodeView(inventory.node, inventory=inventory, cards=cards, effective_slots=offered_slots(cards))
        sizes = tuple((f.memory_mib, f.cores, f.slots, f.model, f.mode, f.numa_node) for f in facts)
        return cls(view, (inventory.slot_resource, inventory.identity, inventory.plugin, sizes))


class Homes:
    """See the module."""

    def __init__(self, ledger: Ledger, cards: CardKinds) -> None:
        self._ledger = ledger
        self._cards = cards
        self._version = -1
        self._nodes: Mapping[str, NodeFact] = {}
        self._empty: dict[str, _Empty] = {}
        self._changed: set[str] = set()
        self._questions: dict[_Asked, _Question] = {}
        self._of: dict[str, _Question] = {}
        self._sizes: dict[tuple[object, PodRequest], str] = {}

    def cards_changed(self, node: str) -> bool:
        """The node's inventory is another than before. True when claims may have changed (CardKinds.put)."""
        view = self._ledger.view(node)
        inventory = None if view is None else view.inventory
        self._changed.add(node)
        if inventory is None or not inventory.cards:
            self._empty.pop(node, None)
        else:
            self._empty[node] = _Empty.of(inventory)
        return self._cards.put(node, () if inventory is None else inventory.cards)

    def take_moved(self) -> set[str]:
        """Uids of those for whom the answer may be another than when they last asked."""
        changed, moved = self._take_changed(), set[str]()
        if self._cards.take_layouts_moved():
            moved.update(pod.uid for pod in self._ledger.pending())
        for question in self._questions.values() if changed else ():
            before = question.why
            self._renew(question, changed)
            if question.why != before:
                moved |= question.uids
        return moved

    def why_nowhere(self, pod: PodFact, *, waits: bool) -> str:
        """Why no node takes this pod whoever left it; "" where one does, or the pod does not wait, or asks for
        nothing that can be read."""
        if pod.request is None or not waits:
            self.drop(pod.uid)
            return ""
        asked = (pod.request, pod.scheduling)
        known = self._of.get(pod.uid)
        if known is None or known.asked != asked:
            self.drop(pod.uid)
            known = self._questions.get(asked)
            if known is None:
                known = self._questions[asked] = _Question(asked)
                self._search(known)
            known.uids.add(pod.uid)
            self._of[pod.uid] = known
        return known.why

    def drop(self, uid: str) -> None:
        """The pod is gone, or waits no more."""
        known = self._of.pop(uid, None)
        if known is not None:
            known.uids.discard(uid)
            if not known.uids:
                del self._questions[known.asked]

    def _take_changed(self) -> set[str]:
        changed, self._changed = self._changed, set()
        if self._version != self._ledger.version:
            self._version = self._ledger.version
            before, now = self._nodes, self._ledger.node_facts
            if before != now:
                changed |= {name for name in before.keys() | now.keys() if before.get(name) is not now.get(name)}
                self._nodes = dict(now)
        return changed

    def _renew(self, question: _Question, changed: Collection[str]) -> None:
        if question.home:
            if question.home in changed and self._obstacle(question.home, question.asked):
                self._search(question)
            return
        home = next((name for name in changed if not self._obstacle(name, question.asked)), "")
        if home:
            question.home = home
            self._say(question)
        elif not question.named.isdisjoint(changed) or len(question.named) < NAMED_NODES:
            self._say(question)

    def _search(self, question: _Question) -> None:
        question.home = next((name for name in self._empty if not self._obstacle(name, question.asked)), "")
        self._say(question)

    def _say(self, question: _Question) -> None:
        """Why no node takes it, of the first nodes by name: the same words while nothing about these changes."""
        names = () if question.home else nsmallest(NAMED_NODES, self._empty)
        question.named = frozenset(names)
        said = "; ".join(f"{name}: {self._obstacle(name, question.asked)}" for name in names) or "none has cards"
        question.why = "" if question.home else f"no node would take the pod whoever left it: {said}"

    def _obstacle(self, name: str, asked: _Asked) -> str:
        """What keeps such a pod off this node whoever leaves, or ""."""
        request, scheduling = asked
        node, empty = self._ledger.node_facts.get(name), self._empty.get(name)
        if empty is None:
            return _NO_INVENTORY
        if node is None:
            return "the Node object does not exist"
        return obstacle(node, scheduling) or self._too_small(empty, request)

    def _too_small(self, empty: "_Empty", request: PodRequest) -> str:
        """Nodes that are equal but for their cards' names are asked once."""
        selection = request.selection
        if selection.use_uuids or selection.nouse_uuids:
            return _said(empty.view, request)
        key = (empty.kind, request)
        if key not in self._sizes:
            if len(self._sizes) >= _REMEMBERED:
                self._sizes.clear()
            self._sizes[key] = _said(empty.view, request)
        return self._sizes[key]


def _said(empty: NodeView, request: PodRequest) -> str:
    verdict = evaluate(empty, request, "", _POLICIES)
    return verdict.message if isinstance(verdict, Refusal) else ""
