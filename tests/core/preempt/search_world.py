"""Random nodes for the search, and the answer to each found by trying every set of victims."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from random import Random
from typing import Any

from vgpu.core.charge import pod_slots
from vgpu.core.facts import AssignedCard, AssignedContainer, CardFact, PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement, Policies
from vgpu.core.preempt.cost import Cost, CostScale, tie_of
from vgpu.core.preempt.problem import Allowance, Need, NodeProblem, Unit
from vgpu.core.request import CardPolicy, ContainerKind, PodRequest, Selection
from vgpu.core.views import NodeView

from ..building import APP, INIT, SIDECAR, bound_pod, make_card, make_ledger, make_request, pending_pod, want

THOROUGH = Policies(search_steps=1_000_000)
SCALE = CostScale((100, 50, 0))
CARD_MIB = 32_768


def unit_of(pod: PodFact, priority: int = 0, **fields: Any) -> Unit:
    """One pod as a unit; `lost_work` and `age_seconds` go into its cost."""
    cost = Cost(
        pods_by_class=SCALE.one_of(priority),
        broken=fields.pop("broken", 1),
        pods=1,
        lost_work=fields.pop("lost_work", 0),
        freed=fields.pop("freed", 0),
        age_seconds=fields.pop("age_seconds", 0),
        tie=tie_of(pod.uid),
    )
    assert pod.assignment is not None
    slots = pod_slots(pod.assignment.containers)
    given = {"key": pod.uid, "uids": (pod.uid,), "here": frozenset({pod.uid}), "slots_here": slots, **fields}
    return Unit(cost=given.pop("cost", SCALE.pack(cost)), **given)


def whole_unit(
    gang: str, pods: Sequence[PodFact], cost: int, elsewhere: Sequence[str] = (), **fields: Any
) -> Unit:
    """A gang as one unit; `elsewhere` are members on other nodes."""
    slots = sum(pod_slots(pod.assignment.containers) for pod in pods if pod.assignment)
    here = frozenset(pod.uid for pod in pods)
    return Unit(f"gang:{gang}", (*sorted(here), *elsewhere), here, slots, cost, gang=gang, whole=True, **fields)


def view_of(ledger: Ledger, node: str = "n1") -> NodeView:
    view = ledger.view(node)
    assert view is not None
    return view


def make_problem(view: NodeView, request: PodRequest, units: Iterable[Unit] = (), **fields: Any) -> NodeProblem:
    return NodeProblem(view, request, "new", fields.pop("policies", THOROUGH), tuple(units), **fields)


def price(problem: NodeProblem, units: Sequence[Unit]) -> int | None:
    """What the units cost together, None where they may not go together: counted naively."""
    for unit in units:
        if any(o.gang and o.gang == unit.gang and o.whole != unit.whole for o in units):
            return None
    total = sum(unit.cost for unit in units)
    for allowance in problem.allowances:
        used = sum(count for unit in units for key, count in unit.uses if key == allowance.key)
        beyond = max(0, used - allowance.allowed)
        if beyond and allowance.penalty is None:
            return None
        total += beyond * (allowance.penalty or 0)
    return total


def brute_force(problem: NodeProblem) -> int | None:
    """The least cost at which one pod fits, by trying all sets of units in order of their cost."""
    every = [c for size in range(len(problem.units) + 1) for c in combinations(problem.units, size)]
    priced = [(cost, units) for units in every if (cost := price(problem, units)) is not None]
    for cost, units in sorted(priced, key=lambda pair: pair[0]):
        if isinstance(problem.place_without(units), Placement):
            return cost
    return None


def random_problem(random: Random) -> NodeProblem:
    """A node of 2 to 4 cards with up to 9 pods, in the shapes that the acceptance table has."""
    cards = [random_card(random, index) for index in range(random.randint(2, 4))]
    ledger = make_ledger(cards=cards, allocatable=random.choice([1000, 1000, 12, 8]))
    pods: list[PodFact] = []
    for number in range(random.randint(1, 9)):
        pod = random_pod(random, ledger, f"p{number}")
        if pod is not None:
            ledger.put_pod(pod)
            pods.append(pod)
    if random.random() < 0.3:
        _reserve(random, ledger)
    free = [pod for pod in pods if not pod.terminating and random.random() < 0.9]
    units, allowances = _random_units(random, free)
    needs: tuple[Need, ...] = ()
    if random.random() < 0.2:
        freed = tuple((pod.uid, random.randint(0, 4)) for pod in free)
        needs = (Need("CPU", random.randint(1, 6), random.randint(0, 4), freed),)
    return make_problem(
        view_of(ledger), random_request(random, len(cards)), units, allowances=allowances, needs=needs
    )


def random_request(random: Random, cards: int) -> PodRequest:
    count = random.choice([1, 1, 1, 1, 2, 3])
    containers = []
    for number in range(count):
        kind = APP if number == count - 1 else random.choice([APP, APP, INIT, SIDECAR])
        containers.append(_random_container(random, cards, kind, f"c{number}"))
    containers.sort(key=lambda c: c.kind is APP)
    selection = Selection()
    if random.random() < 0.15:
        selection = Selection(nouse_uuids=frozenset({"GPU-0"}))
    elif random.random() < 0.1:
        selection = Selection(numa_bind=True)
    policies = (CardPolicy.MUTEX,) if random.random() < 0.05 else ()
    return make_request(*containers, selection=selection, card_policies=policies)


def random_card(random: Random, index: int) -> CardFact:
    fields: dict[str, Any] = {
        "memory_mib": random.choice([CARD_MIB, CARD_MIB, CARD_MIB, 16_384]),
        "slots": random.choice([10, 10, 4, 2]),
        "healthy": random.random() > 0.08,
        "numa_node": index % 2,
    }
    return make_card(f"GPU-{index}", index, **fields)


def _random_container(random: Random, cards: int, kind: ContainerKind, name: str) -> Any:
    number = random.randint(1, cards)
    if random.random() < 0.3:
        return want(number, kind=kind, name=name)
    if random.random() < 0.5:
        percent = random.choice([20, 25, 50, 60, 80, 100])
        return want(number, None, random.choice([0, percent]), percent=percent, kind=kind, name=name)
    return want(number, random.choice([1000, 8192, 20_000]), random.choice([0, 20, 60]), kind=kind, name=name)


def random_pod(random: Random, ledger: Ledger, uid: str, node: str = "n1") -> PodFact | None:
    """A pod on cards that have room for it, so that the node is never overbooked."""
    view = view_of(ledger, node)
    whole = random.random() < 0.25
    percent, cores = random.choice([10, 25, 50, 60]), random.choice([0, 0, 10, 25, 50])
    fitting = []
    for card in view.cards:
        mib = card.fact.memory_mib if whole else card.fact.memory_mib * percent // 100
        if (
            card.free_slots
            and mib <= card.free_memory_mib
            and cores <= card.free_cores
            and not (whole and card.holders)
        ):
            fitting.append(AssignedCard(card.fact.uuid, mib, 100 if whole else cores, whole))
    if not fitting:
        return None
    span = min(len(fitting), random.choice([1, 1, 1, 2, 3]))
    chosen = tuple(random.sample(fitting, span))
    return bound_pod(uid, AssignedContainer("main", APP, chosen), node=node, terminating=random.random() < 0.1)


def _reserve(random: Random, ledger: Ledger) -> None:
    """Something is held for another pod that waits."""
    request = make_request(want(1, random.choice([1000, 8192]), random.choice([0, 20])))
    ledger.put_pod(pending_pod("other", request))
    empty = make_problem(view_of(ledger), request).place_without(())
    if isinstance(empty, Placement):
        ledger.nominate("other", "n1", empty)


def _random_units(random: Random, pods: Sequence[PodFact]) -> tuple[list[Unit], tuple[Allowance, ...]]:
    units: list[Unit] = []
    allowances: list[Allowance] = []
    rest = list(pods)
    if len(rest) >= 3 and random.random() < 0.35:
        gang, rest = rest[: random.randint(2, 3)], rest[3:]
        allowances.append(Allowance("surplus:g", random.randint(0, len(gang) - 1)))
        units += [unit_of(pod, 50, gang="g", uses=(("surplus:g", 1),), broken=0) for pod in gang]
        units.append(whole_unit("g", gang, sum(u.cost for u in units) + SCALE.pack(Cost(0, (0, 0, 0), 1))))
    budget = random.random()
    if budget < 0.3:
        penalty = SCALE.violation if budget < 0.15 else None
        allowances.append(Allowance("pdb", random.randint(0, 2), penalty))
    for pod in rest:
        uses = (("pdb", 1),) if budget < 0.3 and random.random() < 0.5 else ()
        fields = {"lost_work": random.randint(0, 5), "freed": random.randint(0, 3)}
        units.append(unit_of(pod, random.choice([0, 0, 50]), uses=uses, **fields))
    return units, tuple(allowances)
