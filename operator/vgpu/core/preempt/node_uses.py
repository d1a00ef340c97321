"""What all pods on a node ask for beyond cards, kept as pods come and go.

Enters: pods of every kind. Leaves: a NodeUse per node. As kube-scheduler counts: a pod that has Succeeded or
Failed takes nothing any more, one that is being deleted does. May not live here: what a node offers.
"""

from collections.abc import Mapping

from vgpu.core.facts import Phase, PodFact, Scheduling
from vgpu.core.preempt.feasible import NodeUse

_OVER = (Phase.SUCCEEDED, Phase.FAILED)


class NodeUses:
    """Mutable, with one owner. A cluster has a hundred thousand pods and few kinds of them: what is kept of each
    is one entry that points to what it shares with others."""

    def __init__(self) -> None:
        self.version = 0
        """Raised when a node's use changes."""
        self._uses: dict[str, NodeUse] = {}
        self._placed: dict[str, tuple[str, Scheduling]] = {}
        self._shared: dict[tuple[str, Scheduling], tuple[str, Scheduling]] = {}

    def put(self, pod: PodFact) -> None:
        """A pod is there, like this."""
        if not pod.node or pod.phase in _OVER:
            self.drop(pod.uid)
            return
        known = self._placed.get(pod.uid)
        if known is not None and known[0] == pod.node and _asks(known[1]) == _asks(pod.scheduling):
            return
        self.drop(pod.uid)
        place = (pod.node, pod.scheduling)
        self._placed[pod.uid] = self._shared.setdefault(place, place)
        self._uses[pod.node] = self._uses.get(pod.node, NodeUse()).plus((pod.scheduling,))
        self.version += 1

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        place = self._placed.pop(uid, None)
        if place is None:
            return
        self.version += 1
        node, scheduling = place
        left = self._uses[node].plus((scheduling,), -1)
        if left.pods:
            self._uses[node] = left
        else:
            del self._uses[node]
        if len(self._shared) > 2 * len(self._placed) + 1000:
            self._shared.clear()  # mostly of pods that are gone

    def all(self) -> Mapping[str, NodeUse]:
        """By node; live: copy what is to last."""
        return self._uses


def _asks(scheduling: Scheduling) -> tuple[int, int]:
    return (scheduling.cpu_millicores, scheduling.memory_mib)
