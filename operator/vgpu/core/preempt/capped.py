"""Who cannot start, whatever became free, because of his own queue's capability: he has no share of it.

Enters: a queue and its workloads. Leaves: uids of those that wait and are held back. Who may be evicted for one in
his own queue does not hold him back (preemption.md 4.2); what may not is counted as the gate counts it. May not
live here: other queues, cards.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.facts import NOTHING, UNSTATED, Amounts, QueueFact, WithinQueue, Workload
from vgpu.core.preempt.limits import where_given, within
from vgpu.core.preempt.protection import never_victim
from vgpu.core.preempt.rank import core_members, seniority

_AFTER_ALL_OF_A_CLASS = (2**62, "")


def held_back(queue: QueueFact, members: Sequence[Workload]) -> frozenset[str]:
    """Uids of the waiting ones for whom the capability leaves no room beside those who run and stay.

    A gang of which nobody runs is held back as a whole, as it starts as a whole.
    """
    waiting = [member for member in members if not member.running]
    if queue.capability == UNSTATED or not waiting:
        return frozenset()
    kept = _Kept(queue, [member for member in members if member.running and not member.terminating])
    running_gangs = {member.gang.key for member in members if member.running and member.gang is not None}
    held: set[str] = set()
    for unit, starting in _units(waiting, running_gangs):
        claim = sum_of(member.claim for member in starting)
        most = where_given(queue.capability, claim)
        if not within(kept.beside(starting) + claim, most):
            held.update(member.uid for member in unit)
    return frozenset(held)


def beside_others(one: Workload | None) -> object:
    """All that holds others of its queue back: equal before and after a change that concerns none of them."""
    if one is None or not one.running or one.terminating:
        return None
    return (one.amounts, seniority(one), never_victim(one) is None)


class _Kept:
    """What the queue's running ones use."""

    def __init__(self, queue: QueueFact, running: Sequence[Workload]) -> None:
        self._policy = queue.within_queue
        may_go = sorted((one for one in running if never_victim(one) is None), key=seniority)
        self._places = [seniority(one) for one in may_go]
        self._gives = [NOTHING, *accumulate(one.amounts for one in reversed(may_go))][::-1]
        self._all = sum_of(one.amounts for one in running)

    def beside(self, starting: Iterable[Workload]) -> Amounts:
        """The part of it that stays for these: they evict lower classes, or newer ones of their own too."""
        first = max(self._first_that_goes(one) for one in starting)
        return self._all - self._gives[first]

    def _first_that_goes(self, one: Workload) -> int:
        if one.preempt_never or self._policy is WithinQueue.NEVER:
            return len(self._places)
        if self._policy is WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY:
            return bisect_right(self._places, seniority(one))
        return bisect_right(self._places, (-one.priority, *_AFTER_ALL_OF_A_CLASS))


def _units(
    waiting: Iterable[Workload], running_gangs: Collection[str]
) -> Iterator[tuple[Sequence[Workload], Sequence[Workload]]]:
    """Who is held back together, and who of them would start at once."""
    gangs: defaultdict[str, list[Workload]] = defaultdict(list)
    for one in waiting:
        if one.gang is None or one.gang.key in running_gangs:
            yield (one,), (one,)
        else:
            gangs[one.gang.key].append(one)
    for members in gangs.values():
        minimum = max(member.gang.minimum for member in members if member.gang is not None)
        yield members, core_members(members, max(1, minimum))[0]
