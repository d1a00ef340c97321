"""What room on a node costs at least, at a glance: most nodes of a cluster need no closer look than this.

Enters: NodeProblems of one request. Leaves: bounds for each, like NodeSearch's rough one and several times
quicker to find: each container alone, on the cards that ask least for it. Nothing is searched here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vgpu.core.facts import CardFact
from vgpu.core.fit import unselected
from vgpu.core.preempt.demand import (
    EMPTY,
    UNRESERVED,
    Reserved,
    Room,
    node_shortages,
    reserved_by_card,
    room_beside,
    units_by_uid,
)
from vgpu.core.preempt.loads import least_price
from vgpu.core.preempt.problem import NodeProblem, held_mib
from vgpu.core.request import CardRequest, PodRequest, Selection
from vgpu.core.score import Policies, chain_for
from vgpu.core.views import CardView

_PLAIN = Selection()
Sums = tuple[int, int, int]
"""Slots, MiB, cores."""


@dataclass(slots=True)
class _Card:
    """A card that the pod may use: what stays on it, and what each unit gives free there. `alone`: the units of
    each holder that is alone on the card."""

    fact: CardFact
    reserved: Reserved
    staying: Sums
    gives: Mapping[int, Sums]
    alone: Sequence[tuple[int, ...]]


@dataclass(slots=True)
class _Want:
    """`number` cards, of each the same. Cards of one size have the same room beside it."""

    number: int
    card: CardRequest
    _rooms: dict[tuple[int, int, int, int], Room | None] = field(default_factory=dict)

    def room(self, card: _Card, copies: int) -> Room | None:
        """What others may have of the card beside so many copies, None = they never fit."""
        fact = card.fact
        if card.reserved is not UNRESERVED:
            return room_beside(fact, card.reserved, ((self.card, copies),))
        size = (fact.slots, fact.memory_mib, fact.cores, copies)
        if size not in self._rooms:
            self._rooms[size] = room_beside(fact, UNRESERVED, ((self.card, copies),))
        return self._rooms[size]


@dataclass(slots=True)
class _Seen:
    """One node with what was found out about it: prices of copies on its cards."""

    problem: NodeProblem
    units_of: Mapping[str, tuple[int, ...]]
    cards: list[_Card]
    shares: list[int]
    prices: dict[int, list[list[int | None]]] = field(default_factory=dict)
    """By position of the want: per card the price of 0, 1, 2... copies."""


@dataclass(slots=True)
class Glance:
    """Looks at nodes for pods with this request."""

    request: PodRequest
    policies: Policies
    _wants: list[_Want] = field(default_factory=list)
    _idle_only: bool = False

    def __post_init__(self) -> None:
        self._idle_only = chain_for(self.request, self.policies).idle_only
        wants = dict.fromkeys((container.number, container.card) for container in self.request.containers)
        self._wants = [_Want(number, card) for number, card in wants]

    def bound(self, problem: NodeProblem) -> int | None:
        """No eviction here makes room for one copy for less than this; None = none makes room."""
        return next(iter(self.bounds(problem, 1)), None)

    def bounds(self, problem: NodeProblem, most: int) -> list[int]:
        """The same for 1, 2, 3... copies, up to `most` or to the last number for which there may be room. More
        than one are counted: they have to be interchangeable."""
        found: list[int] = []
        if problem.view.closed is not None or problem.view.inventory is None:
            return found
        seen = self._seen(problem, most)
        for copies in range(1, most + 1):
            highest = _of_node(seen, copies)
            for place in range(len(self._wants)):
                least = None if highest is None else self._least(seen, place, copies)
                highest = None if highest is None or least is None else max(highest, least)
            if highest is None:
                break
            found.append(highest)
        return found

    def _seen(self, problem: NodeProblem, most: int) -> _Seen:
        selection = self.request.selection
        plain = selection == _PLAIN
        units_of = units_by_uid(problem.units)
        reserved = reserved_by_card(problem) if problem.view.reservations else {}
        cards = [
            _card(card, reserved.get(card.fact.uuid, UNRESERVED), units_of)
            for card in problem.view.cards
            if (card.usable if plain else unselected(card, selection) is None)
        ]
        taken = most * sum(container.number for container in self.request.containers)
        return _Seen(problem, units_of, cards, _shares(problem, cards, taken))

    def _least(self, seen: _Seen, place: int, copies: int) -> int | None:
        """The sum of the cheapest cards: of one NUMA node where the pod insists on it."""
        want = self._wants[place]
        prices = seen.prices.setdefault(place, [[0] for _ in seen.cards])
        for card, row in zip(seen.cards, prices, strict=True):
            if row[-1] is not None:
                row.append(self._price(seen, card, want, copies))
        if copies > 1:
            return least_price(prices, want.number * copies)
        if not self.request.selection.numa_bind:
            return _sum_of_least([row[1] for row in prices], want.number)
        groups: dict[int | None, list[int | None]] = {}
        for card, row in zip(seen.cards, prices, strict=True):
            groups.setdefault(card.fact.numa_node, []).append(row[1])
        sums = [_sum_of_least(of_group, want.number) for of_group in groups.values()]
        return min([price for price in sums if price is not None], default=None)

    def _price(self, seen: _Seen, card: _Card, want: _Want, copies: int) -> int | None:
        room = want.room(card, copies)
        if room is None:
            return None
        if self._idle_only:
            room = EMPTY
        highest, shares = 0, seen.shares
        for units in card.alone:
            if not units:
                return None
            highest = max(highest, min([shares[unit] for unit in units]))
        slots, memory_mib, cores = card.staying
        for dimension, need in enumerate((slots - room.slots, memory_mib - room.memory_mib, cores - room.cores)):
            if need > 0:
                giving = [(unit, gain) for unit, gives in card.gives.items() if (gain := gives[dimension]) > 0]
                price = _cheapest(need, [gain for _, gain in giving], [shares[unit] for unit, _ in giving])
                if price is None:
                    return None
                highest = max(highest, price)
        return highest


def _card(card: CardView, reserved: Reserved, units_of: Mapping[str, tuple[int, ...]]) -> _Card:
    slots = memory_mib = cores = 0
    gives: dict[int, Sums] = {}
    alone: list[tuple[int, ...]] = []
    for holder in card.holders:
        if holder.leaving:
            continue
        mib = holder.memory_mib or held_mib(card, holder)
        slots, memory_mib, cores = slots + holder.slots, memory_mib + mib, cores + holder.cores
        units = units_of.get(holder.uid, ())
        for unit in units:
            known = gives.get(unit)
            mine = (holder.slots, mib, holder.cores)
            gives[unit] = mine if known is None else (known[0] + mine[0], known[1] + mine[1], known[2] + mine[2])
        if holder.exclusive:
            alone.append(units)
    return _Card(card.fact, reserved, (slots, memory_mib, cores), gives, alone)


def _shares(problem: NodeProblem, cards: Iterable[_Card], taken: int) -> list[int]:
    """Per unit the part of its cost that counts for each of its cards: no more than `taken` are looked for."""
    spans = [0] * len(problem.units)
    for card in cards:
        for unit in card.gives:
            spans[unit] += 1
    return [
        unit.cost if span < 2 else unit.cost // min(span, taken)
        for unit, span in zip(problem.units, spans, strict=True)
    ]


def _of_node(seen: _Seen, copies: int) -> int | None:
    """The same for what is short on the node as a whole."""
    highest = 0
    for need, gives in node_shortages(seen.problem, copies, seen.units_of):
        giving = [(unit, gain) for unit, gain in gives.items() if gain > 0]
        prices = [seen.problem.units[unit].cost for unit, _ in giving]
        price = _cheapest(need, [gain for _, gain in giving], prices)
        if price is None:
            return None
        highest = max(highest, price)
    return highest


def _cheapest(need: int, gains: list[int], prices: list[int]) -> int | None:
    """The price of as many of the cheapest as are needed at least; None = all of them give too little."""
    total = sum(gains)
    if total < need:
        return None
    if total - min(gains) < need:
        return sum(prices)
    for count, gain in enumerate(sorted(gains, reverse=True), 1):
        need -= gain
        if need <= 0:
            return min(prices) if count == 1 else sum(sorted(prices)[:count])
    return None


def _sum_of_least(prices: Iterable[int | None], number: int) -> int | None:
    possible = sorted([price for price in prices if price is not None])
    return sum(possible[:number]) if len(possible) >= number else None
