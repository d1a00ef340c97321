"""While nothing changes, nothing is read and nothing is written, however often nodes are annotated."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from devcluster import AuditEvent, Cluster
from devcluster.operators import gpu_pod
from devcluster.product import ROOT
from tests.cluster.stage import USER, Stage, is_ready, shown, slots_shape, staged
from vgpu import names

pytestmark = pytest.mark.cluster
NODES = 20
CARDS = 8
PODS_RUNNING = 60
IDLE_SECONDS = 20.0
UPDATES = 10_000
WRITERS = 12
AGENTS = "vgpu-agent"


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """20 nodes with an agent each, two replicas of the operator, pods that run and one that waits."""
    cluster.clear()
    nodes = cluster.create_nodes(NODES, slots_shape())
    with staged(cluster, []) as stage:
        start_agents(cluster, tmp_path_factory.mktemp("agents") / "nodes.yaml")
        stage.operators.start("operator-1")
        stage.operators.wait_ready("operator-1")
        cluster.wait_until(lambda: all(is_ready_yet(cluster, node) for node in nodes), "every node to be open", 60)
        running = [f"runs-{number:02d}" for number in range(PODS_RUNNING)]
        stage.create(*(gpu_pod(name, memory_mib=8_000) for name in running))
        stage.create(gpu_pod("waits", memory_mib=1_000_000))
        stage.wait_bound(*running)
        stage.wait_told("waits", "InsufficientMemory")
        cluster.wait_until(lambda: stage.used_slots() == PODS_RUNNING, "every inventory to show its holders")
        yield stage
        cluster.end_process("fleet")


def start_agents(cluster: Cluster, nodes_file: Path) -> None:
    document = {"cards": {"count": CARDS}, "nodes": [{"prefix": "node-", "count": NODES}]}
    nodes_file.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "vgpu.agent.fleet", "--kubeconfig", str(cluster.kubeconfig())]
    cluster.start_process("fleet", [*command, "--nodes", str(nodes_file)], {"PYTHONPATH": str(ROOT / "operator")})


def is_ready_yet(cluster: Cluster, node: str) -> bool:
    listed = cluster.api.get(f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}")["items"]
    return node in {item["metadata"]["name"] for item in listed} and is_ready(cluster, node)


def ours(stage: Stage, since: int) -> list[AuditEvent]:
    """Requests of both replicas and of every agent."""
    events = stage.cluster.audit_events(since).events
    return [event for event in events if event.user == USER or event.user_agent.startswith(AGENTS)]


def others(events: list[AuditEvent]) -> list[str]:
    """What is neither a watch that is renewed nor the leader's Lease."""
    lease = ("update", "leases")
    return [shown(event) for event in events if event.verb != "watch" and (event.verb, event.resource) != lease]


def test_an_idle_cluster_costs_nothing_but_watches_and_the_lease(stage: Stage) -> None:
    since = stage.position()
    time.sleep(IDLE_SECONDS)
    events = ours(stage, since)
    assert others(events) == []
    beats = Counter(event.user_agent for event in events if event.resource == "leases" and event.verb == "update")
    assert sum(beats.values()) >= 2
    assert stage.operators.leader() is not None


def test_what_is_counted_as_idle_would_show_a_change(stage: Stage) -> None:
    """The check above can fail: one pod more is a Binding and a status of its node, and of its queue."""
    since = stage.position()
    stage.create(gpu_pod("one-more"))
    stage.wait_bound("one-more")
    stage.cluster.wait_until(lambda: stage.used_slots() == PODS_RUNNING + 1, "the inventory to show the pod")
    verbs = {entry.split()[0] + " " + entry.split()[1] for entry in others(ours(stage, since))}
    assert verbs - {"patch gpuqueues/status"} == {"create pods/binding", "patch gpunodeinventories/status"}


@pytest.mark.timeout(400)
def test_ten_thousand_annotation_only_updates_cost_no_recount_and_no_write(stage: Stage) -> None:
    """kube-scheduler asks about the waiting pod at every update that it sees; that changes nothing either."""
    recounts = counted(stage)
    since = stage.position()

    def annotate(number: int) -> None:
        patch = {"metadata": {"annotations": {"example.com/handshake": f"Requesting_{number}"}}}
        stage.cluster.api.patch(f"/api/v1/nodes/node-{number % NODES:04d}", patch)

    with ThreadPoolExecutor(WRITERS) as pool:
        assert len(list(pool.map(annotate, range(UPDATES)))) == UPDATES
    # One change at the end of the same watch shows that all updates before it were folded.
    assert counted(stage) == recounts
    assert others(ours(stage, since)) == []
    stage.cluster.set_allocatable("node-0000", names.VOLCANO_NUMBER, 79)
    stage.cluster.wait_until(lambda: counted(stage) != recounts, "the one change to be counted")
    assert {name: now - recounts[name] for name, now in counted(stage).items()} == dict.fromkeys(recounts, 1)


def counted(stage: Stage) -> dict[str, float]:
    """Node views recomputed so far, per replica."""
    return {name: replica.metric("vgpu_recounts_total") for name, replica in stage.operators.replicas.items()}
