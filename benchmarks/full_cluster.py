"""200 simulated nodes of 8 cards on a real control plane, full of 1,600 low pods that an entitled queue may evict.

Leaves: the product at work, a recorder that judges every event from before the first pod, and what the scene is
asked for: low pods, pods that want in, quiet. May not live here: what is measured.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.reclaim import AT_ONCE, CLASSES, PODS, SETS, Sightings
from devcluster import Cluster, NodeShape, Options
from devcluster.operators import Operators, gpu_pod, publish_inventories, start_product, stop_product
from tests.cluster.judge import Limits
from tests.cluster.preempt.recorder import PLANS, Recorder
from tests.cluster.preempt.trace import is_write
from vgpu import names

NODES, CARDS = 200, 8
LIMITS = Limits(memory_mib=40_960, slots=10)
SETS_COUNT, SET_SIZE = 16, 100
ALL = SETS_COUNT * SET_SIZE
LAST_SET = f"low-{SETS_COUNT - 1:02d}"
PRIORITIES = {"low": 10, "high": 100}
DESERVED: dict[str, dict[str, str]] = {"low": {}, "high": {"cards": str(NODES * CARDS)}}
"""By queue, named like the classes of its pods."""
QUEUES = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"
PATIENCE_SECONDS = 900.0
QUIET_SECONDS = 1.0


@dataclass(slots=True)
class Scene:
    """See the module. `position`: where the audit log was last known to end."""

    operators: Operators
    sightings: Sightings
    recorder: Recorder
    position: int = 0

    @property
    def cluster(self) -> Cluster:
        """Where it runs."""
        return self.operators.cluster

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, or raise StartFailed after a quarter of an hour."""
        self.cluster.wait_until(condition, what, PATIENCE_SECONDS)

    def start_low(self) -> None:
        """All low pods but those of the last set, which wants none yet."""
        for number in range(SETS_COUNT):
            name = f"low-{number:02d}"
            self.cluster.api.post(SETS, low_set(name, SET_SIZE if name != LAST_SET else 0))
        self.wait_low(ALL - SET_SIZE)

    def scale_last(self, replicas: int) -> None:
        """So many pods of the last set, bound."""
        self.cluster.kubectl("scale", "replicaset", LAST_SET, f"--replicas={replicas}")
        self.wait_low(ALL - SET_SIZE + replicas)

    def wait_low(self, count: int) -> None:
        """Wait until exactly so many low pods are bound."""
        self.wait(lambda: len(self.sightings.standing("low-")) == count, f"{count} low pods to be bound")

    def create(self, pods: Sequence[dict[str, Any]]) -> dict[str, str]:
        """Create these pods at once and wait until all are bound; hands back uids by name."""
        self.cluster.create_all(PODS, pods)
        made = [pod["metadata"]["name"] for pod in pods]
        self.wait(lambda: all(name in self.sightings.bound for name in made), f"{len(made)} pods to be bound")
        found = self.cluster.api.get(PODS)["items"]
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found if pod["metadata"]["name"] in made
        }

    def delete(self, pod_names: Sequence[str]) -> None:
        """Delete pods and wait until they are gone."""
        for name in pod_names:
            self.cluster.api.delete(f"{PODS}/{name}", AT_ONCE)
        self.wait(lambda: all(name in self.sightings.gone for name in pod_names), "pods to be gone")

    def end_low(self) -> None:
        """Nobody wants low pods any more: nothing is owed to them."""
        self.cluster.api.delete(SETS, AT_ONCE)
        self.wait_low(0)

    def wait_no_plans(self) -> None:
        """Wait until no plan is left, which is when nothing is owed."""
        self.wait(lambda: not self.cluster.api.get(PLANS)["items"], "no plan to be there")

    def wait_quiet(self) -> int:
        """Wait until the operator has written nothing for a while: what comes next is measured alone. Hands back
        where the audit log ends."""

        def quiet() -> bool:
            self.position = self.cluster.audit_events(self.position).position
            time.sleep(QUIET_SECONDS)
            since = self.cluster.audit_events(self.position)
            self.position = since.position
            return not any(is_write(event) and event.resource != "leases" for event in since.events)

        self.wait(quiet, "the operator to have nothing to write")
        return self.position


@contextmanager
def full_cluster() -> Iterator[Scene]:
    """The scene, without pods yet."""
    with Cluster(Options()) as cluster:
        nodes = cluster.create_nodes(NODES, NodeShape(resources={names.VOLCANO_NUMBER: LIMITS.slots * CARDS}))
        operators = start_product(cluster)
        publish_inventories(cluster, nodes, CARDS)
        for name, value in PRIORITIES.items():
            cluster.api.post(CLASSES, {"metadata": {"name": name}, "value": value})
            cluster.api.post(QUEUES, _queue(name))
        sightings = Sightings(cluster)
        uuids = {node: {f"GPU-{node}-{index}" for index in range(CARDS)} for node in nodes}
        try:
            with Recorder(cluster, LIMITS, uuids) as recorder:
                yield Scene(operators, sightings, recorder)
        finally:
            sightings.close()
            stop_product(operators)


def pod(name: str, side: str) -> dict[str, Any]:
    """A pod of one whole card, of the low or the high queue and class."""
    body = gpu_pod(name, memory_mib=None)
    body["metadata"]["labels"] = {names.POLICY_QUEUE: side}
    body["spec"] |= {"priorityClassName": side, "terminationGracePeriodSeconds": 0}
    return body


def low_set(name: str, replicas: int) -> dict[str, Any]:
    """So many low pods that come back when they are evicted."""
    template, labels = pod(name, "low"), {"app": name}
    metadata = {"labels": labels | template["metadata"]["labels"]}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": metadata, "spec": template["spec"]},
    }
    return {"metadata": {"name": name}, "spec": spec}


def _queue(name: str) -> dict[str, Any]:
    spec = {"deserved": DESERVED[name]} if DESERVED[name] else {}
    return {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, "metadata": {"name": name}, "spec": spec}
