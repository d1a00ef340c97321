"""What people are told: the sentence says what is the case, with its numbers."""

from typing import Any

import pytest

from vgpu.core.preempt import words
from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.facts import Amounts, Workload
from vgpu.core.preempt.protection import Right
from vgpu.core.preempt.words import Held
from vgpu.core.reasons import Reason
from vgpu.core.terms import OwnerRef


def workload(name: str, queue: str = "q", priority: int = 0, **fields: Any) -> Workload:
    given = {"amounts": Amounts(500), "claim": Amounts(500), "created_seconds": 0, "running": True, **fields}
    return Workload(f"uid-{name}", "team", name, queue, priority, owner=OwnerRef("o"), **given)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (90_061, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: int, want: str) -> None:
    assert words.duration_words(seconds) == want


def test_a_few_names_are_told_and_the_others_counted() -> None:
    assert words.names_words(["a", "b"]) == "a, b"
    assert words.names_words(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


@pytest.mark.parametrize(
    ("right", "victim", "want"),
    [
        (Right.PREEMPT, workload("v", priority=10), "both are of queue q, and its priority 10 is below 100"),
        (Right.PREEMPT, workload("v", priority=100), "both are of queue q and of priority 100, and it came later"),
        (
            Right.RECLAIM,
            workload("v", "low", 500),
            "queue low runs it beyond what it deserves, and queue q takes back what it deserves",
        ),
        (
            Right.BORROW,
            workload("v", "low", 10),
            "queue low runs it beyond what it deserves, and its priority 10 is below 100",
        ),
    ],
    ids=["class", "newer", "reclaim", "borrow"],
)
def test_each_right_is_told_with_what_it_rests_on(right: Right, victim: Workload, want: str) -> None:
    assert words.why_it_goes(right, workload("h", priority=100), victim) == want


def test_what_is_lost_counts_from_the_last_checkpoint() -> None:
    assert words.lost_words(workload("v", started_seconds=0), 7200) == (
        "it loses 1 h of a GPU (0.5 cards since its start)"
    )
    assert words.lost_words(workload("v", started_seconds=0, checkpoint_seconds=6000), 7200) == (
        "it loses 10 min of a GPU (0.5 cards since its last checkpoint)"
    )
    assert words.lost_words(workload("v"), 7200) == "it loses nothing"


def test_the_victim_and_the_preemptor_name_each_other_the_rule_and_the_cards() -> None:
    """S84."""
    victim, preemptor = workload("v", started_seconds=0), workload("h", priority=100)
    held = Held("team/h-x", ["GPU-1", "GPU-2"], "n1")
    told = words.victim_message(Right.PREEMPT, preemptor, victim, held, 60)
    assert "team/h (queue q, priority 100)" in told
    assert "WithinQueue" in told
    assert "it gives free GPU-1, GPU-2 on n1" in told
    assert "team/h-x" in told
    asked = words.preemptor_message("WithinQueue", ["team/v"], held, exact=True)
    assert "1 pod (team/v)" in asked
    assert "WithinQueue" in asked
    assert "GPU-1, GPU-2 on n1 are held for this pod" in asked
    assert "smaller" not in asked
    assert "smaller" in words.preemptor_message("WithinQueue", ["team/v"], held, exact=False)


def test_a_gang_is_named_and_no_member_of_it() -> None:
    victim, preemptor = workload("v", started_seconds=0), workload("h-0", priority=100)
    held = Held("team/h-x", ["GPU-1"], "n1", "team/h")
    told = words.victim_message(Right.PREEMPT, preemptor, victim, held, 60)
    assert told.startswith("evicted for gang team/h (queue q, priority 100) by WithinQueue")
    asked = words.preemptor_message("WithinQueue", ["team/v"], held, exact=True)
    assert asked.startswith("gang team/h evicts 1 pod (team/v)")
    assert "GPU-1 on n1 is held for this pod" in asked


def test_many_cards_are_counted() -> None:
    many = Held("team/h-x", [f"GPU-{i}" for i in range(8)], "n1")
    assert many.where == "GPU-0, GPU-1, GPU-2 and 5 more on n1"


def test_a_plan_without_victims_says_whom_it_waits_for() -> None:
    held = Held("team/h-x", ["GPU-1", "GPU-2"], "n1")
    told = words.preemptor_message("room without eviction", [], held, exact=True)
    assert told == "GPU-1, GPU-2 on n1 are held for it until those are gone who leave already; plan team/h-x"


def test_a_cost_is_told_in_the_order_in_which_it_is_compared() -> None:
    cost = Cost(1, (0, 2), 2, 2, 3_600_000, 1500)
    assert words.cost_words(cost, (50, 10), 1) == (
        "1 disruption budget violation, 2 pods (2 of priority 10) of 1 workload, 1 h of a GPU lost, "
        "1.5 cards freed"
    )
    assert "of 2 workloads, gang team/g stopped as a whole, " in words.cost_words(cost, (50, 10), 2, ["team/g"])


def test_every_no_about_evictions_comes_with_what_would_help() -> None:
    """The block of reasons about evictions in core.reasons, and none of them forgotten."""
    about_evictions = list(Reason)[list(Reason).index(Reason.NO_LOWER_RANK) :]
    until = about_evictions.index(Reason.READY)
    lacking = [reason for reason in about_evictions[:until] if not words.help_words(reason)]
    assert lacking == []
