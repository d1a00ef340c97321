"""Costs as numbers: their order and their sums are those of the vectors."""

from random import Random
from typing import Any

from vgpu.core.preempt.cost import Cost, CostScale, low_part, tie_of

SCALE = CostScale.of([0, 100, 50, 100])


def random_cost(random: Random) -> Cost:
    by_class = tuple(random.randint(0, 3) for _ in SCALE.classes)
    low = [random.choice([0, 1, 2, 10**9]) for _ in range(6)]
    return Cost(random.randint(0, 1), by_class, *low)


def as_tuple(cost: Cost) -> tuple[Any, ...]:
    return (
        cost.violations,
        cost.pods_by_class,
        cost.broken,
        cost.pods,
        cost.lost_work,
        cost.freed,
        cost.age_seconds,
        cost.tie,
    )


def summed(costs: list[Cost]) -> Cost:
    """Field by field."""
    rows = [as_tuple(cost) for cost in costs]
    by_class = [sum(counts) for counts in zip(*(cost.pods_by_class for cost in costs), strict=True)]
    fields = [sum(row[place] for row in rows) for place in (0, 2, 3, 4, 5, 6, 7)]
    return Cost(fields[0], tuple(by_class), *fields[1:])


def test_numbers_are_ordered_as_the_vectors_are() -> None:
    random = Random(1)
    for _ in range(2000):
        one, other = random_cost(random), random_cost(random)
        assert (SCALE.pack(one) < SCALE.pack(other)) == (as_tuple(one) < as_tuple(other))


def test_sums_of_numbers_are_sums_of_vectors() -> None:
    random = Random(2)
    for _ in range(500):
        costs = [random_cost(random) for _ in range(random.randint(1, 20))]
        assert SCALE.unpack(sum(SCALE.pack(cost) for cost in costs)) == summed(costs)


def test_a_number_may_be_put_together_from_its_high_and_its_low_fields() -> None:
    high = Cost(pods_by_class=SCALE.one_of(50), broken=1, pods=1)
    for low in ((0, 0, 0, 0), (7, 3, 2, 1), (2**60, 1000, 2**50, 2**40 - 1)):
        whole = Cost(0, SCALE.one_of(50), 1, 1, *low)
        assert SCALE.pack(high) + low_part(*low) == SCALE.pack(whole)


def test_any_number_of_low_pods_is_cheaper_than_one_of_a_higher_class() -> None:
    high = SCALE.pack(Cost(pods_by_class=SCALE.one_of(100), pods=1))
    low = SCALE.pack(Cost(pods_by_class=SCALE.one_of(50), broken=1, pods=1, lost_work=2**50, age_seconds=2**40))
    assert 1000 * low < high


def test_a_field_that_is_too_large_never_reaches_the_one_before_it() -> None:
    assert SCALE.pack(Cost(pods_by_class=(0, 0, 0), lost_work=2**200)) < SCALE.pack(
        Cost(pods_by_class=(0, 0, 0), pods=1)
    )


def test_equal_uids_alone_have_equal_ties() -> None:
    assert tie_of("a") == tie_of("a")
    assert len({tie_of(f"pod-{number}") for number in range(5000)}) == 5000
