"""The node gate: may this node take new assignments at all (architecture.md 4)?

Enters: the facts of one node. Leaves: None (open), or the first Refusal of an ordered list of rules; the list
reads as the specification. A closed gate never drops an assignment that exists. Texts name no numbers of
the node, so that equal causes read equal on all nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vgpu.core.facts import InventoryFact, NodeFact
from vgpu.core.reasons import Reason, Refusal


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Settings of the gate: pods not yet admitted, and UnexpectedAdmissionErrors in a row, that close a node."""

    unadmitted: int = 16
    admission_refused: int = 3


@dataclass(frozen=True, slots=True)
class GateFacts:
    """What the gate looks at. `agent_ready` None = no agent pod known on the node.

    `unadmitted` counts bound and booked GPU pods without status.startTime; `refused_in_a_row` counts pods that
    ended UnexpectedAdmissionError since one was admitted; `unknown_holders` are NS/POD of live GPU pods
    without a readable assignment that may hold any card.
    """

    node: NodeFact | None
    inventory: InventoryFact | None
    agent_ready: bool | None
    unadmitted: int
    refused_in_a_row: int
    unknown_holders: tuple[str, ...]
    limits: GateLimits


def node_closed(facts: GateFacts) -> Refusal | None:
    """The first rule that closes the node, or None when it is open."""
    for rule in _RULES:
        refusal = rule(facts)
        if refusal is not None:
            return refusal
    return None


def allocatable_slots(node: NodeFact | None, resource: str) -> int:
    """What kubelet offers of this slot resource, 0 when the node is gone or does not advertise it."""
    return 0 if node is None else dict(node.slots_allocatable).get(resource, 0)


def _node_gone(facts: GateFacts) -> Refusal | None:
    if facts.node is not None:
        return None
    return Refusal(Reason.NODE_GONE, "the Node object does not exist")


def _no_inventory(facts: GateFacts) -> Refusal | None:
    if facts.inventory is not None:
        return None
    return Refusal(
        Reason.NO_INVENTORY,
        "no GpuNodeInventory of this node: it has no GPUs, or its agent has not published them",
    )


def _inventory_invalid(facts: GateFacts) -> Refusal | None:
    if facts.inventory is None or not facts.inventory.problem:
        return None
    return Refusal(
        Reason.INVENTORY_INVALID,
        "the GpuNodeInventory of this node cannot be read; its status says why",
    )


def _read_error(facts: GateFacts) -> Refusal | None:
    if facts.inventory is None or not facts.inventory.read_error:
        return None
    return Refusal(
        Reason.READ_ERROR,
        "the agent could not read the cards; see spec.readError of the GpuNodeInventory",
    )


def _isolation_error(facts: GateFacts) -> Refusal | None:
    if facts.inventory is None or not facts.inventory.isolation_error:
        return None
    return Refusal(
        Reason.ISOLATION_ERROR,
        "containers on this node could not be held to their share of a card; see spec.isolationError of the "
        "GpuNodeInventory",
    )


def _no_allocatable(facts: GateFacts) -> Refusal | None:
    resource = facts.inventory.slot_resource if facts.inventory else ""
    if allocatable_slots(facts.node, resource) > 0:
        return None
    return Refusal(
        Reason.NO_ALLOCATABLE,
        f"kubelet offers no {resource}: the device plugin of this node is not connected",
    )


def _agent_down(facts: GateFacts) -> Refusal | None:
    if facts.agent_ready is not False:
        return None
    return Refusal(Reason.AGENT_DOWN, "the agent pod of this node is not Ready or is being deleted")


def _too_many_unadmitted(facts: GateFacts) -> Refusal | None:
    limit = facts.limits.unadmitted
    if facts.unadmitted < limit:
        return None
    return Refusal(
        Reason.TOO_MANY_UNADMITTED,
        f"{limit} or more GPU pods bound to this node wait for kubelet to admit them",
    )


def _unknown_holder(facts: GateFacts) -> Refusal | None:
    if not facts.unknown_holders:
        return None
    return Refusal(
        Reason.UNKNOWN_HOLDER,
        f"{facts.unknown_holders[0]} runs on this node with GPUs that nobody recorded; "
        "nothing new is placed here until it ends",
    )


def _admission_refused(facts: GateFacts) -> Refusal | None:
    limit = facts.limits.admission_refused
    if facts.refused_in_a_row < limit:
        return None
    return Refusal(
        Reason.ADMISSION_REFUSED,
        f"kubelet refused {limit} GPU pods in a row here (UnexpectedAdmissionError); "
        "opens when allocatable, the inventory or the agent pod changes",
    )


_RULES: tuple[Callable[[GateFacts], Refusal | None], ...] = (
    _node_gone,
    _no_inventory,
    _inventory_invalid,
    _read_error,
    _isolation_error,
    _no_allocatable,
    _agent_down,
    _too_many_unadmitted,
    _unknown_holder,
    # Last: it is the one rule that cannot be rebuilt from a list, so it must not hide one that can.
    _admission_refused,
)
