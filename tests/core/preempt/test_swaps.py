"""Who is held apart: those who evict each other in turn, or one in vain; not one who grows at another's cost."""

from vgpu.core.preempt.swaps import WINDOW_SECONDS, Swap, frozen_until

NOW = 10_000


def held_apart(*swaps: Swap) -> bool:
    return frozen_until(swaps, "a", "b", NOW) is not None


def swap(preemptor: str, victim: str, ago: int, pod: str, plan: str = "") -> Swap:
    return Swap(preemptor, victim, NOW - ago, pod, plan or f"ns/{pod}-{ago}")


def test_s78_two_who_evict_each_other_in_turn_are_held_apart() -> None:
    turns = [swap("a", "b", 30, "a1"), swap("b", "a", 20, "b1"), swap("a", "b", 10, "a2")]
    assert held_apart(*turns)
    assert not held_apart(*turns[:2])


def test_s78_a_pod_that_evicts_again_and_again_and_never_starts_is_held_apart() -> None:
    assert held_apart(*(swap("a", "b", ago, "a1") for ago in (30, 20, 10)))


def test_a_workload_that_grows_at_the_cost_of_another_is_not() -> None:
    """S01 with both as Deployments: four pods, each with one victim."""
    assert not held_apart(*(swap("a", "b", 10 * i, f"a{i}") for i in range(1, 9)))


def test_several_victims_of_one_plan_are_one_turn() -> None:
    """S03 with one Deployment of low pods: three of them go for one."""
    assert not held_apart(*(swap("a", "b", ago, "a1", "ns/plan") for ago in (3, 2, 1)))


def test_what_is_long_ago_does_not_count() -> None:
    old = [swap("a", "b", WINDOW_SECONDS + 1, "a1"), swap("b", "a", 20, "b1"), swap("a", "b", 10, "a2")]
    assert not held_apart(*old)
