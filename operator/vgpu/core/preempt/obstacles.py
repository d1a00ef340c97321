"""What stands in a pod's way, node by node, once everybody is gone who may be evicted; and where it fits as it is.

Enters: a DecisionWorld, the pods, the Pool of those who could go. Leaves: Obstacles of the nearest nodes, seats.
Asked for explanations only: it looks at every node, as a decision need not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpu.core.facts import Scheduling
from vgpu.core.intree import obstacle
from vgpu.core.placement import Placement, place
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.pool import Pool
from vgpu.core.preempt.problem import NodeProblem, widest, with_reservation
from vgpu.core.preempt.questions import Questions
from vgpu.core.preempt.together import not_together, stopped_by
from vgpu.core.reasons import Refusal
from vgpu.core.views import NodeView

NEAREST_NODES = 5


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One node: what it lacks when all are gone against whom there is a right; `may_go` of them could go now."""

    node: str
    refusal: Refusal
    may_go: int


def nearest_nodes(world: DecisionWorld, pods: Sequence[Workload], pool: Pool) -> tuple[Obstacle, ...]:
    """Open nodes first, then those on which most may go; of a gang, for its first member alone."""
    request = pods[0].request
    if request is None:
        return ()
    problems = Questions(world, pods[:1], pool).problems(request)
    if isinstance(problems, Refusal):
        return ()
    problems.sort(key=lambda problem: (problem.view.closed is not None, -len(problem.units), problem.view.name))
    return tuple(_obstacle(problem) for problem in problems[:NEAREST_NODES])


def room_now(world: DecisionWorld, pods: Sequence[Workload]) -> tuple[tuple[str, Placement], ...]:
    """Seats for all pods as everything stands, without waiting for anybody; () = there are none."""
    seats = seats_now(world, pods)
    return seats if len(seats) == len(pods) else ()


def seats_now(world: DecisionWorld, pods: Sequence[Workload]) -> tuple[tuple[str, Placement], ...]:
    """Seats for the first pods, up to one that finds none."""
    views = dict(world.views)
    seats: list[tuple[str, Placement]] = []
    for pod in pods:
        seat = _best_seat(world, views, pod)
        if seat is None:
            break
        seats.append((pod.uid, seat))
        views[seat.node] = with_reservation(views[seat.node], pod.uid, seat)
    return tuple(seats)


def _best_seat(world: DecisionWorld, views: dict[str, NodeView], pod: Workload) -> Placement | None:
    asks = world.scheduling.get(pod.uid, Scheduling())
    found = [
        placement
        for view in views.values()
        if pod.request is not None and view.node is not None and not obstacle(view.node, asks)
        if isinstance(placement := place(view, pod.request, pod.uid, world.policies), Placement)
    ]
    return min(found, key=lambda placement: (-placement.score, placement.node), default=None)


def _obstacle(problem: NodeProblem) -> Obstacle:
    refusal = problem.place_without(widest(problem.units))
    if isinstance(refusal, Placement):
        refusal = not_together(problem)
    free = (unit for unit in problem.units if stopped_by(unit, problem.allowances) is None)
    return Obstacle(problem.view.name, refusal, len({uid for unit in free for uid in unit.here}))
