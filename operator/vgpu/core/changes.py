"""What changed and when: the ledger's version, its log of touched nodes, and what consumers have not taken yet.

Enters: names of nodes and pods as the ledger touches them. Leaves: lists of names. It knows no facts.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vgpu.core.views import NodeView, frees_capacity


@dataclass(frozen=True, slots=True)
class Changes:
    """Since the last take: nodes whose view changed, uids of pods that are or were pending and changed, and
    nodes where something may fit that did not fit before."""

    nodes: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    freed: frozenset[str] = frozenset()


class ChangeLog:
    """`version` rises with anything that can change a verdict."""

    def __init__(self) -> None:
        self.version = 0
        self._touched: dict[str, int] = {}
        self._forgotten_until = 0
        self._nodes: dict[str, NodeView | None] = {}
        self._pods: set[str] = set()

    def touch(self, node: str, before: NodeView | None) -> None:
        """The node must be recounted; `before` is its view until now, if it was counted."""
        self.raise_version(node, before)
        self._touched.pop(node, None)
        self._touched[node] = self.version

    def raise_version(self, node: str, before: NodeView | None) -> None:
        """Something about the node changed that no recount sees (a taint, a label that a pod names)."""
        self.version += 1
        self._nodes.setdefault(node, before)

    def note_pod(self, uid: str) -> None:
        """A pod that is or was pending changed."""
        self._pods.add(uid)

    def generation(self, node: str) -> int:
        """The version at which the node was last touched."""
        return self._touched.get(node, 0)

    def forget(self, node: str) -> None:
        """The node is gone for good: keep the log as long as the cluster, not as its history."""
        self._forgotten_until = max(self._forgotten_until, self._touched.pop(node, 0))

    def since(self, version: int) -> list[str] | None:
        """Nodes touched after this version; None = a node touched since is forgotten, read all."""
        if version < self._forgotten_until:
            return None
        result = []
        for name in reversed(self._touched):
            if self._touched[name] <= version:
                break
            result.append(name)
        return result

    def frees(self, view: Callable[[str], NodeView | None]) -> bool:
        """Whether take() would name a freed node."""
        return any(frees_capacity(before, view(name)) for name, before in self._nodes.items())

    def take(self, view: Callable[[str], NodeView | None]) -> Changes:
        """Drain; `view` answers the nodes as they stand."""
        freed = frozenset(name for name, before in self._nodes.items() if frees_capacity(before, view(name)))
        changes = Changes(frozenset(self._nodes), frozenset(self._pods), freed)
        self._nodes, self._pods = {}, set()
        return changes
