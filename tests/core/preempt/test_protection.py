"""Who is never a victim, and until when one that could be is safe."""

from typing import Any

import pytest

from tests.core.preempt.queueing import make_queue, make_workload, running
from vgpu.core.preempt.protection import Right, never_victim, protected
from vgpu.core.reasons import Reason
from vgpu.core.terms import OwnerRef


@pytest.mark.parametrize(
    "fields",
    [
        {"namespace": "kube-system"},
        {"priority": 2_000_000_000},
        {"priority": 2_000_001_000},
        {"daemonset_or_mirror": True},
        {"preemptable": False},
        {"legacy": True},
        {"owner": OwnerRef()},
        {"terminating": True},
        {"running": False},
    ],
    ids="-".join,
)
def test_s29_s12_s81_some_are_never_victims(fields: dict[str, Any]) -> None:
    verdict = never_victim(running("w", **fields))
    assert verdict is not None
    assert verdict.reason is Reason.NEVER_A_VICTIM
    assert verdict.until_seconds is None
    assert "/w " in verdict.refusal.message


@pytest.mark.parametrize(
    "fields",
    [{}, {"namespace": "kube-systems"}, {"priority": 1_999_999_999}, {"owner": OwnerRef(), "evict_opt_in": True}],
    ids=["a plain pod", "another namespace", "the highest class of users", "S81 a bare pod that opted in"],
)
def test_others_may_be(fields: dict[str, Any]) -> None:
    assert never_victim(running("w", **fields)) is None


def test_s75_a_young_victim_is_safe_and_says_until_when() -> None:
    queue = make_queue(min_runtime_preempt_seconds=300)
    victim = running("w", started_seconds=1000)
    verdict = protected(victim, queue, Right.PREEMPT, now_seconds=1120)
    assert verdict is not None
    assert verdict.reason is Reason.PROTECTED
    assert verdict.until_seconds == 1300
    assert "safe for 180 s more" in verdict.refusal.message
    assert protected(victim, queue, Right.PREEMPT, now_seconds=1299) is not None
    assert protected(victim, queue, Right.PREEMPT, now_seconds=1300) is None


@pytest.mark.parametrize(
    ("right", "wanted"), [(Right.PREEMPT, 110), (Right.BORROW, 110), (Right.RECLAIM, 120)], ids=str
)
def test_each_right_has_its_own_minimum(right: Right, wanted: int) -> None:
    queue = make_queue(min_runtime_preempt_seconds=10, min_runtime_reclaim_seconds=20)
    verdict = protected(running("w", started_seconds=100), queue, right, now_seconds=105)
    assert verdict is not None
    assert verdict.until_seconds == wanted


def test_the_longer_of_minimum_and_cooldown_counts() -> None:
    queue = make_queue(min_runtime_preempt_seconds=10)
    verdict = protected(running("w", started_seconds=0, cooldown_seconds=60), queue, Right.PREEMPT, 30)
    assert verdict is not None
    assert verdict.until_seconds == 60
    assert "cooldown" in verdict.refusal.message


def test_a_pod_that_has_not_started_counts_as_started_now() -> None:
    victim = running("w", started_seconds=None)
    assert protected(victim, make_queue(), Right.PREEMPT, 500) is None
    verdict = protected(victim, make_queue(min_runtime_preempt_seconds=10), Right.PREEMPT, 500)
    assert verdict is not None
    assert verdict.until_seconds == 510


def test_nothing_is_said_of_who_waits() -> None:
    assert never_victim(make_workload("w")) is not None
