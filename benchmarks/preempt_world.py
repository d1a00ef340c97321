"""A full cluster in memory, as the operator knows it: a ledger and a roster, without an API server.

Nodes of 8 cards, low pods of one queue on all of them, and pods of another queue, of a higher class and entitled,
that want in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from vgpu.core.facts import (
    AssignedCard,
    AssignedContainer,
    AssignmentFact,
    AssignmentSource,
    CardFact,
    InventoryFact,
    NodeFact,
    PodFact,
    Scheduling,
)
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.facts import Limits, QueueFact, Workload
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.roster import Roster
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest, PodRequest
from vgpu.core.terms import OwnerRef, PodTerms

RESOURCE = "volcano.sh/vgpu-number"
CARDS, SLOTS, MEMORY_MIB = 8, 10, 81_920
PODS_PER_NODE = 21
NOW_SECONDS = 2_000_000_000
LOW, HIGH = QueueFact("low"), QueueFact("high", deserved=Limits(cards_thousandths=10**9))
HIGH_PRIORITY = 100
SMALL = Scheduling(cpu_millicores=1000, memory_mib=4096)

Cards = Sequence[CardFact]
Filler = Callable[[Random, str, Cards], list[PodFact]]


@dataclass(slots=True)
class World:
    """See the module. `views` and all else are asked of the ledger and the roster."""

    ledger: Ledger = field(default_factory=Ledger)
    roster: Roster = field(init=False)

    def __post_init__(self) -> None:
        self.roster = Roster(self.ledger)
        self.roster.put_queue(LOW)
        self.roster.put_queue(HIGH)

    def put(self, pod: PodFact) -> None:
        """A pod is there, like this."""
        self.ledger.put_pod(pod)
        self.roster.put_pod(pod)

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        self.ledger.drop_pod(uid)
        self.roster.drop_pod(uid)

    def wait(self, name: str, request: PodRequest, owner: str) -> Workload:
        """A pod of the high queue that waits."""
        terms = PodTerms(OwnerRef(owner, "Job", owner), created_seconds=NOW_SECONDS - 60)
        waiting = PodFact(
            name, "team", name, wants_gpus=True, request=request, queue=HIGH.name, priority=HIGH_PRIORITY,
            unschedulable=True, owner_uid=owner, scheduling=SMALL, terms=terms,
        )  # fmt: skip
        self.put(waiting)
        return self.roster.workloads[name]

    def hold(self, plan: Plan, name: str) -> PlanHold:
        """The plan's cards and victims count from now on."""
        victims = frozenset((victim.uid, victim.node) for victim in plan.victims)
        hold = PlanHold(name, 0, plan.reservations, victims)
        self.ledger.plans.put(hold)
        return hold


def full_world(nodes: int, fill: Filler) -> World:
    """So many nodes, each filled with pods, all of which may go."""
    world = World()
    random = Random(nodes)
    for number in range(nodes):
        node = f"gpu-{number:05d}"
        cards = tuple(
            CardFact(f"{node}-{i}", i, "NVIDIA A100", MEMORY_MIB, 100, SLOTS, healthy=True) for i in range(CARDS)
        )
        slots = frozenset({(RESOURCE, CARDS * SLOTS)})
        world.ledger.put_node(
            NodeFact(node, f"uid-{node}", slots, cpu_millicores=128_000, memory_mib=1_000_000, pods=110)
        )
        world.ledger.put_inventory(InventoryFact(node, RESOURCE, cards))
        world.roster.cards_changed(node)
        for pod in fill(random, node, cards):
            world.put(pod)
    world.roster.world()
    return world


def mixed_pods(random: Random, node: str, cards: Cards) -> list[PodFact]:
    """About 21 pods, of which a third span several cards."""
    free = {card.uuid: 100 for card in cards}
    pods = []
    for number in range(PODS_PER_NODE):
        percent = random.choice([20, 25, 30, 50])
        fitting = [uuid for uuid, left in free.items() if left >= percent]
        span = min(len(fitting), random.choice([1, 1, 1, 2, 3, 4]))
        if not span:
            continue
        chosen = random.sample(fitting, span)
        for uuid in chosen:
            free[uuid] -= percent
        shares = [AssignedCard(uuid, MEMORY_MIB * percent // 100, percent, whole=False) for uuid in chosen]
        pods.append(_running(random, node, number, shares, request_of(span, percent)))
    return pods


def whole_pods(random: Random, node: str, cards: Cards) -> list[PodFact]:
    """A pod of a whole card on each card."""
    request = request_of(1, 100)
    return [
        _running(random, node, number, [AssignedCard(card.uuid, MEMORY_MIB, 100, whole=True)], request)
        for number, card in enumerate(cards)
    ]


def request_of(number: int, percent: int) -> PodRequest:
    """So many cards, so much of each."""
    card = CardRequest(None, percent, percent)
    return PodRequest(RESOURCE, (ContainerRequest("main", ContainerKind.APP, number, card),))


def _running(
    random: Random, node: str, number: int, shares: Sequence[AssignedCard], request: PodRequest
) -> PodFact:
    uid = f"{node}-{number}"
    started = NOW_SECONDS - random.randint(600, 10**6)
    terms = PodTerms(OwnerRef(f"rs-{uid}", "ReplicaSet", uid), created_seconds=started, started_seconds=started)
    containers = (AssignedContainer("main", ContainerKind.APP, tuple(shares)),)
    return PodFact(
        uid, "team", uid, node, wants_gpus=True, request=request, queue=LOW.name, priority=random.choice([0, 50]),
        admitted=True, ever_ran=True, container_running=True, owner_uid=terms.owner.uid, scheduling=SMALL,
        assignment=AssignmentFact(AssignmentSource.VGPU, node, "nonce", containers), terms=terms,
    )  # fmt: skip
