"""Copies of what changes, for a decision to look at: made again only when something did change."""

from collections.abc import Mapping

from vgpu.core.facts import Scheduling
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.node_uses import NodeUses
from vgpu.core.views import NodeView


class Snapshots:
    """Keeps the last copy of each. What it has given out does not change any more."""

    def __init__(self, ledger: Ledger, uses: NodeUses) -> None:
        self._ledger = ledger
        self._uses = uses
        self._views: tuple[int, Mapping[str, NodeView]] = (-1, {})
        self._node_uses: tuple[int, Mapping[str, NodeUse]] = (-1, {})
        self._pods: tuple[int, Mapping[str, Workload], Mapping[str, Scheduling]] = (-1, {}, {})

    def views(self) -> Mapping[str, NodeView]:
        """Every node as it stands."""
        if self._views[0] != self._ledger.version:
            nodes = ((name, self._ledger.view(name)) for name in self._ledger.nodes())
            self._views = (self._ledger.version, {name: view for name, view in nodes if view is not None})
        return self._views[1]

    def uses(self) -> Mapping[str, NodeUse]:
        """What the pods of each node ask for beyond cards."""
        if self._node_uses[0] != self._uses.version:
            self._node_uses = (self._uses.version, dict(self._uses.all()))
        return self._node_uses[1]

    def pods(
        self, revision: int, workloads: Mapping[str, Workload], scheduling: Mapping[str, Scheduling]
    ) -> tuple[Mapping[str, Workload], Mapping[str, Scheduling]]:
        """Copies of these two, which are what they are at this revision."""
        if self._pods[0] != revision:
            self._pods = (revision, dict(workloads), dict(scheduling))
        return self._pods[1], self._pods[2]
