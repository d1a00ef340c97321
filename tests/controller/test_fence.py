"""When a write may start."""

import pytest

from vgpu.controller.fence import Fence
from vgpu.errors import LeaseRunsOut, NotLeading


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


def test_what_is_refused_is_told_apart_by_whether_the_lease_is_still_held() -> None:
    clock = Clock()
    fence = Fence(10, 4, clock)
    fence.renewed(100.0)
    fence.admit("a write")
    clock.now = 106.0
    with pytest.raises(LeaseRunsOut):
        fence.admit("a write")
    fence.renewed(106.0)
    fence.admit("a write")
    clock.now = 116.0
    with pytest.raises(NotLeading):
        fence.admit("a write")


def test_renewal_told_after_the_deadline_opens_nothing_until_leadership_began_anew() -> None:
    """What was dropped meanwhile as another's would never be done."""
    clock = Clock()
    fence = Fence(10, 4, clock)
    fence.renewed(100.0)
    clock.now = 111.0
    fence.renewed(109.0)
    assert not fence.holds_lease
    fence.lost()
    fence.renewed(109.0)
    assert fence.may_write()
