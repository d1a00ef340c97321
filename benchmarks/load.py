"""Pods created at once, and the time until the last of them is bound."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from devcluster import Cluster
from devcluster.observe import Observer

CREATORS = 6
NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class PodShape:
    """What each pod of a load asks for, and which scheduler it names."""

    scheduler: str
    limits: dict[str, str]
    prefix: str
    annotations: dict[str, str] = field(default_factory=dict)

    def pod(self, number: int) -> dict[str, Any]:
        """The pod of that number."""
        container = {"name": "main", "image": "none", "resources": {"limits": self.limits}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self.prefix}-{number:05d}", "annotations": self.annotations},
            "spec": {
                "schedulerName": self.scheduler,
                "containers": [container],
                "terminationGracePeriodSeconds": 0,
            },
        }


class BoundCounter:
    """Counts, on a watch of its own, the pods of a prefix that have a node."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self._observer = Observer(cluster.kubeconfig(), f"/api/v1/namespaces/{NAMESPACE}/pods")
        self._prefix = prefix
        self.bound: set[str] = set()
        self.last_monotonic = 0.0
        threading.Thread(target=self._run, name="bound-counter", daemon=True).start()

    def _run(self) -> None:
        for _, pod in self._observer.events():
            name = pod.get("metadata", {}).get("name", "")
            if name.startswith(self._prefix) and pod["spec"].get("nodeName") and name not in self.bound:
                self.bound.add(name)
                self.last_monotonic = time.monotonic()

    def close(self) -> None:
        """End the watch."""
        self._observer.stop.set()


def create(cluster: Cluster, shape: PodShape, count: int) -> None:
    """Create pods 0..count-1 of a shape as fast as the API server takes them."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(lambda number: cluster.api.post(path, shape.pod(number)), range(count)))


def pods_per_second(cluster: Cluster, shape: PodShape, count: int, timeout_seconds: float = 300) -> float:
    """Created-to-all-bound. Raises StartFailed when not all are bound in time. The pods are deleted again."""
    counter = BoundCounter(cluster, shape.prefix)
    started = time.monotonic()
    try:
        create(cluster, shape, count)
        cluster.wait_until(lambda: len(counter.bound) == count, f"{count} bound pods", timeout_seconds)
        return count / (counter.last_monotonic - started)
    finally:
        counter.close()
        delete_all(cluster)


def delete_all(cluster: Cluster) -> None:
    """Delete every pod of the namespace and wait until none is left."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    cluster.api.delete(path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    cluster.wait_until(lambda: not cluster.api.get(f"{path}?limit=1")["items"], "pods to be gone", 120)
