"""Who is held apart: those who evict each other in turn, and nobody of whom one alone evicts."""

from collections.abc import Iterable

import pytest

from vgpu.core.preempt import swaps
from vgpu.core.preempt.swaps import WINDOW_SECONDS, Swap, frozen_until

NOW = 10_000


def held_apart(*swaps: Swap) -> bool:
    return frozen_until(swaps, "a", "b", NOW) is not None


def swap(preemptor: str, victim: str, ago: int) -> Swap:
    return Swap(preemptor, victim, NOW - ago)


def loop(turns: int) -> Iterable[Swap]:
    """Two that take the same cards from each other, until they are held apart."""
    found: list[Swap] = []
    for turn in range(turns):
        one, other = ("a", "b") if turn % 2 else ("b", "a")
        if frozen_until(found, one, other, NOW) is not None:
            break
        found.append(Swap(one, other, NOW - turns + turn))
    return found


def test_s78_two_who_evict_each_other_in_turn_are_held_apart() -> None:
    turns = [swap("a", "b", 30), swap("b", "a", 20), swap("a", "b", 10)]
    assert held_apart(*turns)
    assert not held_apart(*turns[:2])


def test_s78_a_loop_ends_after_three_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes on for ever with the rule switched off."""
    assert len(list(loop(50))) == 3
    monkeypatch.setattr(swaps, "MOST_SWAPS", 10**6)
    assert len(list(loop(50))) == 50


@pytest.mark.parametrize("times", [3, 20])
def test_one_that_alone_evicts_is_not(times: int) -> None:
    """Its plans were taken over, victims were stuck, a budget or a lost node ended them; or it grows (S01)."""
    assert not held_apart(*(swap("a", "b", 10 * i) for i in range(1, times + 1)))


def test_several_victims_in_one_turn_are_one_turn() -> None:
    assert not held_apart(*(swap("a", "b", ago) for ago in (9, 8, 7)), *(swap("b", "a", ago) for ago in (3, 2, 1)))


def test_what_is_long_ago_does_not_count() -> None:
    assert not held_apart(swap("a", "b", WINDOW_SECONDS + 1), swap("b", "a", 20), swap("a", "b", 10))
