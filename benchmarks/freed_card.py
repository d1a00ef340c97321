"""A pod that one card of 1,000 nodes can take, while kube-scheduler looks at a tenth of the nodes at a time.

Every node has slots free, and on all cards but one the memory is taken. When kube-scheduler's sample holds the one
node, the pod is bound as any other; when it does not, the operator nominates the node. The figure is the time from
creation to bound of the latter beside that of the former, in the same run.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.load import BoundCounter
from benchmarks.results import Result
from devcluster import HOLD_ANNOTATION, Cluster, NodeShape, Options
from devcluster.operators import Operators, gpu_pod, inventory_document, stop_product
from devcluster.product import install
from vgpu import names

NODES = 1_000
PERCENTAGE_OF_NODES = 10
REPETITIONS = 20
TARGET = "node-0617"
SLOTS = 10
CARD_MIB = 40_960
FILLED_MIB = 40_000
WANTED_MIB = 8_192
WRITERS = 8
PODS = "/api/v1/namespaces/default/pods"
INVENTORIES = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
OPERATOR_USER = f"system:serviceaccount:{names.NAMESPACE}:{names.OPERATOR_ACCOUNT}"
ANSWERED = re.compile(r"filter pod=default/(?P<pod>\S+) names=(?P<names>\d+) nodes=(?P<nodes>\d+)")


@dataclass(frozen=True, slots=True)
class Repetition:
    """One pod. `samples`: how many nodes filter was asked about and how many of them fit, attempt by attempt."""

    pod: str
    node: str
    seconds: float
    samples: tuple[tuple[int, int], ...]
    nominations: int

    @property
    def held(self) -> bool:
        """A sample held the node. A nominated pod is asked about on its node alone, which is no sample."""
        return any(asked > 1 and fitting for asked, fitting in self.samples)


@contextmanager
def scenario(cluster: Cluster) -> Iterator[Operators]:
    """The nodes, their cards, what fills them, and the product. The cluster must be clean; it is left clean."""
    nodes = cluster.create_nodes(NODES, NodeShape(resources={names.VOLCANO_NUMBER: SLOTS}))
    install(cluster)
    operators = Operators(cluster, {"VGPU_LOG_LEVEL": "DEBUG"})
    try:
        documents = [
            (INVENTORIES, inventory_document(node, 1, memory_mib=CARD_MIB, slots=SLOTS)) for node in nodes
        ]
        fillers = [(PODS, filler(node)) for node in nodes if node != TARGET]
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda item: cluster.api.post(*item), [*documents, *fillers]))
        operators.start()
        operators.wait_serving()
        operators.start_scheduler(percentage_of_nodes=PERCENTAGE_OF_NODES)
        yield operators
    finally:
        stop_product(operators)
        cluster.clear()


def filler(node: str) -> dict[str, Any]:
    """A pod of Volcano's that runs on `node` and leaves too little memory on its one card."""
    pod = gpu_pod(f"filler-{node}", memory_mib=FILLED_MIB)
    pod["metadata"]["annotations"] = {
        names.VOLCANO_NODE: node,
        names.VOLCANO_IDS: f"GPU-{node}-0,NVIDIA,{FILLED_MIB},0:",
        HOLD_ANNOTATION: "true",
    }
    pod["spec"]["nodeName"] = node
    pod["spec"]["schedulerName"] = "volcano"
    return pod


def repeat(operators: Operators, count: int = REPETITIONS) -> list[Repetition]:
    """Create, await and delete `count` pods, one after the other."""
    cluster = operators.cluster
    since = cluster.audit_events().position
    rows: list[tuple[str, str, float]] = []
    counter = BoundCounter(cluster, "wanting-")
    try:
        for number in range(count):
            await_free(operators)
            rows.append(create_one(cluster, counter, f"wanting-{number:02d}"))
    finally:
        counter.close()
    samples = answers(operators.log())
    events = cluster.audit_events(since).events
    written = Counter(
        event.name
        for event in events
        if event.user == OPERATOR_USER and (event.verb, event.subresource) == ("patch", "status")
    )
    return [Repetition(pod, node, took, samples[pod], written[pod]) for pod, node, took in rows]


def create_one(cluster: Cluster, counter: BoundCounter, name: str) -> tuple[str, str, float]:
    """Name, node and seconds from creation to bound of one pod, which is deleted again."""
    started = time.monotonic()
    cluster.api.post(PODS, gpu_pod(name, memory_mib=WANTED_MIB))
    cluster.wait_until(lambda: name in counter.bound, f"{name} to be bound", 60)
    node = str(cluster.api.get(f"{PODS}/{name}")["spec"]["nodeName"])
    cluster.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    return name, node, counter.last_monotonic - started


def await_free(operators: Operators) -> None:
    """Wait until the operator counts nothing on the one card."""
    [replica] = operators.replicas.values()
    free = re.compile(rf'^vgpu_card_slots_used{{node="{TARGET}",uuid="GPU-{TARGET}-0"}} 0(\.0)?$', re.MULTILINE)
    operators.cluster.wait_until(lambda: bool(free.search(replica.get("/metrics")[1])), f"{TARGET} to be free")


def answers(log: str) -> dict[str, tuple[tuple[int, int], ...]]:
    """Filter's answers by pod, in order: names that were sent, names that fit."""
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for line in ANSWERED.finditer(log):
        found[line["pod"]] = (*found.get(line["pod"], ()), (int(line["names"]), int(line["nodes"])))
    return found


def run() -> list[Result]:
    """Median seconds to bound of pods whose card was outside every sample, beside those whose was inside one."""
    with Cluster(Options()) as cluster, scenario(cluster) as operators:
        rows = repeat(operators)
    outside = [row.seconds for row in rows if not row.held]
    inside = [row.seconds for row in rows if row.held]
    note = f"{len(outside)} of {len(rows)} outside the sample, slowest {max(row.seconds for row in rows):.2f} s"
    return [Result("freed-card-outside-sample", median(outside), median(inside), "s", note)]
