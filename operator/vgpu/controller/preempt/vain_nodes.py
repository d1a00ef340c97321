"""Nodes on which somebody was evicted for an owner that did not come: its equals leave them alone for longer and
longer. What keeps it away is known to kube-scheduler alone: host ports, spreading, volumes.

Enters: owners (a controller's uid, a pod's own without one), nodes, moments (whole seconds of the wall clock).
Leaves: nodes to leave alone now, and until when. In memory only: its loss costs one more try. May not live here:
why plans end.
"""

from collections.abc import Iterable
from dataclasses import dataclass

KEPT_SECONDS = 300
"""So long a node is left alone at first; doubled each time."""
LONGEST_SECONDS = 3600


@dataclass(slots=True)
class _Node:
    times: int = 0
    until_seconds: int = 0


class VainNodes:
    """See the module."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, _Node]] = {}

    def note(self, owners: Iterable[str], nodes: Iterable[str], now_seconds: int) -> None:
        """The room that was made for these owners on these nodes was not taken."""
        self._forget(now_seconds)
        named = list(nodes)
        for owner in set(owners) if named else ():
            known = self._nodes.setdefault(owner, {})
            for name in named:
                node = known.setdefault(name, _Node())
                kept = min(KEPT_SECONDS << min(node.times, 10), LONGEST_SECONDS)
                node.times, node.until_seconds = node.times + 1, now_seconds + kept

    def of(self, owner: str, now_seconds: int) -> frozenset[str]:
        """Nodes on which nobody goes for this owner now."""
        return frozenset(n for n, node in self._nodes.get(owner, {}).items() if now_seconds < node.until_seconds)

    def moments(self, owner: str) -> list[int]:
        """When the owner's nodes are looked at again, also those that are by now."""
        return [node.until_seconds for node in self._nodes.get(owner, {}).values()]

    def _forget(self, now_seconds: int) -> None:
        for owner, nodes in list(self._nodes.items()):
            kept = {n: node for n, node in nodes.items() if now_seconds < node.until_seconds + LONGEST_SECONDS}
            if kept:
                self._nodes[owner] = kept
            else:
                del self._nodes[owner]
