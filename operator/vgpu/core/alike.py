"""Nodes that are alike: the same verdict for the same request, so one evaluation serves them all.

Enters: NodeViews and requests. Leaves: small numbers that are equal only for nodes alike. A burst of a new
request on thousands of equal nodes costs one search per kind of node, not one per node.
"""

from vgpu.core.facts import Identity
from vgpu.core.request import ContainerKind, NodePolicy, PodRequest
from vgpu.core.score import Chain
from vgpu.core.views import NodeView

_KINDS_KEPT = 20_000


class Alike:
    """Numbers kinds of nodes; a view's number is kept while its generation stands."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], int] = {}
        self._of_node: dict[str, tuple[int, int | None]] = {}
        self._next = 0

    def kind(self, view: NodeView) -> int | None:
        """The number of this node's kind; None = evaluate it alone."""
        known = self._of_node.get(view.name)
        if known is not None and known[0] == view.generation:
            return known[1]
        signature = _signature(view)
        kind = None if signature is None else self._number(signature)
        self._of_node[view.name] = (view.generation, kind)
        return kind

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._of_node.pop(node, None)

    def _number(self, signature: tuple[object, ...]) -> int:
        kind = self._kinds.get(signature)
        if kind is None:
            if len(self._kinds) >= _KINDS_KEPT:
                # Numbers are never used twice, so forgetting only costs evaluations.
                self._kinds.clear()
            kind = self._kinds[signature] = self._next
            self._next += 1
        return kind


def judged_alike(request: PodRequest, chain: Chain) -> bool:
    """True when this request's verdict depends on nothing but amounts: no UUIDs, links or NUMA nodes, and no
    init phases, where a tie between cards may be broken by their UUIDs."""
    selection = request.selection
    if selection.use_uuids or selection.nouse_uuids or selection.numa_bind:
        return False
    if chain.paired or chain.node is NodePolicy.TOPOLOGY:
        return False
    return all(container.kind is not ContainerKind.INIT for container in request.containers)


def _signature(view: NodeView) -> tuple[object, ...] | None:
    """All that a verdict can depend on, but names; None for nodes with something of their own."""
    inventory = view.inventory
    if view.closed is not None or inventory is None or view.reservations:
        return None
    if len({card.fact.memory_mib for card in view.cards}) > 1:
        return None
    if inventory.identity is Identity.DEFERRED and view.awaiting:
        return None
    cards = sorted(
        (
            card.used_slots,
            card.used_memory_mib,
            card.used_cores,
            card.exclusive,
            card.fact.memory_mib,
            card.fact.slots,
            card.fact.cores,
            card.fact.healthy,
            card.fact.mode.value,
            card.fact.model,
        )
        for card in view.cards
    )
    free_slots = view.effective_slots - view.used_slots
    return (inventory.slot_resource, inventory.identity, inventory.plugin, free_slots, *cards)
