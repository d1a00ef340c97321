"""Places one pod on one node: the rules about the node as a whole, then the search over its cards.

Enters: a NodeView, a PodRequest, the owner's uid, Policies. Leaves: a Placement (cards for every container)
or a Refusal. The text of a Refusal names what was wanted and never a node's numbers, so that the same cause
reads the same on every node. Pure: the same question has the same answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vgpu.core.facts import AssignedCard, AssignedContainer, Identity, Plugin
from vgpu.core.fit import commonest
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import ContainerKind, ContainerRequest, PodRequest
from vgpu.core.score import Policies, chain_for, node_score
from vgpu.core.search import Found, NotFound, search_cards
from vgpu.core.views import CardView, NodeView

__all__ = ["Placement", "Policies", "evaluate", "place"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Cards for every container of a pod on one node, in spec order. `score` is 0..10 by the node policy."""

    node: str
    containers: tuple[AssignedContainer, ...]
    score: int


def place(view: NodeView, request: PodRequest, owner_uid: str, policies: Policies) -> Placement | Refusal:
    """Choose cards on this node for the pod `owner_uid`, or say why none fit.

    A card fits iff it fits *now* beside all holders, and *later* beside those that stay and what is reserved
    for other owners (preemption.md 4.6).
    """
    found = _choose(view, request, owner_uid, policies)
    if isinstance(found, Refusal):
        return found
    containers = tuple(
        _assigned(container, cards) for container, cards in zip(request.containers, found.groups, strict=True)
    )
    return Placement(view.name, containers, _score(view, request, found, policies) // 1000)


def evaluate(view: NodeView, request: PodRequest, owner_uid: str, policies: Policies) -> int | Refusal:
    """Like place, without the cards: the node's score in thousandths (0..10000) or the Refusal."""
    found = _choose(view, request, owner_uid, policies)
    return found if isinstance(found, Refusal) else _score(view, request, found, policies)


def _choose(view: NodeView, request: PodRequest, owner_uid: str, policies: Policies) -> Found | Refusal:
    for rule in _NODE_RULES:
        refusal = rule(view, request, owner_uid)
        if refusal is not None:
            return refusal
    found = search_cards(view, request, owner_uid, policies)
    if isinstance(found, NotFound):
        return _explain(found)
    short = _short_of_a_unit(view, request, found, policies.volcano_unit_mib)
    return short or _waits_for_admission(view, request, owner_uid, policies) or found


def _score(view: NodeView, request: PodRequest, found: Found, policies: Policies) -> int:
    return node_score(chain_for(request, policies).node, view, found.after, found.groups)


def _assigned(container: ContainerRequest, cards: tuple[CardView, ...]) -> AssignedContainer:
    want = container.card
    ordered = sorted(cards, key=lambda card: (card.fact.index, card.fact.uuid))
    return AssignedContainer(
        container.name,
        container.kind,
        tuple(
            AssignedCard(c.fact.uuid, want.memory_on(c.fact.memory_mib), want.cores, want.alone) for c in ordered
        ),
    )


def _closed(view: NodeView, request: PodRequest, owner_uid: str) -> Refusal | None:
    return view.closed


def _other_slot_resource(view: NodeView, request: PodRequest, owner_uid: str) -> Refusal | None:
    assert view.inventory is not None  # an open gate has an inventory
    if request.slot_resource == view.inventory.slot_resource:
        return None
    return Refusal(
        Reason.SLOT_RESOURCE_MISMATCH,
        f"the pod asks for {request.slot_resource}, the node offers {view.inventory.slot_resource}",
    )


def _only_init_on_exact(view: NodeView, request: PodRequest, owner_uid: str) -> Refusal | None:
    assert view.inventory is not None
    if view.inventory.identity is not Identity.EXACT or not request.only_init:
        return None
    return Refusal(
        Reason.ONLY_INIT_CONTAINERS,
        "only plain init containers ask for GPUs: the node cannot tell them apart; "
        "let an app container or a sidecar (restartPolicy Always) ask for them",
    )


def _not_one_app_container_on_volcano(view: NodeView, request: PodRequest, owner_uid: str) -> Refusal | None:
    assert view.inventory is not None
    one_app = len(request.containers) == 1 and request.containers[0].kind is ContainerKind.APP
    if view.inventory.plugin is not Plugin.VOLCANO or one_app:
        return None
    asking = ", ".join(f"{c.name} ({c.kind.value})" for c in request.containers)
    return Refusal(
        Reason.MULTI_CONTAINER_DEFERRED,
        f"Volcano's device plugin on this node serves one app container with GPUs per pod, and GPUs are asked for "
        f"by: {asking}; use nodes with our agent, or one GPU container",
    )


def _more_cards_than_node(view: NodeView, request: PodRequest, owner_uid: str) -> Refusal | None:
    most = max(request.containers, key=lambda container: container.number)
    if most.number <= len(view.cards):
        return None
    return Refusal(
        Reason.MORE_CARDS_THAN_NODE,
        f"a container cannot get more cards than the node has: {most.name} asks for {most.number} distinct "
        "cards; several shares of one card count as one card per container",
    )


def _node_slots(view: NodeView, request: PodRequest, owner_uid: str) -> Refusal | None:
    own = sum(entry.slots for entry in view.unassigned if entry.uid == owner_uid)
    used = view.used_slots - own
    if used + request.slots > view.effective_slots:
        return Refusal(
            Reason.INSUFFICIENT_SLOTS,
            f"no room for {_plural(request.slots, 'slot')} of {request.slot_resource}; the node has fewer free",
        )
    reserved = sum(r.slots for r in view.reservations if r.uid != owner_uid)
    if reserved and used - view.leaving_slots + reserved + request.slots > view.effective_slots:
        return Refusal(Reason.HELD_FOR_ANOTHER, "what is free is held for another pod")
    return None


def _short_of_a_unit(view: NodeView, request: PodRequest, found: Found, unit_mib: int) -> Refusal | None:
    """Volcano's plugin reads memory in whole units, 0 of them as no limit; only a percentage can be so small."""
    assert view.inventory is not None
    if view.inventory.plugin is not Plugin.VOLCANO or unit_mib == 1:
        return None
    for container, cards in zip(request.containers, found.groups, strict=True):
        if any(container.card.memory_on(card.fact.memory_mib) < unit_mib for card in cards):
            return Refusal(
                Reason.INVALID_REQUEST,
                f"{container.name} asks for less memory than one unit of {unit_mib} MiB, which Volcano's device "
                "plugin on this node reads as no limit; ask for one unit or more",
            )
    return None


def _waits_for_admission(
    view: NodeView, request: PodRequest, owner_uid: str, policies: Policies
) -> Refusal | None:
    """Deferred nodes: one unconfirmed pod at a time; one per card count where Volcano's plugin looks at that."""
    assert view.inventory is not None
    if view.inventory.identity is not Identity.DEFERRED:
        return None
    counts = {container.number for container in request.containers}
    per_count = policies.volcano_matches_count and view.inventory.plugin is Plugin.VOLCANO
    for entry in view.awaiting:
        if entry.uid == owner_uid:
            continue
        if per_count and entry.card_counts and counts.isdisjoint(entry.card_counts):
            continue
        return Refusal(Reason.WAITS_FOR_ADMISSION, f"waits for {entry.pod} to be admitted")
    return None


_NODE_RULES: tuple[Callable[[NodeView, PodRequest, str], Refusal | None], ...] = (
    _closed,
    _other_slot_resource,
    _only_init_on_exact,
    _not_one_app_container_on_volcano,
    _more_cards_than_node,
    _node_slots,
)


def _explain(found: NotFound) -> Refusal:
    if found.out_of_steps:
        return Refusal(
            Reason.SEARCH_BUDGET,
            "no cards found for all containers within the search limit; ask for fewer GPU containers per pod",
        )
    reason = commonest(found.reasons)
    container = found.container
    want = _wanted(container)
    if found.together:
        return Refusal(reason, f"{want} for container {container.name} do not fit beside the pod's other ones")
    return Refusal(reason, _TEXTS[reason].format(want=want))


_TEXTS = {
    Reason.INSUFFICIENT_MEMORY: "no room for {want}; too few cards have that much memory free",
    Reason.INSUFFICIENT_CORES: "no room for {want}; too few cards have those cores free; 100 booked is full",
    Reason.INSUFFICIENT_SLOTS: "no room for {want}; too few cards have a free slot",
    Reason.CARD_NOT_EMPTY: "no room for {want}; too few cards are empty",
    Reason.EXCLUSIVE_HOLDER: "no room for {want}; too many cards are held whole by one pod",
    Reason.HELD_FOR_ANOTHER: "no room for {want}; what is free is held for another pod",
    Reason.CARDS_UNHEALTHY: "no room for {want}; too many cards are unhealthy",
    Reason.CARD_SELECTION: "no room for {want}; too few cards match the pod's card selection (type, UUID, mode)",
    Reason.NUMA_SELECTION: "no room for {want} on one NUMA node (numa-bind); no NUMA node has them free, "
    "or the inventory does not say where the cards are",
    Reason.NOT_ENOUGH_CARDS: "no room for {want}; too few cards are shared (mig cards take nothing)",
}


def _wanted(container: ContainerRequest) -> str:
    """The request in words: "2 cards with 8000 MiB, 30 cores each"."""
    want = container.card
    each = " each" if container.number > 1 else ""
    cores = [f"{want.cores} cores"] if want.cores else []
    if want.memory_mib is None and want.memory_percent is None:
        return _plural(container.number, "whole card") + (f" with {cores[0]}{each}" if cores else "")
    memory = f"{want.memory_percent} % of the memory" if want.memory_mib is None else f"{want.memory_mib} MiB"
    parts = [memory, *cores, *(["alone on it"] if want.alone else [])]
    return f"{_plural(container.number, 'card')} with {', '.join(parts)}{each}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
