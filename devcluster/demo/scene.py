"""What the chapters act on: the cluster, the operator's two replicas, the agents, and what the API server says.

Enters: a running cluster. Leaves: the product at work on it. May not live here: what is told.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from devcluster.cluster import Cluster
from devcluster.demo import traffic
from devcluster.demo.agents import CARDS, SLOTS_PER_CARD, Agents
from devcluster.demo.stage import Stage
from devcluster.errors import DevclusterError
from devcluster.nodes import NodeShape
from devcluster.operators import Operators, Replica
from devcluster.product import install
from vgpu import names

GROUPS = {"volcano-": (12, names.VOLCANO_NUMBER), "hami-": (8, names.HAMI_NUMBER)}
PODS = "/api/v1/namespaces/default/pods"
INVENTORIES = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
PARALLEL_REQUESTS = 8
OK = 200
REPLICAS = ("operator-0", "operator-1")


@dataclass(frozen=True, slots=True)
class Scene:
    """The product at work. `slot_resources` is the resource of each node, by node."""

    cluster: Cluster
    operators: Operators
    agents: Agents
    slot_resources: Mapping[str, str]

    @property
    def nodes(self) -> list[str]:
        """Every node with cards."""
        return list(self.slot_resources)

    @property
    def leader(self) -> Replica:
        """The replica that was started first and leads."""
        return self.operators.replicas[REPLICAS[0]]

    def ask_leader(self, path: str) -> str:
        """A page of the leader's HTTP. Raises DevclusterError when it is not answered with 200."""
        status, text = self.leader.get(path)
        if status != OK:
            raise DevclusterError(f"{path} was answered {status}: {' '.join(text.split())[:200]}")
        return text

    def explain(self, name: str) -> dict[str, Any]:
        """The leader's full answer about a pod."""
        answer: dict[str, Any] = json.loads(self.ask_leader(f"/explain?pod=default/{name}"))
        return answer

    def inventories(self) -> list[dict[str, Any]]:
        """Every inventory."""
        items: list[dict[str, Any]] = self.cluster.api.get(INVENTORIES)["items"]
        return items

    def pods(self) -> list[dict[str, Any]]:
        """The users' pods."""
        items: list[dict[str, Any]] = self.cluster.api.get(PODS)["items"]
        return items

    def pod(self, name: str) -> dict[str, Any]:
        """One of them. Raises ApiRefused."""
        return self.cluster.api.get(f"{PODS}/{name}")

    def node_of(self, name: str) -> str:
        """Where a pod is bound to, empty while it waits."""
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def create(self, pods: Sequence[Mapping[str, Any]]) -> None:
        """Create pods at once. Raises ApiRefused."""
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            for _ in pool.map(lambda pod: self.cluster.api.post(PODS, dict(pod)), pods):
                pass

    def events_of(self, name: str) -> list[dict[str, Any]]:
        """The operator's events about a pod."""
        items = self.cluster.api.get("/api/v1/namespaces/default/events")["items"]
        return [
            item
            for item in items
            if item["involvedObject"]["name"] == name
            and item.get("source", {}).get("component") == names.OPERATOR_FIELD_MANAGER
        ]

    def is_ready(self, inventory: Mapping[str, Any]) -> bool:
        """Whether an inventory's Ready condition is true."""
        conditions = inventory.get("status", {}).get("conditions", [])
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def get_table(self, nodes: Sequence[str] = ()) -> str:
        """kubectl's own table of the inventories."""
        return self.cluster.kubectl("get", "gpunodeinventory", *nodes)

    def settle(self, stage: Stage, quiet_seconds: float) -> None:
        """Wait until nothing but watches and the Lease was asked for by us for so long."""
        position = self.cluster.audit_events().position
        polls = [0]

        def quiet() -> bool:
            nonlocal position
            found = self.cluster.audit_events(position)
            position = found.position
            busy = any(asked.ours and not asked.routine for asked in traffic.count(found.events))
            polls[0] = 0 if busy else polls[0] + 1
            return polls[0] * 0.25 >= quiet_seconds

        stage.wait(quiet, "the last writes of what went before")


def open_scene(cluster: Cluster, stage: Stage) -> Scene:
    """Install the product and start everything; comes back when pods can be placed."""
    with stage.working("installing the product") as progress:
        install(cluster)
        progress.step("CRDs, rights and policies are in force")
        operators = Operators(cluster)
        for name in REPLICAS:
            operators.start(name)
            operators.wait_ready(name) if name != REPLICAS[0] else operators.wait_serving(name)
        progress.step("two replicas of the operator run")
        operators.start_scheduler()
        progress.step("kube-scheduler runs")
        slot_resources: dict[str, str] = {}
        for prefix, (count, resource) in GROUPS.items():
            shape = NodeShape(resources={resource: CARDS * SLOTS_PER_CARD})
            slot_resources |= dict.fromkeys(cluster.create_nodes(count, shape, prefix=prefix), resource)
        agents = Agents(cluster, slot_resources)
        agents.start()
    return Scene(cluster, operators, agents, slot_resources)
