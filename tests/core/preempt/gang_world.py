"""Random clusters of two nodes for gangs, and the answer to each found by trying every set of victims."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

from tests.core.building import make_ledger, make_request, want
from tests.core.preempt.search_world import (
    SCALE,
    THOROUGH,
    make_problem,
    price,
    random_card,
    random_pod,
    unit_of,
    view_of,
    whole_unit,
)
from vgpu.core.facts import PodFact
from vgpu.core.placement import Placement, place
from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.gang_search import GangEviction
from vgpu.core.preempt.problem import Allowance, NodeProblem, Unit
from vgpu.core.preempt.seating import Member
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView


def random_gang_problem(random: Random) -> tuple[list[Member], list[NodeProblem]]:
    """One to four equal members, two nodes of two or three cards with up to five pods each, perhaps a gang on
    both nodes."""
    views, pods = [], []
    for node in ("n1", "n2"):
        cards = [replace(random_card(random, i), uuid=f"{node}-{i}") for i in range(random.randint(2, 3))]
        ledger = make_ledger(cards=cards, node=node)
        for number in range(random.randint(1, 5)):
            pod = random_pod(random, ledger, f"{node}p{number}", node)
            if pod is not None:
                ledger.put_pod(pod)
                pods.append(pod)
        views.append(view_of(ledger, node))
    by_node, allowances = _random_units(random, pods)
    request = _member_request(random)
    members = [Member(f"m{number}", request) for number in range(random.randint(1, 4))]
    problems = [make_problem(v, request, by_node[v.name], allowances=allowances) for v in views]
    return members, problems


def brute_force_gang(members: Sequence[Member], problems: Sequence[NodeProblem]) -> int | None:
    """The least cost at which all members fit together, by trying all sets of units in order of their cost."""
    units = {unit.key: unit for problem in problems for unit in problem.units}
    every = [c for size in range(len(units) + 1) for c in combinations(units.values(), size)]
    priced = [(cost, chosen) for chosen in every if (cost := price(problems[0], chosen)) is not None]
    for cost, chosen in sorted(priced, key=lambda pair: pair[0]):
        keys = {unit.key for unit in chosen}
        room = 0
        for problem in problems:
            view = problem.without([unit for unit in problem.units if unit.key in keys])
            room += hosted(view, members[0].request, len(members))
        if room >= len(members):
            return cost
    return None


def hosted(view: NodeView, request: PodRequest, most: int) -> int:
    """How many equal pods without init containers the node hosts together, at most `most`."""
    for copies in range(most, 0, -1):
        together = replace(request, containers=request.containers * copies)
        if isinstance(place(view, together, "gang", THOROUGH), Placement):
            return copies
    return 0


def overfull(found: GangEviction, problems: Sequence[NodeProblem]) -> list[str]:
    """Cards that the members' seats would take beyond what is there once all the units have gone."""
    wrong = []
    keys = {unit.key for unit in found.units}
    for problem in problems:
        view = problem.without([unit for unit in problem.units if unit.key in keys])
        for card in view.cards:
            shares = [
                share
                for seat in found.seats
                if seat.placement.node == view.name
                for container in seat.placement.containers
                for share in container.cards
                if share.uuid == card.fact.uuid
            ]
            alone = any(share.whole or share.cores >= 100 for share in shares)
            if shares and (
                card.used_slots + len(shares) > card.fact.slots
                or card.used_memory_mib + sum(share.memory_mib for share in shares) > card.fact.memory_mib
                or card.used_cores + sum(share.cores for share in shares) > 100
                or (alone and len(shares) + len(card.holders) > 1)
                or card.exclusive
            ):
                wrong.append(card.fact.uuid)
    wrong += [
        f"{seat.member.uid}: a card twice"
        for seat in found.seats
        for container in seat.placement.containers
        if len({share.uuid for share in container.cards}) != len(container.cards)
    ]
    return wrong


def _member_request(random: Random) -> PodRequest:
    first = want(random.choice([1, 1, 2]), random.choice([None, 8192, 20_000]), random.choice([0, 0, 30]))
    if random.random() < 0.2:
        return make_request(first, replace(want(1, 2000), name="side"))
    return make_request(first)


def _random_units(random: Random, pods: Sequence[PodFact]) -> tuple[dict[str, list[Unit]], tuple[Allowance, ...]]:
    by_node: dict[str, list[Unit]] = {"n1": [], "n2": []}
    rest = [pod for pod in pods if not pod.terminating]
    random.shuffle(rest)
    allowances: list[Allowance] = []
    if len(rest) >= 3 and random.random() < 0.5:
        gang, rest = rest[:3], rest[3:]
        allowances.append(Allowance("surplus:g", random.randint(0, 2)))
        singles = [(pod, unit_of(pod, 50, gang="g", uses=(("surplus:g", 1),), broken=0)) for pod in gang]
        cost = sum(unit.cost for _, unit in singles) + SCALE.pack(Cost(0, (0, 0, 0), 1))
        uids = tuple(pod.uid for pod in gang)
        for node in {pod.node for pod in gang}:
            here = [pod for pod in gang if pod.node == node]
            elsewhere = [uid for uid in uids if uid not in {pod.uid for pod in here}]
            by_node[node].append(whole_unit("g", here, cost, elsewhere))
        for pod, unit in singles:
            by_node[pod.node].append(unit)
    budget = random.random() < 0.2
    if budget:
        allowances.append(Allowance("pdb", random.randint(0, 2), random.choice([None, SCALE.violation])))
    for pod in rest:
        uses = (("pdb", 1),) if budget and random.random() < 0.6 else ()
        by_node[pod.node].append(unit_of(pod, random.choice([0, 0, 50]), uses=uses, freed=random.randint(0, 3)))
    return by_node, tuple(allowances)
