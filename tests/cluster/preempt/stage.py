"""A running product without nodes, and cases on it: each with nodes, queues and workloads of its own.

Enters: a cluster of ours. Leaves: World (operator behind a proxy that can fail on purpose, kube-scheduler), and
Case, in which a test sets the scene, waits for what it expects and asks who was evicted. Every case is recorded
from its start and judged at its end. May not live here: scenarios.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from devcluster import ApiRefused, AuditEvent, Cluster, NodeShape
from devcluster.api import APPLY_PATCH
from devcluster.errors import DevclusterError
from devcluster.faults import FaultProxy
from devcluster.kwok import LINGER_ANNOTATION
from devcluster.nodes import node_object
from devcluster.operators import OPERATOR, Operators, Replica, stop_product
from devcluster.product import ROOT, install
from tests.cluster.judge import Limits
from tests.cluster.preempt import objects
from tests.cluster.preempt.objects import CARD_MIB, SLOTS, Json, Kind
from tests.cluster.preempt.recorder import INVENTORIES, PLANS, PlanSeen, Recorder
from vgpu import names

USER = f"system:serviceaccount:{names.NAMESPACE}:{names.OPERATOR_ACCOUNT}"
QUEUES = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.LEASE_NAME}"
WORKLOADS = {"replicasets": "/apis/apps/v1", "jobs": "/apis/batch/v1", "poddisruptionbudgets": "/apis/policy/v1"}
LIMITS = Limits(memory_mib=CARD_MIB, slots=SLOTS)
QUICK = {
    "VGPU_EVENT_SETTLE_SECONDS": "0.2",
    "VGPU_STATUS_INTERVAL_SECONDS": "0.2",
    "VGPU_STATUS_SETTLE_SECONDS": "0.05",
    "VGPU_STATUS_WRITES_PER_SECOND": "100",
    "VGPU_EVENTS_PER_SECOND": "100",
}
PATIENCE_SECONDS = 60.0
AT_ONCE: Json = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


@dataclass(slots=True)
class World:
    """The product at work; nodes come and go with the cases."""

    cluster: Cluster
    operators: Operators
    proxy: FaultProxy
    recorder: Recorder
    uuids_of_node: dict[str, set[str]]
    _position: int = 0

    @contextmanager
    def case(self, name: str) -> Iterator["Case"]:
        """One scenario in a namespace of its own; judged when its block ends well, and nothing is left behind."""
        self.cluster.ensure_namespace(name)
        case = Case(self, name, self.recorder, self.recorder.mark(), self.position())
        try:
            yield case
            case.judge()
        finally:
            self.proxy.rules.clear()
            self.proxy.release()
            self.ensure_operator()
            case.remove()

    def position(self) -> int:
        """Where the audit log ends now."""
        self._position = self.cluster.audit_events(self._position).position
        return self._position

    def crash(self) -> None:
        """End the operator with SIGKILL; may be called from any thread."""
        self.cluster.processes[OPERATOR].kill()

    def revive(self) -> None:
        """Start the operator after its end; its Lease is given back for it."""
        if OPERATOR in self.cluster.processes:
            self.cluster.end_process(OPERATOR)
        self.operators.replicas.pop(OPERATOR, None)
        self.cluster.api.patch(LEASE, {"spec": {"holderIdentity": ""}})
        self.operators.start(OPERATOR)

    def ensure_operator(self) -> None:
        """See to it that the operator runs and serves."""
        process = self.cluster.processes.get(OPERATOR)
        if process is None or not process.alive():
            self.revive()
        self.operators.wait_serving()

    @property
    def replica(self) -> Replica:
        """The operator's HTTP."""
        return self.operators.leader() or self.operators.replicas[OPERATOR]


@dataclass(slots=True)
class Case:
    """One scenario. Names of queues and nodes are made unique by the namespace."""

    world: World
    namespace: str
    recorder: Recorder
    mark: tuple[int, int]
    since: int
    nodes: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    may_plan_again: set[str] = field(default_factory=set)
    """uids of pods that lose their cards in this scenario, so that a second plan is right."""

    @property
    def cluster(self) -> Cluster:
        """The cluster that the operator runs on."""
        return self.world.cluster

    @property
    def pods_path(self) -> str:
        """The namespace's pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    # The scene.

    def node(
        self, cards: int = 4, *, slots: int | None = None, unhealthy: tuple[int, ...] = (), **shape: Any
    ) -> str:
        """A node with so many cards; comes back before the operator has seen it."""
        name = f"{self.namespace}-n{len(self.nodes)}"
        self.nodes.append(name)
        self.world.uuids_of_node[name] = {self.card(index, name) for index in range(cards)}
        resources = {names.VOLCANO_NUMBER: cards * SLOTS if slots is None else slots}
        body = NodeShape(resources=resources, **{"cpu": "64", "memory": "512Gi", "pods": 250, **shape})
        self.cluster.create_all("/api/v1/nodes", [node_object(name, body)])
        self.publish(objects.inventory(name, cards, unhealthy))
        return name

    def publish(self, document: Json) -> None:
        """Apply an inventory whole, as an agent would."""
        query = f"fieldManager={names.AGENT_FIELD_MANAGER}&force=true"
        self.cluster.api.patch(f"{INVENTORIES}/{document['metadata']['name']}?{query}", document, APPLY_PATCH)

    def card(self, index: int, node: str = "") -> str:
        """UUID of a card of a node, of the first one unless told."""
        return f"GPU-{node or self.nodes[0]}-{index}"

    def queue(self, name: str, **spec: Any) -> str:
        """A queue; hands back its name in the cluster."""
        full = f"{self.namespace}-{name}"
        self.cluster.api.post(QUEUES, objects.queue(full, spec))
        self.queues.append(full)
        return full

    def change_queue(self, full: str, **spec: Any) -> None:
        """Change fields of a queue's spec."""
        self.cluster.api.patch(f"{QUEUES}/{full}", {"spec": spec})

    def start(self, name: str, kind: Kind, count: int = 1) -> None:
        """A workload that makes `count` pods and makes evicted ones anew."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/replicasets"
        self.cluster.api.post(path, objects.replica_set(name, kind, count))

    def run(self, name: str, kind: Kind, count: int = 1) -> list[str]:
        """The same; comes back when all its pods run, with their names."""
        self.start(name, kind, count)
        self.wait(lambda: len(self.running(name)) == count, f"{count} pods of {name} to run")
        return sorted(self.running(name))

    def start_job(self, name: str, kind: Kind, count: int = 1, backoff_limit: int = 6) -> None:
        """A Job with so many pods at once."""
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        self.cluster.api.post(path, objects.job(name, kind, count, backoff_limit))

    def pod(self, name: str, kind: Kind) -> str:
        """A bare pod; hands back its uid."""
        return str(self.cluster.api.post(self.pods_path, objects.bare_pod(name, kind))["metadata"]["uid"])

    def budget(self, name: str, app: str, allowed: int) -> None:
        """A PodDisruptionBudget, once it counts."""
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        self.cluster.api.post(path, objects.budget(name, app, allowed))

        def counted() -> bool:
            status = self.cluster.api.get(f"{path}/{name}").get("status", {})
            return status.get("disruptionsAllowed") == allowed and status.get("observedGeneration") == 1

        self.wait(counted, f"budget {name} to allow {allowed}")

    def end_workload(self, name: str) -> None:
        """Delete a workload and its pods."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/replicasets/{name}"
        self.cluster.api.delete(path, AT_ONCE)

    def delete(self, name: str) -> None:
        """Delete a pod without waiting for its end."""
        self.cluster.api.delete(f"{self.pods_path}/{name}")

    def let_go(self, *pod_names: str) -> None:
        """Let lingering pods end; those that are terminating go at once."""
        for name in pod_names:
            body = {"metadata": {"annotations": {LINGER_ANNOTATION: None}}}
            self.cluster.api.patch(f"{self.pods_path}/{name}", body)

    # What there is.

    def pods(self, app: str = "") -> dict[str, Json]:
        """Pods by name, of one workload or bare pod where named."""
        selector = f"?labelSelector=app%3D{app}" if app else ""
        return {p["metadata"]["name"]: p for p in self.cluster.api.get(self.pods_path + selector)["items"]}

    def running(self, app: str = "") -> dict[str, Json]:
        """Pods that run and are not on their way out."""
        return {name: pod for name, pod in self.pods(app).items() if _runs(pod)}

    def terminating(self, app: str = "") -> dict[str, Json]:
        """Pods that are on their way out."""
        return {n: pod for n, pod in self.pods(app).items() if "deletionTimestamp" in pod["metadata"]}

    def waiting(self, app: str = "") -> dict[str, Json]:
        """Pods without a node."""
        return {name: pod for name, pod in self.pods(app).items() if not pod["spec"].get("nodeName")}

    def uid(self, name: str) -> str:
        """uid of a pod."""
        return str(self.cluster.api.get(f"{self.pods_path}/{name}")["metadata"]["uid"])

    def uids(self, app: str) -> set[str]:
        """uids of a workload's running pods."""
        return {pod["metadata"]["uid"] for pod in self.running(app).values()}

    def cards(self, *pod_names: str) -> list[str]:
        """UUIDs that these pods were bound with, sorted, one for each container and card."""
        pods = self.pods()
        return sorted(uuid for name in pod_names for uuid in _cards(pods[name]))

    def node_of(self, name: str) -> str:
        """The node that a pod is bound to, "" while it is not."""
        return str(self.cluster.api.get(f"{self.pods_path}/{name}")["spec"].get("nodeName", ""))

    def totals(self, node: str) -> Json:
        """What a node's inventory shows in sum."""
        status = self.cluster.api.get(f"{INVENTORIES}/{node}").get("status", {})
        found: Json = status.get("totals", {})
        return found

    # Waiting.

    def wait(self, condition: Callable[[], bool], what: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for a condition. Raises StartFailed naming what was waited for."""
        self.cluster.wait_until(condition, what, timeout_seconds)

    def wait_bound(self, *pod_names: str) -> None:
        """Wait until all these pods have a node."""

        def bound() -> bool:
            pods = self.pods()
            return all(name in pods and pods[name]["spec"].get("nodeName") for name in pod_names)

        self.wait(bound, f"{pod_names} to be bound")

    def wait_running(self, app: str, count: int) -> None:
        """Wait until exactly so many pods of a workload run."""
        self.wait(lambda: len(self.running(app)) == count, f"{count} pods of {app} to run")

    def wait_leaving(self, app: str, count: int) -> list[str]:
        """Wait until so many pods of a workload are on their way out; hands back their names."""
        self.wait(lambda: len(self.terminating(app)) == count, f"{count} pods of {app} to be evicted")
        return sorted(self.terminating(app))

    def wait_eviction(self, number: int) -> str:
        """Wait until so many evictions were accepted; hands back the last one's pod."""
        self.wait(lambda: len(self.evictions()) >= number, f"{number} evictions")
        return self.evictions()[number - 1]

    def wait_told(self, name: str, reason: str) -> str:
        """Wait until the pod's events of ours say this reason; hands back all their words."""
        self.wait(lambda: reason in self.told(name), f"{name} to be told {reason}")
        return self.told(name)

    def wait_refused(self, name: str, words: str) -> None:
        """Wait until the planner has decided that it evicts nobody for the pod, and says these words of it."""

        def notes() -> list[str]:
            status, text = self.world.replica.get(f"/explain?pod={self.namespace}/{name}")
            found: list[str] = json.loads(text)["notes"] if status == 200 else []  # it may have begun just now
            return found

        try:
            self.wait(
                lambda: any("evicted" in note and words in note for note in notes()),
                f"{words!r} to be why nobody goes for {name}",
            )
        except DevclusterError as error:
            raise AssertionError(f"{error}; it says: {notes()}") from error

    def told(self, name: str) -> str:
        """Everything that our events say about the pod of this name that exists now, one line each."""
        uid = self.uid(name)
        return "\n".join(
            f"{event['reason']}: {event['message']}"
            for event in self.events()
            if event["involvedObject"].get("uid") == uid
        )

    def events(self) -> list[Json]:
        """The operator's events in this namespace."""
        items = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [item for item in items if item["source"].get("component") == names.OPERATOR_FIELD_MANAGER]

    def explain(self, name: str) -> Json:
        """What /explain answers for the pod."""
        return self.ask(f"/explain?pod={self.namespace}/{name}")

    def ask(self, path: str) -> Json:
        """A page of the operator's HTTP, as JSON."""
        status, text = self.world.replica.get(path)
        assert status == 200, f"{path}: {status} {text}"
        answer: Json = json.loads(text)
        return answer

    def what_if(self, name: str, kind: Kind) -> Json:
        """What our command line answers about a pod that does not exist."""
        path = self.cluster.site.folder / f"{self.namespace}-{name}.json"
        path.write_text(json.dumps(objects.bare_pod(name, kind)))
        url = f"http://127.0.0.1:{self.world.replica.http_port}"
        options = ["--kubeconfig", str(self.cluster.kubeconfig()), "--operator-url", url]
        asked = ["what-if", "-f", str(path), "-n", self.namespace, "-o", "json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
        command = [sys.executable, "-m", "vgpu.cli", *options, *asked]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        answer: Json = json.loads(done.stdout)
        return answer

    # Who was evicted.

    def plan_for(self, uid: str) -> PlanSeen:
        """Wait for the newest plan for a pod."""
        self.wait(lambda: bool(self.recorder.plans_for(uid)), f"a plan for {uid}")
        return self.recorder.plans_for(uid)[-1]

    def plans(self) -> list[Json]:
        """The GpuPreemptions of this namespace as they stand."""
        path = PLANS.replace("/v1alpha1/", f"/v1alpha1/namespaces/{self.namespace}/")
        items: list[Json] = self.cluster.api.get(path)["items"]
        return items

    def wait_phase(self, uid: str, phase: str) -> None:
        """Wait until a plan for the pod has reached this phase."""

        def reached() -> bool:
            owned = (p for p in self.plans() if uid in p["spec"]["owner"]["uids"])
            return any(p.get("status", {}).get("phase") == phase for p in owned)

        self.wait(reached, f"the plan for {uid} to be {phase}")

    def evictions(self) -> list[str]:
        """Names of the pods whose eviction the API server accepted, in order, by the audit log."""
        return [event.name for event in self.eviction_calls() if event.code in (200, 201)]

    def eviction_calls(self) -> list[AuditEvent]:
        """Every call for an eviction in this namespace, whoever made it."""
        return [
            event
            for event in self.cluster.audit_events(self.since).events
            if (event.verb, event.subresource, event.namespace) == ("create", "eviction", self.namespace)
        ]

    def writes(self) -> list[str]:
        """What the operator wrote since the case began, the Lease left out."""
        return [
            f"{event.verb} {event.resource}/{event.subresource} {event.name}"
            for event in self.cluster.audit_events(self.since).events
            if event.user == USER and event.verb not in ("get", "list", "watch") and event.resource != "leases"
        ]

    # The end.

    def judge(self) -> None:
        """What must hold in every scenario."""
        violations = self.recorder.verdict(self.namespace, self.mark, self.may_plan_again)
        assert not violations, violations
        evicted = self.evictions()
        assert len(evicted) == len(set(evicted)), f"evicted more than once: {evicted}"
        others = {event.user for event in self.eviction_calls()} - {USER}
        assert not others, f"somebody else evicted: {others}"

    def picture(self) -> str:
        """What there is, for whoever reads that a test failed."""
        lines = [_shown(pod) for pod in self.pods().values()]
        lines += [f"plan {p['metadata']['name']}: {p['spec']} {p.get('status')}" for p in self.plans()]
        lines += [f"{e['involvedObject']['name']}: {e['reason']}: {e['message']}" for e in self.events()]
        lines += [f"evicted: {self.evictions()}", self.world.operators.log()[-4000:]]
        return "\n".join(lines)

    def remove(self) -> None:
        """Delete everything that the case made and wait until its pods are gone."""
        for kind, group in WORKLOADS.items():
            self.cluster.api.delete(f"{group}/namespaces/{self.namespace}/{kind}", AT_ONCE)
        self.wait(self._without_pods, "the pods of the case to be gone")
        paths = [f"{PLANS.replace('/v1alpha1/', f'/v1alpha1/namespaces/{self.namespace}/')}"]
        paths += [f"{QUEUES}/{name}" for name in self.queues]
        paths += [path for node in self.nodes for path in (f"/api/v1/nodes/{node}", f"{INVENTORIES}/{node}")]
        for path in paths:
            with suppress(ApiRefused):  # a test may have deleted it
                self.cluster.api.delete(path)
        for node in self.nodes:
            self.world.uuids_of_node.pop(node, None)
        self.cluster.api.delete(f"/api/v1/namespaces/{self.namespace}")

    def _without_pods(self) -> bool:
        """A controller may make one more pod while it hears of its own end."""
        self.cluster.api.delete(self.pods_path, AT_ONCE)
        return not self.pods()


def _runs(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _cards(pod: Json) -> list[str]:
    text = (pod["metadata"].get("annotations") or {}).get(names.ASSIGNMENT_ANNOTATION, "{}")
    containers = json.loads(text).get("containers", [])
    return [card["uuid"] for container in containers for card in container["cards"]]


def _shown(pod: Json) -> str:
    state = "terminating" if "deletionTimestamp" in pod["metadata"] else pod["status"].get("phase")
    where = pod["spec"].get("nodeName", "-")
    sent = pod["status"].get("nominatedNodeName")
    return f"{pod['metadata']['name']} {state} on {where} with {_cards(pod)}, nominated to {sent}"


@contextmanager
def preempt_world(cluster: Cluster, settings: Mapping[str, str] | None = None) -> Iterator[World]:
    """The product without nodes, its classes made. Nothing is left behind."""
    cluster.clear()
    install(cluster)
    for body in objects.priority_classes():
        cluster.api.post(CLASSES, body)
    with FaultProxy(cluster.kubeconfig(), cluster.site.folder) as proxy:
        operators = Operators(cluster, {**QUICK, **(settings or {})}, route=proxy.kubeconfig)
        uuids_of_node: dict[str, set[str]] = {}
        recorder = Recorder(cluster, LIMITS, uuids_of_node)
        world = World(cluster, operators, proxy, recorder, uuids_of_node)
        try:
            operators.start()
            operators.wait_serving()
            operators.start_scheduler()
            with recorder:
                yield world
        finally:
            stop_product(operators)
            for body in objects.priority_classes():
                cluster.api.delete(f"{CLASSES}/{body['metadata']['name']}")
            cluster.clear()
