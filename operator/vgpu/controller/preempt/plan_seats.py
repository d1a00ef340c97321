"""Who of a plan sits and who goes on which node, looked up once for all members of a gang.

Enters: a PlanFact. Leaves: uids by node. May not live here: how any of them stands.
"""

from collections.abc import Collection

from vgpu.core.preempt.facts import PlanFact
from vgpu.core.views import Reservation


class PlanSeats:
    """See the module. `node_of`: where cards are held for a pod; `on_node`: for whom, `held`: which."""

    def __init__(self, plan: PlanFact) -> None:
        self.node_of: dict[str, str] = {}
        self.on_node: dict[str, set[str]] = {}
        self.held: dict[str, list[Reservation]] = {}
        self.victims_on: dict[str, set[str]] = {}
        for card in plan.reservations:
            self.node_of.setdefault(card.reservation.uid, card.node)
            self.held.setdefault(card.node, []).append(card.reservation)
            self.on_node.setdefault(card.node, set()).add(card.reservation.uid)
        for victim in plan.victims:
            self.victims_on.setdefault(victim.node, set()).add(victim.uid)

    @property
    def nodes(self) -> Collection[str]:
        """Where cards are held."""
        return self.on_node.keys()
