"""The least set of units that gives free what every row needs: branch and bound, exact within a budget.

Enters: rows, the units' weights, allowances. Leaves: the cheapest set below a limit, or None. Weights are numbers
of one CostScale, multiplied by SCALE so that a weight can be shared out over the cards that a unit spans. Cards,
pods and nodes are unknown here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpu.core.preempt.demand import NODE, Row, Rows
from vgpu.core.preempt.problem import Allowance, Unit

SCALE = 720_720
"""Divisible by every number up to 16: so many cards may share a weight without a remainder."""


@dataclass(slots=True)
class Budget:
    """Steps that a search may still make. `spent_up`: one was refused, so what was found is not proven least."""

    left: int
    spent_up: bool = False

    def step(self) -> bool:
        """Take one step; False when none is left."""
        if self.left <= 0:
            self.spent_up = True
            return False
        self.left -= 1
        return True


@dataclass(frozen=True, slots=True)
class Cover:
    """Units (as a bit mask) that satisfy rows, and what they cost with the penalties."""

    weight: int
    mask: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Per unit: its weight, and the part of it that counts for each of its cards."""

    units: Sequence[Unit]
    full: Sequence[int]
    share: Sequence[int]
    allowances: Mapping[str, Allowance]
    mixed: frozenset[str] = frozenset()
    """Gangs that could go both whole and singly."""

    @classmethod
    def of(cls, units: Sequence[Unit], spans: Sequence[int], allowances: Sequence[Allowance]) -> "Weights":
        """The weights of units that hold on so many cards each."""
        full = [unit.cost * SCALE for unit in units]
        share = [weight // max(1, span) for weight, span in zip(full, spans, strict=True)]
        mixed = {unit.gang for unit in units if unit.whole} & {unit.gang for unit in units if not unit.whole}
        return cls(units, full, share, _binding(units, allowances), frozenset(mixed))

    def limited(self, index: int) -> bool:
        """True when the unit's choice touches others beyond what it gives free."""
        unit = self.units[index]
        return unit.gang in self.mixed or any(key in self.allowances for key, _ in unit.uses)

    def tie_masks(self) -> list[int]:
        """Per unit, as bits, itself and what its choice has in common with others: two units without a common bit
        are independent."""
        places: dict[str, int] = {}
        masks = []
        for index, unit in enumerate(self.units):
            ties = [f"allowance {key}" for key, _ in unit.uses if key in self.allowances]
            ties += [f"gang {unit.gang}"] if unit.gang in self.mixed else []
            mask = 1 << index
            for tie in ties:
                mask |= 1 << places.setdefault(tie, len(self.units) + len(places))
            masks.append(mask)
        return masks

    def penalty(self, mask: int) -> int | None:
        """What the units cost beyond their weights; None: too many for an allowance, or a gang taken twice."""
        used: dict[str, int] = {}
        gangs: dict[str, bool] = {}
        for index in members(mask):
            unit = self.units[index]
            if unit.gang and gangs.setdefault(unit.gang, unit.whole) != unit.whole:
                return None
            for key, count in unit.uses:
                used[key] = used.get(key, 0) + count
        total = 0
        for key, count in used.items():
            allowance = self.allowances.get(key)
            if allowance is None or count <= allowance.allowed:
                continue
            if allowance.penalty is None:
                return None
            total += (count - max(0, allowance.allowed)) * allowance.penalty * SCALE
        return total


def _binding(units: Sequence[Unit], allowances: Sequence[Allowance]) -> dict[str, Allowance]:
    """The allowances that all units together would exceed; a single one that does so is among them."""
    total: dict[str, int] = {}
    for unit in units:
        for key, count in unit.uses:
            total[key] = total.get(key, 0) + count
    return {a.key: a for a in allowances if total.get(a.key, 0) > a.allowed and a.key in total}


def members(mask: int) -> list[int]:
    """The positions of the bits that are set."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def least_cover(rows: Rows, weights: Weights, below: int | None, budget: Budget) -> Cover | None:
    """The cheapest units that satisfy all rows at less than `below`, or None. With a spent-up budget: the best
    found until then."""
    if not rows:
        return Cover(0, 0) if below is None or below > 0 else None
    search = _Search(rows, weights, below, budget)
    search.descend([row.need for row in rows], search.all_units, 0, 0)
    return search.best


def least_units(row: Row, prices: Sequence[int]) -> list[tuple[int, int]]:
    """(price, unit) of as many of the row's cheapest units as it needs at least; they may not be enough."""
    need, count = row.need, 0
    for gain in sorted([gain for _, gain in row.gains], reverse=True):
        count += 1
        need -= gain
        if need <= 0:
            break
    return sorted([(prices[unit], unit) for unit, _ in row.gains])[:count]


def row_bound(row: Row, prices: Sequence[int]) -> int:
    """No cover of the row costs less."""
    return sum([price for price, _ in least_units(row, prices)])


class _Search:
    def __init__(self, rows: Rows, weights: Weights, below: int | None, budget: Budget) -> None:
        self.rows = rows
        self.weights = weights
        self.below = below
        self.budget = budget
        self.best: Cover | None = None
        self.gains = [dict(row.gains) for row in rows]
        units = sorted({unit for gains in self.gains for unit in gains}, key=lambda u: (weights.full[u], u))
        self.all_units = sum(1 << unit for unit in units)
        self.rows_of = {u: [(r, gains[u]) for r, gains in enumerate(self.gains) if u in gains] for u in units}
        self.limited = sum(1 << unit for unit in units if weights.limited(unit))
        self.units = units
        self.dominators: dict[int, int] = {}
        prices = [weights.full if row.place == NODE else weights.share for row in rows]
        order = {unit: place for place, unit in enumerate(units)}
        self.cheapest = [sorted(gains, key=order.__getitem__) for gains in self.gains]
        self.by_price = [
            sorted((price[u], 1 << u) for u in gains) for price, gains in zip(prices, self.gains, strict=True)
        ]
        self.units_in = [sum(1 << unit for unit in gains) for gains in self.gains]
        self.by_gain = [
            sorted(((gain, 1 << u) for u, gain in gains.items()), reverse=True) for gains in self.gains
        ]

    def descend(self, needs: list[int], available: int, chosen: int, weight: int) -> None:
        """Extend the chosen units in every way that can still be cheaper than the best."""
        if not self.budget.step():
            return
        penalty = self.weights.penalty(chosen) if chosen & self.limited else 0
        if penalty is None or not self._beats(weight + penalty):
            return
        open_rows = [row for row, need in enumerate(needs) if need > 0]
        if not open_rows:
            self.best = Cover(weight + penalty, chosen)
            self.below = weight + penalty
            return
        bound = self._bound(open_rows, needs, available)
        if bound is None or not self._beats(weight + penalty + bound):
            return
        row = open_rows[0]
        if len(open_rows) > 1:
            row = min(open_rows, key=lambda r: (self.units_in[r] & available).bit_count())
        self._branch(row, needs, available, chosen, weight)

    def _branch(self, row: int, needs: list[int], available: int, chosen: int, weight: int) -> None:
        """One of the row's units has to be taken: the cheapest, or else another without it, and so on."""
        left = sum(gain for gain, bit in self.by_gain[row] if bit & available)
        gains = self.gains[row]
        for unit in self.cheapest[row]:
            bit = 1 << unit
            if not available & bit:
                continue
            if left < needs[row]:
                return
            available &= ~bit
            left -= gains[unit]
            if self._dominators_of(unit) & ~available & ~chosen & self.all_units:
                continue
            after = list(needs)
            for touched, gain in self.rows_of[unit]:
                after[touched] -= gain
            self.descend(after, available, chosen | bit, weight + self.weights.full[unit])

    def _beats(self, weight: int) -> bool:
        return self.below is None or weight < self.below

    def _bound(self, open_rows: list[int], needs: list[int], available: int) -> int | None:
        """At least so much must still be paid: per card the dearest of its rows, summed; the node's rows apart."""
        per_place: dict[int, int] = {}
        for row in open_rows:
            price = self._row_bound(row, needs[row], available)
            if price is None:
                return None
            place = self.rows[row].place
            per_place[place] = max(price, per_place.get(place, 0))
        node = per_place.pop(NODE, 0)
        return max(node, sum(per_place.values()))

    def _row_bound(self, row: int, need: int, available: int) -> int | None:
        count = 0
        for gain, bit in self.by_gain[row]:
            if bit & available:
                need -= gain
                count += 1
                if need <= 0:
                    break
        if need > 0:
            return None
        total = 0
        for price, bit in self.by_price[row]:
            if bit & available:
                total += price
                count -= 1
                if not count:
                    break
        return total

    def _dominators_of(self, unit: int) -> int:
        """Those that are cheaper and give at least as much everywhere: once such a one has been put aside, taking
        the dearer one in its place cannot help."""
        known = self.dominators.get(unit)
        if known is None:
            known = 0
            if not self.limited >> unit & 1:
                for other in self.units[: self.units.index(unit)]:
                    if not self.limited >> other & 1 and self._gives_as_much(other, unit):
                        known |= 1 << other
            self.dominators[unit] = known
        return known

    def _gives_as_much(self, one: int, other: int) -> bool:
        return all(self.gains[row].get(one, 0) >= gain for row, gain in self.rows_of[other])
