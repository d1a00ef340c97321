"""All whom one preemptor may evict: the same verdicts as pair by pair, and one reason when there is nobody."""

from dataclasses import replace

from tests.core.preempt.contest import Rules, random_contest
from tests.core.preempt.queueing import NOW, make_gang, make_queue, make_workload, running, stand
from vgpu.core.preempt.candidates import Candidates, candidates_for
from vgpu.core.preempt.eligible import may_evict, may_preempt, standing_of
from vgpu.core.preempt.facts import QueueFact, WithinQueue, Workload
from vgpu.core.preempt.protection import No, Right
from vgpu.core.reasons import Reason
from vgpu.core.terms import OwnerRef


def found(queues: list[QueueFact], preemptor: Workload, *others: Workload, now: int = NOW) -> Candidates:
    result = candidates_for(stand(queues, preemptor, *others), [preemptor], [preemptor, *others], now)
    assert isinstance(result, Candidates), result
    return result


def test_the_verdicts_are_those_of_each_pair() -> None:
    """On the ends of random contests, where rights of all kinds are left."""
    pairs = 0
    for seed in range(60):
        contest = random_contest(seed, Rules())
        contest.circles()
        everyone = list(contest.workloads.values())
        standing = standing_of(contest.queues, everyone)
        for preemptor in everyone:
            result = candidates_for(standing, [preemptor], everyone, NOW)
            if isinstance(result, No):
                assert result == may_preempt(standing, preemptor, NOW)
                continue
            verdicts = {v.uid: may_evict(standing, preemptor, v, NOW) for v in everyone if v.running}
            assert result.rights == {uid: v for uid, v in verdicts.items() if isinstance(v, Right)}
            assert sum(result.spared.values()) == sum(isinstance(v, No) for v in verdicts.values())
            pairs += len(result.rights)
    assert pairs > 50


def test_s11_equal_classes_give_the_reason_no_lower_rank() -> None:
    result = found([make_queue()], make_workload("w"), running("v1"), running("v2"))
    assert result.rights == {}
    refusal = result.refusal("team/w")
    assert refusal.reason is Reason.NO_LOWER_RANK
    assert "2 NoLowerRank" in refusal.message
    assert "team/v1 has priority 0" in refusal.message


def test_s29_who_is_never_a_victim_is_no_candidate() -> None:
    bare = running("bare", owner=OwnerRef())
    result = found([make_queue()], make_workload("w", priority=1), bare, running("plain"))
    assert result.rights == {"plain": Right.PREEMPT}
    assert result.spared == {Reason.NEVER_A_VICTIM: 1}


def test_s75_the_planner_is_told_when_the_first_protection_ends() -> None:
    queue = make_queue(min_runtime_preempt_seconds=300)
    late, soon = running("late", started_seconds=900), running("soon", started_seconds=800)
    preemptor = make_workload("w", priority=1)
    result = found([queue], preemptor, late, soon, running("peer", priority=1), now=1000)
    assert result.until_seconds == 1100
    refusal = result.refusal("team/w")
    assert refusal.reason is Reason.PROTECTED
    assert "team/soon" in refusal.message
    assert found([queue], preemptor, late, soon, now=1100).rights == {"soon": Right.PREEMPT}


def test_who_is_going_already_is_not_counted() -> None:
    result = found([make_queue()], make_workload("w", priority=1), running("going", terminating=True))
    assert result.refusal("team/w").message.endswith("no other pod holds cards")


def test_who_holds_cards_and_is_leaving_is_not_denied() -> None:
    preemptor = make_workload("w", priority=1)
    going = [running(f"going{number}", terminating=True) for number in range(2)]
    said = [found([make_queue()], preemptor, *going[:count]).refusal("team/w").message for count in range(3)]
    assert said == [
        "nobody may be evicted for team/w: no other pod holds cards",
        "nobody may be evicted for team/w: 1 pod is leaving already, and no other pod holds cards",
        "nobody may be evicted for team/w: 2 pods are leaving already, and no other pod holds cards",
    ]


def test_each_member_of_a_gang_needs_the_right() -> None:
    queue = make_queue(within_queue=WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY)
    gang = [replace(w, running=False) for w in make_gang("g", members=2, minimum=2)]
    between = running("f", created_seconds=1)  # younger than g-0, older than g-1
    standing = stand([queue], *gang, between)
    together = candidates_for(standing, gang, [between], NOW)
    alone = candidates_for(standing, gang[:1], [between], NOW)
    assert isinstance(together, Candidates)
    assert isinstance(alone, Candidates)
    assert alone.rights == {"f": Right.PREEMPT}
    assert together.rights == {}
    assert together.spared == {Reason.NO_LOWER_RANK: 1}


def test_who_may_evict_nobody_is_told_why() -> None:
    preemptor = make_workload("w", preempt_never=True)
    result = candidates_for(stand([make_queue()], preemptor), [preemptor], [running("v")], NOW)
    assert isinstance(result, No)
    assert result.reason is Reason.PREEMPTION_NEVER
