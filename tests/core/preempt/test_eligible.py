"""Who may evict whom, and the reason for each "no": the rows of the acceptance table that queues alone decide."""

from dataclasses import replace
from typing import Any

import pytest

from tests.core.preempt.queueing import NOW, cards, limit, make_gang, make_queue, make_workload, running, stand
from vgpu.core.preempt.eligible import may_evict, may_preempt, refuse_victims
from vgpu.core.preempt.facts import (
    BorrowPolicy,
    QueueFact,
    ReclaimAcrossQueues,
    StopPolicy,
    WithinQueue,
    Workload,
)
from vgpu.core.preempt.protection import No, Right
from vgpu.core.reasons import Reason


def verdict(queues: list[QueueFact], preemptor: Workload, victim: Workload, *others: Workload) -> Right | Reason:
    """The right, or the reason why not."""
    found = may_evict(stand(queues, preemptor, victim, *others), preemptor, victim, NOW)
    return found.reason if isinstance(found, No) else found


class TestWithinOneQueue:
    @pytest.mark.parametrize(
        ("policy", "priority", "created", "wanted"),
        [
            (WithinQueue.LOWER_PRIORITY, 20, 5, Right.PREEMPT),
            (WithinQueue.LOWER_PRIORITY, 10, 5, Reason.NO_LOWER_RANK),
            (WithinQueue.LOWER_PRIORITY, 10, 0, Reason.NO_LOWER_RANK),
            (WithinQueue.LOWER_PRIORITY, 5, 0, Reason.NO_LOWER_RANK),
            (WithinQueue.NEVER, 20, 0, Reason.QUEUE_POLICY),
            (WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY, 20, 5, Right.PREEMPT),
            (WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY, 10, 0, Right.PREEMPT),
            (WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY, 10, 5, Reason.NO_LOWER_RANK),
            (WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY, 5, 0, Reason.NO_LOWER_RANK),
        ],
    )
    def test_s09_s11_class_decides_and_age_where_the_queue_says_so(
        self, policy: WithinQueue, priority: int, created: int, wanted: Right | Reason
    ) -> None:
        preemptor = make_workload("w", priority=priority, created_seconds=created)
        victim = running("v", priority=10, created_seconds=1)
        assert verdict([make_queue(within_queue=policy)], preemptor, victim) is wanted

    def test_what_is_larger_than_its_queue_deserves_evicts_no_entitled_work(self) -> None:
        """The stated price of a right that does not depend on who runs."""
        large = make_workload("large", size=3, priority=100)
        assert verdict([make_queue(deserved=2)], large, running("small")) is Reason.VICTIM_ENTITLED
        assert verdict([make_queue(deserved=3)], large, running("small")) is Right.PREEMPT

    def test_pods_of_one_gang_never_evict_each_other(self) -> None:
        first, second = make_gang("g", members=2, minimum=1)
        preemptor = replace(first, running=False, priority=100)
        assert verdict([make_queue()], preemptor, second) is Reason.NEVER_A_VICTIM
        assert verdict([make_queue()], replace(preemptor, gang=None), second) is Right.PREEMPT


class TestAcrossQueues:
    A, B = make_queue("a", deserved=4), make_queue("b", deserved=4)

    def test_s58_a_queue_takes_back_what_it_deserves_and_stops(self) -> None:
        """A runs 8 on a deserved 4; the first four of B may take the last four of A, and no more."""
        of_a = [running(f"a{i}", "a", created_seconds=i) for i in range(8)]
        of_b = [make_workload(f"b{i}", "b", created_seconds=i) for i in range(6)]
        standing = stand([self.A, self.B], *of_a, *of_b)
        allowed = {(b.uid, a.uid) for a in of_a for b in of_b if isinstance(may_evict(standing, b, a, NOW), Right)}
        assert {b for b, _ in allowed} == {"b0", "b1", "b2", "b3"}
        assert {a for _, a in allowed} == {"a4", "a5", "a6", "a7"}

    def test_s01_a_queue_that_deserves_nothing_lends_everything(self) -> None:
        low, high = make_queue("low", deserved=0), make_queue("high", deserved=4)
        standing = stand(
            [low, high],
            *(of_low := [running(f"l{i}", "low") for i in range(4)]),
            *(of_high := [make_workload(f"h{i}", "high") for i in range(4)]),
        )
        assert all(may_evict(standing, h, v, NOW) is Right.RECLAIM for h in of_high for v in of_low)

    def test_s64_what_is_not_entitled_evicts_no_entitled_work(self) -> None:
        high = make_workload("high", "a", size=5, priority=1000)
        borrow = replace(self.A, borrow_across_queues=BorrowPolicy.LOWER_PRIORITY)
        assert verdict([borrow, self.B], high, running("low", "b")) is Reason.VICTIM_ENTITLED

    def test_what_is_not_entitled_takes_nothing_back(self) -> None:
        high = make_workload("high", "a", size=5, priority=1000)
        assert verdict([self.A, make_queue("b")], high, running("low", "b")) is Reason.QUEUE_POLICY

    def test_s62_a_queue_that_is_not_reclaimable_loses_nothing_to_others(self) -> None:
        kept = make_queue("b", reclaimable=False)
        assert verdict([self.A, kept], make_workload("w", "a"), running("v", "b")) is Reason.QUEUE_NOT_RECLAIMABLE
        own = make_workload("w", "b", priority=1)
        assert verdict([self.A, kept], own, running("v", "b")) is Right.PREEMPT

    @pytest.mark.parametrize(
        ("policy", "priority", "wanted"),
        [
            (ReclaimAcrossQueues.ANY, 0, Right.RECLAIM),
            (ReclaimAcrossQueues.LOWER_PRIORITY, 11, Right.RECLAIM),
            (ReclaimAcrossQueues.LOWER_PRIORITY, 10, Reason.NO_LOWER_RANK),
            (ReclaimAcrossQueues.NEVER, 11, Reason.QUEUE_POLICY),
        ],
    )
    def test_a_queue_says_whom_it_takes_its_own_back_from(
        self, policy: ReclaimAcrossQueues, priority: int, wanted: Right | Reason
    ) -> None:
        queues = [replace(self.A, reclaim_across_queues=policy), make_queue("b")]
        assert (
            verdict(queues, make_workload("w", "a", priority=priority), running("v", "b", priority=10)) is wanted
        )

    @pytest.mark.parametrize(
        ("priority", "threshold", "wanted"),
        [
            (10, 50, Right.BORROW),
            (50, 50, Right.BORROW),
            (60, 50, Reason.PRIORITY_THRESHOLD),
            (60, None, Right.BORROW),
            (100, None, Reason.NO_LOWER_RANK),
        ],
    )
    def test_s65_borrowing_evicts_lower_borrowers_up_to_the_threshold(
        self, priority: int, threshold: int | None, wanted: Right | Reason
    ) -> None:
        a = make_queue("a", borrow_across_queues=BorrowPolicy.LOWER_PRIORITY, borrow_max_priority=threshold)
        borrower = running("v", "b", priority=priority)
        assert verdict([a, make_queue("b")], make_workload("w", "a", priority=100), borrower) is wanted

    def test_an_entitled_workload_may_also_borrow_where_its_queue_takes_nothing_back(self) -> None:
        a = replace(
            self.A,
            reclaim_across_queues=ReclaimAcrossQueues.NEVER,
            borrow_across_queues=BorrowPolicy.LOWER_PRIORITY,
        )
        queues = [a, make_queue("b")]
        assert verdict(queues, make_workload("w", "a", priority=1), running("v", "b")) is Right.BORROW
        assert verdict(queues, make_workload("w", "a"), running("v", "b")) is Reason.QUEUE_POLICY

    def test_a_pod_whose_queue_is_gone_is_left_alone(self) -> None:
        assert verdict([self.A], make_workload("w", "a"), running("v", "b")) is Reason.QUEUE_NOT_FOUND
        assert verdict([self.A], make_workload("w", "b"), running("v", "a")) is Reason.QUEUE_NOT_FOUND

    def test_s68_borrowed_work_of_a_stopped_queue_may_be_taken_back(self) -> None:
        held = make_queue("b", stop_policy=StopPolicy.HOLD)
        assert verdict([self.A, held], make_workload("w", "a"), running("v", "b")) is Right.RECLAIM

    def test_s29_s75_a_right_does_not_help_against_protection(self) -> None:
        young = make_queue("b", min_runtime_reclaim_seconds=NOW + 10)
        standing = stand([self.A, young], make_workload("w", "a"), running("v", "b"))
        found = may_evict(standing, make_workload("w", "a"), running("v", "b"), NOW)
        assert isinstance(found, No)
        assert found.reason is Reason.PROTECTED
        assert found.until_seconds == NOW + 10
        spared = running("v", "b", preemptable=False)
        assert verdict([self.A, make_queue("b")], make_workload("w", "a"), spared) is Reason.NEVER_A_VICTIM


class TestMayPreemptAtAll:
    @pytest.mark.parametrize(
        ("queue", "workload", "wanted"),
        [
            ({}, {}, None),
            ({}, {"preempt_never": True}, Reason.PREEMPTION_NEVER),
            ({"stop_policy": StopPolicy.HOLD}, {}, Reason.QUEUE_STOPPED),
            ({"stop_policy": StopPolicy.HOLD_AND_DRAIN}, {}, Reason.QUEUE_STOPPED),
            ({}, {"active": False}, Reason.NOT_ACTIVE),
            ({}, {"queue": "gone"}, Reason.QUEUE_NOT_FOUND),
            ({"capability": limit(1)}, {}, None),
            ({"capability": limit(0.5)}, {}, Reason.QUEUE_CAPABILITY),
        ],
        ids=[
            "a plain pod", "S67 preemptionPolicy Never", "S68 Hold", "S68 HoldAndDrain", "not schedulable",
            "no queue", "at its capability", "S63 over its capability",
        ],
    )  # fmt: skip
    def test_some_may_evict_nobody(
        self, queue: dict[str, Any], workload: dict[str, Any], wanted: Reason | None
    ) -> None:
        preemptor = replace(make_workload("w"), **workload)
        found = may_preempt(stand([make_queue(**queue)]), preemptor, NOW)
        assert (None if found is None else found.reason) is wanted

    def test_who_could_not_be_scheduled_is_told_why(self) -> None:
        preemptor = make_workload("w", active=False, inactive_why="its gate must be taken off first")
        found = may_preempt(stand([make_queue()]), preemptor, NOW)
        assert found is not None
        assert found.refusal.message == (
            "team/w could not be scheduled now whatever were free: its gate must be taken off first"
        )

    def test_s83_nobody_is_evicted_before_the_waiting_time_is_over(self) -> None:
        standing = stand([make_queue(wait_before_seconds=300)])
        preemptor = make_workload("w", created_seconds=1000)
        found = may_preempt(standing, preemptor, 1120)
        assert found is not None
        assert found.reason is Reason.WAIT_BEFORE
        assert found.until_seconds == 1300
        assert may_preempt(standing, preemptor, 1300) is None


class TestAllVictimsTogether:
    def test_s61_a_queue_is_not_pushed_under_its_guarantee(self) -> None:
        """Both are borrowed and each alone may go; together they may not."""
        a, b = make_queue("a", deserved=9), make_queue("b", guarantee=limit(1))
        v1, v2 = running("v1", "b"), running("v2", "b")
        standing = stand([a, b], v1, v2)
        assert refuse_victims(standing, "a", cards(1), [v1]) is None
        refusal = refuse_victims(standing, "a", cards(2), [v1, v2])
        assert refusal is not None
        assert refusal.reason is Reason.QUEUE_GUARANTEE
        assert "queue b would keep 0 cards of 1" in refusal.message

    def test_s61_what_is_leaving_already_counts_as_lost(self) -> None:
        a, b = make_queue("a", deserved=9), make_queue("b", guarantee=limit(1))
        going, victim = running("v1", "b", terminating=True), running("v2", "b")
        refusal = refuse_victims(stand([a, b], going, victim), "a", cards(1), [victim])
        assert refusal is not None
        assert refusal.reason is Reason.QUEUE_GUARANTEE

    def test_the_own_queue_may_go_under_its_guarantee(self) -> None:
        queue = make_queue(guarantee=limit(2), deserved=2)
        victims = [running("v1"), running("v2")]
        assert refuse_victims(stand([queue], *victims), "q", cards(1), victims) is None

    def test_s63_a_queue_at_its_capability_evicts_only_its_own(self) -> None:
        a, b = make_queue("a", deserved=2, capability=limit(2)), make_queue("b")
        own, other, second = running("own", "a"), running("other", "b"), running("second", "a")
        standing = stand([a, b], own, other, second)
        assert refuse_victims(standing, "a", cards(1), [own]) is None
        refusal = refuse_victims(standing, "a", cards(1), [other])
        assert refusal is not None
        assert refusal.reason is Reason.QUEUE_CAPABILITY
        assert "queue a would use 3 cards of 2" in refusal.message

    def test_s63_what_other_plans_hold_counts_against_the_capability(self) -> None:
        queue = make_queue(capability=limit(2))
        waiting = [make_workload("w1"), make_workload("w2")]
        assert refuse_victims(stand([queue], *waiting, promised=["w1"]), "q", cards(1), []) is None
        assert refuse_victims(stand([queue], *waiting, promised=["w1", "w2"]), "q", cards(1), []) is not None

    def test_a_queue_that_is_gone_is_said(self) -> None:
        for queues in ([make_queue("a")], [make_queue("b")]):
            refusal = refuse_victims(stand(queues), "a", cards(1), [running("v", "b")])
            assert refusal is not None
            assert refusal.reason is Reason.QUEUE_NOT_FOUND
