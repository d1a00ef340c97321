"""Asks the decision core, and asks it once for pods that are equal in all that the answer rests on.

Enters: a DecisionWorld, pods that start together, what an earlier plan taught, the moment. Leaves: a Plan or a No.
A No is remembered until `forget`; who could go (a Pool) and what is known of nodes is brought up to date, for a
moment only, since lost work grows with time. May not live here: when to ask.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from vgpu.controller.preempt.waiting import Preemptors
from vgpu.core.preempt.cluster_search import SearchCache
from vgpu.core.preempt.decision import Plan, choose
from vgpu.core.preempt.decision_world import Avoid, DecisionWorld
from vgpu.core.preempt.eligible import rights_of
from vgpu.core.preempt.pool import Pool, pool_for
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.renewal import renewed

POOL_SECONDS = 10
"""What pods of unlike size have to lose grows unlike: so long the costs are those of a moment ago. While many want
in, a pool made anew is what keeps the others waiting."""
QUICK_SECONDS = 0.008
"""Of processor time: what takes no longer is worked out at once. Another thread and the loop would take turns, and
one of them wait, longer than that."""
MOST_CACHES = 16


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `revision`: of the workloads in `world`."""

    world: DecisionWorld
    pods: Preemptors
    avoid: Avoid
    now_seconds: int
    revision: int


@dataclass(slots=True)
class _Shelf:
    """What is kept for pods that may evict the same ones. `anew`: the pool was made for this world.
    `took_seconds`: the processor time of the last answer out of it."""

    world: DecisionWorld
    made_seconds: int
    pool: Pool | No
    cache: SearchCache
    anew: bool
    took_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class _Said:
    """What was said to this pod (NS/NAME)."""

    pod: str
    no: No


class Deciding:
    """See the module. `observe` is told every answer that was worked out, and its seconds."""

    def __init__(self, observe: Callable[[Plan | No, float], None] = lambda answer, seconds: None) -> None:
        self._observe = observe
        self._nos: dict[Hashable, _Said] = {}
        self._shelves: dict[Hashable, _Shelf] = {}

    def forget(self) -> None:
        """Something changed that may turn a No into a plan."""
        self._nos.clear()

    def known_no(self, question: Question) -> No | None:
        """What equal pods were told since the last change, or None."""
        known = self._nos.get(_shape(question))
        return None if known is None else _named(known.no, known.pod, question.pods[0].pod)

    async def answer_aside(self, question: Question) -> Plan | No:
        """The decision, worked out in another thread: on a large cluster it takes longer than the extender may
        keep others waiting. One at a time; what it was asked about may be another when it comes. Where the last
        one was quick, and nothing has to be worked out anew, the next is found at once."""
        plan = self._answer_at_once(question)
        return plan if plan is not None else await asyncio.to_thread(self.answer, question)

    def _answer_at_once(self, question: Question) -> Plan | None:
        known, began = self._shelves.get(_kind(question)), time.perf_counter()
        if known is None or known.took_seconds > QUICK_SECONDS:
            return None
        shelf = self._kept(question)
        answer = None if shelf is None else _ask(question, shelf)
        if not isinstance(answer, Plan):
            return None
        self._observe(answer, time.perf_counter() - began)
        return answer

    def answer(self, question: Question) -> Plan | No:
        """The decision."""
        began = time.perf_counter()
        shelf = self._shelf(question)
        answer = _ask(question, shelf)
        if isinstance(answer, No) and not shelf.anew:
            answer = _ask(question, self._make(question))
        self._observe(answer, time.perf_counter() - began)
        if isinstance(answer, No):
            self._nos[_shape(question)] = _Said(question.pods[0].pod, answer)
        return answer

    def _shelf(self, question: Question) -> _Shelf:
        """What is kept for such pods, brought up to date if it can be."""
        return self._kept(question) or self._make(question)

    def _kept(self, question: Question) -> _Shelf | None:
        """The same, or None where it has to be made anew."""
        known = self._shelves.get(_kind(question))
        if known is None or isinstance(known.pool, No) or not _holds(known, question.now_seconds):
            return None
        pool = renewed(known.pool, known.world, question.world, question.pods)
        if pool is None:
            return None
        known.anew = known.anew and pool is known.pool
        known.world, known.pool = question.world, pool
        return known

    def _make(self, question: Question) -> _Shelf:
        key = _kind(question)
        known = self._shelves.get(key)
        pool = pool_for(question.world, question.pods, question.now_seconds, question.avoid)
        cache = SearchCache() if known is None else known.cache
        if len(self._shelves) >= MOST_CACHES and key not in self._shelves:
            self._shelves.pop(next(iter(self._shelves)))
        shelf = self._shelves[key] = _Shelf(question.world, question.now_seconds, pool, cache, anew=True)
        return shelf


def _ask(question: Question, shelf: _Shelf) -> Plan | No:
    pool, began = shelf.pool, time.thread_time()
    answer = pool if isinstance(pool, No) else choose(question.world, question.pods, pool, shelf.cache)
    shelf.took_seconds = time.thread_time() - began
    return answer


def _named(no: No, pod: str, other: str) -> No:
    """The same, said to another pod."""
    if pod == other:
        return no
    return replace(no, refusal=replace(no.refusal, message=no.refusal.message.replace(pod, other)))


def _holds(shelf: _Shelf, now_seconds: int) -> bool:
    """False after a moment, or once somebody may go who was protected."""
    if now_seconds - shelf.made_seconds >= POOL_SECONDS:
        return False
    pool = shelf.pool
    until = pool.until_seconds if isinstance(pool, No) else pool.candidates.until_seconds
    return until is None or now_seconds < until


def _kind(question: Question) -> Hashable:
    """Equal for pods that may evict the same ones. An owner matters only where some pairs are held apart."""
    first, world = question.pods[0], question.world
    owners = tuple(pod.owner.uid or pod.uid for pod in question.pods) if world.swaps else ()
    pods = frozenset(rights_of(world.standing, pod, question.now_seconds) for pod in question.pods)
    return (pods, first.queue, owners, question.avoid)


def _shape(question: Question) -> Hashable:
    """Equal for pods that get the same No."""
    known = question.world.scheduling
    asks = tuple((pod.request, known.get(pod.uid)) for pod in question.pods)
    return (_kind(question), asks)
