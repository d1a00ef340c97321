"""A fleet of agents on a real API server: publishes once, writes nothing while nothing changes, heals."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import ApiRefused, Cluster, NodeShape, product
from vgpu import names
from vgpu.agent.publisher import INVENTORIES_PATH

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
WRITES = {"create", "update", "patch", "delete"}
SHAPE = NodeShape(resources={"volcano.sh/vgpu-number": 80})

Start = Callable[..., "FleetProcess"]


class FleetProcess:
    """A fleet that runs as a process of its own, and the file that says what it simulates."""

    def __init__(self, cluster: Cluster, nodes_file: Path, *options: str, token: str | None = None) -> None:
        self.cluster, self.nodes_file = cluster, nodes_file
        command = [sys.executable, "-m", "vgpu.agent.fleet", "--kubeconfig", str(cluster.kubeconfig(token))]
        cluster.start_process(
            "fleet", [*command, "--nodes", str(nodes_file), *options], {"PYTHONPATH": str(ROOT / "operator")}
        )

    def change(self, document: dict[str, Any]) -> None:
        self.nodes_file.write_text(yaml.safe_dump(document))
        os.kill(self.cluster.processes["fleet"].pid, signal.SIGHUP)


@pytest.fixture
def start(clean_cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    product.prepare(clean_cluster)

    def start(document: dict[str, Any], *options: str, token: str | None = None) -> FleetProcess:
        nodes_file = tmp_path / "nodes.yaml"
        nodes_file.write_text(yaml.safe_dump(document))
        return FleetProcess(clean_cluster, nodes_file, *options, token=token)

    yield start
    if "fleet" in clean_cluster.processes:
        clean_cluster.end_process("fleet")


def inventories(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in cluster.api.get(INVENTORIES_PATH)["items"]}


def writes(cluster: Cluster, since: int) -> list[tuple[str, str]]:
    """What the fleet wrote since then: (verb, name)."""
    events = cluster.audit_events(since=since).events
    return [(e.verb, e.name) for e in events if e.verb in WRITES and e.user_agent.startswith("vgpu-agent")]


def test_200_agents_publish_200_inventories_and_then_write_nothing(clean_cluster: Cluster, start: Start) -> None:
    cluster = clean_cluster
    nodes = cluster.create_nodes(200, SHAPE)
    before = cluster.audit_events().position
    document: dict[str, Any] = {"cards": {"count": 8}, "nodes": [{"prefix": "node-", "count": 200}]}
    fleet = start(document, "--shared-watch")
    cluster.wait_until(lambda: len(inventories(cluster)) == 200, "200 inventories", timeout_seconds=60)
    assert sorted(inventories(cluster)) == sorted(nodes)
    uids = {gpu["uuid"] for item in inventories(cluster).values() for gpu in item["spec"]["gpus"]}
    assert len(uids) == 1600
    assert len(writes(cluster, before)) == 200

    # Noise that must cause nothing, then one change, whose arrival shows that the noise is behind us.
    since = cluster.audit_events().position
    for name in nodes[:20]:
        cluster.kubectl("annotate", "node", name, "noise=1")
    status = {"status": {"conditions": []}}
    cluster.kubectl("patch", "gni", nodes[1], "--subresource=status", "--type=merge", "-p", json.dumps(status))
    document["nodes"].append({"name": nodes[0], "cards": {"count": 4}})
    fleet.change(document)
    cluster.wait_until(lambda: len(inventories(cluster)[nodes[0]]["spec"]["gpus"]) == 4, "the one change")
    assert writes(cluster, since) == [("patch", nodes[0])]

    before_healing = inventories(cluster)
    cluster.kubectl("delete", "gni", nodes[2])
    change = {"spec": before_healing[nodes[3]]["spec"] | {"gpus": [], "readError": "made up"}}
    cluster.kubectl("patch", "gni", nodes[3], "--type=merge", "-p", json.dumps(change))
    cluster.wait_until(
        lambda: all(
            inventories(cluster).get(name, {}).get("spec") == before_healing[name]["spec"] for name in nodes[2:4]
        ),
        "both healed",
    )
    healed = inventories(cluster)[nodes[2]]
    node_uid = cluster.api.get(f"/api/v1/nodes/{nodes[2]}")["metadata"]["uid"]
    assert [owner["uid"] for owner in healed["metadata"]["ownerReferences"]] == [node_uid]


def test_agents_with_watches_of_their_own_and_a_lost_card(clean_cluster: Cluster, start: Start) -> None:
    cluster = clean_cluster
    cluster.create_nodes(3, SHAPE)
    document: dict[str, Any] = {"cards": {"count": 8}, "nodes": [{"prefix": "node-", "count": 3}]}
    fleet = start(document)
    cluster.wait_until(lambda: len(inventories(cluster)) == 3, "3 inventories")

    broken = {"readError": "driver not loaded", "cards": {"count": 8}}
    fleet.change({**document, "nodes": [*document["nodes"], {"name": "node-0001", "document": broken}]})
    cluster.wait_until(lambda: "readError" in inventories(cluster)["node-0001"]["spec"], "read error")
    assert len(inventories(cluster)["node-0001"]["spec"]["gpus"]) == 8

    fleet.change(document)
    cluster.wait_until(lambda: "readError" not in inventories(cluster)["node-0001"]["spec"], "read again")


def test_r34_a_fleet_that_starts_again_writes_nothing(clean_cluster: Cluster, start: Start) -> None:
    cluster = clean_cluster
    cluster.create_nodes(5, SHAPE)
    document: dict[str, Any] = {"cards": {"count": 2}, "nodes": [{"prefix": "node-", "count": 4}]}
    start(document, "--shared-watch")
    cluster.wait_until(lambda: len(inventories(cluster)) == 4, "4 inventories")
    cluster.end_process("fleet")

    since = cluster.audit_events().position
    document["nodes"] = [{"prefix": "node-", "count": 5}]
    start(document, "--shared-watch")
    cluster.wait_until(lambda: len(inventories(cluster)) == 5, "the fifth")
    assert writes(cluster, since) == [("patch", "node-0004")]


def test_no_inventory_without_its_node_and_it_goes_with_its_node(clean_cluster: Cluster, start: Start) -> None:
    cluster = clean_cluster
    cluster.create_nodes(1, SHAPE)
    start({"nodes": [{"prefix": "node-", "count": 2}]})
    cluster.wait_until(lambda: "node-0000" in inventories(cluster), "inventory of the node that is there")
    assert "node-0001" not in inventories(cluster)
    cluster.create_nodes(1, SHAPE, first=1)
    cluster.wait_until(lambda: "node-0001" in inventories(cluster), "inventory of the late node")
    cluster.kubectl("delete", "node", "node-0001")
    cluster.wait_until(lambda: "node-0001" not in inventories(cluster), "collected with its node")


def agent_token(cluster: Cluster, node: str) -> str:
    """The token of an agent's pod on this node."""
    pod = {
        "metadata": {"name": f"agent-{node}"},
        "spec": {
            "serviceAccountName": names.AGENT_ACCOUNT,
            "nodeName": node,
            "containers": [{"name": "agent", "image": "none"}],
        },
    }
    cluster.api.post(f"/api/v1/namespaces/{names.NAMESPACE}/pods", pod)
    return cluster.token_for_service_account(names.NAMESPACE, names.AGENT_ACCOUNT, f"agent-{node}")


def test_agents_work_under_their_own_accounts_and_rights(
    clean_cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    cluster = clean_cluster
    product.install(cluster)
    nodes = cluster.create_nodes(3, SHAPE)
    entries = []
    for node in nodes:
        token_file = tmp_path / node
        # The last agent shows the token of another node's agent: it must not get through.
        token_file.write_text(
            agent_token(cluster, node) if node != nodes[2] else (tmp_path / nodes[0]).read_text()
        )
        entries.append({"name": node, "tokenFile": str(token_file)})
    since = cluster.audit_events().position
    start({"nodes": entries}, token=(tmp_path / nodes[0]).read_text())

    def refused() -> bool:
        events = cluster.audit_events(since=since).events
        return any(event.name == nodes[2] and event.code in (403, 422) for event in events)

    cluster.wait_until(
        lambda: sorted(inventories(cluster)) == nodes[:2] and refused(), "two published, one refused"
    )
    cluster.kubectl("delete", "gni", nodes[1])
    cluster.wait_until(lambda: nodes[1] in inventories(cluster), "healed under the agent's own rights")
    assert nodes[2] not in inventories(cluster)


def test_an_apply_that_names_a_uid_never_creates(clean_cluster: Cluster) -> None:
    """What the publisher relies on: its update of an object that was just deleted does not bring it back."""
    product.prepare(clean_cluster)
    spec = {"slotResource": names.VOLCANO_NUMBER, "identity": "exact", "plugin": "vgpu", "gpus": []}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.INVENTORY_KIND,
        "metadata": {"name": "gone", "uid": "7d0a5fd5-3a0e-4d0c-9b3e-8f2f6b1d7c55"},
        "spec": spec,
    }
    path = f"{INVENTORIES_PATH}/gone?fieldManager={names.AGENT_FIELD_MANAGER}&force=true"
    with pytest.raises(ApiRefused) as caught:
        clean_cluster.api.request("PATCH", path, body, "application/apply-patch+yaml")
    assert caught.value.code == 409
    assert inventories(clean_cluster) == {}
