"""Whose turn it is: by rank, then the oldest debt, then age; and how long one rests who did not come.

Enters: the roster, the debts, waiting pods by creditor. Leaves: what the nominator asks (controller.offers). A pod
of a stopped queue, or beyond its queue's capability, is not offered anything; a gang's members start through their
gang. May not live here: nodes, writes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from vgpu.controller.preempt.bare_pods import BarePods
from vgpu.controller.preempt.debt_book import DebtBook
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import Turns
from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.eligible import Standing
from vgpu.core.preempt.facts import NOTHING, QueueFact, Workload
from vgpu.core.preempt.queues import may_start
from vgpu.core.preempt.rank import Service
from vgpu.core.preempt.recovery import Attempt, backoff_seconds, claim_order, is_due, tries_by_itself
from vgpu.core.preempt.roster import Roster
from vgpu.core.preempt.to_come import entitled_with
from vgpu.core.preempt.uid_index import UidIndex

Order = tuple[bool, int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class OfferParts:
    """What the offers rest on. `waiting`: uids of waiting pods by creditor. `now`: monotonic seconds."""

    ledger: Ledger
    roster: Roster
    book: DebtBook
    waiting: UidIndex
    bare: BarePods
    now: Callable[[], float]


class DebtOffers:
    """See the module."""

    def __init__(self, parts: OfferParts) -> None:
        self._parts = parts
        self._attempts: dict[str, Attempt] = {}
        self._room_seconds = float("-inf")
        self._owed: frozenset[str] | None = None
        self._entitled: tuple[object, frozenset[str]] = (None, frozenset())

    def changed(self) -> None:
        """Debts or waiting pods are others than before."""
        self._owed = None

    def turns(self) -> Turns:
        """The order of this moment, and what the queues take."""
        standing, absent = self._parts.roster.standing(), self._parts.bare.absent()
        workloads = self._parts.roster.workloads
        classes = {workloads[pod.uid].priority for pod in self._parts.ledger.pending() if pod.uid in workloads}
        classes.update(pod.priority for pod in absent)
        service = Service(standing.queues, self._entitled_with(standing, absent), classes)
        return Turns(partial(self._key, service), self._admits, self._starts_alone)

    def admits(self, pod: PodFact) -> bool:
        """Whether its queue lets it start now."""
        return self._admits([], pod)

    def owed(self) -> Collection[str]:
        """Waiting pods of those to whom something is owed, no more of each than it lacks."""
        if self._owed is None:
            creditors = self._parts.book.creditors()
            self._owed = frozenset(uid for creditor in creditors for uid in self._owed_of(creditor))
        return self._owed

    def owes(self, uid: str) -> bool:
        """True for one of them, and for an absent pod."""
        return uid in self.owed() or self._parts.bare.is_absent(uid)

    def absent(self) -> Sequence[PodFact]:
        """Evicted bare pods that are to be created again."""
        return self._parts.bare.absent()

    def absent_now(self) -> Sequence[PodFact]:
        """Those of them that would be created now, were there room."""
        return [pod for pod in self.absent() if not self.rests(pod.uid) and self._admits([], pod)]

    def rests(self, uid: str) -> bool:
        """True while it is left alone after tries that failed."""
        attempt = self._attempts.get(uid)
        return not is_due(attempt, self._queue_of(uid), self._room_seconds, self._parts.now())

    def failed(self, uid: str) -> float | None:
        """It did not come. The wait doubles with each try, and begins longer for who was evicted often (S76)."""
        before, queue = self._attempts.get(uid), self._queue_of(uid)
        tries = max(1, self._evictions_of(uid)) if before is None else before.tries + 1
        self._attempts[uid] = Attempt(tries, self._parts.now())
        return backoff_seconds(tries, queue) if tries_by_itself(tries, queue) else None

    def room_came(self) -> None:
        """Nobody rests any longer (S10, S76)."""
        self._room_seconds = self._parts.now()

    async def create(self, pod: PodFact) -> bool:
        """Create an evicted bare pod again."""
        return await self._parts.bare.create(pod)

    def forget(self, uid: str) -> None:
        """The pod waits no more."""
        self._attempts.pop(uid, None)

    def _key(self, service: Service, pod: PodFact) -> Order:
        creditor = self._creditor_of(pod.uid)
        since = self._parts.book.owed_since(creditor) if creditor and self.owes(pod.uid) else None
        return claim_order(service, self._workload(pod), since)

    def _workload(self, pod: PodFact) -> Workload:
        """The pod's workload; one that does not exist counts as it would."""
        known = self._parts.roster.workloads.get(pod.uid)
        if known is not None:
            return known
        roster = self._parts.roster
        claim = None if pod.request is None else roster.claim(pod.request)
        return Workload(
            pod.uid,
            pod.namespace,
            pod.name,
            roster.queue_of(pod),
            pod.priority,
            claim or NOTHING,
            claim or NOTHING,
            created_seconds=0 if pod.terms is None else pod.terms.created_seconds,
            request=pod.request,
            active=claim is not None,
            evictions=self._evictions_of(pod.uid),
        )

    def _entitled_with(self, standing: Standing, absent: Sequence[PodFact]) -> frozenset[str]:
        """Remembered: it is asked for many times while nothing has changed."""
        if not absent:
            return standing.entitled
        roster = self._parts.roster
        to_come = [self._workload(pod) for pod in absent]
        key = (roster.revision, standing.queues, to_come)
        if self._entitled[0] != key:
            self._entitled = (key, entitled_with(standing, roster.workloads.values(), to_come))
        return self._entitled[1]

    def _admits(self, served: Sequence[PodFact], pod: PodFact) -> bool:
        roster = self._parts.roster
        queue = roster.queue_of(pod)
        together = [one for one in served if roster.queue_of(one) == queue] + [pod]
        claims = (roster.claim(one.request) for one in together if one.request is not None)
        added = sum_of(claim for claim in claims if claim is not None)
        return may_start(queue, roster.queues, roster.usage(queue, without_promise=pod.uid), added) is None

    def _starts_alone(self, pod: PodFact) -> bool:
        """False for a member whose gang does not run yet: it starts with the others, by the gang's own offer."""
        roster = self._parts.roster
        gang = roster.gang_of(pod.uid)
        if gang is None or not gang.together:
            return True
        if not gang.known:
            return False
        members = (roster.workloads.get(uid) for uid in roster.members(gang.key))
        return sum(one is not None and one.running and not one.terminating for one in members) >= gang.minimum

    def _owed_of(self, creditor: str) -> Iterable[str]:
        waiting, owed = self._parts.waiting.of(creditor), self._parts.book.owed_pods(creditor)
        if len(waiting) <= owed:
            return waiting
        # Those who came last are the ones created in place of the evicted.
        return sorted(waiting, key=self._age, reverse=True)[:owed]

    def _age(self, uid: str) -> tuple[int, str]:
        known = self._parts.roster.workloads.get(uid)
        return (0 if known is None else known.created_seconds, uid)

    def _creditor_of(self, uid: str) -> str:
        return self._parts.waiting.key(uid) or self._parts.bare.creditor_of(uid)

    def _evictions_of(self, uid: str) -> int:
        return self._parts.book.evictions(self._creditor_of(uid))

    def _queue_of(self, uid: str) -> QueueFact:
        known = self._parts.roster.workloads.get(uid)
        name = known.queue if known is not None else self._parts.bare.queue_of(uid)
        return self._parts.roster.queues.get(name) or QueueFact(name)
