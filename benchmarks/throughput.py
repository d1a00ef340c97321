"""Pods per second, created at once to all bound: our scheduler and extender beside a plain kube-scheduler.

All run on the same cluster in the same run, in turn, with the same sampling. The plain pods ask for one piece of
an extended resource that is none of ours. The plain scheduler has our configuration without the extender, so that
its client limits are ours. A third has an extender that decides nothing (bare_extender): what three calls per pod
cost by themselves. Ours talks to the operator directly: the forwarder that stands in for a Service is the
development cluster's, and takes its share of a core for relaying bytes.
"""

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from benchmarks.load import PodShape, pods_per_second
from benchmarks.results import Result
from devcluster import Cluster, NodeShape, Options
from devcluster.operators import Operators, inventory_document
from devcluster.ports import free_ports
from devcluster.product import ROOT, install, scheduler_config
from vgpu import names

CARDS, SLOTS = 8, 10
PLAIN, BARE = "plain-scheduler", "bare-scheduler"
PLAIN_RESOURCE = "plain.example/slot"
SIZES = {20: (100, 500), 200: (100, 1000), 5_000: (5, 1000)}
"""nodes: (percentageOfNodesToScore, pods)."""
ROUNDS = 3


def run() -> list[Result]:
    """Bind throughput at each size."""
    sizes = SIZES.items()
    return [result for nodes, (percentage, pods) in sizes for result in measure(nodes, percentage, pods)]


def measure(nodes: int, percentage: int, pods: int) -> list[Result]:
    """Medians of some rounds: ours, plain, and the bare extender in turn."""
    with Cluster(Options(unlimited_requests=True, audit=False, controller_manager=False)) as cluster:
        shape = NodeShape(
            resources=dict.fromkeys((names.VOLCANO_NUMBER, PLAIN_RESOURCE), CARDS * SLOTS),
            cpu="64",
            memory="512Gi",
            pods=250,
        )
        install(cluster)
        publish(cluster, cluster.create_nodes(nodes, shape))
        operators = Operators(cluster)
        replica = operators.start()
        operators.wait_serving(timeout_seconds=120)
        url = f"https://127.0.0.1:{replica.extender_port}/v1"
        config = scheduler_config(cluster, url, operators.client_files(), percentage_of_nodes=percentage)
        account = cluster.token_for_service_account(names.NAMESPACE, names.SCHEDULER_ACCOUNT)
        cluster.start_scheduler(config, token=account)
        start_beside(cluster, operators, percentage, PLAIN, without_extender)
        start_bare(cluster, operators, percentage)
        found: dict[str, list[float]] = {name: [] for name in (names.SCHEDULER_NAME, PLAIN, BARE)}
        for turn in range(ROUNDS):
            found[names.SCHEDULER_NAME].append(pods_per_second(cluster, our_shape(turn), pods))
            for name in (PLAIN, BARE):
                found[name].append(pods_per_second(cluster, plain_shape(name, turn), pods))
    ours, plain, bare = found.values()
    note = f"{pods} pods, {percentage} % of nodes scored, ours {low_high(ours)}, plain {low_high(plain)}"
    beside = f"an extender that decides nothing beside plain: {median(bare) / median(plain):.2f}"
    return [
        Result(f"bind throughput at {nodes} nodes", median(ours), median(plain), "pods/s", note),
        Result(f"bind throughput at {nodes} nodes, bare extender", median(ours), median(bare), "pods/s", beside),
    ]


def our_shape(turn: int) -> PodShape:
    """A quarter of a card each."""
    limits = {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "10240", names.VOLCANO_CORES: "10"}
    return PodShape(names.SCHEDULER_NAME, limits, f"ours-{turn}")


def plain_shape(scheduler: str, turn: int) -> PodShape:
    """One slot of what is none of ours."""
    return PodShape(scheduler, {PLAIN_RESOURCE: "1"}, f"{scheduler}-{turn}")


def publish(cluster: Cluster, nodes: list[str]) -> None:
    """Create the inventories as an administrator, in parallel."""
    path = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
    cluster.create_all(path, [inventory_document(node, CARDS) for node in nodes])


def start_beside(
    cluster: Cluster,
    operators: Operators,
    percentage: int,
    name: str,
    change: Callable[[dict[str, Any]], None],
    url: str = "https://127.0.0.1:1/v1",
) -> None:
    """Another kube-scheduler: our configuration as `change` leaves it, under another scheduler name."""
    source = scheduler_config(cluster, url, operators.client_files(), percentage_of_nodes=percentage)
    config = yaml.safe_load(source.read_text())
    change(config)
    for profile in config["profiles"]:
        profile["schedulerName"] = name
    path = Path(cluster.site.folder) / f"{name}-config.yaml"
    path.write_text(json.dumps(config))
    cluster.start_scheduler(path, name=name)


def without_extender(config: dict[str, Any]) -> None:
    """A plain kube-scheduler."""
    del config["extenders"]


def for_plain_pods(config: dict[str, Any]) -> None:
    """The extender is asked about the plain pods."""
    config["extenders"][0]["managedResources"] = [{"name": PLAIN_RESOURCE, "ignoredByScheduler": False}]


def start_bare(cluster: Cluster, operators: Operators, percentage: int) -> None:
    """kube-scheduler with the extender that decides nothing, with our certificates and under our account."""
    folder = cluster.site.folder / "bare-extender"
    folder.mkdir()
    secret = f"/api/v1/namespaces/{names.NAMESPACE}/secrets/{names.EXTENDER_TLS_SECRET}"
    for key, value in cluster.api.get(secret)["data"].items():
        (folder / key).write_bytes(base64.b64decode(value))
    server = yaml.safe_load(cluster.kubeconfig().read_text())["clusters"][0]["cluster"]["server"]
    token = cluster.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    (folder / "api.json").write_text(json.dumps({"server": server, "token": token}))
    [port] = free_ports(1)
    arguments = [sys.executable, "-m", "benchmarks.bare_extender", str(folder), str(port)]
    cluster.start_process("bare-extender", arguments, {"PYTHONPATH": str(ROOT)})
    start_beside(cluster, operators, percentage, BARE, for_plain_pods, f"https://127.0.0.1:{port}/v1")


def low_high(figures: list[float]) -> str:
    """The range of some figures."""
    return f"{min(figures):.0f}-{max(figures):.0f}"
