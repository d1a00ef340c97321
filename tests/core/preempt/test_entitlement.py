"""The walk that says who is entitled: by class and age under what the queue deserves, whoever runs."""

from dataclasses import replace

import pytest

from tests.core.preempt.queueing import cards, limit, make_gang, make_queue, make_workload, running, stand
from vgpu.core.preempt.facts import Amounts, Gang, Limits, QueueFact, StopPolicy, Workload


def entitled(deserved: float | Limits, *workloads: Workload, **fields: object) -> set[str]:
    return set(stand([make_queue(deserved=deserved, **fields)], *workloads).entitled)


def test_the_higher_class_is_entitled_first_then_the_older_then_the_lower_uid() -> None:
    workloads = [
        make_workload("old", created_seconds=1),
        make_workload("new-b", created_seconds=2),
        make_workload("new-a", created_seconds=2),
        make_workload("high", created_seconds=3, priority=10),
    ]
    assert entitled(1, *workloads) == {"high"}
    assert entitled(2, *workloads) == {"high", "old"}
    assert entitled(3, *workloads) == {"high", "old", "new-a"}


def test_what_does_not_fit_is_skipped() -> None:
    """The stated price: a job larger than its queue deserves is opportunistic."""
    assert entitled(2, make_workload("large", size=3, priority=10), make_workload("small")) == {"small"}


def test_a_waiting_workload_is_entitled_like_a_running_one() -> None:
    assert entitled(1, running("low"), make_workload("high", priority=1)) == {"high"}


@pytest.mark.parametrize("start", [True, False])
def test_starting_and_stopping_changes_no_mark(start: bool) -> None:
    """Also where the cards in hand are larger than the claim says."""
    workloads = [
        make_workload("a", created_seconds=1, claim=cards(1), amounts=cards(1)),
        make_workload("b", created_seconds=2),
        make_workload("c", created_seconds=3, priority=2, size=2),
    ]
    moved = [replace(w, running=start, amounts=Amounts(1000, 10**6, 100) if start else w.claim) for w in workloads]
    deserved = Limits(3000, 4 * 32_768)
    assert entitled(deserved, *moved) == entitled(deserved, *workloads) == {"a", "c"}


@pytest.mark.parametrize(
    ("deserved", "wanted"),
    [
        (Limits(), set()),
        (Limits(cores=50), {"cores"}),
        (Limits(memory_mib=100), {"cores", "coreless"}),
        (Limits(memory_mib=50), {"cores"}),
        (Limits(cards_thousandths=0), set()),
        (Limits(cards_thousandths=1000, memory_mib=0), set()),
    ],
    ids=["nothing stated", "cores only", "memory for both", "memory for one", "no cards", "no memory"],
)
def test_a_dimension_that_is_not_stated_neither_entitles_nor_limits(deserved: Limits, wanted: set[str]) -> None:
    workloads = [
        make_workload("cores", claim=Amounts(500, 50, 50)),
        make_workload("coreless", claim=Amounts(250, 50, 0), created_seconds=1),
    ]
    assert entitled(deserved, *workloads) == wanted


def test_a_workload_that_could_not_be_scheduled_holds_no_entitlement() -> None:
    assert entitled(1, make_workload("gated", priority=9, active=False), make_workload("next")) == {"next"}


def test_a_pod_that_is_being_deleted_holds_no_entitlement() -> None:
    assert entitled(1, running("going", priority=9, terminating=True), make_workload("next")) == {"next"}


def test_in_a_stopped_queue_only_what_runs_is_entitled() -> None:
    stopped = {"stop_policy": StopPolicy.HOLD}
    assert entitled(1, make_workload("waits", priority=9), running("runs"), **stopped) == {"runs"}


def test_a_queue_that_does_not_exist_entitles_nobody() -> None:
    assert stand([make_queue("other", deserved=9)], running("w", "gone")).entitled == frozenset()


def test_each_queue_is_walked_for_itself() -> None:
    queues = [make_queue("a", deserved=1), make_queue("b", deserved=1)]
    standing = stand(queues, running("a1", "a"), running("a2", "a"), running("b1", "b"))
    assert standing.entitled == {"a1", "b1"}


class TestGangs:
    def test_the_members_that_it_needs_are_entitled_together_or_not_at_all(self) -> None:
        gang = make_gang("g", members=3, minimum=2)
        assert entitled(1, *gang) == set()
        assert entitled(2, *gang) == {"g-0", "g-1"}
        assert entitled(3, *gang) == {"g-0", "g-1", "g-2"}

    def test_surplus_without_its_gang_is_not_entitled(self) -> None:
        """Though each surplus pod alone would fit."""
        assert entitled(1, *make_gang("g", members=4, minimum=2), make_workload("x", priority=-1)) == {"x"}

    def test_its_oldest_members_are_the_needed_ones_whoever_runs(self) -> None:
        gang = make_gang("g", members=4, minimum=2)
        moved = [replace(w, running=w.uid in ("g-2", "g-3")) for w in gang]
        assert entitled(2, *moved) == entitled(2, *gang) == {"g-0", "g-1"}

    def test_it_is_as_important_as_its_most_important_member(self) -> None:
        first, second = make_gang("g", members=2, minimum=2)
        between = make_workload("between", size=2, priority=5)
        assert entitled(2, first, replace(second, priority=10), between) == {"g-0", "g-1"}
        assert entitled(2, first, second, between) == {"between"}

    def test_surplus_is_entitled_in_its_own_turn(self) -> None:
        between = make_workload("between", created_seconds=1)
        assert entitled(3, *make_gang("g", members=3, minimum=2), between) == {"g-0", "g-1", "between"}

    def test_a_gang_with_too_few_members_to_start_holds_nothing(self) -> None:
        waiting = [replace(w, running=False) for w in make_gang("g", members=2, minimum=3)]
        assert entitled(9, *waiting) == set()

    def test_what_is_left_of_a_broken_gang_stays_entitled_while_it_runs(self) -> None:
        assert entitled(9, *make_gang("g", members=2, minimum=3)) == {"g-0", "g-1"}

    def test_a_minimum_of_none_counts_as_one(self) -> None:
        assert entitled(1, *make_gang("g", members=2, minimum=0)) == {"g-0"}

    def test_the_order_in_which_members_are_told_does_not_matter(self) -> None:
        gang = make_gang("g", members=4, minimum=2)
        assert entitled(3, *gang) == entitled(3, *reversed(gang)) == {"g-0", "g-1", "g-2"}


def test_a_lowered_entitlement_takes_the_mark_from_the_lowest_first() -> None:
    """S69: the mark goes; eviction is another question, and asked only when somebody needs the room."""
    workloads = [running(f"w{i}", created_seconds=i) for i in range(4)]
    assert entitled(4, *workloads) == {"w0", "w1", "w2", "w3"}
    assert entitled(2, *workloads) == {"w0", "w1"}


def test_limits_in_halves_of_cards_are_exact() -> None:
    halves = [running(f"h{i}", size=0.5, created_seconds=i) for i in range(3)]
    assert entitled(limit(1), *halves) == {"h0", "h1"}


def test_a_queue_fact_has_the_defaults_of_the_contract() -> None:
    queue = QueueFact("q")
    assert (queue.stuck_timeout_seconds, queue.hold_timeout_seconds) == (60, 300)
    assert (queue.backoff_base_seconds, queue.backoff_max_seconds) == (10, 300)
    assert queue.reclaimable
    assert queue.max_in_flight is None
    assert Gang("g", 1).disruption_all is False
