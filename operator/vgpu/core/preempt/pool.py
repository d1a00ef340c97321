"""Who could go for pods of one kind, and what each would cost: worked out once for many equal pods.

Enters: a DecisionWorld, the pods, what an earlier plan taught, the moment. Leaves: a Pool, or a No. Who of them
goes, and where, is asked with each pod.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.candidates import Candidates, candidates_for
from vgpu.core.preempt.cost import CostScale
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid, DecisionWorld
from vgpu.core.preempt.eligible import in_one_queue
from vgpu.core.preempt.facts import Amounts, Workload
from vgpu.core.preempt.protection import No, no
from vgpu.core.preempt.quotas import guarantees
from vgpu.core.preempt.swaps import Swap, frozen_until
from vgpu.core.preempt.victims import Terms, Victims, victims_of
from vgpu.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Pool:
    """Who could go, and what it costs at `now_seconds`: worth keeping while neither ranks nor workloads change,
    for pods of one owner, `queue`, class and `avoid`. Plans may come and go meanwhile."""

    candidates: Candidates
    victims: Victims
    scale: CostScale
    own: tuple[Workload, ...]
    """Those of them in the preemptors' own queue; `own_gives`: what they would give free together."""
    own_gives: Amounts
    queue: str
    now_seconds: int
    avoid: Avoid = NOTHING_LEARNT


def pool_for(
    world: DecisionWorld, preemptors: Sequence[Workload], now_seconds: int, avoid: Avoid = NOTHING_LEARNT
) -> Pool | No:
    """Who could go for these pods, or why they may evict nobody at all."""
    mixed = in_one_queue(preemptors)
    if mixed is not None:
        return mixed
    frozen = frozen_pairs(world.swaps, preemptors, now_seconds)
    candidates = candidates_for(world.standing, preemptors, world.workloads.values(), now_seconds, frozen)
    if isinstance(candidates, No):
        return candidates
    queue = world.standing.queues[preemptors[0].queue]
    eligible = [world.workloads[uid] for uid in candidates.rights if uid not in avoid.victims]
    scale = CostScale.of(workload.priority for workload in eligible)
    terms = Terms(
        scale, now_seconds, world.disruptions, queue.disruption_budget, guarantees(world.standing, queue.name)
    )
    victims = victims_of(eligible, world.workloads.values(), terms)
    own = tuple(workload for workload in eligible if workload.queue == queue.name)
    gives = sum_of(workload.amounts for workload in own)
    return Pool(candidates, victims, scale, own, gives, queue.name, now_seconds, avoid)


def frozen_pairs(
    swaps: Sequence[Swap], preemptors: Sequence[Workload], now_seconds: int
) -> Callable[[Workload], No | None] | None:
    """Tells who may not go for one of these pods because the two have evicted each other in turn (S78)."""
    if not swaps:
        return None
    names = {_owner(pod): pod.pod for pod in preemptors}
    with_us: dict[str, list[tuple[str, Swap]]] = defaultdict(list)
    for swap in swaps:
        if swap.preemptor in names:
            with_us[swap.victim].append((swap.preemptor, swap))
        if swap.victim in names:
            with_us[swap.preemptor].append((swap.victim, swap))

    def verdict(victim: Workload) -> No | None:
        known = with_us.get(_owner(victim), ())
        untils = {
            mine: until
            for mine in sorted({mine for mine, _ in known})
            if (until := frozen_until((s for _, s in known), mine, _owner(victim), now_seconds)) is not None
        }
        if not untils:
            return None
        mine = max(untils, key=lambda owner: untils[owner])
        why = f"{names[mine]} and {victim.pod} have evicted each other in turn"
        return no(Reason.SWAP_FROZEN, why, untils[mine])

    return verdict


def _owner(pod: Workload) -> str:
    return pod.owner.uid or pod.uid
