"""Members beyond a gang's minimum use idle cards only as far as the queue lets them start with the others."""

from tests.controller.test_gangs import Bench, bench, member, runs
from tests.controller.virtual_time import run_virtually
from vgpu.core.facts import PodFact
from vgpu.core.preempt.facts import Limits, QueueFact
from vgpu.core.preempt.queue_gate import QueueGate


def gang(name: str, size: int, minimum: int, minute: int = 0) -> list[PodFact]:
    """Members of one card each, the first the oldest."""
    return [member(f"{name}{n}", name, minimum, created=f"2026-01-01T00:{minute:02}:{n:02}Z") for n in range(size)]


def refused(it: Bench, *pods: PodFact) -> list[str]:
    """Names of those whom their gang or their queue does not let start."""
    gate = QueueGate(it.roster)
    return [pod.name for pod in pods if it.desk.refusal(pod) is not None or gate.refusal(pod) is not None]


def test_a_gang_is_not_kept_back_by_what_is_held_for_its_own_surplus() -> None:
    async def story() -> None:
        async with bench(4, queue=QueueFact("default", capability=Limits(2000))) as it:
            pods = gang("a", 3, 2)
            await it.see(*pods)
            assert sorted(it.sent()) == ["a0", "a1"]
            assert refused(it, *pods) == ["a2"]

    run_virtually(story())


def test_so_much_surplus_as_the_queue_takes_starts_with_the_others() -> None:
    async def story() -> None:
        async with bench(8, queue=QueueFact("default", capability=Limits(5000))) as it:
            pods = gang("a", 8, 2)
            await it.see(*pods)
            assert sorted(it.sent()) == ["a0", "a1", "a2", "a3", "a4"]
            assert refused(it, *pods[:5]) == []

    run_virtually(story())


def test_what_one_gang_is_given_counts_for_the_next() -> None:
    """The first leaves the queue one card, which is too little for the second."""

    async def story() -> None:
        async with bench(8, queue=QueueFact("default", capability=Limits(4000))) as it:
            a, b = gang("a", 3, 2), gang("b", 2, 2, minute=1)
            await it.see(*a, *b)
            assert sorted(it.sent()) == ["a0", "a1", "a2"]
            assert refused(it, *a, *b) == ["b0", "b1"]
            await it.see(*(runs(pod, "n0", n) for n, pod in enumerate(a)))
            await it.lose("a2")
            assert sorted(it.sent()) == ["b0", "b1"]

    run_virtually(story())
