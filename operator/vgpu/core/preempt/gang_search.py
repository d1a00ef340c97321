"""Room for a whole gang at once, or for none of it: who goes, and which cards each member gets.

Enters: members, and per request one NodeProblem per node. Leaves: a GangEviction or a Refusal. Equal members are
counted and mixed exactly; unequal ones are placed one after another, the largest first, which is not proven least
(preemption.md 4.5). Only as many members enter as the gang needs: further ones use idle room.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from vgpu.core.preempt.cluster_search import Eviction, search_cluster, why_not
from vgpu.core.preempt.cover import SCALE, Budget, Weights
from vgpu.core.preempt.demand import Demand
from vgpu.core.preempt.gang_menu import MenuCache, Mix, Mixer, takes
from vgpu.core.preempt.problem import (
    Allowance,
    Need,
    NodeProblem,
    Unit,
    sum_slots,
    view_without,
    with_reservation,
    without_reservations,
)
from vgpu.core.preempt.seating import Member, Seat, seat_by_loads, seat_in_turn
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView

GANG_STEPS = 20_000
"""Steps of one decision for a gang; 16 members of 4 cards on 1,000 nodes have needed 10,000."""
MOST_MIXES = 64
"""Mixes that are looked at for one that keeps within the allowances of all nodes together."""

Problems = Mapping[PodRequest, Sequence[NodeProblem]]


@dataclass(frozen=True, slots=True)
class GangEviction:
    """Room for all members: who goes (each unit once, whatever nodes it spans), and everybody's cards."""

    seats: tuple[Seat, ...]
    units: tuple[Unit, ...]
    cost: int
    exact: bool


def search_gang(
    members: Sequence[Member], problems: Problems, steps: int = GANG_STEPS, cache: MenuCache | None = None
) -> GangEviction | Refusal:
    """The cheapest eviction that makes room for all these members together; `cache` remembers equal questions."""
    uids = {member.uid for member in members}
    fresh = {
        request: [replace(p, view=without_reservations(p.view, uids), copies=1) for p in of_request]
        for request, of_request in problems.items()
    }
    requests = {member.request for member in members}
    if len(requests) == 1:
        budget, cache = Budget(steps), cache if cache is not None else MenuCache()
        found = _equal_members(members, fresh[members[0].request], budget, cache)
        if budget.spent_up:
            cache.clear()  # what was found last is not the least
        if found is not None:
            return found
    return _one_after_another(members, fresh, steps)


def _equal_members(
    members: Sequence[Member], problems: Sequence[NodeProblem], budget: Budget, cache: MenuCache
) -> GangEviction | None:
    """By menus; None where members cannot be counted, or where no mix was found that keeps within the allowances
    of all nodes together."""
    if not problems or not Demand(replace(problems[0], units=())).interchangeable:
        return None
    if any(problem.counts_for(problem.owner_uid) for problem in problems):
        cache = MenuCache()
    spanning = _spans(problems)
    takers = [p for p in problems if not _touched(p, spanning) or takes(p)]
    takers.sort(key=lambda problem: problem.view.name)
    spans = _spans(takers)
    mixer = Mixer([_with_costs(p, spans) for p in takers], len(members), budget, cache, "shared out")
    lowest = _lowest_allowed(mixer, members, takers)
    if lowest is None:
        return None
    bound, excluded, best = lowest
    other = None
    if spans and best.cost > bound:
        full = Mixer(takers, len(members), budget, cache, "in full").cheapest(excluded)
        other = None if full is None else _seated(full, members, takers)
    if other is not None and other.cost < best.cost:
        best = other
    return replace(best, exact=best.cost == bound and not budget.spent_up)


def _lowest_allowed(
    mixer: Mixer, members: Sequence[Member], problems: Sequence[NodeProblem]
) -> tuple[int, frozenset[str], GangEviction] | None:
    """Mixes in order of their cost, until one keeps within all allowances: its cost, what was excluded, the plan.

    Of the units that exceed an allowance together at least one has to stay, so each of them is excluded in turn.
    """
    first = mixer.cheapest()
    heap = [(first.cost, 0, frozenset[str](), first)] if first is not None else []
    seen = {frozenset[str]()}
    while heap and len(seen) <= MOST_MIXES:
        cost, _, excluded, mix = heappop(heap)
        chosen = _chosen(mix, problems)
        plan = _seated(mix, members, problems)
        if plan is not None:
            return cost, excluded, plan
        for unit in _exceeding(chosen, problems[0].allowances):
            without = excluded | {unit.key}
            following = mixer.cheapest(without) if without not in seen else None
            seen.add(without)
            if following is not None:
                heappush(heap, (following.cost, len(seen), without, following))
    return None


def _spans(problems: Iterable[NodeProblem]) -> dict[str, int]:
    """Units that are on several nodes, with their number."""
    nodes: dict[str, int] = defaultdict(int)
    for problem in problems:
        for unit in problem.units:
            nodes[unit.key] += 1
    return {key: count for key, count in nodes.items() if count > 1}


def _touched(problem: NodeProblem, spans: Mapping[str, int]) -> bool:
    """True when a unit that is on several nodes is on this one."""
    return bool(spans) and any(unit.key in spans for unit in problem.units)


def _with_costs(problem: NodeProblem, spans: Mapping[str, int]) -> NodeProblem:
    """Units on several nodes at a fair part of their cost: what a mix costs then is never more than in truth."""
    if not _touched(problem, spans):
        return problem
    units = tuple(
        replace(unit, cost=unit.cost // spans[unit.key]) if unit.key in spans else unit for unit in problem.units
    )
    return replace(problem, units=units)


def _seated(mix: Mix, members: Sequence[Member], problems: Sequence[NodeProblem]) -> GangEviction | None:
    """The mix with cards for all, without units that it does not need; None when allowances forbid it."""
    start = 0
    seats: list[Seat] = []
    for share in mix.shares:
        mine = members[start : start + share.copies]
        start += share.copies
        view = share.problem.without(share.answer.units)
        seats += seat_in_turn(view, mine, share.problem.policies) or seat_by_loads(view, mine, share.answer.loads)
    units = _chosen(mix, problems)
    cost = _price(units, problems[0].allowances)
    return None if cost is None else GangEviction(tuple(seats), units, cost, exact=False)


def _chosen(mix: Mix, problems: Sequence[NodeProblem]) -> tuple[Unit, ...]:
    """The units of all shares, each once and at its true cost."""
    true = {problem.view.name: {unit.key: unit for unit in problem.units} for problem in problems}
    found = {
        unit.key: true[share.problem.view.name][unit.key] for share in mix.shares for unit in share.answer.units
    }
    return _without_covered(found.values())


def _exceeding(units: Sequence[Unit], allowances: Sequence[Allowance]) -> list[Unit]:
    """The units that draw on the first allowance that they exceed and may not."""
    for allowance in allowances:
        drawing = [unit for unit in units if allowance.key in dict(unit.uses)]
        used = sum(dict(unit.uses)[allowance.key] for unit in drawing)
        if allowance.penalty is None and used > allowance.allowed:
            return drawing
    return []


def _without_covered(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """Single members go with their gang where it goes as a whole."""
    units = tuple(sorted(units, key=lambda unit: (unit.cost, unit.key)))
    whole = {unit.gang for unit in units if unit.whole}
    return tuple(unit for unit in units if unit.whole or unit.gang not in whole)


def _price(units: Sequence[Unit], allowances: Sequence[Allowance]) -> int | None:
    """What these units cost together on all nodes; None when they exceed an allowance."""
    weights = Weights.of([replace(unit, cost=0) for unit in units], [1] * len(units), allowances)
    penalty = weights.penalty((1 << len(units)) - 1)
    return None if penalty is None else sum(unit.cost for unit in units) + penalty // SCALE


@dataclass(slots=True)
class _State:
    """The cluster while members are placed: who has been chosen to go, and what each node looks like then."""

    asked: Mapping[tuple[PodRequest, str], NodeProblem]
    views: dict[str, NodeView]
    chosen: dict[str, Unit] = field(default_factory=dict)
    seats: list[Seat] = field(default_factory=list)

    def problem(self, problem: NodeProblem, member: Member) -> NodeProblem:
        """The node's problem as it stands now."""
        gone = {uid for unit in self.chosen.values() for uid in unit.uids}
        broken = {unit.gang for unit in self.chosen.values() if unit.gang and not unit.whole}
        units = tuple(
            unit
            for unit in problem.units
            if gone.isdisjoint(unit.uids) and not (unit.whole and unit.gang in broken)
        )
        used: dict[str, int] = defaultdict(int)
        for unit in self.chosen.values():
            for key, count in unit.uses:
                used[key] += count
        allowances = tuple(replace(a, allowed=a.allowed - used[a.key]) for a in problem.allowances)
        needs = tuple(
            replace(need, free=need.free - self.taken(need, problem.view.name)) for need in problem.needs
        )
        view = self.views[problem.view.name]
        return replace(problem, view=view, units=units, allowances=allowances, needs=needs, owner_uid=member.uid)

    def taken(self, need: Need, node: str) -> int:
        """What the members seated on the node take of it, less what the chosen units give."""
        here = [seat.member.request for seat in self.seats if seat.placement.node == node]
        wanted = sum(
            other.wanted
            for request in here
            for other in self.asked[request, node].needs
            if other.what == need.what
        )
        gone = {uid for unit in self.chosen.values() for uid in unit.uids}
        return wanted - sum(amount for uid, amount in need.freed if uid in gone)

    def take(self, member: Member, eviction: Eviction, everywhere: Mapping[str, Sequence[Unit]]) -> None:
        """Let the units go, on all of their nodes, and hold the member's cards."""
        keys = {unit.key for unit in eviction.units}
        for node, units in everywhere.items():
            mine = [unit for unit in units if unit.key in keys]
            if mine:
                gone = {uid for unit in mine for uid in unit.here}
                self.views[node] = view_without(self.views[node], gone, sum_slots(mine))
        self.chosen.update({unit.key: unit for unit in eviction.units})
        view = self.views[eviction.node]
        self.views[eviction.node] = with_reservation(view, member.uid, eviction.placement)
        self.seats.append(Seat(member, eviction.placement))


def _one_after_another(members: Sequence[Member], problems: Problems, steps: int) -> GangEviction | Refusal:
    every = [problem for of_request in problems.values() for problem in of_request]
    units_on = {problem.view.name: problem.units for problem in every}
    asked_of = {(request, p.view.name): p for request, of_request in problems.items() for p in of_request}
    state = _State(asked_of, {problem.view.name: problem.view for problem in every})
    for member in sorted(members, key=_largest_first):
        asked = [state.problem(problem, member) for problem in problems[member.request]]
        found = search_cluster(asked, steps=steps)
        if isinstance(found, Refusal):
            text = f"room for {len(state.seats)} of {len(members)} members; {found.message}"
            return Refusal(Reason.NO_ROOM_FOR_GANG, text)
        state.take(member, found, units_on)
    units, seats = _spare(state)
    cost = _price(units, every[0].allowances) if every else 0
    if cost is None:
        return why_not(every)
    return GangEviction(tuple(seats), units, cost, exact=not units)


def _spare(state: _State) -> tuple[tuple[Unit, ...], list[Seat]]:
    """Units that can stay after all, the dearest looked at first, and the seats without their cards."""
    chosen = dict(state.chosen)
    for key in sorted(chosen, key=lambda k: chosen[k].cost, reverse=True):
        fewer = {other: unit for other, unit in state.chosen.items() if other != key}
        again = _seat_all(_State(state.asked, state.views, fewer, state.seats))
        if again is not None:
            state.chosen, state.seats = fewer, again
    return _without_covered(state.chosen.values()), state.seats


def _seat_all(state: _State) -> list[Seat] | None:
    """Everybody on the same nodes again, with only the chosen units gone; None when that does not do."""
    by_node: dict[str, list[Member]] = defaultdict(list)
    for seat in state.seats:
        by_node[seat.placement.node].append(seat.member)
    again: list[Seat] = []
    for node, members in by_node.items():
        problem = state.asked[members[0].request, node]
        needs = [need for member in members for need in state.asked[member.request, node].needs]
        if any(state.taken(need, node) > need.free for need in needs):
            return None
        view = problem.without([unit for unit in problem.units if unit.key in state.chosen])
        seated = seat_in_turn(view, members, problem.policies)
        if seated is None:
            return None
        again += seated
    return again


def _largest_first(member: Member) -> tuple[int, int, str]:
    containers = member.request.containers
    mib = sum(c.number * c.card.memory_on(2**20) for c in containers)
    return (-mib, -sum(c.number for c in containers), member.uid)
