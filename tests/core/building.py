"""Builders of facts for tests of the core: name only what matters."""

from collections.abc import Iterable, Sequence
from typing import Any

from vgpu.core.facts import (
    AssignedCard,
    AssignedContainer,
    AssignmentFact,
    AssignmentSource,
    CardFact,
    InventoryFact,
    NodeFact,
    PodFact,
)
from vgpu.core.ledger import Booking, Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.reasons import Refusal
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest, PodRequest

SLOTS = "volcano.sh/vgpu-number"
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
POLICIES = Policies()


def make_card(uuid: str, index: int = 0, **fields: Any) -> CardFact:
    given = {"model": "NVIDIA A100", "memory_mib": 24_000, "cores": 100, "slots": 10, "healthy": True, **fields}
    return CardFact(uuid=uuid, index=index, **given)


def make_inventory(cards: int | Sequence[CardFact] = 2, node: str = "n1", **fields: Any) -> InventoryFact:
    if isinstance(cards, int):
        cards = [make_card(f"GPU-{i}", i) for i in range(cards)]
    return InventoryFact(node=node, cards=tuple(cards), **{"slot_resource": SLOTS, **fields})


def make_node(name: str = "n1", allocatable: int = 1000, uid: str = "", **fields: Any) -> NodeFact:
    return NodeFact(name, uid or f"uid-{name}", frozenset({(SLOTS, allocatable)}), **fields)


def want(
    number: int = 1,
    memory_mib: int | None = None,
    cores: int = 0,
    *,
    percent: int | None = None,
    kind: ContainerKind = APP,
    name: str = "main",
) -> ContainerRequest:
    return ContainerRequest(name, kind, number, CardRequest(memory_mib, percent, cores))


def make_request(*containers: ContainerRequest, **fields: Any) -> PodRequest:
    return PodRequest(containers=containers or (want(),), **{"slot_resource": SLOTS, **fields})


def holds(*cards: AssignedCard, name: str = "main", kind: ContainerKind = APP) -> AssignedContainer:
    return AssignedContainer(name, kind, cards)


def share(uuid: str, memory_mib: int = 1_000, cores: int = 0, *, whole: bool = False) -> AssignedCard:
    return AssignedCard(uuid, memory_mib, cores, whole)


def make_assignment(
    *containers: AssignedContainer, node: str = "n1", source: AssignmentSource = AssignmentSource.VGPU
) -> AssignmentFact:
    return AssignmentFact(source, node, "nonce", containers)


def bound_pod(uid: str, *containers: AssignedContainer, node: str = "n1", **fields: Any) -> PodFact:
    """A running pod on `node` that holds the cards of its containers."""
    source = fields.pop("source", AssignmentSource.VGPU)
    given = {
        "namespace": "team",
        "name": uid,
        "node": node,
        "wants_gpus": True,
        "admitted": True,
        "ever_ran": True,
        "container_running": True,
        "assignment": make_assignment(*containers, node=node, source=source) if containers else None,
        **fields,
    }
    return PodFact(uid=uid, **given)


def pending_pod(uid: str, request: PodRequest | None = None, **fields: Any) -> PodFact:
    given = {"namespace": "team", "name": uid, "wants_gpus": True, "request": request or make_request(), **fields}
    return PodFact(uid=uid, **given)


def make_ledger(
    *pods: PodFact, cards: int | Sequence[CardFact] = 2, node: str = "n1", allocatable: int = 1000, **fields: Any
) -> Ledger:
    """A ledger with one open node."""
    ledger = Ledger()
    ledger.put_node(make_node(node, allocatable))
    ledger.put_inventory(make_inventory(cards, node, **fields))
    put_all(ledger, pods)
    return ledger


def put_all(ledger: Ledger, pods: Iterable[PodFact]) -> None:
    for pod in pods:
        ledger.put_pod(pod)


def try_place(
    ledger: Ledger, request: PodRequest, uid: str = "new", node: str = "n1", policies: Policies = POLICIES
) -> Placement | Refusal:
    view = ledger.view(node)
    assert view is not None
    return place(view, request, uid, policies)


def placed(ledger: Ledger, request: PodRequest, uid: str = "new", node: str = "n1", **more: Any) -> Placement:
    result = try_place(ledger, request, uid, node, **more)
    assert isinstance(result, Placement), result
    return result


def refused(ledger: Ledger, request: PodRequest, uid: str = "new", node: str = "n1", **more: Any) -> Refusal:
    result = try_place(ledger, request, uid, node, **more)
    assert isinstance(result, Refusal), result
    return result


def uuids_of(placement: Placement) -> list[list[str]]:
    """UUIDs per container, in spec order."""
    return [[card.uuid for card in container.cards] for container in placement.containers]


def make_booking(uid: str, placement: Placement, nonce: str = "nonce") -> Booking:
    return Booking(uid, "team", uid, placement.node, nonce, placement)


def bind(ledger: Ledger, uid: str, request: PodRequest, node: str = "n1") -> Placement | Refusal:
    """Place, book, and fold the event of the successful Binding."""
    result = try_place(ledger, request, uid, node)
    if isinstance(result, Placement):
        ledger.book(make_booking(uid, result))
        ledger.put_pod(bound_pod(uid, *result.containers, node=node, request=request))
    return result
