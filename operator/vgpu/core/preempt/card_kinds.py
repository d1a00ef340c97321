"""Which cards there are: each node's by name, and one of each kind of the whole cluster for claims.

Enters: inventories. Leaves: what a request would be charged on the smallest card that can take it, and whether any
node has enough cards for it, worked out once per request until kinds or layouts change; the cards of a node. May
not live here: who holds them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vgpu.core.facts import CardFact
from vgpu.core.preempt.amounts import claim_of, could_take
from vgpu.core.preempt.facts import Amounts
from vgpu.core.recount import INDEX_PREFIX
from vgpu.core.request import PodRequest, Selection

_Kind = tuple[int, int, str, str]
_Layout = frozenset[tuple[_Kind, int]]
_NO_CARDS: Mapping[str, CardFact] = {}
_REMEMBERED = 10_000
_TOO_MANY = "no node has as many cards that could take it; ask for fewer cards in one container"


class CardKinds:
    """Mutable, with one owner."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[CardFact, ...]] = {}
        self._named: dict[str, dict[str, CardFact]] = {}
        self._counts: Counter[_Kind] = Counter()
        self._samples: dict[_Kind, CardFact] = {}
        self._claims: dict[PodRequest, Amounts | None] = {}
        self._claims_by_uuid: dict[PodRequest, Amounts | None] = {}
        self._layouts: Counter[_Layout] = Counter()
        self._node_for: dict[PodRequest, bool] = {}
        self._layouts_moved = False

    def put(self, node: str, cards: tuple[CardFact, ...]) -> bool:
        """The node has these cards, () = none. True when claims may have changed for pods that name no UUIDs."""
        before = self._nodes.get(node, ())
        if before == cards:
            return False
        self._named.pop(node, None)
        if cards:
            self._nodes[node] = cards
        else:
            self._nodes.pop(node, None)
        self._claims_by_uuid.clear()
        self._move_layout(_layout(before), _layout(cards))
        return self._count(before, cards)

    def take_layouts_moved(self) -> bool:
        """True when `no_node_for` may answer otherwise than when this was last asked."""
        moved, self._layouts_moved = self._layouts_moved, False
        return moved

    def cards_of(self, node: str) -> Mapping[str, CardFact]:
        """The node's cards, by UUID and by the index by which legacy assignments may name them."""
        if node not in self._nodes:
            return _NO_CARDS
        named = self._named.get(node)
        if named is None:
            cards = self._nodes[node]
            named = {f"{INDEX_PREFIX}{card.index}": card for card in cards}
            named.update((card.uuid, card) for card in cards)
            self._named[node] = named
        return named

    def claim(self, request: PodRequest) -> Amounts | None:
        """What the request is charged on the smallest card that can take it; None: no card can."""
        selection = request.selection
        by_uuid = bool(selection.use_uuids or selection.nouse_uuids)
        memory = self._claims_by_uuid if by_uuid else self._claims
        if request not in memory:
            if len(memory) >= _REMEMBERED:
                memory.clear()
            memory[request] = claim_of(request, self._every_card() if by_uuid else self._samples.values())
        return memory[request]

    def too_large(self, request: PodRequest | None) -> str:
        """Why nothing can take the pod whatever becomes free, and what to do; "" where something can, or it asks
        for nothing that can be read."""
        if request is None:
            return ""
        return self._no_card_for(request) or self.no_node_for(request)

    def _no_card_for(self, request: PodRequest) -> str:
        if self.claim(request) is not None:
            return ""
        if not self._samples:
            return "no node lists a card; start agents on the GPU nodes, see kubectl get gpunodeinventory"
        if self.claim(replace(request, selection=Selection())) is not None:
            return "its annotations allow none of the cards that are large enough; let them allow more"
        return "no card is as large as what it asks for; ask for less of each card"

    def no_node_for(self, request: PodRequest | None) -> str:
        """Why no node is large enough whatever becomes free on it, or "": none has as many cards that could take
        the pod as one of its containers asks for. Neither health nor UUIDs that it names count."""
        if request is None:
            return ""
        if request not in self._node_for:
            if len(self._node_for) >= _REMEMBERED:
                self._node_for.clear()
            self._node_for[request] = any(self._is_enough(layout, request) for layout in self._layouts)
        return "" if self._node_for[request] else _TOO_MANY

    def _is_enough(self, layout: _Layout, request: PodRequest) -> bool:
        selection = replace(request.selection, use_uuids=frozenset(), nouse_uuids=frozenset())
        could = [
            sum(count for kind, count in layout if could_take(self._samples[kind], container.card, selection))
            for container in request.containers
        ]
        return all(c.number <= most for c, most in zip(request.containers, could, strict=True))

    def _move_layout(self, before: _Layout, after: _Layout) -> None:
        known = set(self._layouts)
        self._layouts.subtract([before] if before else [])
        self._layouts.update([after] if after else [])
        self._layouts = +self._layouts
        if known != set(self._layouts):
            self._layouts_moved = True
            self._node_for.clear()

    def _every_card(self) -> Iterable[CardFact]:
        return (card for cards in self._nodes.values() for card in cards)

    def _count(self, before: Iterable[CardFact], after: Iterable[CardFact]) -> bool:
        kinds = set(self._samples)
        self._counts.subtract(map(_kind, before))
        for card in after:
            self._counts[_kind(card)] += 1
            self._samples.setdefault(_kind(card), card)
        for kind in [kind for kind, count in self._counts.items() if count <= 0]:
            del self._counts[kind]
            self._samples.pop(kind, None)
        if kinds == set(self._samples):
            return False
        self._claims.clear()
        return True


def _layout(cards: Iterable[CardFact]) -> _Layout:
    """How many cards of which kinds a node has."""
    return frozenset(Counter(map(_kind, cards)).items())


def _kind(card: CardFact) -> _Kind:
    """All that a claim can depend on where no UUIDs are named."""
    return (card.memory_mib, card.cores, card.model, card.mode.value)
