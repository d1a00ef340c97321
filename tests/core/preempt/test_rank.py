"""Ranks compare; the boost for those who were evicted stays below the next class."""

import pytest

from tests.core.preempt.queueing import make_queue, make_workload, running, stand
from vgpu.core.preempt.eligible import may_evict
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.rank import LARGEST_BOOST, Rank, Service, effective_priority, is_older, rank_of
from vgpu.core.reasons import Reason


def test_entitled_work_ranks_above_any_class() -> None:
    ranks = [rank_of(make_workload("a", priority=100), ()), rank_of(make_workload("b", priority=1), {"b"})]
    assert ranks == sorted(ranks) == [Rank(False, 100), Rank(True, 1)]
    assert Rank(True, 2) > Rank(True, 1)


def test_age_is_compared_by_creation_then_uid() -> None:
    assert is_older(make_workload("b", created_seconds=1), make_workload("a", created_seconds=2))
    assert is_older(make_workload("a"), make_workload("b"))
    assert not is_older(make_workload("a"), make_workload("a"))


@pytest.mark.parametrize(
    ("evictions", "classes", "wanted"),
    [
        (0, {10, 20}, 10),
        (3, {10, 20}, 13),
        (50, {10, 20}, 19),
        (50, {10, 11}, 10),
        (50, {10}, 60),
        (10**6, {10}, 10 + LARGEST_BOOST),
        (10**6, {10, 10**7}, 10 + LARGEST_BOOST),
        (5, {0, 10}, 15),
    ],
)
def test_s77_a_boost_stays_below_the_next_class_in_use(evictions: int, classes: set[int], wanted: int) -> None:
    assert effective_priority(make_workload("w", priority=10, evictions=evictions), classes) == wanted


def test_s77_a_boost_gives_no_right_to_evict() -> None:
    """Neither over the next class nor over its own."""
    often = make_workload("often", priority=10, evictions=10**6)
    standing = stand([make_queue()], often, running("peer", priority=10), running("high", priority=20))
    for name in ("peer", "high"):
        verdict = may_evict(standing, often, running(name, priority=10 if name == "peer" else 20), 0)
        assert isinstance(verdict, No)
        assert verdict.reason is Reason.NO_LOWER_RANK


def test_room_is_offered_to_the_entitled_then_by_queue_class_debt_and_age() -> None:
    queues = {q.name: q for q in (make_queue("first", priority=5), make_queue("second"))}
    wanted = [
        make_workload("entitled", "second", priority=0, created_seconds=9),
        make_workload("queue", "first", priority=1, created_seconds=9),
        make_workload("class", "second", priority=50, created_seconds=9),
        make_workload("evicted", "second", priority=10, created_seconds=9, evictions=2),
        make_workload("older", "second", priority=10, created_seconds=1),
        make_workload("x", "second", priority=10, created_seconds=2),
        make_workload("y", "second", priority=10, created_seconds=2),
        make_workload("stray", "gone", priority=10, created_seconds=3),
    ]
    service = Service(queues, {"entitled"}, {w.priority for w in wanted})
    mixed = wanted[4:] + wanted[:4]
    assert sorted(mixed, key=service.key) == wanted
