"""What would happen if the planner decided on these pods now: the plan, whom it spares, or what is in the way.

Enters: what a decision enters (DecisionWorld, the pods, what was learnt, the moment). Leaves: a Preview, a value.
The decision itself is core.preempt.decision's, asked as the planner asks it; here is only told what it rests on.
Nothing is changed and nothing is remembered.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpu.core.placement import Placement, place
from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.decision import Plan, choose
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid, DecisionWorld
from vgpu.core.preempt.eligible import may_evict, queues_take
from vgpu.core.preempt.entitlement import could_start
from vgpu.core.preempt.facts import NOTHING, Amounts, QueueFact, Workload
from vgpu.core.preempt.obstacles import Obstacle, nearest_nodes, room_now
from vgpu.core.preempt.pool import Pool, pool_for
from vgpu.core.preempt.problem import with_reservation
from vgpu.core.preempt.protection import No, Right
from vgpu.core.preempt.rank import Service
from vgpu.core.preempt.reach import Reach, reach_of
from vgpu.core.preempt.usage import QueueUsage
from vgpu.core.preempt.victims import lost_work
from vgpu.core.reasons import Reason, Refusal

MAY_DO_WITHOUT_EVICTION = frozenset({Reason.PREEMPTION_NEVER, Reason.WAIT_BEFORE, Reason.QUEUE_POLICY})
"""Reasons for which pods may evict nobody, and take what is free all the same, if their queues let them."""


class Outcome(StrEnum):
    """What would happen. AS_PODS_LEAVE: nobody is evicted, and it starts when those are gone who leave already."""

    FITS_NOW = "FitsNow"
    AS_PODS_LEAVE = "FitsAsPodsLeave"
    PLAN = "Plan"
    NO = "No"


@dataclass(frozen=True, slots=True)
class Goes:
    """One victim: by which right, what it loses, with whom it goes ("" = alone)."""

    pod: Workload
    right: Right
    lost_work: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Stays:
    """A pod on a node of the plan that is not evicted. `right`: it could be, and is not needed."""

    pod: Workload
    why: str
    reason: Reason | None = None
    right: Right | None = None


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What a queue's pods are charged before and after; `queue` None: it does not exist."""

    name: str
    queue: QueueFact | None
    usage: QueueUsage
    after: Amounts


@dataclass(frozen=True, slots=True)
class Preview:
    """The answer. `spared`: everywhere, by reason with one message each; `stays`: on the plan's nodes, pod by pod.

    `obstacles`: of a "no", what the nearest nodes lack once all are gone who may go. `until_seconds`: a "no" holds
    no longer, if nothing else changes. `takes`: NS/NAME of plans of lower rank that would end.
    """

    pods: tuple[Workload, ...]
    outcome: Outcome
    seats: tuple[tuple[str, Placement], ...] = ()
    goes: tuple[Goes, ...] = ()
    stays: tuple[Stays, ...] = ()
    spared: tuple[tuple[Reason, int, str], ...] = ()
    rule: str = ""
    exact: bool = True
    cost: Cost | None = None
    classes: tuple[int, ...] = ()
    takes: tuple[str, ...] = ()
    queues: tuple[QueueChange, ...] = ()
    refusal: Refusal | None = None
    until_seconds: int | None = None
    obstacles: tuple[Obstacle, ...] = ()
    may_go: int = 0
    """Pods that could be evicted for these now, anywhere; `limits`: what lets not all of them go, in words."""
    limits: tuple[str, ...] = ()
    entitled: frozenset[str] = frozenset()
    """Those of `pods` that are within what their queue deserves."""
    waits: int = 0
    """So many of `pods` find no room; the others have seats. With seats `refusal` is theirs."""
    alone: bool = False
    """Each of `pods` was decided on by itself, one after another."""
    anew: tuple["Preview", ...] = ()
    """What becomes of those who lose their cards to these, by the plans in `takes`."""


def preview(
    world: DecisionWorld, preemptors: Sequence[Workload], now_seconds: int, avoid: Avoid = NOTHING_LEARNT
) -> Preview:
    """The answer for one pod, or for all these members of a gang together; each has a request."""
    pods = tuple(preemptors)
    entitled = frozenset(pod.uid for pod in pods) & world.standing.entitled
    return replace(_preview(world, pods, now_seconds, avoid), entitled=entitled)


def pods_before(world: DecisionWorld, pod: Workload) -> int:
    """How many other pods that wait for cards are served before this one (by rank, queue, class and age).

    Whoever could not start whatever others gave is not served, so it is not counted.
    """
    everyone, queues = world.workloads.values(), world.standing.queues
    service = Service(queues, world.standing.entitled, {one.priority for one in everyone})
    held = {uid for hold, _ in (*world.plans, *world.claims) for uid in hold.uids}
    waiting = (one for one in could_start(queues, everyone) if one.request and one.uid not in held)
    mine = service.key(pod)
    return sum(service.key(one) < mine and not _same_gang(one, pod) for one in waiting)


def _same_gang(one: Workload, other: Workload) -> bool:
    return one.gang is not None and other.gang is not None and one.gang.key == other.gang.key


def _preview(world: DecisionWorld, pods: tuple[Workload, ...], now_seconds: int, avoid: Avoid) -> Preview:
    pool = pool_for(world, pods, now_seconds, avoid)
    if isinstance(pool, No):
        return _without_eviction(world, pods, pool)
    answer = choose(world, pods, pool)
    if isinstance(answer, No):
        return _refused(world, pods, pool, answer)
    return _planned(world, pods, pool, answer, now_seconds)


def _without_eviction(world: DecisionWorld, pods: tuple[Workload, ...], why: No) -> Preview:
    """For pods that may evict nobody: what is free, where that is open to them."""
    seats = room_now(world, pods) if why.reason in MAY_DO_WITHOUT_EVICTION else ()
    full = queues_take(world.standing, pods) if seats else None
    if seats and full is None:
        return Preview(pods, Outcome.FITS_NOW, seats, queues=queues_after(world, pods, ()))
    return Preview(pods, Outcome.NO, waits=len(pods), refusal=full or why.refusal, until_seconds=why.until_seconds)


def _refused(world: DecisionWorld, pods: tuple[Workload, ...], pool: Pool, answer: No) -> Preview:
    reach = reach_of(world, pods, pool)
    return Preview(
        pods,
        Outcome.NO,
        waits=len(pods),
        spared=_spared(pool, reach),
        refusal=answer.refusal,
        until_seconds=answer.until_seconds,
        obstacles=nearest_nodes(world, pods, pool),
        may_go=len(reach.may_go),
        limits=reach.limits,
    )


def _planned(
    world: DecisionWorld, pods: tuple[Workload, ...], pool: Pool, plan: Plan, now_seconds: int
) -> Preview:
    rights, reach = pool.candidates.rights, reach_of(world, pods, pool)
    going = [world.workloads[victim.uid] for victim in plan.victims]
    outcome = Outcome.PLAN
    if not going:
        outcome = Outcome.FITS_NOW if _free_now(world, pods, plan) else Outcome.AS_PODS_LEAVE
    return Preview(
        pods,
        outcome,
        plan.seats,
        tuple(
            Goes(pod, rights[pod.uid], lost_work(pod, now_seconds), plan.units.get(pod.uid, "")) for pod in going
        ),
        _stays(world, pods, pool, plan, _Told(now_seconds, reach)) if going else (),
        _spared(pool, reach),
        plan.rule,
        plan.exact,
        plan.cost,
        pool.scale.classes,
        plan.takes,
        queues_after(world, pods, going),
        may_go=len(reach.may_go),
        limits=reach.limits,
    )


def _free_now(world: DecisionWorld, pods: Iterable[Workload], plan: Plan) -> bool:
    """True when nobody who leaves is waited for; members of a gang beside each other."""
    views, seats = dict(world.views), dict(plan.seats)
    for pod in pods:
        seat = seats[pod.uid]
        if pod.request is None:
            return False
        if isinstance(place(views[seat.node], pod.request, pod.uid, world.policies), Refusal):
            return False
        views[seat.node] = with_reservation(views[seat.node], pod.uid, seat)
    return True


@dataclass(frozen=True, slots=True)
class _Told:
    """What an explanation rests on beside the decision."""

    now_seconds: int
    reach: Reach


def _spared(pool: Pool, reach: Reach) -> tuple[tuple[Reason, int, str], ...]:
    """Those that most pods share first: they may not go by right, or something stops them now."""
    counted = Counter(pool.candidates.spared)
    samples = dict(pool.candidates.samples)
    for refusal in reach.stopped.values():
        counted[refusal.reason] += 1
        samples.setdefault(refusal.reason, refusal.message)
    found = [(reason, count, samples.get(reason, "")) for reason, count in counted.items()]
    return tuple(sorted(found, key=lambda entry: (-entry[1], entry[0].value)))


def _stays(
    world: DecisionWorld, pods: Sequence[Workload], pool: Pool, plan: Plan, told: _Told
) -> tuple[Stays, ...]:
    """Every pod on the plan's nodes that goes neither for it nor by itself."""
    nodes = {seat.node for _, seat in plan.seats}
    going = {victim.uid for victim in plan.victims} | {pod.uid for pod in pods}
    here = (pod for pod in world.workloads.values() if pod.node in nodes and pod.uid not in going)
    staying = sorted((pod for pod in here if pod.running and not pod.terminating), key=lambda pod: pod.pod)
    return tuple(_why_it_stays(world, pods, pool, pod, told) for pod in staying)


def _why_it_stays(world: DecisionWorld, pods: Sequence[Workload], pool: Pool, pod: Workload, told: _Told) -> Stays:
    right = pool.candidates.rights.get(pod.uid)
    if right is None:
        verdicts = (may_evict(world.standing, preemptor, pod, told.now_seconds) for preemptor in pods)
        refused = next((verdict for verdict in verdicts if isinstance(verdict, No)), None)
        if refused is None:  # nothing else is asked beside the right
            return Stays(pod, "the two have evicted each other in turn", Reason.SWAP_FROZEN)
        return Stays(pod, refused.refusal.message, refused.reason)
    stopped = told.reach.stopped.get(pod.uid)
    if stopped is not None:
        return Stays(pod, stopped.message, stopped.reason, right)
    return Stays(pod, "it could go, and need not: the others are enough, and cost less", right=right)


def queues_after(
    world: DecisionWorld, pods: Sequence[Workload], going: Sequence[Workload]
) -> tuple[QueueChange, ...]:
    """What the queues of all these are charged once the pods have come and those who go have gone."""
    names = sorted({pod.queue for pod in (*pods, *going)})
    return tuple(_change(world, name, pods, going) for name in names)


def _change(world: DecisionWorld, name: str, pods: Sequence[Workload], going: Sequence[Workload]) -> QueueChange:
    usage = world.standing.usage_of(name)
    more = sum_of(pod.claim for pod in pods if pod.queue == name) if pods else NOTHING
    less = sum_of(pod.amounts for pod in going if pod.queue == name)
    return QueueChange(name, world.standing.queues.get(name), usage, usage.staying + more - less)
