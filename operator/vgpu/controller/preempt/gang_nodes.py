"""On which nodes members of gangs are bound or booked: what changes there concerns these gangs.

Enters: states of gangs as they are looked at. Leaves: keys of gangs. May not live here: what is done with them.
"""

from collections.abc import Iterable

from vgpu.core.ledger import Ledger
from vgpu.core.preempt.gang_state import GangState


class GangNodes:
    """See the module."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._on_node: dict[str, set[str]] = {}
        self._nodes_of: dict[str, frozenset[str]] = {}

    def put(self, key: str, state: GangState | None) -> None:
        """The gang stands so; None = it is gone."""
        for node in self._nodes_of.pop(key, frozenset()):
            self._on_node[node].discard(key)
            if not self._on_node[node]:
                del self._on_node[node]
        if state is None:
            return
        bookings = (self._ledger.booking(uid) for uid in state.on_the_way)
        nodes = {pod.node for pod in state.running} | {booking.node for booking in bookings if booking is not None}
        self._nodes_of[key] = frozenset(nodes)
        for node in nodes:
            self._on_node.setdefault(node, set()).add(key)

    def on(self, nodes: Iterable[str]) -> set[str]:
        """Gangs with members on any of these nodes."""
        return {key for node in nodes for key in self._on_node.get(node, ())}
