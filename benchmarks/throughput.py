"""Pods per second, created at once to all bound: our scheduler and extender beside a plain kube-scheduler.

Both run on the same cluster in the same run, in turn, with the same sampling. The plain pods ask for one piece of
an extended resource that is none of ours. The plain scheduler has our configuration without the extender, so that
its client limits are ours. Ours talks to the operator directly: the forwarder that stands in for a Service is the
development cluster's, and takes its share of a core for relaying bytes.
"""

import json
from pathlib import Path
from statistics import median

import yaml

from benchmarks.load import PodShape, pods_per_second
from benchmarks.results import Result
from devcluster import Cluster, NodeShape, Options
from devcluster.operators import Operators, inventory_document
from devcluster.product import install, scheduler_config
from vgpu import names

CARDS, SLOTS = 8, 10
PLAIN = "plain-scheduler"
PLAIN_RESOURCE = "plain.example/slot"
SIZES = {20: (100, 500), 200: (100, 1000), 5_000: (5, 1000)}
"""nodes: (percentageOfNodesToScore, pods)."""
ROUNDS = 3


def run() -> list[Result]:
    """Bind throughput at each size."""
    return [measure(nodes, percentage, pods) for nodes, (percentage, pods) in SIZES.items()]


def measure(nodes: int, percentage: int, pods: int) -> Result:
    """Medians of some rounds, ours and plain in turn."""
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
        start_plain_scheduler(cluster, operators, percentage)
        ours, plain = [], []
        for turn in range(ROUNDS):
            ours.append(pods_per_second(cluster, our_shape(turn), pods))
            plain.append(pods_per_second(cluster, plain_shape(turn), pods))
        note = f"{pods} pods, {percentage} % of nodes scored, ours {low_high(ours)}, plain {low_high(plain)}"
    return Result(f"bind throughput at {nodes} nodes", median(ours), median(plain), "pods/s", note)


def our_shape(turn: int) -> PodShape:
    """A quarter of a card each."""
    limits = {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "10240", names.VOLCANO_CORES: "10"}
    return PodShape(names.SCHEDULER_NAME, limits, f"ours-{turn}")


def plain_shape(turn: int) -> PodShape:
    """One slot, and a scheduler that knows no extender."""
    return PodShape(PLAIN, {PLAIN_RESOURCE: "1"}, f"plain-{turn}")


def publish(cluster: Cluster, nodes: list[str]) -> None:
    """Create the inventories as an administrator, in parallel."""
    path = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
    cluster.create_all(path, [inventory_document(node, CARDS) for node in nodes])


def start_plain_scheduler(cluster: Cluster, operators: Operators, percentage: int) -> None:
    """A second kube-scheduler: our configuration without extenders, under another scheduler name."""
    source = scheduler_config(
        cluster, "https://127.0.0.1:1/v1", operators.client_files(), percentage_of_nodes=percentage
    )
    config = yaml.safe_load(source.read_text())
    del config["extenders"]
    for profile in config["profiles"]:
        profile["schedulerName"] = PLAIN
    path = Path(cluster.site.folder) / "plain-scheduler-config.yaml"
    path.write_text(json.dumps(config))
    cluster.start_scheduler(path, name=PLAIN)


def low_high(figures: list[float]) -> str:
    """The range of some figures."""
    return f"{min(figures):.0f}-{max(figures):.0f}"
