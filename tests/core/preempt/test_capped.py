"""Whom his own queue's capability holds back has no share of what it deserves: those who run keep theirs."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.core.preempt.contest import Contest, Rules, random_contest
from tests.core.preempt.queueing import cards, limit, make_gang, make_queue, make_workload, running, stand
from vgpu.core.preempt import entitlement
from vgpu.core.preempt.facts import Amounts, Limits, QueueFact, WithinQueue, Workload


def capped(deserved: float = 2, capability: float = 3, **fields: Any) -> QueueFact:
    return make_queue(deserved=deserved, capability=limit(capability), **fields)


def entitled(queue: QueueFact, *workloads: Workload) -> set[str]:
    return set(stand([queue], *workloads).entitled)


def runners(count: int = 3, **fields: Any) -> list[Workload]:
    return [running(f"r{i}", created_seconds=10 + i, **fields) for i in range(count)]


def test_who_waits_for_his_own_queue_leaves_what_it_deserves_to_those_who_run() -> None:
    oldest = make_workload("w", created_seconds=1)
    assert entitled(capped(), oldest, *runners()) == {"r0", "r1"}
    usage = stand([capped()], oldest, *runners()).usage_of("q")
    assert (usage.used, usage.entitled, usage.borrowed) == (cards(3), cards(2), cards(1))


def test_with_the_rule_switched_off_he_takes_it_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entitlement, "held_back", lambda *_: frozenset())
    assert entitled(capped(), make_workload("w", created_seconds=1), *runners()) == {"w", "r0"}


@pytest.mark.parametrize("capability", [Limits(), limit(4), Limits(memory_mib=4 * 32_768)])
def test_he_counts_where_the_capability_leaves_him_room_or_is_not_stated(capability: Limits) -> None:
    queue = make_queue(deserved=2, capability=capability)
    assert entitled(queue, make_workload("w", created_seconds=1), *runners()) == {"w", "r0"}


def test_he_counts_again_when_one_of_the_queue_is_being_deleted() -> None:
    *stay, goes = runners()
    assert entitled(capped(), make_workload("w"), *stay, replace(goes, terminating=True)) == {"w", "r0"}


def test_he_counts_where_he_may_evict_who_runs() -> None:
    assert entitled(capped(), make_workload("w", priority=1), *runners()) == {"w", "r0"}


@pytest.mark.parametrize(
    ("queue", "waits", "runs"),
    [
        ({"within_queue": WithinQueue.NEVER}, {}, {}),
        ({}, {"preempt_never": True}, {}),
        ({}, {}, {"preemptable": False}),
        ({}, {}, {"daemonset_or_mirror": True}),
        ({}, {"size": 2}, {"priority": 1}),
    ],
    ids=["the queue forbids it", "he may evict nobody", "their owner forbids it", "a DaemonSet", "an equal class"],
)
def test_a_higher_class_does_not_count_where_nobody_goes_for_it(
    queue: dict[str, Any], waits: dict[str, Any], runs: dict[str, Any]
) -> None:
    waiting = make_workload("w", priority=1, **waits)
    assert entitled(capped(**queue), waiting, *runners(**runs)) == {"r0", "r1"}


def test_where_newer_equals_may_go_the_older_one_counts_and_the_newer_one_does_not() -> None:
    queue = capped(deserved=4, within_queue=WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY)
    assert entitled(queue, make_workload("old", created_seconds=1), *runners()) == {"old", "r0", "r1", "r2"}
    assert entitled(queue, make_workload("new", created_seconds=99), *runners()) == {"r0", "r1", "r2"}


def test_what_is_larger_than_the_capability_never_counts() -> None:
    queue = make_queue(deserved=2, capability=Limits(memory_mib=100))
    large = make_workload("large", claim=Amounts(1000, 101, 100), priority=9)
    small = make_workload("small", claim=Amounts(2000, 100, 100))
    assert entitled(queue, large, small) == {"small"}


def test_a_dimension_of_which_he_wants_nothing_does_not_hold_him_back() -> None:
    queue = make_queue(deserved=2, capability=Limits(cores=100))
    assert entitled(queue, make_workload("w", claim=Amounts(1000, 100, 0)), *runners(2)) == {"w", "r0"}


class TestGangs:
    def test_one_of_which_nobody_runs_is_held_back_as_a_whole(self) -> None:
        gang = [replace(one, running=False, created_seconds=0) for one in make_gang("g", members=2, minimum=2)]
        assert entitled(capped(), *gang, *runners(2)) == {"r0", "r1"}
        assert entitled(capped(capability=4), *gang, *runners(2)) == {"g-0", "g-1"}

    def test_its_surplus_holds_back_nobody(self) -> None:
        gang = [replace(one, running=False, created_seconds=0) for one in make_gang("g", members=3, minimum=1)]
        assert entitled(capped(), *gang, *runners(2)) == {"g-0", "g-1"}

    def test_surplus_that_waits_is_held_back_by_itself(self) -> None:
        one, two, three, four = make_gang("g", members=4, minimum=1)
        waiting = replace(two, running=False)
        assert entitled(capped(), one, waiting, three, four) == {"g-0", "g-2"}


def contest(seed: int) -> Contest:
    """One in which most queues are full before the cluster is."""
    made, random = random_contest(seed, Rules()), Random(seed)
    for name, queue in made.queues.items():
        deserved = (queue.deserved.cards_thousandths or 0) // 1000
        made.queues[name] = replace(queue, capability=limit(deserved + random.choice([0, 1, 1, 2])))
    return made


def test_nobody_goes_in_circles_and_no_cap_breaks_where_queues_are_full() -> None:
    played = [(contest(seed), seed) for seed in range(500)]
    assert [seed for made, seed in played if made.circles()] == []
    assert [made.wrongs for made, _ in played if made.wrongs] == []
    assert sum(made.evictions for made, _ in played) > 100


@pytest.mark.soak
def test_nobody_goes_in_circles_in_twenty_thousand_contests_of_full_queues() -> None:
    assert not any(contest(seed).circles() for seed in range(20_000))
