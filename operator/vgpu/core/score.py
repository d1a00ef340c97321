"""Which of the fitting cards and nodes is preferred: order keys, pair scores, node scores.

Enters: cards with what is on them, and policies. Leaves: sort keys (lower is better) and scores in
thousandths (0..10000, higher is better). Nothing here refuses anything. All ties end at the UUID.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

from vgpu.core.fit import Load
from vgpu.core.request import CardPolicy, CardRequest, NodePolicy, PodRequest
from vgpu.core.views import CardView, NodeView, core_capacity

FULL_THOUSANDTHS = 10_000
"""The best node score: 10, as prioritize answers it, in thousandths."""

_SORTED_SETS = 3_000
_PAIRED = frozenset({CardPolicy.TOPOLOGY, CardPolicy.NUMA})


@dataclass(frozen=True, slots=True)
class Policies:
    """The operator's defaults; a pod's own policies win. `search_steps` bounds the search on one node: a step is
    one look at one card for one container in one phase, or one set of cards tried.

    `volcano_matches_count`: Volcano's plugin on the nodes looks at the number of cards when it guesses whose an
    Allocate is (1.12 and later). `volcano_unit_mib` is the unit in which it reads memory.
    """

    node: NodePolicy = NodePolicy.BINPACK
    cards: tuple[CardPolicy, ...] = (CardPolicy.BINPACK,)
    search_steps: int = 3_000
    volcano_matches_count: bool = False
    volcano_unit_mib: int = 1


@dataclass(frozen=True, slots=True)
class Chain:
    """The policies that hold for one pod: the node's, and the cards' in order of weight."""

    node: NodePolicy
    cards: tuple[CardPolicy, ...]

    @property
    def idle_only(self) -> bool:
        """True when only idle cards may be taken (mutex)."""
        return CardPolicy.MUTEX in self.cards

    @property
    def paired(self) -> bool:
        """True when cards are judged together: NVLink pairs, one NUMA node."""
        return not _PAIRED.isdisjoint(self.cards)


def chain_for(request: PodRequest, policies: Policies) -> Chain:
    """The pod's policies over the defaults. A topology node policy alone chooses linked cards too."""
    node = request.node_policy or policies.node
    cards = request.card_policies
    if not cards:
        cards = (CardPolicy.TOPOLOGY,) if node is NodePolicy.TOPOLOGY else policies.cards
    return Chain(node, cards)


def card_key(
    chain: Chain, card: CardView, load: Load, want: CardRequest, connections: int
) -> tuple[int | str, ...]:
    """Sort key of one card for one container; `load` is everything on it now, `connections` its NVLink peers."""
    fact = card.fact
    if want.alone:
        # Nobody can join it, so what is left over is the whole card: take the smallest.
        left = (0, fact.memory_mib, 0, 0)
    else:
        left = (
            0 if load.slots else 1,
            fact.memory_mib - load.memory_mib - want.memory_on(fact.memory_mib),
            core_capacity(fact) - load.cores - want.cores,
            fact.slots - load.slots - 1,
        )
    key: list[int | str] = []
    for policy in (*chain.cards, CardPolicy.BINPACK):
        if policy is CardPolicy.BINPACK:
            key.extend(left)
        elif policy is CardPolicy.SPREAD:
            key.extend((left[1],) if want.alone else (-left[1], -left[2], -left[3]))
        elif policy is CardPolicy.TOPOLOGY:
            key.append(connections)
    return (*key, fact.uuid)


def linked(one: CardView, other: CardView) -> bool:
    """True when either card states an NVLink to the other: links may be stated by one side only."""
    return other.fact.uuid in one.fact.links or one.fact.uuid in other.fact.links


def connections(card: CardView, cards: Sequence[CardView]) -> int:
    """How many cards of the node are linked to this one."""
    return sum(linked(card, other) for other in cards if other is not card)


def card_sets(chain: Chain, cards: Sequence[CardView], number: int) -> Iterator[tuple[int, ...]]:
    """Positions of `number` of the cards, sets that go together best first (NVLink pairs, one NUMA node).

    Equal sets keep the order of `cards`. Beyond a few thousand sets only the first is chosen with care (grown
    card by card), the rest come in plain order: the search stays exact, the preference becomes a best effort.
    """
    rows = [row for policy in chain.cards if policy in _PAIRED and any(row := _pair_masks(policy, cards))]
    if not rows:
        yield from combinations(range(len(cards)), number)
        return
    if comb(len(cards), number) > _SORTED_SETS:
        yield _grown(rows, len(cards), number)
        yield from combinations(range(len(cards)), number)
        return
    sets = _sets_with_masks(len(cards), number)
    first, first_mask = sets[0]
    if all(_links_within(row, first, first_mask) == comb(number, 2) for row in rows):
        yield first
    yield from (picked for picked, _ in sorted(sets, key=lambda entry: _badness(rows, *entry)))


def node_score(
    policy: NodePolicy, view: NodeView, after: Mapping[str, Load], groups: Sequence[Sequence[CardView]]
) -> int:
    """Score of a placement in thousandths (0..10000). `after`: loads of the cards it touches, by uuid, with
    the pod on them; `groups`: the cards of each container. Topology: the linked share of the pairs weighs
    nine tenths, fullness the rest; without pairs only fullness counts."""
    full = _fullness_thousandths(view, after) * FULL_THOUSANDTHS // 1000
    if policy is NodePolicy.SPREAD:
        return FULL_THOUSANDTHS - full
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    if policy is NodePolicy.BINPACK or not pairs:
        return full
    linked_thousandths = 1000 * sum(linked(a, b) for a, b in pairs) // len(pairs)
    return linked_thousandths * 9 + full // 10


def _fullness_thousandths(view: NodeView, after: Mapping[str, Load]) -> int:
    """Mean share of the usable cards that is taken; a card that a holder has alone counts as full."""
    total = count = 0
    for card in view.cards:
        if not card.usable:
            continue
        count += 1
        load = after.get(card.fact.uuid)
        if load is None:
            alone, memory_mib, cores = card.exclusive, card.used_memory_mib, card.used_cores
        else:
            alone, memory_mib, cores = load.exclusive, load.memory_mib, load.cores
        share = max(memory_mib * 1000 // max(1, card.fact.memory_mib), cores * 10)
        total += 1000 if alone else min(1000, share)
    return total // max(1, count)


def _pair_masks(policy: CardPolicy, cards: Sequence[CardView]) -> list[int]:
    """Per card a bit for every other card that goes well with it."""
    match = linked if policy is CardPolicy.TOPOLOGY else _same_numa
    masks = [0] * len(cards)
    for (a, one), (b, other) in combinations(enumerate(cards), 2):
        if match(one, other):
            masks[a] |= 1 << b
            masks[b] |= 1 << a
    return masks


@lru_cache(maxsize=64)
def _sets_with_masks(count: int, number: int) -> tuple[tuple[tuple[int, ...], int], ...]:
    return tuple((picked, _mask(picked)) for picked in combinations(range(count), number))


def _mask(picked: Iterable[int]) -> int:
    return sum(1 << position for position in picked)


def _links_within(masks: Sequence[int], picked: Sequence[int], mask: int) -> int:
    return sum((masks[position] & mask).bit_count() for position in picked) // 2


def _badness(rows: Sequence[Sequence[int]], picked: Sequence[int], mask: int) -> tuple[int, ...]:
    return tuple(-_links_within(masks, picked, mask) for masks in rows)


def _grown(rows: Sequence[Sequence[int]], count: int, number: int) -> tuple[int, ...]:
    """The best set among those grown from each card by always adding the one that goes best with it."""

    def badness(picked: Sequence[int]) -> tuple[int, ...]:
        return _badness(rows, picked, _mask(picked))

    grown = []
    for seed in range(count):
        picked = [seed]
        while len(picked) < number:
            left = [position for position in range(count) if position not in picked]
            picked = min(([*picked, position] for position in left), key=badness)
        grown.append(tuple(sorted(picked)))
    return min(grown, key=badness)


def _same_numa(one: CardView, other: CardView) -> bool:
    return one.fact.numa_node is not None and one.fact.numa_node == other.fact.numa_node
