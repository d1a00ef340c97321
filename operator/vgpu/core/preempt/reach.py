"""Who of those whom pods have the right to evict may really go now, and what stops the others.

Enters: a DecisionWorld, the pods, their Pool. Leaves: a Reach. Asked for explanations only. What only binds
several together (a budget that lets one of nine go) stops none of them, and is told apart.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.pool import Pool
from vgpu.core.preempt.problem import Allowance, Unit
from vgpu.core.preempt.together import allowance_words, stopped_by
from vgpu.core.reasons import Reason, Refusal


@dataclass(frozen=True, slots=True)
class Reach:
    """`may_go`: uids of those who may go now. `stopped`: why the others with a right against them do not, by uid.
    `limits`: what lets only some of those go together, in words."""

    may_go: frozenset[str]
    stopped: Mapping[str, Refusal]
    limits: tuple[str, ...] = ()


def reach_of(world: DecisionWorld, pods: Sequence[Workload], pool: Pool) -> Reach:
    """See the module."""
    going = world.spoken_for(pods)
    left = pool.victims.apart_from(going)
    units = {(unit.key, unit.uids): unit for of_node in left.units.values() for unit in of_node}.values()
    allowances = {one.key: one for one in left.allowances}
    stopping = {unit: stopped_by(unit, allowances.values()) for unit in units}
    free = [unit for unit, one in stopping.items() if one is None]
    may_go = frozenset(uid for unit in free for uid in unit.uids)
    because = {uid: one for unit, one in stopping.items() if one is not None for uid in unit.uids}
    taken = {uid for uid, _ in going}
    stopped = {
        uid: _why(world.workloads[uid], pool, taken, because.get(uid))
        for uid in pool.candidates.rights
        if uid not in may_go
    }
    return Reach(may_go, stopped, _limits(free, left.allowances))


def _why(pod: Workload, pool: Pool, taken: set[str], because: Allowance | None) -> Refusal:
    if pod.uid in taken:
        return Refusal(Reason.HELD_FOR_ANOTHER, f"{pod.pod} goes for another plan already")
    if pod.uid in pool.avoid.victims:
        return Refusal(Reason.EVICTION_LIMITS, f"{pod.pod}: an earlier plan could not evict it")
    if pod.uid in pool.victims.unfit:
        return Refusal(Reason.EVICTION_LIMITS, f"{pod.pod}: {pool.victims.unfit[pod.uid]}")
    if because is not None:
        return Refusal(Reason.EVICTION_LIMITS, f"{pod.pod} may not go now by {allowance_words(because.key)}")
    return Refusal(Reason.EVICTION_LIMITS, f"{pod.pod} is on no node that is known here")


def _limits(free: Sequence[Unit], allowances: Sequence[Allowance]) -> tuple[str, ...]:
    """Of budgets and surpluses; what queues are guaranteed is counted in other units."""
    drawn: Counter[str] = Counter()
    for unit in free:
        drawn.update(dict(unit.uses))
    return tuple(
        f"of {drawn[one.key]} pods under {allowance_words(one.key)} at most {one.allowed} may go now"
        for one in allowances
        if one.penalty is None and not one.key.startswith("guarantee ") and drawn[one.key] > one.allowed
    )
