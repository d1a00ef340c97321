"""A cluster on which the product runs, and what tests create there and ask of it.

Enters: a clean cluster, the shape of its nodes. Leaves: one operator replica behind kube-scheduler, pods by name,
what their readers see (events, /explain, inventories) and what the audit log says was written. Pods live in the
namespace `default`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from devcluster import HOLD_ANNOTATION, AuditEvent, Cluster, NodeShape, StartFailed
from devcluster.access import ClusterAccess
from devcluster.operators import OPERATOR, Operators, stop_product
from devcluster.product import install
from vgpu import names

USER = f"system:serviceaccount:{names.NAMESPACE}:{names.OPERATOR_ACCOUNT}"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
INVENTORIES = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
QUICK = {"VGPU_EVENT_SETTLE_SECONDS": "0.5", "VGPU_STATUS_INTERVAL_SECONDS": "0.2"}
"""Settings that make what people see follow quickly."""

Json = dict[str, Any]


def slots_shape(slots: int = 80, resource: str = names.VOLCANO_NUMBER, **rest: Any) -> NodeShape:
    """A node that offers so many slots and plenty of everything else."""
    return NodeShape(resources={resource: slots}, **({"cpu": "64", "memory": "512Gi", "pods": 250} | rest))


def held(pod: Json) -> Json:
    """`pod` so that it is bound and never admitted, as by a kubelet that hangs."""
    pod["metadata"].setdefault("annotations", {})[HOLD_ANNOTATION] = "true"
    return pod


@dataclass(slots=True)
class Stage:
    """Everything a test of the running product asks for."""

    operators: Operators

    @property
    def cluster(self) -> Cluster:
        """The cluster that the operator runs on."""
        return self.operators.cluster

    # Pods.

    def create(self, *pods: Json) -> None:
        """Create pods in the order given."""
        for pod in pods:
            self.cluster.api.post(PODS, pod)

    def pod(self, name: str) -> Json:
        """The pod as it stands."""
        return self.cluster.api.get(f"{PODS}/{name}")

    def node_of(self, name: str) -> str:
        """The node that the pod is bound to, "" while it is not."""
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def bound(self) -> dict[str, str]:
        """Node by name of every bound pod."""
        pods = self.cluster.api.get(PODS)["items"]
        return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")}

    def wait_bound(self, *pod_names: str, timeout_seconds: float = 60) -> None:
        """Wait until all of these pods have a node."""
        self.cluster.wait_until(
            lambda: set(pod_names) <= self.bound().keys(), f"{pod_names} to be bound", timeout_seconds
        )

    def patch_status(self, name: str, **status: Any) -> None:
        """Set fields of a pod's status, as its kubelet would."""
        self.cluster.api.patch(f"{PODS}/{name}/status", {"status": status})

    def admit(self, name: str) -> None:
        """What kubelet writes when it takes a pod."""
        self.patch_status(name, startTime="2026-01-01T00:00:00Z")

    def delete(self, *pod_names: str) -> None:
        """Delete pods and wait until they are gone."""
        for name in pod_names:
            self.cluster.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        self.cluster.wait_until(
            lambda: not {p["metadata"]["name"] for p in self.cluster.api.get(PODS)["items"]} & {*pod_names},
            f"{pod_names} to be gone",
        )

    def remove_pods(self) -> None:
        """Delete every pod and wait until no inventory shows a holder."""
        self.cluster.api.delete(PODS, {"gracePeriodSeconds": 0})
        self.cluster.wait_until(lambda: not self.cluster.api.get(PODS)["items"], "all pods to be gone")
        self.cluster.wait_until(lambda: self.used_slots() == 0, "every inventory to show nothing used", 60)

    def cards(self, name: str) -> list[str]:
        """UUIDs that the pod was bound with, one for each container and card."""
        text = self.pod(name)["metadata"].get("annotations", {}).get(names.ASSIGNMENT_ANNOTATION, "{}")
        containers = json.loads(text).get("containers", [])
        return [card["uuid"] for container in containers for card in container["cards"]]

    # What the pod's readers see.

    def events(self, name: str) -> list[Json]:
        """The operator's events about the pod of this name that exists now."""
        return self.events_of(self.pod(name)["metadata"]["uid"])

    def events_of(self, uid: str) -> list[Json]:
        """The operator's events about one uid."""
        items = self.cluster.api.get(EVENTS)["items"]
        ours = (item for item in items if item["source"].get("component") == names.OPERATOR_FIELD_MANAGER)
        return [item for item in ours if item["involvedObject"].get("uid") == uid]

    def reasons(self, name: str) -> list[str]:
        """The reasons that the pod was told, sorted."""
        return sorted(event["reason"] for event in self.events(name))

    def wait_told(self, name: str, reason: str, timeout_seconds: float = 30) -> str:
        """Wait until the pod is told this reason; hands back the message."""
        try:
            self.cluster.wait_until(
                lambda: reason in self.reasons(name), f"{name} to be told {reason}", timeout_seconds
            )
        except StartFailed as error:
            error.add_note(f"it was told {self.events(name)}; explained: {self.explain(name)['message']}")
            raise
        return next(str(event["message"]) for event in self.events(name) if event["reason"] == reason)

    def explain(self, name: str) -> Json:
        """What /explain answers for the pod."""
        replica = self.operators.leader() or self.operators.replicas[OPERATOR]
        status, text = replica.get(f"/explain?pod=default/{name}")
        assert status == 200, text
        answer: Json = json.loads(text)
        return answer

    # Inventories.

    def publish(self, *documents: Json) -> None:
        """Apply inventories whole, as an agent would."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        manager = ("--field-manager", names.AGENT_FIELD_MANAGER, "--force-conflicts")
        self.cluster.kubectl("apply", "--server-side", *manager, "-f", "-", input=text)

    def inventory(self, node: str) -> Json:
        """The node's inventory as it stands."""
        return self.cluster.api.get(f"{INVENTORIES}/{node}")

    def condition(self, node: str, kind: str = "Ready") -> Json:
        """One condition of the node's inventory, {} where it is not listed."""
        conditions = self.inventory(node).get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def wait_gate(self, node: str, reason: str) -> str:
        """Wait until the inventory's Ready condition has this reason; hands back its message."""
        self.cluster.wait_until(
            lambda: self.condition(node).get("reason") == reason, f"{node} to show {reason}", 60
        )
        return str(self.condition(node)["message"])

    def used_slots(self) -> int:
        """Slots that all inventories together show as used."""
        items = self.cluster.api.get(INVENTORIES)["items"]
        return sum(item.get("status", {}).get("totals", {}).get("usedSlots", 0) for item in items)

    # What was written.

    def position(self) -> int:
        """Where the audit log stands now."""
        return self.cluster.audit_events().position

    def requests(self, since: int, user: str = USER) -> list[AuditEvent]:
        """Requests of one user since a position."""
        return [event for event in self.cluster.audit_events(since).events if event.user == user]

    def writes(self, since: int) -> list[str]:
        """The operator's writes since a position, the Lease left out."""
        ours = (event for event in self.requests(since) if event.verb in WRITES and event.resource != "leases")
        return [shown(event) for event in ours]

    def nominations(self, since: int) -> Counter[str]:
        """How often the operator has patched each pod's status since a position."""
        ours = self.requests(since)
        return Counter(e.name for e in ours if (e.verb, e.resource, e.subresource) == ("patch", "pods", "status"))


def shown(event: AuditEvent) -> str:
    """A request as people write it."""
    return f"{event.verb} {event.resource}{'/' if event.subresource else ''}{event.subresource} {event.name}"


@contextmanager
def staged(
    cluster: Cluster, nodes: Sequence[Json], *, percentage_of_nodes: int | None = None, **settings: str
) -> Iterator[Stage]:
    """The product on `cluster`, whose nodes exist; `nodes` are their inventories. Nothing is left behind."""
    install(cluster)
    operators = Operators(cluster, {**QUICK, **settings})
    stage = Stage(operators)
    try:
        if nodes:
            stage.publish(*nodes)
        operators.start()
        operators.wait_serving()
        operators.start_scheduler(percentage_of_nodes=percentage_of_nodes)
        yield stage
    finally:
        stop_product(operators)
        cluster.clear()


def is_ready(cluster: ClusterAccess, node: str) -> bool:
    """Whether the node's inventory says that it takes pods."""
    status = cluster.api.get(f"{INVENTORIES}/{node}").get("status", {})
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))


def wait_all_ready(stage: Stage, nodes: Sequence[str]) -> None:
    """Wait until every node takes pods."""
    stage.cluster.wait_until(lambda: all(is_ready(stage.cluster, n) for n in nodes), "all nodes to be open", 60)
