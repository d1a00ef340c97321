"""Brings a Pool up to date when a few workloads have changed: judging thousands anew for each decision takes long.

Enters: a Pool, the world that it was made or last renewed for, the world now. Leaves: the Pool that would be made
now but for costs and protections, which are of the moment when it was made, and for the tally of those who are
spared. So a plan that it leads to is good, and a No is worth asking again with a Pool made anew.
"""

from collections.abc import Sequence
from dataclasses import replace

from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.candidates import Candidates, candidates_for
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.pool import Pool, frozen_pairs
from vgpu.core.preempt.problem import Unit
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.quotas import guarantees
from vgpu.core.preempt.victims import Terms, Victims, victims_of

MOST_CHANGES = 256
"""With more it is quicker to make a Pool anew."""


def renewed(pool: Pool, before: DecisionWorld, now: DecisionWorld, preemptors: Sequence[Workload]) -> Pool | None:
    """The pool for these pods, which are of the kind that it was made for, or None where it has to be made anew:
    a queue, a disruption budget, a swap, a member of a gang, or whether these pods are entitled has changed."""
    if not _stands_alike(before, now, preemptors):
        return None
    gone, came = _changes(before, now)
    if not gone and not came:
        return pool
    if len(gone) + len(came) > MOST_CHANGES or any(one.gang is not None for one in (*gone, *came)):
        return None
    fresh = candidates_for(
        now.standing, preemptors, came, pool.now_seconds, frozen_pairs(now.swaps, preemptors, pool.now_seconds)
    )
    if isinstance(fresh, No):
        return None
    new = [one for one in came if one.uid in fresh.rights and one.uid not in pool.avoid.victims]
    if not {one.priority for one in new} <= set(pool.scale.classes):
        return None
    return _changed(pool, now, gone, new, fresh)


def _stands_alike(before: DecisionWorld, now: DecisionWorld, preemptors: Sequence[Workload]) -> bool:
    old, new = before.standing, now.standing
    return (
        all((pod.uid in old.entitled) == (pod.uid in new.entitled) for pod in preemptors)
        and old.queues == new.queues
        and before.disruptions == now.disruptions
        and before.swaps == now.swaps
    )


def _moved(before: DecisionWorld, now: DecisionWorld) -> frozenset[str]:
    """Uids of those who are entitled and were not, or were and are not."""
    old, new = before.standing.entitled, now.standing.entitled
    return frozenset() if old is new else old ^ new


def _changes(before: DecisionWorld, now: DecisionWorld) -> tuple[list[Workload], list[Workload]]:
    """Workloads that are not as they were, or stand otherwise, as they were and as they are."""
    old, new, moved = before.workloads, now.workloads, _moved(before, now)
    if old is new and not moved:
        return [], []
    came = [workload for uid, workload in new.items() if old.get(uid) is not workload or uid in moved]
    gone = [workload for one in came if (workload := old.get(one.uid)) is not None]
    gone += [old[uid] for uid in old.keys() - new.keys()]
    return gone, came


def _changed(
    pool: Pool, now: DecisionWorld, gone: Sequence[Workload], new: Sequence[Workload], fresh: Candidates
) -> Pool:
    uids = {one.uid for one in gone}
    rights = dict(pool.candidates.rights)
    for uid in uids:
        rights.pop(uid, None)
    rights.update((one.uid, fresh.rights[one.uid]) for one in new)
    known = (pool.candidates.until_seconds, fresh.until_seconds)
    moments = [moment for moment in known if moment is not None]
    own = [one for one in pool.own if one.uid not in uids]
    own += [one for one in new if one.queue == pool.queue]
    return replace(
        pool,
        candidates=replace(pool.candidates, rights=rights, until_seconds=min(moments, default=None)),
        victims=_victims(pool, now, gone, new),
        own=tuple(own),
        own_gives=sum_of(one.amounts for one in own),
    )


def _victims(pool: Pool, now: DecisionWorld, gone: Sequence[Workload], new: Sequence[Workload]) -> Victims:
    """Only nodes that one of them was or is on have other units than before."""
    keeps = guarantees(now.standing, pool.queue)
    budget = now.standing.queues[pool.queue].disruption_budget
    added = victims_of(new, (), Terms(pool.scale, pool.now_seconds, now.disruptions, budget, keeps))
    keys = {keep.key for keep in keeps}
    allowances = tuple(one for one in pool.victims.allowances if one.key not in keys)
    uids = {one.uid for one in gone}
    units = dict(pool.victims.units)
    for node in {one.node for one in gone if one.node in units} | added.units.keys():
        left = [unit for unit in units.get(node, ()) if uids.isdisjoint(unit.uids)]
        units[node] = tuple(sorted((*left, *added.units.get(node, ())), key=_order))
    unfit = {uid: why for uid, why in pool.victims.unfit.items() if uid not in uids}
    return Victims(units, (*allowances, *keeps), {**unfit, **added.unfit})


def _order(unit: Unit) -> tuple[int, str]:
    return (unit.cost, unit.key)
