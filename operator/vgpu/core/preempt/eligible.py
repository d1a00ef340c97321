"""Who may evict whom: the one rule of preemption.md 4.2, with a reason for every "no".

Enters: a Standing (queues, usage, who is entitled), two workloads, the moment. Leaves: the Right, or a No. Each
rule that allows an eviction needs a strictly higher rank, so evictions cannot go in circles; every other rule only
forbids. Cards, nodes and budgets are no business of this file.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.entitlement import entitled_uids
from vgpu.core.preempt.facts import (
    Amounts,
    BorrowPolicy,
    QueueFact,
    ReclaimAcrossQueues,
    WithinQueue,
    Workload,
)
from vgpu.core.preempt.protection import No, Right, never_victim, no, protected
from vgpu.core.preempt.queues import find_queue, may_start, over_capability, stopped, under_guarantee
from vgpu.core.preempt.rank import is_older, rank_of
from vgpu.core.preempt.usage import UNUSED, QueueUsage, usage_by_queue
from vgpu.core.reasons import Reason, Refusal

_NAMED_QUEUES = 4


@dataclass(frozen=True, slots=True)
class Standing:
    """How the queues stand at one moment. `entitled`: uids of the workloads that nobody may take from."""

    queues: Mapping[str, QueueFact] = field(default_factory=dict)
    usage: Mapping[str, QueueUsage] = field(default_factory=dict)
    entitled: frozenset[str] = frozenset()

    def usage_of(self, queue: str) -> QueueUsage:
        """The queue's usage; nothing for one that no workload names."""
        return self.usage.get(queue, UNUSED)


def standing_of(
    queues: Mapping[str, QueueFact], workloads: Iterable[Workload], promised: Iterable[str] = ()
) -> Standing:
    """Works the standing out. `promised`: uids of waiting pods for whom a plan holds cards."""
    everyone = list(workloads)
    entitled = entitled_uids(queues, everyone)
    return Standing(queues, usage_by_queue(everyone, entitled, frozenset(promised)), entitled)


def may_preempt(standing: Standing, preemptor: Workload, now_seconds: int) -> No | None:
    """Why this workload may evict nobody at all now, or None; its queue's amounts are asked with the victims."""
    queue = find_queue(preemptor.queue, standing.queues)
    if isinstance(queue, Refusal):
        return No(queue)
    halted = stopped(queue)
    if halted is not None:
        return No(halted)
    if preemptor.preempt_never:
        return no(Reason.PREEMPTION_NEVER, f"{preemptor.pod} has preemptionPolicy Never: it waits for room")
    if not preemptor.active:
        why = preemptor.inactive_why or f"see kubectl vgpu explain {preemptor.pod}"
        return no(Reason.NOT_ACTIVE, f"{preemptor.pod} could not be scheduled now whatever were free: {why}")
    until = preemptor.created_seconds + queue.wait_before_seconds
    if now_seconds < until:
        wait = until - now_seconds
        return no(Reason.WAIT_BEFORE, f"queue {queue.name} evicts only after {wait} s more of waiting", until)
    return over_alone(queue, preemptor.claim)


def in_one_queue(preemptors: Sequence[Workload]) -> No | None:
    """Why nobody may be evicted for pods that start together, or None: rights, amounts and what is deserved are a
    matter of one queue, so a gang whose pods name several starts only where room is free."""
    in_queue: dict[str, str] = {}
    for pod in preemptors:
        in_queue.setdefault(pod.queue, pod.pod)
    if len(in_queue) < 2:
        return None
    first = preemptors[0]
    who = first.pod if first.gang is None else f"gang {first.gang.key}"
    named = [f"{pod} in {queue}" for queue, pod in in_queue.items()]
    more = f" and {len(named) - _NAMED_QUEUES} more" if len(named) > _NAMED_QUEUES else ""
    text = f"{who} has pods in several queues ({', '.join(named[:_NAMED_QUEUES])}{more}): nobody is evicted for it"
    return no(Reason.QUEUE_POLICY, f"{text}; let all its pods name one queue")


def queues_take(standing: Standing, pods: Iterable[Workload]) -> Refusal | None:
    """Why these pods may not all start now, each in its own queue and without any eviction, or None."""
    claims: dict[str, list[Amounts]] = {}
    for pod in pods:
        claims.setdefault(pod.queue, []).append(pod.claim)
    verdicts = (
        may_start(name, standing.queues, standing.usage_of(name), sum_of(of_queue))
        for name, of_queue in claims.items()
    )
    return next((refusal for refusal in verdicts if refusal is not None), None)


def may_evict(standing: Standing, preemptor: Workload, victim: Workload, now_seconds: int) -> Right | No:
    """By which right `preemptor` may evict `victim`, or why not.

    What the victim's queue keeps and what the preemptor's will use is a matter of all victims together: see
    refuse_victims.
    """
    spared = spared_always(preemptor, victim)
    if spared is not None:
        return spared
    right = right_over(standing, preemptor, victim)
    if isinstance(right, No):
        return right
    return protected(victim, standing.queues[victim.queue], right, now_seconds) or right


def rights_of(standing: Standing, preemptor: Workload, now_seconds: int) -> Hashable:
    """Equal for workloads that may evict the same ones, for the same reasons, now."""
    queue = standing.queues.get(preemptor.queue)
    by_age = queue is not None and queue.within_queue is WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY
    age = (preemptor.created_seconds, preemptor.uid) if by_age else ()
    waits_until = 0 if queue is None else preemptor.created_seconds + queue.wait_before_seconds
    waits = waits_until if waits_until > now_seconds else 0
    entitled, active = preemptor.uid in standing.entitled, (preemptor.active, preemptor.inactive_why)
    kind = (preemptor.queue, preemptor.priority, entitled, preemptor.gang, preemptor.preempt_never)
    return (*kind, active, age, waits, preemptor.claim)


def spared_always(preemptor: Workload, victim: Workload) -> No | None:
    """Why no right helps this preemptor against this victim, or None."""
    return never_victim(victim) or _same_gang(preemptor, victim)


def right_over(standing: Standing, preemptor: Workload, victim: Workload) -> Right | No:
    """The right by queue, entitlement, class and age alone: equal for all victims that are equal in these."""
    mine, theirs = (find_queue(name, standing.queues) for name in (preemptor.queue, victim.queue))
    if isinstance(mine, Refusal):
        return No(mine)
    if isinstance(theirs, Refusal):
        return No(theirs)
    if mine.name == theirs.name:
        return _within_queue(standing, mine, preemptor, victim)
    return _across_queues(standing, (mine, theirs), preemptor, victim)


def refuse_victims(
    standing: Standing, queue_name: str, added: Amounts, victims: Iterable[Workload]
) -> Refusal | None:
    """Why a workload of `added` may not start in its queue at the cost of all these victims, or None.

    Every other queue keeps what it is guaranteed (S61), the own one stays within its capability (S63). The
    standing may not hold an earlier promise to the same workload.
    """
    lost: dict[str, list[Workload]] = {}
    for victim in victims:
        lost.setdefault(victim.queue, []).append(victim)
    freed = {name: sum_of(victim.amounts for victim in of_queue) for name, of_queue in lost.items()}
    mine = find_queue(queue_name, standing.queues)
    if isinstance(mine, Refusal):
        return mine
    for name in sorted(freed.keys() - {queue_name}):
        theirs = find_queue(name, standing.queues)
        if isinstance(theirs, Refusal):
            return theirs
        refusal = under_guarantee(theirs, standing.usage_of(name).staying - freed[name], freed[name])
        if refusal is not None:
            return refusal
    own_freed = freed.get(queue_name, Amounts())
    return over_capability(mine, standing.usage_of(queue_name).after(added, own_freed), added)


def over_alone(queue: QueueFact, claim: Amounts) -> No | None:
    """Why a workload can never start in its queue, were it the only one there, or None."""
    refusal = over_capability(queue, claim, claim)
    return None if refusal is None else No(refusal)


def _same_gang(preemptor: Workload, victim: Workload) -> No | None:
    if preemptor.gang is None or victim.gang is None or preemptor.gang.key != victim.gang.key:
        return None
    return no(Reason.NEVER_A_VICTIM, f"{victim.pod} is of the same gang")


def _within_queue(standing: Standing, queue: QueueFact, preemptor: Workload, victim: Workload) -> Right | No:
    policy = queue.within_queue
    if policy is WithinQueue.NEVER:
        return no(Reason.QUEUE_POLICY, f"queue {queue.name} has withinQueue Never")
    equal_and_newer = (
        policy is WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY
        and preemptor.priority == victim.priority
        and is_older(preemptor, victim)
    )
    if not equal_and_newer and preemptor.priority <= victim.priority:
        return _not_lower(preemptor, victim)
    mine, theirs = rank_of(preemptor, standing.entitled), rank_of(victim, standing.entitled)
    if mine < theirs:
        return _is_entitled(victim)
    return Right.PREEMPT


def _across_queues(
    standing: Standing, queues: tuple[QueueFact, QueueFact], preemptor: Workload, victim: Workload
) -> Right | No:
    mine, theirs = queues
    if victim.uid in standing.entitled:
        return _is_entitled(victim)
    if not theirs.reclaimable:
        return no(Reason.QUEUE_NOT_RECLAIMABLE, f"queue {theirs.name} is not reclaimable")
    verdicts = [_reclaim(mine, preemptor, victim)] if preemptor.uid in standing.entitled else []
    verdicts.append(_borrow(mine, preemptor, victim))
    return next((verdict for verdict in verdicts if isinstance(verdict, Right)), verdicts[0])


def _reclaim(queue: QueueFact, preemptor: Workload, victim: Workload) -> Right | No:
    if queue.reclaim_across_queues is ReclaimAcrossQueues.NEVER:
        return no(Reason.QUEUE_POLICY, f"queue {queue.name} has reclaimAcrossQueues Never")
    if queue.reclaim_across_queues is ReclaimAcrossQueues.ANY or preemptor.priority > victim.priority:
        return Right.RECLAIM
    return _not_lower(preemptor, victim)


def objection(standing: Standing, waiting: Iterable[Workload], victim: Workload, now_seconds: int) -> str:
    """Why the rules do not let the victim go for one of these, or ""."""
    for owner in waiting:
        verdict = may_preempt(standing, owner, now_seconds) or may_evict(standing, owner, victim, now_seconds)
        if isinstance(verdict, No):
            return verdict.refusal.message
    return ""


def _borrow(queue: QueueFact, preemptor: Workload, victim: Workload) -> Right | No:
    if queue.borrow_across_queues is BorrowPolicy.NEVER:
        return no(
            Reason.QUEUE_POLICY,
            f"{preemptor.pod} is beyond what queue {queue.name} deserves, and borrowAcrossQueues is Never",
        )
    if preemptor.priority <= victim.priority:
        return _not_lower(preemptor, victim)
    most = queue.borrow_max_priority
    if most is not None and victim.priority > most:
        return no(
            Reason.PRIORITY_THRESHOLD,
            f"{victim.pod} has priority {victim.priority}, over maxPriorityThreshold {most} of queue {queue.name}",
        )
    return Right.BORROW


def _not_lower(preemptor: Workload, victim: Workload) -> No:
    return no(
        Reason.NO_LOWER_RANK,
        f"{victim.pod} has priority {victim.priority}, not lower than {preemptor.priority} of {preemptor.pod}",
    )


def _is_entitled(victim: Workload) -> No:
    return no(Reason.VICTIM_ENTITLED, f"{victim.pod} is within what queue {victim.queue} deserves")
