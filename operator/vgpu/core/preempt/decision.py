"""The decision: whom to evict so that a pod, or all required members of a gang, get cards; or why nobody goes.

Enter: a DecisionWorld (everything as it stands), the pods that want to start together, what an earlier plan for
them taught, the moment. Leaves: a Plan (cards for each of them, victims, by which right, whether it is proven
least, whose plans it takes over), or a No. Nothing is changed and nothing is remembered: the same question has the
same answer, asked in earnest or as a what-if. The plan is carried out step by step by core.preempt.plan_step.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vgpu.core.placement import Placement
from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.claims import NO_PLAN
from vgpu.core.preempt.cluster_search import SearchCache, search_cluster
from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid, DecisionWorld
from vgpu.core.preempt.eligible import refuse_victims
from vgpu.core.preempt.facts import NodeReservation, Victim, Workload
from vgpu.core.preempt.gang_search import search_gang
from vgpu.core.preempt.pool import Pool, pool_for
from vgpu.core.preempt.problem import Unit
from vgpu.core.preempt.protection import No, no
from vgpu.core.preempt.questions import Questions
from vgpu.core.preempt.queues import over_capability
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.seating import Member
from vgpu.core.preempt.takeover import losers
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.recount import reservations_of

WITHOUT_EVICTION = "room without eviction"
"""The rule of a plan for which nobody goes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Room for every preemptor, and who goes for it, cheapest first; () = what is free or leaving is enough.

    `rule`: by which right they go. `exact`: proven to be the least eviction. `units`: by uid of a victim that goes
    only with others, what it goes with. `takes`: plans of lower rank that must end for it; `claimants`: pods of
    lower rank that wait for room which it takes.
    """

    seats: tuple[tuple[str, Placement], ...]
    victims: tuple[Victim, ...]
    rule: str
    exact: bool
    cost: Cost
    units: Mapping[str, str]
    takes: tuple[str, ...] = ()
    claimants: tuple[str, ...] = ()

    @property
    def reservations(self) -> tuple[NodeReservation, ...]:
        """What is held for each pod, card by card."""
        return tuple(
            NodeReservation(placement.node, one)
            for uid, placement in self.seats
            for one in reservations_of(((uid, placement),))
        )


def decide(
    world: DecisionWorld,
    preemptors: Sequence[Workload],
    now_seconds: int,
    avoid: Avoid = NOTHING_LEARNT,
    cache: SearchCache | None = None,
) -> Plan | No:
    """Make room for one pod, or for all these members of a gang together, at the least cost.

    `preemptors` is not empty; each has a request. `cache` keeps what was found out about nodes that do not change.
    A No tells until when it holds at least, if that is known (S75, S83).
    """
    pool = pool_for(world, preemptors, now_seconds, avoid)
    return pool if isinstance(pool, No) else choose(world, preemptors, pool, cache)


def choose(
    world: DecisionWorld, preemptors: Sequence[Workload], pool: Pool, cache: SearchCache | None = None
) -> Plan | No:
    """The least eviction out of the pool, or why none makes room. Many equal pods, one after another, may share a
    pool and a cache."""
    nowhere = next((pod.nowhere_why for pod in preemptors if pod.nowhere_why), "")
    if nowhere:
        return no(Reason.OTHER_FILTERS, nowhere)
    refusal = _own_queue_refuses(world, preemptors, pool)
    if refusal is not None:
        return No(refusal, pool.candidates.until_seconds)
    questions = Questions(world, preemptors, pool, None if cache is None else cache.asked)
    found = _search(questions, cache)
    if isinstance(found, Refusal):
        return _nobody(pool, preemptors[0], found)
    plan = _plan_of(world, pool, found)
    victims = [world.workloads[victim.uid] for victim in plan.victims]
    refusal = _queues_refuse(world, preemptors, (*victims, *questions.own_going))
    if refusal is not None:
        return No(refusal, pool.candidates.until_seconds)
    lost = _losers(world, questions, plan)
    takes = tuple(hold.plan for hold in lost if hold.plan != NO_PLAN)
    return replace(plan, takes=takes, claimants=_uids(hold for hold in lost if hold.plan == NO_PLAN))


@dataclass(frozen=True, slots=True)
class _Found:
    seats: tuple[tuple[str, Placement], ...]
    units: tuple[Unit, ...]
    cost: int
    exact: bool


def _search(questions: Questions, cache: SearchCache | None) -> _Found | Refusal:
    members = [Member(pod.uid, pod.request) for pod in questions.preemptors if pod.request is not None]
    problems = {}
    for request in dict.fromkeys(member.request for member in members):
        asked = questions.problems(request)
        if isinstance(asked, Refusal):
            return asked
        problems[request] = asked
    if len(members) == 1:
        one = search_cluster(problems[members[0].request], cache)
        if isinstance(one, Refusal):
            return one
        return _Found(((members[0].uid, one.placement),), one.units, one.cost, one.exact)
    together = search_gang(members, problems, cache=None if cache is None else cache.menus)
    if isinstance(together, Refusal):
        return together
    seats = tuple((seat.member.uid, seat.placement) for seat in together.seats)
    return _Found(seats, together.units, together.cost, together.exact)


def _nobody(pool: Pool, preemptor: Workload, refusal: Refusal) -> No:
    """Where nobody may go at all, that is the reason; otherwise what the nodes lack."""
    until = pool.candidates.until_seconds
    if pool.candidates.rights:
        return No(refusal, until)
    nobody = pool.candidates.refusal(preemptor.pod)
    return No(nobody, until)


def _own_queue_refuses(world: DecisionWorld, preemptors: Sequence[Workload], pool: Pool) -> Refusal | None:
    """Where not even all candidates of the own queue together keep it within its capability (S63)."""
    added = sum_of(pod.claim for pod in preemptors)
    name = preemptors[0].queue
    after = world.standing.usage_of(name).after(added, pool.own_gives)
    return over_capability(world.standing.queues[name], after, added)


def _queues_refuse(
    world: DecisionWorld, preemptors: Sequence[Workload], victims: Iterable[Workload]
) -> Refusal | None:
    added = sum_of(pod.claim for pod in preemptors)
    return refuse_victims(world.standing, preemptors[0].queue, added, victims)


def _plan_of(world: DecisionWorld, pool: Pool, found: _Found) -> Plan:
    ordered = sorted(found.units, key=lambda unit: (unit.cost, unit.key))
    going = [world.workloads[uid] for unit in ordered for uid in unit.uids]
    rights = {pool.candidates.rights[workload.uid] for workload in going}
    return Plan(
        found.seats,
        tuple(Victim(one.uid, one.namespace, one.name, one.node or "") for one in going),
        ", ".join(sorted(rights)) or WITHOUT_EVICTION,
        found.exact,
        pool.scale.unpack(found.cost),
        {uid: unit.key for unit in found.units if unit.whole for uid in unit.uids},
    )


def _losers(world: DecisionWorld, questions: Questions, plan: Plan) -> Sequence[PlanHold]:
    """What is held for others of lower rank and cannot stand beside this plan (S33)."""
    hold = PlanHold("", 0, plan.reservations, frozenset((one.uid, one.node) for one in plan.victims))
    if not questions.lower:
        return ()
    return losers(hold, questions.lower, world.views.get, frozenset(uid for uid, _ in questions.going)) or ()


def _uids(holds: Iterable[PlanHold]) -> tuple[str, ...]:
    return tuple(sorted({uid for hold in holds for uid in hold.uids}))
