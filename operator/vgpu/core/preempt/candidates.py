"""All whom one preemptor may evict, and a tally of why he may not evict the others.

Enters: a Standing, the pods that want to start together, all workloads, the moment, and what else spares a victim.
Leaves: Candidates, or a No. The same verdicts as for single pairs, worked out once for victims that are equal in
queue, class, mark and age. Which of the candidates go is not asked here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpu.core.preempt.eligible import Standing, may_preempt, right_over, spared_always
from vgpu.core.preempt.facts import WithinQueue, Workload
from vgpu.core.preempt.protection import No, Right, protected
from vgpu.core.preempt.rank import is_older
from vgpu.core.reasons import Reason, Refusal


@dataclass(frozen=True, slots=True)
class Candidates:
    """`rights`: by uid of those who may go. `spared`: pods with cards that may not, counted by reason; `samples`:
    one message of each. `until_seconds`: when the first protected one may go, if nothing else changes. `leaving`:
    pods that still hold cards and go already."""

    rights: Mapping[str, Right]
    spared: Mapping[Reason, int]
    samples: Mapping[Reason, str]
    until_seconds: int | None = None
    leaving: int = 0

    def refusal(self, pod: str) -> Refusal:
        """Why nobody may be evicted for NS/POD: what passes with time first, then what spares most."""
        if not self.spared:
            return Refusal(Reason.NO_LOWER_RANK, f"nobody may be evicted for {pod}: {self._nobody_stays()}")
        order = sorted(self.spared, key=lambda why: (why is not Reason.PROTECTED, -self.spared[why], why))
        tally = ", ".join(f"{self.spared[reason]} {reason}" for reason in order)
        return Refusal(order[0], f"nobody may be evicted for {pod} ({tally}); {self.samples[order[0]]}")

    def _nobody_stays(self) -> str:
        """Who is on the way out holds cards still: to deny it would be false."""
        going = f"{self.leaving} pod{' is' if self.leaving == 1 else 's are'} leaving already, and "
        return f"{going if self.leaving else ''}no other pod holds cards"


def candidates_for(
    standing: Standing,
    preemptors: Sequence[Workload],
    workloads: Iterable[Workload],
    now_seconds: int,
    spared: Callable[[Workload], No | None] | None = None,
) -> Candidates | No:
    """Whom these pods, which start together, may evict: each of them must have the right.

    `preemptors` is not empty. `spared` is asked about those against whom there is a right, and says why they
    do not go all the same. A No says why these pods may evict nobody at all.
    """
    for preemptor in preemptors:
        refusal = may_preempt(standing, preemptor, now_seconds)
        if refusal is not None:
            return refusal
    tally = _Tally(standing, list(_unlike(standing, preemptors)), now_seconds, spared)
    leaving = 0
    for workload in workloads:
        if workload.running and workload.terminating:
            leaving += 1
        elif workload.running:
            tally.add(workload)
    return Candidates(tally.rights, tally.spared, tally.samples, tally.until_seconds, leaving)


def _unlike(standing: Standing, preemptors: Sequence[Workload]) -> Iterator[Workload]:
    """One of each kind: members of a gang mostly have the same rights."""
    seen = set()
    for pod in preemptors:
        age = (pod.created_seconds, pod.uid) if _by_age(standing, pod) else ()
        kind = (pod.queue, pod.priority, pod.uid in standing.entitled, pod.gang, age)
        if kind not in seen:
            seen.add(kind)
            yield pod


def _by_age(standing: Standing, pod: Workload) -> bool:
    """True when it matters which of two pods is older."""
    return standing.queues[pod.queue].within_queue is WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY


class _Asker:
    """One preemptor, and what he was told about victims of each kind."""

    def __init__(self, standing: Standing, pod: Workload, now_seconds: int) -> None:
        self._standing, self._pod, self._now_seconds = standing, pod, now_seconds
        self._by_age = _by_age(standing, pod)
        self._known: dict[tuple[object, ...], Right | No] = {}

    def verdict(self, victim: Workload) -> Right | No:
        """By which right he may evict this one, or why not."""
        spared = spared_always(self._pod, victim)
        if spared is not None:
            return spared
        older = self._by_age and is_older(self._pod, victim)
        kind = (victim.queue, victim.priority, victim.uid in self._standing.entitled, older)
        right = self._known.get(kind)
        if right is None:
            right = self._known[kind] = right_over(self._standing, self._pod, victim)
        if isinstance(right, No):
            return right
        return protected(victim, self._standing.queues[victim.queue], right, self._now_seconds) or right


class _Tally:
    """Counts verdicts about victims."""

    def __init__(
        self,
        standing: Standing,
        preemptors: Sequence[Workload],
        now_seconds: int,
        also: Callable[[Workload], No | None] | None,
    ) -> None:
        self.rights: dict[str, Right] = {}
        self.spared: Counter[Reason] = Counter()
        self.samples: dict[Reason, str] = {}
        self.until_seconds: int | None = None
        self._askers = [_Asker(standing, preemptor, now_seconds) for preemptor in preemptors]
        self._also = also

    def add(self, victim: Workload) -> None:
        """Judge one victim."""
        verdict = self._verdict(victim)
        if self._also is not None and isinstance(verdict, Right):
            verdict = self._also(victim) or verdict
        if isinstance(verdict, Right):
            self.rights[victim.uid] = verdict
            return
        self.spared[verdict.reason] += 1
        self.samples.setdefault(verdict.reason, verdict.refusal.message)
        until = verdict.until_seconds
        if until is not None and (self.until_seconds is None or until < self.until_seconds):
            self.until_seconds = until
            self.samples[verdict.reason] = verdict.refusal.message

    def _verdict(self, victim: Workload) -> Right | No:
        first: Right | None = None
        for asker in self._askers:
            verdict = asker.verdict(victim)
            if isinstance(verdict, No):
                return verdict
            first = first or verdict
        assert first is not None
        return first
