"""The least eviction that makes room for a pod on one node (preemption.md 4.4).

Enters: a NodeProblem and a limit on the cost. Leaves: a NodeAnswer, the cheapest units below the limit, or None.
Cards are chosen in order of the sum of their own least covers, which never exceeds the true cost; for each choice
the least cover of all its rows is found. Exact unless the budget is spent up. Comparing nodes is not done here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

from vgpu.core.placement import Placement
from vgpu.core.preempt.cover import SCALE, Budget, Cover, Weights, least_cover, least_units, members, row_bound
from vgpu.core.preempt.demand import Demand, Loads, Row, Rows
from vgpu.core.preempt.loads import Prices, least_price, spread
from vgpu.core.preempt.problem import NodeProblem, Unit

CARD_STEPS = 400
"""Steps for the least cover of a single card; beyond them its rough bound has to do."""
GREEDY_CHOICES = 16
"""Choices of cards that are tried without search once the budget is spent up."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The units to evict, their cost with penalties, and the copies of each container per card (by UUID)."""

    units: tuple[Unit, ...]
    cost: int
    loads: tuple[tuple[str, Loads], ...]


@dataclass(slots=True)
class _Priced:
    """One card with so many containers: its rows, and at least so much must be paid for it. `exact` is the least
    cover of the card alone, worked out when it is asked for; `rough` is less, and quickly found."""

    rows: Rows
    rough: int
    exact: int | None = None
    ties: int = 0


class NodeSearch:
    """One node's search. Bounds of cards are kept, so asking again with another limit is cheap."""

    def __init__(self, problem: NodeProblem, like: "NodeSearch | None" = None, taken: int | None = None) -> None:
        """`like`: the search for another number of copies of the same problem, whose work is shared. `taken`: how
        many cards the pod takes at most, where no other number of copies will be asked about."""
        self.problem = problem
        self.demand: Demand = like.demand if like else Demand(problem)
        self.node_rows = self.demand.node_rows(problem.copies)
        cards = self.demand.cards
        spans = [0] * len(problem.units)
        for card in cards:
            for index in card.gains:
                spans[index] += 1
        if taken is not None:
            spans = [min(span, taken) for span in spans]
        self.weights = Weights.of(problem.units, spans, problem.allowances)
        self._unit_ties = self.weights.tie_masks()
        self._alone = Weights(problem.units, self.weights.share, self.weights.share, {})
        self._free: Loads = (0,) * len(self.demand.containers)
        self._priced: dict[tuple[int, Loads], _Priced | None] = like._priced if like else {}
        self._below: int | None = None
        self._best: tuple[Cover, list[Loads]] | None = None
        counted = problem.copies > 1 and self.demand.interchangeable
        rounds = 1 if counted else problem.copies
        self._copies = problem.copies if counted else 1
        self._levels = [index for _ in range(rounds) for index in range(len(self.demand.containers))]

    def bound(self, *, rough: bool = False, below: int | None = None) -> int | None:
        """No eviction here costs less than this; None = none makes room. `rough`: a lower one, several times
        faster. `below`: dearer cards need not be looked at closely."""
        self._below = None if below is None else below * SCALE
        view = self.problem.view
        rows = self.node_rows
        if view.closed is not None or rows is None:
            return None
        highest = max((row_bound(row, self.weights.full) for row in rows), default=0)
        start = [self._free] * len(self.demand.cards)
        for level, index in enumerate(self.demand.containers):
            least = self._least(level, start, index.number * self._copies, rough=rough)
            if least is None:
                return None
            highest = max(highest, least)
        return -(-highest // SCALE)

    def solve(self, below: int | None, budget: Budget) -> NodeAnswer | None:
        """The cheapest eviction at less than `below`, or None. Budget spent up: the best found until then."""
        if self.bound(rough=True) is None:
            return None
        self._below = None if below is None else below * SCALE
        self._best = None
        self._descend(0, [self._free] * len(self.demand.cards), budget)
        return self._answer()

    def greedy(self) -> NodeAnswer | None:
        """Some eviction that makes room, found without search; units that it can do without are spared."""
        if self.bound(rough=True) is None:
            return None
        self._below, self._best = None, None
        tries = Budget(GREEDY_CHOICES)
        self._descend(0, [self._free] * len(self.demand.cards), tries, search=False)
        answer = self._answer()
        return None if answer is None else self.spare(answer)

    def spare(self, answer: NodeAnswer) -> NodeAnswer:
        """The answer without the units that the pod can do without, the dearest looked at first."""
        kept = list(answer.units)
        for unit in sorted(answer.units, key=lambda u: u.cost, reverse=True):
            fewer = [other for other in kept if other is not unit]
            if isinstance(self.problem.place_without(fewer), Placement):
                kept = fewer
        cost = sum(unit.cost for unit in kept)
        index = {id(unit): place for place, unit in enumerate(self.problem.units)}
        penalty = self.weights.penalty(sum(1 << index[id(unit)] for unit in kept))
        assert penalty is not None  # fewer units draw on fewer allowances
        return NodeAnswer(tuple(kept), cost + penalty // SCALE, answer.loads)

    def _answer(self) -> NodeAnswer | None:
        if self._best is None:
            return None
        cover, loads = self._best
        units = tuple(self.problem.units[index] for index in members(cover.mask))
        named = tuple(
            (card.view.fact.uuid, load) for card, load in zip(self.demand.cards, loads, strict=True) if any(load)
        )
        return NodeAnswer(units, cover.weight // SCALE, named)

    def _descend(self, level: int, loads: list[Loads], budget: Budget, *, search: bool = True) -> None:
        last = level + 1 == len(self._levels)
        for price, vector in self._choices(level, loads, last=last):
            if self._below is not None and price >= self._below:
                return
            if (not search and self._best is not None) or not budget.step():
                return
            index = self._levels[level]
            after = [_more(load, index, count) for load, count in zip(loads, vector, strict=True)]
            if not last:
                self._descend(level + 1, after, budget, search=search)
                continue
            cover = self._cover(after, budget) if search else self._any_cover(after)
            if cover is not None:
                self._best, self._below = (cover, after), cover.weight

    def _choices(self, level: int, loads: list[Loads], *, last: bool) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Copies of this level's container per card, in order of the summed bounds of all cards."""
        index = self._levels[level]
        total = self.demand.containers[index].number * self._copies
        prices = self._prices(index, loads)
        groups = self._numa_groups()
        if groups is None:
            return self._spread(index, loads, prices, total if not last else -total)
        every = [
            self._spread(index, loads, [p if place in group else p[:1] for place, p in enumerate(prices)], total)
            for group in groups
        ]
        return merge(*every)

    def _spread(
        self, index: int, loads: list[Loads], prices: Sequence[Prices], total: int
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """A negative total: nothing follows, so cards that take copies at no price at all are filled first."""
        if total >= 0:
            yield from spread(prices, total)
            return
        left = -total
        fixed: dict[int, int] = {}
        for place, load in enumerate(loads):
            if left and self._is_free(place, load, _more(load, index, self._copies)):
                fixed[place] = min(left, self._copies)
                left -= fixed[place]
        others = [(price[fixed[place]],) if place in fixed else price for place, price in enumerate(prices)]
        for summed, vector in spread(others, left):
            yield summed, tuple(fixed.get(place, copies) for place, copies in enumerate(vector))

    def _is_free(self, place: int, before: Loads, after: Loads) -> bool:
        old, new = self._price(place, before), self._price(place, after)
        return old is not None and new is not None and old.rows == new.rows

    def _prices(self, index: int, loads: list[Loads], *, rough: bool = False) -> list[list[int | None]]:
        prices: list[list[int | None]] = []
        for place, load in enumerate(loads):
            row: list[int | None] = []
            for count in range(self._copies + 1):
                priced = self._price(place, _more(load, index, count))
                if priced is None:
                    break
                far = self._below is not None and priced.rough >= self._below
                row.append(priced.rough if rough or far else self._exact(priced))
            prices.append(row)
        return prices

    def _least(self, level: int, loads: list[Loads], total: int, *, rough: bool) -> int | None:
        prices = self._prices(self._levels[level], loads, rough=rough)
        groups = self._numa_groups()
        if groups is None:
            return least_price(prices, total)
        found = [least_price([prices[place] for place in group], total) for group in groups]
        return min((price for price in found if price is not None), default=None)

    def _price(self, place: int, loads: Loads) -> _Priced | None:
        key = (place, loads)
        if key not in self._priced:
            rows = self.demand.rows(place, loads)
            self._priced[key] = None if rows is None else _Priced(rows, self._rough(rows))
        return self._priced[key]

    def _rough(self, rows: Rows) -> int:
        """The dearest of the rows, each at the price of as many of its cheapest units as it needs at least."""
        return max((row_bound(row, self.weights.share) for row in rows), default=0)

    def _exact(self, priced: _Priced) -> int:
        if priced.exact is None and self._cheapest_suffice(priced):
            priced.exact = priced.rough
        if priced.exact is None:
            budget = Budget(CARD_STEPS)
            cover = least_cover(priced.rows, self._alone, None, budget) if priced.rows else None
            priced.exact = priced.rough if cover is None or budget.spent_up else cover.weight
        return priced.exact

    def _cheapest_suffice(self, priced: _Priced) -> bool:
        """True when the units that make the rough bound satisfy all rows of the card: it is exact then."""
        if not priced.rows:
            return True
        shares = self.weights.share
        dearest = max(priced.rows, key=lambda row: row_bound(row, shares))
        chosen = {unit for _, unit in least_units(dearest, shares)}
        return all(sum([gain for unit, gain in row.gains if unit in chosen]) >= row.need for row in priced.rows)

    def _cover(self, loads: list[Loads], budget: Budget) -> Cover | None:
        """The least cover of all rows, part by part: parts share neither units nor allowances."""
        weight = mask = 0
        for part in self._parts(loads):
            below = None if self._below is None else self._below - weight
            cover = least_cover(part, self.weights, below, budget)
            if cover is None:
                return None
            weight, mask = weight + cover.weight, mask | cover.mask
        return Cover(weight, mask) if self._below is None or weight < self._below else None

    def _all_rows(self, loads: list[Loads]) -> list[Row]:
        return [row for _, rows in self._tied_rows(loads) for row in rows]

    def _tied_rows(self, loads: list[Loads]) -> Iterator[tuple[int, Rows]]:
        """Rows that belong together by themselves, with what ties them to others."""
        for row in self.node_rows or ():
            yield self._ties_of((row,)), (row,)
        for place, load in enumerate(loads):
            priced = self._price(place, load)
            if priced is not None and priced.rows:
                if not priced.ties:
                    priced.ties = self._ties_of(priced.rows)
                yield priced.ties, priced.rows

    def _parts(self, loads: list[Loads]) -> list[Rows]:
        parts: list[tuple[int, Rows]] = []
        for ties, rows in self._tied_rows(loads):
            apart = []
            for known, others in parts:
                if known & ties:
                    ties, rows = ties | known, others + rows  # noqa: PLW2901
                else:
                    apart.append((known, others))
            parts = [*apart, (ties, rows)]
        return [rows for _, rows in parts]

    def _ties_of(self, rows: Rows) -> int:
        """As a bit mask: units that the rows touch, their gangs and allowances."""
        found = 0
        for row in rows:
            for unit, _ in row.gains:
                found |= self._unit_ties[unit]
        return found

    def _any_cover(self, loads: list[Loads]) -> Cover | None:
        """Units taken one after another, the cheapest that helps the row with the fewest first."""
        mask = weight = 0
        for row in sorted(self._all_rows(loads), key=lambda r: len(r.gains)):
            need = row.need - sum(gain for unit, gain in row.gains if mask >> unit & 1)
            for unit, gain in sorted(row.gains, key=lambda entry: (self.weights.full[entry[0]], entry[0])):
                if need > 0 and not mask >> unit & 1 and self.weights.penalty(mask | 1 << unit) is not None:
                    mask, need = mask | 1 << unit, need - gain
            if need > 0:
                return None
        weight = sum(self.weights.full[unit] for unit in members(mask))
        return Cover(weight + (self.weights.penalty(mask) or 0), mask)

    def _numa_groups(self) -> list[set[int]] | None:
        if not self.problem.request.selection.numa_bind:
            return None
        groups: dict[int | None, set[int]] = {}
        for place, card in enumerate(self.demand.cards):
            groups.setdefault(card.view.fact.numa_node, set()).add(place)
        return list(groups.values())


def _more(loads: Loads, index: int, count: int) -> Loads:
    return (*loads[:index], loads[index] + count, *loads[index + 1 :]) if count else loads
