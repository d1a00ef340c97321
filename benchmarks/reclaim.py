"""What preemption adds to the time that binding takes anyway, on a real control plane.

Freed card to bound: from the moment a victim is gone to the moment the pod is bound that it went for, beside a
plain pod's creation to bound. Recovery: 200 pods were evicted for others; from the deletion of those to the last
of the 200 bound again, beside 200 plain pods created at once. Both references are of the same run.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from benchmarks.results import Result
from devcluster import Cluster, NodeShape, Options
from devcluster.observe import Observer
from devcluster.operators import Operators, gpu_pod, publish_inventories, start_product, stop_product
from vgpu import names

CARDS, NODES = 8, 25
REPETITIONS = 20
PODS = "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
PATIENCE_SECONDS = 180.0


class Sightings:
    """When, on a watch of its own, each pod was first seen bound, and seen gone (monotonic seconds, by name)."""

    def __init__(self, cluster: Cluster) -> None:
        self.bound: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self._observer = Observer(cluster.kubeconfig(), PODS)
        threading.Thread(target=self._run, name="sightings", daemon=True).start()

    def _run(self) -> None:
        for kind, pod in self._observer.events():
            name = pod.get("metadata", {}).get("name", "")
            if kind == "DELETED":
                self.gone.setdefault(name, time.monotonic())
            elif pod.get("spec", {}).get("nodeName"):
                self.bound.setdefault(name, time.monotonic())

    def standing(self, prefix: str) -> list[str]:
        """Pods of this prefix that are bound and not gone."""
        return [name for name in list(self.bound) if name.startswith(prefix) and name not in self.gone]

    def close(self) -> None:
        """End the watch."""
        self._observer.stop.set()


def run() -> list[Result]:
    """Both figures."""
    with scene() as (operators, sightings):
        return [freed_card(operators, sightings), recovery(operators, sightings)]


@contextmanager
def scene() -> Iterator[tuple[Operators, Sightings]]:
    """25 empty nodes of 8 cards, two classes, and the product."""
    with Cluster(Options()) as cluster:
        nodes = cluster.create_nodes(NODES, NodeShape(resources={names.VOLCANO_NUMBER: 10 * CARDS}))
        operators = start_product(cluster)
        publish_inventories(cluster, nodes, CARDS)
        for name, value in (("low", 10), ("high", 100)):
            cluster.api.post(CLASSES, {"metadata": {"name": name}, "value": value})
        sightings = Sightings(cluster)
        try:
            yield operators, sightings
        finally:
            sightings.close()
            stop_product(operators)


def freed_card(operators: Operators, sightings: Sightings) -> Result:
    """Victim gone to preemptor bound, on a cluster that is full; and plain pods, while one card is free."""
    cluster = operators.cluster
    cluster.api.post(SETS, low_set(NODES * CARDS - 1))
    wait(operators, lambda: len(sightings.standing("low-")) == NODES * CARDS - 1, "the low pods to be bound")
    plain = [_plain(operators, sightings, f"plain-{number}") for number in range(REPETITIONS)]
    cluster.kubectl("scale", "replicaset", "low", f"--replicas={NODES * CARDS}")
    wait(operators, lambda: len(sightings.standing("low-")) == NODES * CARDS, "the cluster to be full")
    freed = [_preempting(operators, sightings, f"high-{number}") for number in range(REPETITIONS)]
    note = f"slowest {max(freed):.2f} s of {REPETITIONS}"
    return Result("freed card to bound", median(freed), median(plain), "s", note)


def recovery(operators: Operators, sightings: Sightings) -> Result:
    """All 200 low pods go for 25 pods of 8 cards, and come back; then as many plain pods on the empty cluster."""
    cluster, count = operators.cluster, NODES * CARDS
    wait(operators, lambda: len(sightings.standing("low-")) == count, "the cluster to be full")
    before = set(sightings.standing("low-"))
    for number in range(NODES):
        cluster.api.post(PODS, pod(f"large-{number}", "high", CARDS))
    wait(operators, lambda: len(sightings.standing("large-")) == NODES, "the large pods to be bound")
    assert before <= sightings.gone.keys()
    started = time.monotonic()
    for number in range(NODES):
        cluster.api.delete(f"{PODS}/large-{number}", AT_ONCE)
    wait(operators, lambda: len(sightings.standing("low-")) == count, "all evicted pods to be back")
    taken = max(sightings.bound[name] for name in sightings.standing("low-")) - started
    cluster.api.delete(f"{SETS}/low", AT_ONCE)
    wait(operators, lambda: not sightings.standing("low-"), "the low pods to be gone")
    started = time.monotonic()
    for number in range(count):
        cluster.api.post(PODS, pod(f"plain-again-{number}", "low"))
    wait(operators, lambda: len(sightings.standing("plain-again-")) == count, "the plain pods to be bound")
    plain = max(sightings.bound[name] for name in sightings.standing("plain-again-")) - started
    return Result("recovery of 200", taken, plain, "s", f"{NODES} pods of {CARDS} cards had taken all")


def pod(name: str, class_name: str, cards: int = 1) -> dict[str, Any]:
    """A pod of whole cards."""
    body = gpu_pod(name, memory_mib=None, number=cards)
    body["spec"] |= {"priorityClassName": class_name, "terminationGracePeriodSeconds": 0}
    return body


def low_set(replicas: int) -> dict[str, Any]:
    """So many low pods that come back when they are evicted."""
    template = pod("low", "low")
    template = {"metadata": {"labels": {"app": "low"}}, "spec": template["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "low"}}, "template": template}
    return {"metadata": {"name": "low"}, "spec": spec}


def wait(operators: Operators, condition: Callable[[], bool], what: str) -> None:
    """Wait, or raise StartFailed after a few minutes."""
    operators.cluster.wait_until(condition, what, PATIENCE_SECONDS)


def _plain(operators: Operators, sightings: Sightings, name: str) -> float:
    """Creation to bound of a pod for which there is room; it is deleted again."""
    started = time.monotonic()
    operators.cluster.api.post(PODS, pod(name, "low"))
    wait(operators, lambda: name in sightings.bound, f"{name} to be bound")
    operators.cluster.api.delete(f"{PODS}/{name}", AT_ONCE)
    wait(operators, lambda: name in sightings.gone, f"{name} to be gone")
    return sightings.bound[name] - started


def _preempting(operators: Operators, sightings: Sightings, name: str) -> float:
    """The one victim gone to the pod bound; the pod is deleted again, and the victim's successor bound."""
    before = set(sightings.standing("low-"))
    operators.cluster.api.post(PODS, pod(name, "high"))
    wait(operators, lambda: name in sightings.bound, f"{name} to be bound")
    [victim] = before & sightings.gone.keys()
    operators.cluster.api.delete(f"{PODS}/{name}", AT_ONCE)
    wait(operators, lambda: len(sightings.standing("low-")) == len(before), "the evicted pod to be back")
    return sightings.bound[name] - sightings.gone[victim]
