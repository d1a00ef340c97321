"""An evicted pod that is created once there is room is served by the rank that it had."""

from typing import Any

from tests.core.preempt.queueing import make_queue, make_workload, running, stand
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.to_come import entitled_with


def absent(created_seconds: int = 0, **fields: Any) -> Workload:
    return make_workload("absent", created_seconds=created_seconds, **fields)


def entitled(deserved: float, *workloads: Workload, to_come: list[Workload]) -> set[str]:
    return set(entitled_with(stand([make_queue(deserved=deserved)], *workloads), workloads, to_come))


def test_the_higher_class_to_come_is_entitled_before_those_that_wait() -> None:
    low = make_workload("low")
    assert entitled(1, low, to_come=[]) == {"low"}
    assert entitled(1, low, to_come=[absent(priority=1)]) == {"absent"}


def test_among_equals_it_is_as_old_as_it_was() -> None:
    waits = make_workload("waits", created_seconds=5)
    assert entitled(1, waits, to_come=[absent(4)]) == {"absent"}
    assert entitled(1, waits, to_come=[absent(6)]) == {"waits"}
    assert entitled(2, waits, to_come=[absent(6)]) == {"waits", "absent"}


def test_who_runs_counts_as_ever() -> None:
    assert entitled(1, running("high", priority=9), to_come=[absent(priority=1)]) == {"high"}


def test_who_could_not_start_whatever_were_free_takes_nothing() -> None:
    assert entitled(1, make_workload("low"), to_come=[absent(priority=1, active=False)]) == {"low"}


def test_other_queues_are_as_they_were() -> None:
    queues = [make_queue("a", deserved=1), make_queue("b", deserved=1)]
    everybody = [make_workload("of-a", "a"), make_workload("of-b", "b")]
    standing = stand(queues, *everybody)
    found = entitled_with(standing, everybody, [absent(queue="b", priority=1)])
    assert found == {"of-a", "absent"}
    assert entitled_with(standing, everybody, [absent(queue="none")]) == {"of-a", "of-b"}
