"""Ways to spread copies of one container over cards, the cheapest first.

Enters: per card the price of 0, 1, 2... copies. Leaves: vectors of copies per card, in order of their summed
price, made one at a time: whoever stops early pays for few. What a price means is unknown here.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

Prices = Sequence[int | None]
"""Price of 0, 1, 2... copies on one card; None = impossible, and then every further copy is too."""


def spread(prices: Sequence[Prices], total: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(price, copies per card) of every vector with this sum, in order of the price; ties in a fixed order."""
    rest = _cheapest_rest(prices, total)
    first = rest[0][total]
    if first is None:
        return
    heap: list[tuple[int, tuple[int, ...], int, int]] = [(first, (), total, 0)]
    while heap:
        price, picked, left, spent = heappop(heap)
        place = len(picked)
        if place == len(prices):
            yield price, tuple(-copies for copies in picked)
            continue
        for copies, here in enumerate(prices[place]):
            if here is None or copies > left:
                break
            beyond = rest[place + 1][left - copies]
            if beyond is not None:
                # Negated copies: of two equal prices the vector that fills earlier cards comes first.
                heappush(heap, (spent + here + beyond, (*picked, -copies), left - copies, spent + here))


def least_price(prices: Sequence[Prices], total: int) -> int | None:
    """The price of the cheapest vector, None when there is none."""
    return _cheapest_rest(prices, total)[0][total]


def _cheapest_rest(prices: Sequence[Prices], total: int) -> list[list[int | None]]:
    """[place][left]: the least price of `left` copies on the cards from `place` on."""
    table: list[list[int | None]] = [[None] * (total + 1) for _ in range(len(prices) + 1)]
    table[len(prices)][0] = 0
    for place in range(len(prices) - 1, -1, -1):
        row, after = table[place], table[place + 1]
        for copies, here in enumerate(prices[place]):
            if here is None:
                break
            for left in range(copies, total + 1):
                beyond = after[left - copies]
                if beyond is None:
                    continue
                known = row[left]
                if known is None or here + beyond < known:
                    row[left] = here + beyond
    return table
