"""When a write may start."""

from vgpu.controller.fence import Fence


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_fence_is_closed_before_the_first_renewal() -> None:
    fence = Fence(10, 4, Clock())
    assert not fence.leading
    assert not fence.may_write()


def test_no_write_starts_in_the_margin_and_leading_ends_at_the_deadline() -> None:
    clock = Clock()
    fence = Fence(10, 4, clock)
    fence.renewed(100.0)
    seen = {}
    for seconds in (0.0, 5.9, 6.0, 9.9, 10.0, 1e6):
        clock.now = 100.0 + seconds
        seen[seconds] = (fence.leading, fence.may_write())
    assert seen == {
        0.0: (True, True),
        5.9: (True, True),
        6.0: (True, False),
        9.9: (True, False),
        10.0: (False, False),
        1e6: (False, False),
    }


def test_renewal_counts_from_its_sending() -> None:
    clock = Clock()
    fence = Fence(10, 4, clock)
    clock.now = 108.0
    fence.renewed(100.0)
    assert not fence.may_write()
    assert fence.deadline == 110.0


def test_renewal_answered_late_does_not_set_the_fence_back() -> None:
    fence = Fence(10, 4, Clock())
    fence.renewed(100.0)
    fence.renewed(95.0)
    assert fence.deadline == 110.0


def test_lost_leadership_closes_at_once() -> None:
    fence = Fence(10, 4, Clock())
    fence.renewed(100.0)
    fence.lost()
    assert not fence.leading
    assert fence.deadline is None
