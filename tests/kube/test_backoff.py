"""Waiting times of the back-off."""

from vgpu.kube.backoff import Backoff


def test_bound_doubles_up_to_the_cap() -> None:
    backoff = Backoff(first_seconds=0.1, most_seconds=30, draw=lambda: 1.0)
    waits = [backoff.next_seconds() for _ in range(12)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-2:] == [30, 30]


def test_a_random_part_of_the_bound_is_waited() -> None:
    assert Backoff(first_seconds=4, draw=lambda: 0.25).next_seconds() == 1


def test_what_the_server_asks_for_is_the_least() -> None:
    assert Backoff(first_seconds=0.1, draw=lambda: 1.0).next_seconds(at_least_seconds=7) == 7


def test_short_success_does_not_start_over_and_a_long_one_does() -> None:
    backoff = Backoff(first_seconds=1, draw=lambda: 1.0)
    backoff.next_seconds()
    backoff.worked_for(9)
    assert backoff.next_seconds() == 2
    backoff.worked_for(10)
    assert backoff.next_seconds() == 1
