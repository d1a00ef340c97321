"""Objects of the preemption scenarios, as users write them: workloads with a controller, queues, budgets, classes.

Enters: names and amounts. Leaves: bodies for the API. May not live here: a cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from devcluster.kwok import LINGER_ANNOTATION
from devcluster.operators import inventory_document
from tests.cluster.burst_pods import gpu_container
from tests.cluster.judge import VOLCANO
from vgpu import names

Json = dict[str, Any]

CARD_MIB = 32_768
SLOTS = 10
CLASSES = (10, 50, 60, 100, 1000)
"""Values of the PriorityClasses that the scenarios use; each is named p10, p50 and so on."""
NEVER_CLASS = "p100-never"
"""Value 100, preemptionPolicy Never."""
LOW, MIDDLE, HIGH = 10, 50, 100


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pod asks for: so many cards, of each so many percent or MiB of memory, and cores. Neither = whole."""

    number: int = 1
    percent: int = 0
    memory: int = 0
    cores: int = 0

    def container(self) -> Json:
        """A container that asks for it by the volcano preset."""
        amounts = {"percent": self.percent, "memory": self.memory, "cores": self.cores}
        return gpu_container(VOLCANO, number=self.number, **{kind: a for kind, a in amounts.items() if a})


WHOLE = Ask()


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal pods. `linger`: evicted ones stay terminating until let go. `node`: they run there only.

    `extra` are further fields of the pod's spec; `requests` are CPU and memory of its container.
    """

    ask: Ask = WHOLE
    queue: str = ""
    priority: int = LOW
    linger: bool = False
    node: str = ""
    class_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def but(self, **changes: Any) -> "Kind":
        """The same with some fields changed."""
        return replace(self, **changes)

    def template(self, app: str) -> Json:
        """metadata and spec of such a pod."""
        container = self.ask.container()
        if self.requests:
            container["resources"]["requests"] = dict(self.requests)
        labels = {"app": app, **self.labels}
        if self.queue:
            labels[names.POLICY_QUEUE] = self.queue
        annotations = dict(self.annotations) | ({LINGER_ANNOTATION: "true"} if self.linger else {})
        spec: Json = {
            "schedulerName": names.SCHEDULER_NAME,
            "priorityClassName": self.class_name or f"p{self.priority}",
            "containers": [container],
            **self.extra,
        }
        if self.node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self.node}
        return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def bare_pod(name: str, kind: Kind) -> Json:
    """A pod without a controller: nobody evicts it, and nothing brings it back."""
    template = kind.template(name)
    template["metadata"]["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", **template}


def replica_set(name: str, kind: Kind, count: int) -> Json:
    """So many pods that come back when they are evicted."""
    labels = {"app": name}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": kind.template(name)}
    return {"metadata": {"name": name}, "spec": spec}


def job(name: str, kind: Kind, count: int, backoff_limit: int) -> Json:
    """So many pods that run to their end; each failure but those of evictions counts against the limit."""
    template = kind.template(name)
    template["spec"]["restartPolicy"] = "Never"
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec = {
        "parallelism": count,
        "completions": count,
        "backoffLimit": backoff_limit,
        "podFailurePolicy": {"rules": [rule]},
        "template": template,
    }
    return {"metadata": {"name": name}, "spec": spec}


def queue(name: str, spec: Mapping[str, Any]) -> Json:
    """A GpuQueue."""
    body = {"metadata": {"name": name}, "spec": dict(spec)}
    return {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, **body}


def budget(name: str, app: str, allowed: int) -> Json:
    """A PodDisruptionBudget over a workload's pods that lets so many of them be away."""
    return {
        "metadata": {"name": name},
        "spec": {"maxUnavailable": allowed, "selector": {"matchLabels": {"app": app}}},
    }


def priority_classes() -> list[Json]:
    """All classes that the scenarios name."""
    found: list[Json] = [{"metadata": {"name": f"p{value}"}, "value": value} for value in CLASSES]
    return [*found, {"metadata": {"name": NEVER_CLASS}, "value": HIGH, "preemptionPolicy": "Never"}]


def inventory(node: str, cards: int, unhealthy: tuple[int, ...] = ()) -> Json:
    """A node's inventory; cards of these indices are not healthy."""
    document = inventory_document(node, cards, memory_mib=CARD_MIB, slots=SLOTS)
    for index in unhealthy:
        document["spec"]["gpus"][index] |= {"health": "Unhealthy", "healthReason": "Xid 79"}
    return document
