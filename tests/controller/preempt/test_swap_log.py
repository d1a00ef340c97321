"""Only pairs that are held apart are told of, and no longer than that."""

from vgpu.controller.preempt.swap_log import TIDY_AT, SwapLog
from vgpu.core.preempt.swaps import WINDOW_SECONDS, Swap


def swap(one: str, other: str, seconds: int) -> Swap:
    return Swap(one, other, seconds)


def test_s78_two_that_evict_each_other_in_turn_are_held_apart_for_a_while() -> None:
    log = SwapLog()
    assert not log.note(swap("a", "b", 1))
    assert not log.note(swap("b", "a", 2))
    assert log.apart(3) == ()
    assert log.note(swap("a", "b", 3))
    assert len(log.apart(4)) == 3
    assert log.apart(4) == log.apart(4)
    assert log.apart(4 + WINDOW_SECONDS) == ()


def test_one_that_alone_evicts_another_is_not_told_of() -> None:
    log = SwapLog()
    assert {log.note(swap("a", "b", second)) for second in range(1, 20)} == {False}
    assert log.apart(20) == ()


def test_old_pairs_are_forgotten() -> None:
    log = SwapLog()
    for number in range(2 * TIDY_AT):
        log.note(swap(f"a{number}", f"b{number}", number * WINDOW_SECONDS))
    assert len(log._pairs) <= TIDY_AT + 1
