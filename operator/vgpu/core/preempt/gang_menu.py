"""Room for a gang of equal pods: per node the least cost of hosting 1, 2, 3... of them, then the cheapest mix.

Enters: one NodeProblem per node, the number of pods. Leaves: how many each node hosts and who goes for it. Menus
start as bounds; only the entries that the best mix uses are solved, until all that it uses are (preemption.md
4.5). Seats, members and gangs that span nodes are not known here.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest

from vgpu.core.placement import Placement
from vgpu.core.preempt.cover import Budget
from vgpu.core.preempt.glance import Glance
from vgpu.core.preempt.node_search import NodeAnswer, NodeSearch
from vgpu.core.preempt.problem import NodeProblem, widest
from vgpu.core.request import PodRequest

_MOST_SHELVES = 8


@dataclass(frozen=True, slots=True)
class Share:
    """One node's part of a mix."""

    problem: NodeProblem
    copies: int
    answer: NodeAnswer


@dataclass(frozen=True, slots=True)
class Mix:
    """The shares of all nodes that host some; `cost` is the sum of theirs. `exact`: no mix costs less."""

    shares: tuple[Share, ...]
    cost: int
    exact: bool


@dataclass(slots=True)
class _Entry:
    """Hosting so many copies: at least `cost`; exactly that once it is solved. None = impossible."""

    cost: int | None
    answer: NodeAnswer | None = None
    refined: bool = False


@dataclass(slots=True)
class Menu:
    """What one node asks for hosting 1, 2, 3... copies; an impossible number ends the list.

    It begins as a glance. Whether the node takes such pods at all, whoever goes, is asked when it is first of use.
    """

    problem: NodeProblem
    entries: list[_Entry]
    _searches: dict[int, NodeSearch] = field(default_factory=dict)
    _asked: bool = False

    @property
    def costs(self) -> list[tuple[int, int]]:
        """(copies, cost) of what is possible."""
        return [(copies, e.cost) for copies, e in enumerate(self.entries, 1) if e.cost is not None]

    def improve(self, copies: int, budget: Budget) -> None:
        """Turn the bound for so many into a better one, or into the answer."""
        if not self._asked:
            self._asked = True
            if not takes(self.problem):
                self.entries.clear()
                return
        entry, search = self.entries[copies - 1], self._search(copies)
        if not entry.refined:
            entry.refined = True
            bound = search.bound()
            if bound is None or entry.cost is None or bound > entry.cost:
                entry.cost = bound
                return
        answer = search.solve(None, budget)
        if answer is None and budget.spent_up:
            answer = search.greedy()
        entry.answer, entry.cost = answer, None if answer is None else answer.cost

    def _search(self, copies: int) -> NodeSearch:
        if copies not in self._searches:
            like = next(iter(self._searches.values()), None)
            self._searches[copies] = NodeSearch(replace(self.problem, copies=copies), like)
        return self._searches[copies]


@dataclass(slots=True)
class MenuCache:
    """Menus by question, reused while their nodes ask the same."""

    _shelves: dict[tuple[PodRequest, int, str], dict[tuple[str, frozenset[str]], tuple[NodeProblem, Menu]]] = (
        field(default_factory=dict)
    )

    def shelf(
        self, request: PodRequest, copies: int, costs: str
    ) -> dict[tuple[str, frozenset[str]], tuple[NodeProblem, Menu]]:
        """Menus by node and by the units (keys) that they do without. `costs` tells apart what units cost."""
        if len(self._shelves) > _MOST_SHELVES:
            self._shelves.clear()
        return self._shelves.setdefault((request, copies, costs), {})

    def clear(self) -> None:
        """Forget everything."""
        self._shelves.clear()


@dataclass(slots=True)
class Mixer:
    """Mixes of the same nodes, again and again without other units: menus of nodes that a unit does not touch are
    kept. `problems` are in order of their nodes' names, all for one request. `costs`: a word for what units cost.
    """

    problems: Sequence[NodeProblem]
    copies: int
    budget: Budget
    cache: MenuCache = field(default_factory=MenuCache)
    costs: str = ""

    def cheapest(self, excluded: frozenset[str] = frozenset()) -> Mix | None:
        """The mix that hosts all copies at the least summed cost without these units (by key), or None."""
        menus = self._menus(excluded)
        while True:
            picked = combine([menu.costs for menu in menus], self.copies)
            if picked is None:
                return None
            hosting = [(menu, number) for menu, number in zip(menus, picked, strict=True) if number]
            chosen = [(menu, number, menu.entries[number - 1]) for menu, number in hosting]
            unsolved = [(menu, number) for menu, number, entry in chosen if entry.answer is None]
            if not unsolved:
                shares = tuple(Share(m.problem, number, e.answer) for m, number, e in chosen if e.answer)
                return Mix(shares, sum(share.answer.cost for share in shares), exact=not self.budget.spent_up)
            for menu, number in unsolved:
                menu.improve(number, self.budget)

    def _menus(self, excluded: frozenset[str]) -> list[Menu]:
        if not self.problems:
            return []
        first = self.problems[0]
        shelf = self.cache.shelf(first.request, self.copies, self.costs)
        glance = Glance(first.request, first.policies)
        menus = []
        for problem in self.problems:
            here = excluded & {unit.key for unit in problem.units} if excluded else excluded
            known = shelf.get((problem.view.name, here))
            if known is None or not known[0].asks_like(problem):
                menu = self._menu(problem, here, glance)
                known = shelf[problem.view.name, here] = (problem, menu)
            if known[1].entries:
                menus.append(known[1])
        return menus

    def _menu(self, problem: NodeProblem, without: frozenset[str], glance: Glance) -> Menu:
        if without:
            problem = replace(problem, units=tuple(unit for unit in problem.units if unit.key not in without))
        return Menu(problem, [_Entry(bound) for bound in glance.bounds(problem, self.copies)])


def takes(problem: NodeProblem) -> bool:
    """False for a node that would refuse the pod whoever went."""
    return isinstance(problem.place_without(widest(problem.units)), Placement)


def combine(menus: Sequence[Sequence[tuple[int, int]]], copies: int) -> tuple[int, ...] | None:
    """How many copies each menu hosts so that the sum of the costs is least, or None: min-plus over the menus."""
    best: list[tuple[int, tuple[int, int, object]] | None] = [None] * (copies + 1)
    best[0] = (0, (-1, 0, None))
    for place in _worth_a_look(menus, copies):
        before = list(best)
        for hosted, cost in menus[place]:
            for total in range(hosted, copies + 1):
                rest = before[total - hosted]
                if rest is None:
                    continue
                known = best[total]
                if known is None or rest[0] + cost < known[0]:
                    best[total] = (rest[0] + cost, (place, hosted, rest[1]))
    found = best[copies]
    return None if found is None else _numbers(found[1], len(menus))


def _worth_a_look(menus: Sequence[Sequence[tuple[int, int]]], copies: int) -> list[int]:
    """Places of the menus of which one is among the cheapest for some number: no more than `copies` of them can
    be in a mix, so a dearer one always has a cheaper one beside it that is free."""
    prices: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for place, menu in enumerate(menus):
        for hosted, cost in menu:
            prices[hosted].append((cost, place))
    return sorted({place for entries in prices.values() for _, place in nsmallest(copies, entries)})


def _numbers(chain: tuple[int, int, object], menus: int) -> tuple[int, ...]:
    """The chain of (menu, copies, chain before) as copies per menu."""
    numbers = [0] * menus
    link: object = chain
    while isinstance(link, tuple) and link[0] >= 0:
        numbers[link[0]] = link[1]
        link = link[2]
    return tuple(numbers)
