"""Who is offered freed capacity, in which order, and when one who failed may try again (preemption.md 4.8).

Enter: what waits (single pods and gangs) with its place in the order, the nodes that have room. Leave: nominations
that fit together. Nothing here evicts, and what plans hold is not offered: `place` sees to that.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vgpu.core.facts import PodFact, Scheduling
from vgpu.core.nomination import Nomination, best_placement, take
from vgpu.core.placement import Policies
from vgpu.core.preempt.facts import QueueFact, Workload
from vgpu.core.preempt.rank import Service
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView

NO_DEBT = 2**62


@dataclass(frozen=True, slots=True)
class Claim:
    """Pods that wait together: a single one, or a gang of which at least `minimum` must be placed at once.

    `order` sorts claims, the first to be served first (claim_order).
    """

    pods: tuple[PodFact, ...]
    minimum: int
    order: tuple[bool, int, int, int, int, str]


_Shape = tuple[int, tuple[tuple[PodRequest | None, Scheduling], ...]]
Admits = Callable[[Sequence[Claim], Claim], bool]
"""May this claim start beside the ones already served (queue limits)?"""


def claim_order(
    service: Service, workload: Workload, owed_since_seconds: int | None = None
) -> tuple[bool, int, int, int, int, str]:
    """By rank, then by the oldest debt, then by age. None: nothing is owed to it."""
    entitled, queue, priority, created, uid = service.key(workload)
    return (entitled, queue, priority, NO_DEBT if owed_since_seconds is None else owed_since_seconds, created, uid)


def offer(
    claims: Iterable[Claim],
    views: Iterable[NodeView],
    policies: Policies,
    admits: Admits = lambda served, claim: True,
) -> list[Nomination]:
    """Nominations of all claims that fit, in order; a gang's required pods all at once or none of them (S56).

    A claim that does not fit leaves what is free to the next: it holds nothing, a plan would.
    """
    scratch = {view.name: view for view in views if view.closed is None}
    held = {reservation.uid for view in scratch.values() for reservation in view.reservations}
    hopeless: set[_Shape] = set()
    served: list[Claim] = []
    chosen: list[Nomination] = []
    for claim in sorted(claims, key=lambda claim: claim.order):
        # Nodes only get fuller, so what did not fit once fits no more; unless cards are held for the pod itself.
        shape = None if any(pod.uid in held for pod in claim.pods) else _shape(claim)
        if shape in hopeless or not admits(served, claim):
            continue
        found, after = _placed(claim, scratch, policies)
        if len(found) >= claim.minimum:
            chosen += found
            scratch = after
            served.append(claim)
        elif shape is not None:
            hopeless.add(shape)
    return chosen


@dataclass(frozen=True, slots=True)
class Attempt:
    """How often an evicted workload failed to come back, and when it last tried."""

    tries: int
    last_seconds: float


def backoff_seconds(tries: int, queue: QueueFact) -> int:
    """How long one rests who failed so often: the queue's backoff, doubled with each try up to its maximum."""
    doubled = queue.backoff_base_seconds << min(max(0, tries - 1), 30)
    return min(doubled, queue.backoff_max_seconds)


def next_try_seconds(attempt: Attempt, queue: QueueFact) -> float:
    """When it may try again if nothing happens."""
    return attempt.last_seconds + backoff_seconds(attempt.tries, queue)


def tries_by_itself(tries: int, queue: QueueFact) -> bool:
    """False once the backoff has reached its maximum and one more try failed: only a capacity event brings the
    next one, so that a cluster in which nothing changes becomes quiet."""
    return tries <= 1 or backoff_seconds(tries - 1, queue) < queue.backoff_max_seconds


def is_due(attempt: Attempt | None, queue: QueueFact, capacity_seconds: float, now_seconds: float) -> bool:
    """True when its backoff is over, or capacity changed (last at `capacity_seconds`) since it tried."""
    if attempt is None or capacity_seconds > attempt.last_seconds:
        return True
    return now_seconds >= next_try_seconds(attempt, queue)


def released_of_broken_gang(
    bound: Sequence[str], minimum: int, broken_since_seconds: int, grace_seconds: int, now_seconds: int
) -> tuple[str, ...]:
    """Members that run in vain: fewer than the minimum are bound, and that for longer than the grace (S51)."""
    broken = 0 < len(bound) < minimum
    return tuple(bound) if broken and now_seconds >= broken_since_seconds + grace_seconds else ()


def _shape(claim: Claim) -> _Shape:
    return (claim.minimum, tuple((pod.request, pod.scheduling) for pod in claim.pods))


def _placed(
    claim: Claim, scratch: dict[str, NodeView], policies: Policies
) -> tuple[list[Nomination], dict[str, NodeView]]:
    after = dict(scratch)
    found: list[Nomination] = []
    for pod in claim.pods:
        placement = best_placement(after.values(), pod, policies)
        if placement is None:
            continue
        take(after, pod, placement)
        found.append(Nomination(pod, placement, direct=True))
    return found, after
