"""Keeps the standing of all queues from event to event, so that a decision does not walk every workload anew.

Enters: queues, workloads and promises as they come and go. Leaves: a Standing, equal to the one worked out from
nothing. Mutable, with one owner; no clock, no I/O. A walk is done only where a mark may have moved: one queue at a
time, and not for a pod that the walk skips: it takes nothing from anybody.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.capped import beside_others
from vgpu.core.preempt.eligible import Standing
from vgpu.core.preempt.entitlement import counts, entitled_in, may_take
from vgpu.core.preempt.facts import UNSTATED, Amounts, Limits, QueueFact, Workload
from vgpu.core.preempt.limits import reduced, within
from vgpu.core.preempt.rank import seniority
from vgpu.core.preempt.usage import UNUSED, QueueUsage, sum_of_usages, usage_of


@dataclass(slots=True)
class _Page:
    """One queue's workloads by uid, who of them is entitled, and their sums. `stale`: a mark may have moved.

    `rest`: what is left of what the queue deserves; `last`: the place in the walk of the last marked one. Where
    gangs are marked, neither is known.
    """

    members: dict[str, Workload] = field(default_factory=dict)
    entitled: frozenset[str] = frozenset()
    usage: QueueUsage = UNUSED
    stale: bool = False
    rest: Limits | None = None
    last: tuple[int, int, str] | None = None

    def passes_by(self, newcomer: Workload) -> bool:
        """True when the walk comes to him after all marked ones and skips him: then he changes nothing."""
        if self.rest is None or newcomer.gang is not None:
            return False
        if self.last is not None and seniority(newcomer) < self.last:
            return False
        return not may_take(newcomer.claim, self.rest)


class QueueBook:
    """All queues and workloads, and how the queues stand."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueFact] = {}
        self._pages: dict[str, _Page] = {}
        self._queue_of: dict[str, str] = {}
        self._promised: frozenset[str] = frozenset()
        self._to_come: Mapping[str, QueueUsage] = {}
        self._entitled: frozenset[str] | None = None

    def put_queue(self, queue: QueueFact) -> None:
        """A queue is there, or another than before."""
        if self._queues.get(queue.name) != queue:
            self._queues[queue.name] = queue
            self._page(queue.name).stale = True

    def drop_queue(self, name: str) -> None:
        """A queue is gone; its workloads stay and are entitled to nothing."""
        if self._queues.pop(name, None) is not None:
            self._page(name).stale = True

    def put(self, workload: Workload) -> None:
        """A workload is there, or another than before."""
        if self._queue_of.get(workload.uid, workload.queue) != workload.queue:
            self.drop(workload.uid)
        self._queue_of[workload.uid] = workload.queue
        self._change(workload.queue, workload.uid, workload)

    def drop(self, uid: str) -> None:
        """A workload is gone."""
        name = self._queue_of.pop(uid, None)
        if name is not None:
            self._change(name, uid, None)

    def promise(self, uids: Collection[str], to_come: Mapping[str, Amounts] | None = None) -> None:
        """Cards are held for these waiting pods, and for so much `to_come` by queue, and for nobody else."""
        self._to_come = {name: QueueUsage(promised=amounts) for name, amounts in (to_come or {}).items()}
        before, self._promised = self._promised, frozenset(uids)
        for uid in before ^ self._promised:
            name = self._queue_of.get(uid)
            if name is not None:
                page = self._pages[name]
                member, entitled = page.members[uid], uid in page.entitled
                page.usage -= usage_of(member, entitled=entitled, promised=uid in before)
                page.usage += usage_of(member, entitled=entitled, promised=uid in self._promised)

    def usage(self, name: str, without_promise: str = "") -> QueueUsage:
        """What a queue uses and is promised now; who of it is entitled may be worked out later. Nothing that is
        promised to the pod of the uid `without_promise` counts."""
        page = self._pages.get(name)
        if page is None:
            return UNUSED
        usage = self._with_those_to_come(name, page.usage)
        member = page.members.get(without_promise) if without_promise in self._promised else None
        if member is None:
            return usage
        promised, alone = (usage_of(member, entitled=False, promised=promised) for promised in (True, False))
        return usage - (promised - alone)

    def standing(self) -> Standing:
        """How the queues stand now."""
        for name, page in self._pages.items():
            if page.stale:
                self._walk_anew(name, page)
        if self._entitled is None:
            self._entitled = frozenset().union(*(page.entitled for page in self._pages.values()))
        pages = ((name, page.usage) for name, page in self._pages.items() if page.members)
        usage = {name: self._with_those_to_come(name, used) for name, used in pages}
        return Standing(dict(self._queues), usage, self._entitled)

    def _with_those_to_come(self, name: str, usage: QueueUsage) -> QueueUsage:
        to_come = self._to_come.get(name)
        return usage if to_come is None else usage + to_come

    def _page(self, name: str) -> _Page:
        return self._pages.setdefault(name, _Page())

    def _change(self, name: str, uid: str, after: Workload | None) -> None:
        queue, page = self._queues.get(name), self._page(name)
        before = page.members.get(uid)
        if before == after:
            return
        crowded = self._crowded(queue, page)
        if after is None:
            del page.members[uid]
        else:
            page.members[uid] = after
        if before is not None:
            page.usage -= self._usage_of(page, before)
        if after is not None:
            page.usage += self._usage_of(page, after)
        crowded = crowded or self._crowded(queue, page)
        others_held = crowded and beside_others(before) != beside_others(after)
        page.stale = page.stale or others_held or self._may_move_marks(page, before, after)

    def _usage_of(self, page: _Page, member: Workload) -> QueueUsage:
        uid = member.uid
        return usage_of(member, entitled=uid in page.entitled, promised=uid in self._promised)

    def _may_move_marks(self, page: _Page, before: Workload | None, after: Workload | None) -> bool:
        seen_before, seen_after = self._seen_by_walk(before), self._seen_by_walk(after)
        if seen_before == seen_after:
            return False
        if seen_before is None and after is not None:
            return not page.passes_by(after)
        if before is None or before.gang is not None or seen_after is not None:
            return True
        return before.uid in page.entitled

    def _crowded(self, queue: QueueFact | None, page: _Page) -> bool:
        """False when the queue's capability keeps nobody from starting: all may run at once."""
        if queue is None or queue.capability == UNSTATED:
            return False
        return not within(page.usage.staying + page.usage.pending, queue.capability)

    def _seen_by_walk(self, workload: Workload | None) -> tuple[object, ...] | None:
        queue = None if workload is None else self._queues.get(workload.queue)
        if workload is None or queue is None or not counts(workload, queue):
            return None
        runs = workload.gang is not None and workload.running
        return (seniority(workload), workload.claim, workload.gang, runs)

    def _walk_anew(self, name: str, page: _Page) -> None:
        queue = self._queues.get(name)
        marked = entitled_in(queue, page.members.values()) if queue is not None else frozenset[str]()
        page.stale = False
        self._note_rest(queue, page, marked)
        if marked == page.entitled:
            return
        moved = [page.members[uid] for uid in marked ^ page.entitled if uid in page.members]
        page.usage -= sum_of_usages([self._usage_of(page, member) for member in moved])
        page.entitled, self._entitled = marked, None
        page.usage += sum_of_usages([self._usage_of(page, member) for member in moved])

    def _note_rest(self, queue: QueueFact | None, page: _Page, marked: frozenset[str]) -> None:
        members = [page.members[uid] for uid in marked]
        page.rest = page.last = None
        if queue is not None and all(member.gang is None for member in members):
            page.rest = reduced(queue.deserved, sum_of(member.claim for member in members))
            page.last = max(map(seniority, members), default=None)
