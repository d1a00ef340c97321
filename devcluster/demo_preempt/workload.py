"""What runs and what comes: two teams' workloads on 160 cards, their queues and classes.

Enters: nothing. Leaves: objects as users would write them. May not live here: a cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devcluster.kwok import LINGER_ANNOTATION
from vgpu import names

RESEARCH, SERVING, GUESTS = "research", "serving", "guests"
CLASSES = {"whenever": 10, "normal": 50, "urgent": 1000}
QUEUES: Mapping[str, Mapping[str, Any]] = {
    RESEARCH: {"deserved": {"cards": "40"}},
    SERVING: {"deserved": {"cards": "100"}, "priority": 10},
    GUESTS: {"preemption": {"withinQueue": "Never", "reclaimAcrossQueues": "Never"}},
}
SHARED_NODES = ("volcano-0000", "volcano-0001", "volcano-0002")
"""Whoever shares here shares every card of a node: cards that come free singly leave no pieces on too few."""
Json = dict[str, Any]


def shares(cards: int, percent: int) -> dict[str, str]:
    """So many cards, of each so many percent of memory and cores."""
    amounts = {names.VOLCANO_NUMBER: cards, names.VOLCANO_MEMORY_PERCENT: percent, names.VOLCANO_CORES: percent}
    return {name: str(amount) for name, amount in amounts.items()}


@dataclass(frozen=True, slots=True)
class Work:
    """Equal pods of one team. `bare`: without a controller. `lingers`: evicted pods take their time to end.
    `shared`: on the nodes that are kept for sharers, on others, or (None) anywhere: whole cards that come back
    first would take single cards of sharers who need all of a node."""

    name: str
    count: int
    queue: str
    class_name: str
    limits: Mapping[str, str]
    asks: str
    bare: bool = False
    lingers: bool = False
    shared: bool | None = None

    def pod_names(self) -> list[str]:
        """Names of bare pods."""
        return [self.name if self.count == 1 else f"{self.name}-{number}" for number in range(self.count)]

    def template(self) -> Json:
        """metadata and spec of one pod."""
        container = {"name": "main", "image": "none", "resources": {"limits": dict(self.limits)}}
        metadata: Json = {"labels": {"app": self.name, names.POLICY_QUEUE: self.queue}}
        if self.lingers:
            metadata["annotations"] = {LINGER_ANNOTATION: "true"}
        spec: Json = {"priorityClassName": self.class_name, "containers": [container]}
        if self.shared is not None:
            operator = "In" if self.shared else "NotIn"
            rule = {"key": "kubernetes.io/hostname", "operator": operator, "values": list(SHARED_NODES)}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return {"metadata": metadata, "spec": spec}

    def pods(self) -> list[Json]:
        """The pods themselves, where no controller makes them."""
        found = []
        for name in self.pod_names():
            template = self.template()
            template["metadata"]["name"] = name
            found.append({"apiVersion": "v1", "kind": "Pod", **template})
        return found

    def replica_set(self) -> Json:
        """The controller that makes them."""
        selector = {"matchLabels": {"app": self.name}}
        spec = {"replicas": self.count, "selector": selector, "template": self.template()}
        return {"metadata": {"name": self.name}, "spec": spec}


WHOLE = {names.VOLCANO_NUMBER: "1"}
RUNNING = (
    Work("sweep", 12, RESEARCH, "whenever", shares(8, 25), "25 % of 8 cards", lingers=True, shared=True),
    Work("tune", 8, RESEARCH, "normal", {names.VOLCANO_NUMBER: "2"}, "2 whole cards"),
    Work("train", 56, RESEARCH, "normal", WHOLE, "1 whole card", shared=False),
    Work("batch", 14, RESEARCH, "normal", {names.HAMI_NUMBER: "4"}, "4 whole cards (HAMI)"),
    Work("notebook", 2, RESEARCH, "whenever", {names.HAMI_NUMBER: "4"}, "4 whole cards (HAMI)", bare=True),
)
"""In the order in which they come: shares first, so that whole cards find cards that are empty."""
CHAT = Work("chat", 1, SERVING, "urgent", shares(8, 60), "60 % of 8 cards", bare=True)
VISITOR = Work("visitor", 1, GUESTS, "urgent", shares(1, 20), "20 % of 1 card", bare=True)
BURST = Work("serve", 24, SERVING, "urgent", WHOLE, "1 whole card")
