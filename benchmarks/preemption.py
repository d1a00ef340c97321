"""How long a decision takes: which pods go, and where, over 200 and 1,000 nodes of 8 cards full of pods.

A decision is all from the waiting pod's event to the plan: what the cluster looks like, who may go, what each
would cost, the search. The reference is one look at every node without any eviction, by the code that answers
filter, in the same run. The figure after one change asks again after a pod has ended, as a planner does that
decides for one pod after another. All are seconds of processor time.
"""

import gc
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.preempt_world import NOW_SECONDS, World, full_world, mixed_pods, request_of, whole_pods
from benchmarks.results import Result
from vgpu.core.placement import Policies, place
from vgpu.core.preempt.cluster_search import SearchCache
from vgpu.core.preempt.decision import Plan, choose, decide
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.pool import Pool, pool_for
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.rank import Rank, rank_of
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.request import PodRequest

SHAPES = ((1, 60), (4, 60), (8, 60), (1, 100), (4, 100), (8, 100))
"""(cards, percent of each)."""
GANG = 16
STORM_NODES, STORM_PODS = 500, 4_000
STORM_REFERENCE_SECONDS = 59.0
"""A scheduling cycle of another scheduler with 4,000 running and 4,000 pending pods on 500 nodes, as published."""

_Answer = TypeVar("_Answer")


def run() -> list[Result]:
    """Decisions for pods of 1, 4 and 8 cards, cold and warm, for a gang, and for thousands one after another."""
    results = []
    for nodes in (200, 1_000):
        world = full_world(nodes, mixed_pods)
        gc.collect()
        results += _singles(nodes, world)
        results += _gangs(nodes, world)
    results.append(storm())
    return results


def storm(decisions: int = STORM_PODS) -> Result:
    """500 nodes full of 4,000 pods of a whole card each; as many of a higher class take their cards one by one.

    Each decision sees what those before it did: who goes, and for whom the cards are held.
    """
    world = full_world(STORM_NODES, whole_pods)
    waiting = [world.wait(f"high-{number}", request_of(1, 100), "job") for number in range(decisions)]
    gc.collect()
    served, taken = _timed(lambda: _serve(world, waiting))
    note = f"{served} of {decisions} served; the reference is the best figure published by others"
    return Result("reclaim storm at 500 nodes", taken, STORM_REFERENCE_SECONDS, "s", note)


def _serve(world: World, waiting: Sequence[Workload]) -> int:
    roster, cache = world.roster, SearchCache()
    plans: list[tuple[PlanHold, Rank]] = []
    promised: set[str] = set()
    pool = pool_for(roster.world(), waiting[:1], NOW_SECONDS)
    assert isinstance(pool, Pool)
    for number, pod in enumerate(waiting):
        seen = roster.world(tuple(plans))
        plan = choose(seen, [pod], pool, cache)
        if isinstance(plan, No):
            return number
        plans.append((world.hold(plan, pod.name), rank_of(pod, seen.standing.entitled)))
        promised.add(pod.uid)
        roster.promise(promised)
    return len(waiting)


def _singles(nodes: int, world: World) -> list[Result]:
    looks, cold, warm, proven = [], [], [], 0
    for number, (cards, percent) in enumerate(SHAPES):
        request = request_of(cards, percent)
        looks.append(_look(world, request))
        name, cache = f"single-{number}", SearchCache()
        world.wait(name, request, name)
        answer, seconds = _timed_decision(world, [name], cache)
        cold.append(seconds)
        proven += isinstance(answer, Plan) and answer.exact
        world.drop(f"gpu-{number * 31 % nodes:05d}-0")
        warm.append(_timed_decision(world, [name], cache)[1])
        world.drop(name)
    look = sum(looks) / len(looks)
    note = f"worst {max(cold):.3f} s, {proven} of {len(SHAPES)} proven least"
    return [
        Result(f"preemption decision at {nodes} nodes", sum(cold) / len(cold), look, "s", note),
        Result(f"preemption decision after one change at {nodes} nodes", sum(warm) / len(warm), look, "s"),
    ]


def _gangs(nodes: int, world: World) -> list[Result]:
    request, cache = request_of(4, 60), SearchCache()
    members = [world.wait(f"m{number}", request, "gang").name for number in range(GANG)]
    look = _look(world, request)
    answer, cold = _timed_decision(world, members, cache)
    world.drop("gpu-00101-0")
    warm = _timed_decision(world, members, cache)[1]
    note = f"{GANG} members of 4 cards, proven least: {isinstance(answer, Plan) and answer.exact}"
    return [
        Result(f"gang decision at {nodes} nodes", cold, look, "s", note),
        Result(f"gang decision after one change at {nodes} nodes", warm, look, "s"),
    ]


def _timed_decision(world: World, names: Sequence[str], cache: SearchCache) -> tuple[Plan | No, float]:
    """From the cluster's state to the plan."""

    def decision() -> Plan | No:
        seen = world.roster.world()
        return decide(seen, [seen.workloads[name] for name in names], NOW_SECONDS, cache=cache)

    return _timed(decision)


def _look(world: World, request: PodRequest) -> float:
    views = world.roster.world().views.values()
    return _timed(lambda: [place(view, request, "new", Policies()) for view in views])[1]


def _timed(call: Callable[[], _Answer]) -> tuple[_Answer, float]:
    """What the call gives, and how many seconds of processor time it took."""
    started = time.process_time()
    answer = call()
    return answer, time.process_time() - started
