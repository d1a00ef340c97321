"""Spreading copies over cards: every vector once, the cheapest first."""

from itertools import islice, product
from random import Random

import pytest

from vgpu.core.preempt.loads import least_price, spread


def by_trying(prices: list[list[int | None]], total: int) -> list[tuple[int, tuple[int, ...]]]:
    found = []
    for vector in product(*(range(len(row)) for row in prices)):
        if sum(vector) != total:
            continue
        given = [row[copies] for row, copies in zip(prices, vector, strict=True)]
        if None not in given:
            found.append((sum(price for price in given if price is not None), vector))
    return found


def random_prices(random: Random) -> list[list[int | None]]:
    rows: list[list[int | None]] = []
    for _ in range(random.randint(1, 4)):
        row: list[int | None] = [0]
        while len(row) < 4 and random.random() < 0.8:
            row.append(random.randint(0, 5))
        if random.random() < 0.3:
            row.append(None)
        rows.append(row)
    return rows


def test_every_vector_comes_once_and_in_order_of_its_price() -> None:
    random = Random(1)
    for _ in range(500):
        prices, total = random_prices(random), random.randint(0, 5)
        got = list(spread(prices, total))
        assert sorted(got) == sorted(by_trying(prices, total))
        assert [price for price, _ in got] == sorted(price for price, _ in got)
        assert least_price(prices, total) == (got[0][0] if got else None)


def test_the_first_of_very_many_vectors_costs_little() -> None:
    prices: list[list[int | None]] = [[0, 1, 2] for _ in range(40)]
    assert len(list(islice(spread(prices, 40), 3))) == 3


@pytest.mark.parametrize("total", [1, 3])
def test_impossible_totals_have_no_vector(total: int) -> None:
    assert list(spread([[0], [0, None]], total)) == []
