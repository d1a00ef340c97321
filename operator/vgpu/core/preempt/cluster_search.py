"""The least eviction over all nodes: node by node in order of their bounds, with one best answer so far.

Enters: one NodeProblem per node, all with costs of one scale. Leaves: an Eviction with the pod's cards, or a
Refusal that names the nearest nodes and what they lack. Bounds and answers of nodes where nothing changed are
kept by a SearchCache. Who may be evicted, and what happens then, is decided elsewhere.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from vgpu.core.placement import Placement, place
from vgpu.core.preempt.asked import Asked
from vgpu.core.preempt.cover import Budget
from vgpu.core.preempt.gang_menu import MenuCache
from vgpu.core.preempt.glance import Glance
from vgpu.core.preempt.node_search import NodeAnswer, NodeSearch
from vgpu.core.preempt.problem import NodeProblem, Unit, widest
from vgpu.core.preempt.together import not_together
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import PodRequest

SEARCH_STEPS = 10_000
"""Steps of one decision: a step is one choice of cards, or one look at a partial set of victims. So many take half
a second or less; pods of 5 cards, a third of each, on 200 nodes of 8 have needed 7,000."""
GREEDY_NODES = 64
"""Nodes that are tried without search when the steps are spent up before anything was found."""
NAMED_NODES = 3
_MOST_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Eviction:
    """Room for one pod: who goes (nobody when `units` is empty) and where the pod goes then.

    `exact`: no other allowed eviction costs less. `cost` is a number of the problems' CostScale.
    """

    node: str
    placement: Placement
    units: tuple[Unit, ...]
    cost: int
    exact: bool


@dataclass(slots=True)
class _Entry:
    """What is known of one node: at first a glance, and a search once it is worth one."""

    problem: NodeProblem
    bound: int | None
    answer: NodeAnswer | None = None
    refined: bool = False
    solved: bool = False
    _search: NodeSearch | None = None

    @property
    def search(self) -> NodeSearch:
        """The node's search, begun when it is first asked for."""
        if self._search is None:
            taken = sum(container.number for container in self.problem.request.containers)
            self._search = NodeSearch(self.problem, taken=taken)
        return self._search

    def refine(self, below: int | None) -> None:
        """Take the better bound of the node's search; it need not be good beyond `below`."""
        if not self.refined:
            self.refined = True
            bound = self.search.bound(below=below)
            self.bound = None if bound is None else max(bound, self.bound or 0)

    def solve(self, below: int | None, budget: Budget) -> NodeAnswer | None:
        """The node's answer below the limit; what a cut search has shown is kept as a better bound."""
        if not self.solved:
            answer = self.search.solve(below, budget)
            if budget.spent_up:
                return answer
            if answer is None and below is not None:
                self.bound = max(self.bound or 0, below)
                return None
            self.answer, self.solved = answer, True
            self.bound = None if answer is None else answer.cost
        fits = self.answer is not None and (below is None or self.answer.cost < below)
        return self.answer if fits else None


@dataclass(slots=True)
class SearchCache:
    """Searches by node and request, reused while the node's view and the question are the same. Keep one for each
    set of preemptors that may evict the same units: they ask the same questions. `asked`: the questions; `menus`:
    the same as this for gangs."""

    asked: Asked = field(default_factory=Asked)
    menus: MenuCache = field(default_factory=MenuCache)
    _shelves: dict[PodRequest, dict[str, _Entry]] = field(default_factory=dict)
    _kept: int = 0

    def entries(self, problems: Iterable[NodeProblem]) -> list[tuple[NodeProblem, _Entry]]:
        """The search for each question, the kept one where there is one."""
        found = []
        glance, shelf = None, dict[str, _Entry]()
        for problem in problems:
            if glance is None or problem.request is not glance.request or problem.policies is not glance.policies:
                # Hashing a request costs more than all the rest, and all problems of a call mostly share it.
                glance = Glance(problem.request, problem.policies)
                shelf = self._shelves.setdefault(problem.request, {})
            found.append((problem, self._entry(problem, shelf, glance)))
        return found

    def _entry(self, problem: NodeProblem, shelf: dict[str, _Entry], glance: Glance) -> _Entry:
        known = shelf.get(problem.view.name)
        if known is not None and known.problem is problem:
            return known
        if problem.counts_for(problem.owner_uid):
            return _Entry(problem, glance.bound(problem))
        if known is not None and known.problem.asks_like(problem):
            return known
        if known is None:
            self._kept += 1
        if self._kept > _MOST_KEPT:
            self._shelves, self._kept = {}, 0
        entry = shelf[problem.view.name] = _Entry(problem, glance.bound(problem))
        return entry


_Asked = tuple[NodeProblem, _Entry]


def search_cluster(
    problems: Iterable[NodeProblem], cache: SearchCache | None = None, steps: int = SEARCH_STEPS
) -> Eviction | Refusal:
    """The cheapest eviction that makes room for one pod (`copies` 1) on one of the nodes."""
    cache = cache if cache is not None else SearchCache()
    asked = cache.entries(problems)
    possible = sorted(((p, e) for p, e in asked if e.bound is not None), key=lambda pair: pair[0].view.name)
    idle = _without_eviction(p for p, e in possible if e.bound == 0)
    if idle is not None:
        return idle
    budget = Budget(steps)
    best = _best_of(possible, budget)
    if budget.spent_up:
        best = _inexact(best, possible)
    return best or why_not([problem for problem, _ in asked])


def _best_of(possible: list[_Asked], budget: Budget) -> Eviction | None:
    """Nodes in order of their bounds; a rough bound is refined before its node is searched."""
    best: Eviction | None = None
    heap = [(entry.bound or 0, place) for place, (_, entry) in enumerate(possible)]
    heapify(heap)
    while heap and not budget.spent_up:
        bound, place = heappop(heap)
        if best is not None and bound >= best.cost:
            break
        problem, entry = possible[place]
        entry.refine(best.cost if best else None)
        if entry.bound is not None and entry.bound > bound:
            heappush(heap, (entry.bound, place))
        elif entry.bound is not None:
            answer = entry.solve(best.cost if best else None, budget)
            if answer is not None:
                best = _settle(problem, entry, answer, budget) or best
    return best


def why_not(problems: Iterable[NodeProblem]) -> Refusal:
    """Why not even all allowed evictions make room; names some nodes and what they lack."""
    refusals: dict[str, Refusal] = {}
    for problem in sorted(problems, key=lambda p: (p.view.closed is not None, -len(p.units), p.view.name)):
        refusal = problem.place_without(widest(problem.units))
        if isinstance(refusal, Placement):
            refusal = not_together(problem)
        refusals[problem.view.name] = refusal
        if len(refusals) == NAMED_NODES:
            break
    if not refusals:
        return Refusal(Reason.NO_INVENTORY, "no node lists any GPU")
    alike: dict[str, list[str]] = {}
    for node, refusal in refusals.items():
        alike.setdefault(refusal.message, []).append(node)
    said = "; ".join(f"{', '.join(nodes)}: {message}" for message, nodes in alike.items())
    first = next(iter(refusals.values()))
    return Refusal(first.reason, f"no allowed eviction makes room: {said}")


def _without_eviction(problems: Iterable[NodeProblem]) -> Eviction | None:
    """The best node that has room as it stands, or once those are gone that leave already."""
    best: tuple[tuple[bool, int, str], Placement] | None = None
    for problem in problems:
        placement = problem.place_without(())
        if isinstance(placement, Refusal):
            continue
        view, request = problem.view, problem.request
        waits = isinstance(place(view, request, problem.owner_uid, problem.policies), Refusal)
        key = (waits, -placement.score, view.name)
        if best is None or key < best[0]:
            best = (key, placement)
    return None if best is None else Eviction(best[1].node, best[1], (), 0, exact=True)


def _settle(problem: NodeProblem, entry: _Entry, answer: NodeAnswer, budget: Budget) -> Eviction | None:
    if budget.spent_up:
        answer = entry.search.spare(answer)
    placement = problem.place_without(answer.units)
    if isinstance(placement, Refusal):
        entry.bound, entry.answer, entry.solved = None, None, True  # a rule about the node that no eviction meets
        return None
    return Eviction(problem.view.name, placement, answer.units, answer.cost, exact=True)


def _inexact(best: Eviction | None, possible: list[_Asked]) -> Eviction | None:
    """What was found so far, or the first node where taking units one after another makes room."""
    found = best or next(_greedy_answers(possible), None)
    return None if found is None else Eviction(found.node, found.placement, found.units, found.cost, exact=False)


def _greedy_answers(possible: list[_Asked]) -> Iterator[Eviction]:
    ordered = sorted(((p, e) for p, e in possible if e.bound is not None), key=lambda pair: pair[1].bound or 0)
    for problem, entry in ordered[:GREEDY_NODES]:
        answer = entry.search.greedy()
        placement = None if answer is None else problem.place_without(answer.units)
        if answer is not None and isinstance(placement, Placement):
            yield Eviction(problem.view.name, placement, answer.units, answer.cost, exact=False)
