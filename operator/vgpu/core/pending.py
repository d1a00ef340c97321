"""Pods that wait for a node, and the node labels that they name.

Enters: pods as they come and go. Leaves: the pending ones, and whether a node label matters to any of them:
labels that none names change nothing (I6).
"""

from collections import Counter
from collections.abc import Iterable

from vgpu.core.facts import PodFact
from vgpu.core.placement import Placement


class PendingPods:
    """GPU pods that are neither bound nor ended, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, PodFact] = {}
        self._label_keys: Counter[str] = Counter()

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def all(self) -> Iterable[PodFact]:
        """The pending pods."""
        return self._pods.values()

    def put(self, fact: PodFact) -> bool:
        """Fold a pod. True when it is pending, or was."""
        was = self.drop(fact.uid)
        if not fact.wants_gpus or fact.node or fact.ended:
            return was
        self._pods[fact.uid] = fact
        self._label_keys.update(_label_keys(fact))
        return True

    def drop(self, uid: str) -> bool:
        """Forget a pod. True when it was pending."""
        was = self._pods.pop(uid, None)
        if was is None:
            return False
        for key in _label_keys(was):
            self._label_keys[key] -= 1
            if not self._label_keys[key]:
                del self._label_keys[key]
        return True

    def name_any_label(self, labels: Iterable[tuple[str, str]]) -> bool:
        """True when a pending pod's selector or required affinity names the key of one of these labels."""
        return any(key in self._label_keys for key, _ in labels)


def turned_down(before: PodFact | None, fact: PodFact, held: Placement | None) -> bool:
    """True when the pod named the node of what is held for it as nominated, and no longer does: kube-scheduler
    has ended an attempt elsewhere and cleared it."""
    return held is not None and before is not None and before.nominated_node == held.node != fact.nominated_node


def _label_keys(fact: PodFact) -> list[str]:
    wanted = [key for key, _ in fact.scheduling.node_selector]
    return wanted + [need.key for term in fact.scheduling.required_terms for need in term]
