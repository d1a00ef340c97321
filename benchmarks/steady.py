"""Processor time of the whole operator while other people rewrite node annotations, beside a bare watch of nodes.

200 nodes with pods on them, about 100 annotation-only updates a second: seven times the handshake's load.
"""

import sys
import threading
import time
from typing import Any

from benchmarks.load import PodShape, create
from benchmarks.results import Result
from benchmarks.throughput import CARDS, SLOTS, publish
from devcluster import Cluster, NodeShape, Options
from devcluster.operators import OPERATOR, Operators
from devcluster.product import install
from vgpu import names

NODES, PODS = 200, 400
UPDATES_PER_SECOND = 100
SECONDS = 30
WRITERS = 4
WATCHER = "bare-watch"


def run() -> list[Result]:
    """Microseconds of processor time per update."""
    with Cluster(Options(unlimited_requests=True, audit=False, controller_manager=False)) as cluster:
        install(cluster)
        shape = NodeShape(resources={names.VOLCANO_NUMBER: CARDS * SLOTS}, cpu="64", memory="512Gi", pods=250)
        nodes = cluster.create_nodes(NODES, shape)
        publish(cluster, nodes)
        operators = Operators(cluster)
        replica = operators.start()
        operators.wait_serving()
        operators.start_scheduler()
        create(cluster, PodShape(names.SCHEDULER_NAME, {names.VOLCANO_NUMBER: "1"}, "busy"), PODS)
        path = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
        cluster.wait_until(lambda: used(cluster.api.get(path)["items"]) == PODS, "every status", 120)
        command = [sys.executable, "-m", "benchmarks.bare_watch", str(cluster.kubeconfig())]
        cluster.start_process(WATCHER, command)
        recounts = replica.metric("vgpu_recounts_total")
        before = {name: cluster.usage(name).cpu_seconds for name in (OPERATOR, WATCHER)}
        count = rewrite_annotations(cluster, nodes)
        spent = {name: cluster.usage(name).cpu_seconds - before[name] for name in before}
        note = f"{count} updates, {replica.metric('vgpu_recounts_total') - recounts:.0f} recounts"
    ours, reference = (1e6 * spent[name] / count for name in (OPERATOR, WATCHER))
    return [Result("steady-state CPU per node update", ours, reference, "us", note)]


def used(inventories: list[dict[str, Any]]) -> int:
    """Slots that the statuses show as used."""
    return sum(item.get("status", {}).get("totals", {}).get("usedSlots", 0) for item in inventories)


def rewrite_annotations(cluster: Cluster, nodes: list[str]) -> int:
    """Patch annotations at the pace, in some threads; gives how many patches were made."""
    ends = time.monotonic() + SECONDS
    counts = [0] * WRITERS

    def write(writer: int) -> None:
        while time.monotonic() < ends:
            started = time.monotonic()
            node = nodes[(counts[writer] * WRITERS + writer) % len(nodes)]
            stamp = {"hami.io/node-handshake": f"Requesting_{counts[writer]}"}
            cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": stamp}})
            counts[writer] += 1
            time.sleep(max(0.0, WRITERS / UPDATES_PER_SECOND - (time.monotonic() - started)))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)
