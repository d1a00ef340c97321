"""Facts of a small cluster, for tests of the controller: each builder names only what matters."""

from dataclasses import replace
from typing import Any

from vgpu import names
from vgpu.core.facts import (
    AssignedCard,
    AssignedContainer,
    AssignmentFact,
    AssignmentSource,
    CardFact,
    InventoryFact,
    NodeFact,
    Phase,
    PodFact,
)
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest, PodRequest

SLOTS = names.VOLCANO_NUMBER
CARD_MIB = 40_960


def node(name: str, **changes: Any) -> NodeFact:
    made = NodeFact(
        name=name,
        uid=f"uid-{name}",
        slots_allocatable=frozenset({(SLOTS, 80)}),
        cpu_millicores=64_000,
        memory_mib=512_000,
        pods=110,
    )
    return replace(made, **changes)


def inventory(name: str, cards: int = 1, **changes: Any) -> InventoryFact:
    facts = tuple(
        CardFact(
            uuid=f"GPU-{name}-{i}", index=i, model="A100", memory_mib=CARD_MIB, cores=100, slots=10, healthy=True
        )
        for i in range(cards)
    )
    return replace(InventoryFact(node=name, slot_resource=SLOTS, cards=facts), **changes)


def request(memory_mib: int = 4096, cores: int = 0) -> PodRequest:
    card = CardRequest(memory_mib=memory_mib, cores=cores)
    return PodRequest(SLOTS, (ContainerRequest("main", ContainerKind.APP, 1, card),))


def pending(name: str, memory_mib: int = 4096, **changes: Any) -> PodFact:
    """A GPU pod that kube-scheduler has called unschedulable."""
    made = PodFact(
        uid=f"uid-{name}",
        namespace="team",
        name=name,
        scheduler_name=names.SCHEDULER_NAME,
        wants_gpus=True,
        request=request(memory_mib),
        unschedulable=True,
        unschedulable_message="0/1 nodes are available",
    )
    return replace(made, **changes)


def bound(
    name: str, node_name: str, card: int = 0, memory_mib: int = 4096, cores: int = 0, **changes: Any
) -> PodFact:
    """A running GPU pod with an assignment on one card."""
    cards = (AssignedCard(f"GPU-{node_name}-{card}", memory_mib, cores, whole=memory_mib == CARD_MIB),)
    containers = (AssignedContainer("main", ContainerKind.APP, cards),)
    made = replace(
        pending(name, memory_mib),
        node=node_name,
        phase=Phase.RUNNING,
        admitted=True,
        container_running=True,
        ever_ran=True,
        unschedulable=False,
        assignment=AssignmentFact(AssignmentSource.VGPU, node_name, "nonce", containers),
    )
    return replace(made, **changes)


def ledger_of(*nodes: str) -> Ledger:
    """A ledger of nodes with one card each."""
    made = Ledger()
    for name in nodes:
        made.put_node(node(name))
        made.put_inventory(inventory(name))
    return made


def index_of(ledger: Ledger) -> FitIndex:
    return FitIndex(ledger, Policies())
