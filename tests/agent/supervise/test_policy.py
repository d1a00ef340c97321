"""When a child is started, when it counts as hanging, what follows its end."""

import pytest

from vgpu.agent.supervise.policy import After, ChildLife, Limits

LIMITS = Limits(first_beat=30, beat=5, first_pause=1, longest_pause=30, calm=60)
KILLED = -9


def started(now: float = 100) -> ChildLife:
    life = ChildLife(LIMITS)
    life.started(now)
    return life


def test_a_child_is_started_at_once_and_not_twice() -> None:
    life = ChildLife(LIMITS)
    assert life.starts(0)
    life.started(0)
    assert not life.starts(1000)


def test_a_silent_child_hangs_after_five_seconds_and_a_starting_one_after_thirty() -> None:
    life = started(100)
    assert not life.hangs(129.9)
    assert life.hangs(130)
    life.beaten(110)
    assert not life.hangs(114.9)
    assert life.hangs(115)


def test_a_child_that_does_not_run_does_not_hang() -> None:
    life = started(100)
    life.ended(KILLED, 101)
    assert not life.hangs(10_000)


def test_the_time_in_which_the_supervisor_stood_still_does_not_count() -> None:
    life = started(100)
    life.excuse(20)
    assert not life.hangs(149.9)
    life.beaten(150)
    life.excuse(60)
    assert not life.hangs(214.9)
    assert life.hangs(215)


def test_a_child_that_fails_again_and_again_is_started_more_and_more_seldom() -> None:
    life, now, pauses = started(0), 0.0, []
    for _ in range(8):
        assert life.ended(KILLED, now) is After.RESTART
        pauses.append(life.start_at - now)
        assert not life.starts(life.start_at - 0.1)
        now = life.start_at
        assert life.starts(now)
        life.started(now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_child_that_ran_for_a_minute_is_soon_started_again() -> None:
    life = started(0)
    life.failures = 7
    life.ended(KILLED, 59)
    assert life.start_at == 59 + 30
    life.started(100)
    life.ended(1, 160)
    assert life.start_at == 161


@pytest.mark.parametrize(
    ("status", "ever_beat", "want"),
    [
        pytest.param(3, True, After.DONE, id="not needed"),
        pytest.param(2, False, After.GIVE_UP, id="wrong setting at the start"),
        pytest.param(2, True, After.RESTART, id="wrong setting once it ran"),
        pytest.param(0, True, After.RESTART, id="ended by somebody else's SIGTERM"),
        pytest.param(1, False, After.RESTART, id="failed"),
        pytest.param(KILLED, True, After.RESTART, id="killed"),
    ],
)
def test_what_follows_an_end(status: int, ever_beat: bool, want: After) -> None:
    life = started(0)
    if ever_beat:
        life.beaten(1)
    assert life.ended(status, 2) is want
    assert life.starts(1000) is (want is not After.DONE)
