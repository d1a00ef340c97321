"""Many mixed pods on 20 simulated nodes, an operator that can be hurt, and the checks that must hold afterwards.

Enters: a cluster. Leaves: nodes of both presets with inventories published by real agents' code, the operator
behind a proxy that fails on purpose, kube-scheduler; `settle`, which waits for the end of a scenario and checks
it. May not live here: scenarios, pods.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import yaml

from devcluster import ApiRefused, Cluster, NodeShape
from devcluster.faults import FaultProxy
from devcluster.operators import OPERATOR, Operators, publish_inventories, stop_product
from devcluster.product import ROOT, install
from devcluster.waiting import wait_until
from tests.cluster.bindings import Uids, count_bindings, judge_bindings
from tests.cluster.judge import Judge, Limits
from vgpu import names

PRESETS = (("volcano-", names.VOLCANO_NUMBER), ("hami-", names.HAMI_NUMBER))
"""Prefix of the nodes' names, and the slot resource that they advertise."""
NODES_PER_PRESET = 10
CARDS = 8
LIMITS = Limits(memory_mib=40_960, slots=10)
PODS = "/api/v1/namespaces/default/pods"
INVENTORIES = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
LEASE = f"{LEASES}/{names.LEASE_NAME}"
USER = f"system:serviceaccount:{names.NAMESPACE}:{names.OPERATOR_ACCOUNT}"
QUICK = {
    "VGPU_EVENT_SETTLE_SECONDS": "0.2",
    "VGPU_STATUS_INTERVAL_SECONDS": "0.2",
    "VGPU_STATUS_WRITES_PER_SECOND": "100",
}
PARALLEL_REQUESTS = 8
LOOK_SECONDS = 0.2
"""Between two looks that read a whole collection."""
SETTLE_SECONDS = 180.0

Json = dict[str, Any]


@dataclass(slots=True)
class World:
    """A running product to be hurt."""

    cluster: Cluster
    operators: Operators
    proxy: FaultProxy
    nodes: list[str]
    uuids_of_node: dict[str, set[str]] = field(default_factory=dict)

    @contextmanager
    def judged(self) -> Iterator["Case"]:
        """One scenario: everything from here on is judged; afterwards no pods, no faults, one operator."""
        since = self.cluster.audit_events().position
        try:
            with Judge(self.cluster, LIMITS, self.uuids_of_node) as judge:
                yield Case(self, judge, since)
        finally:
            self.proxy.rules.clear()
            self.proxy.speak()
            self.proxy.release()
            self.ensure_operator()
            self._remove_pods()

    def crash(self, name: str = OPERATOR) -> None:
        """End a replica with SIGKILL; may be called from any thread. `revive` makes up for it."""
        self.cluster.processes[name].kill()

    def revive(self, name: str = OPERATOR, **settings: str) -> None:
        """Start a replica that has ended. Its Lease is given back for it: waiting it out is another test's."""
        if name in self.cluster.processes:
            self.cluster.end_process(name)
        self.operators.replicas.pop(name, None)
        if self.cluster.api.get(LEASES)["items"]:
            self.cluster.api.patch(LEASE, {"spec": {"holderIdentity": ""}})
        self.operators.start(name, **settings)

    @contextmanager
    def spare_node(self, cards: int) -> Iterator[str]:
        """A node of the volcano preset with so many cards (CARDS at most) that no agent looks after."""
        [name] = self.cluster.create_nodes(1, node_shape(names.VOLCANO_NUMBER), prefix="spare-")
        publish_inventories(self.cluster, [name], cards)
        self.nodes.append(name)
        self.uuids_of_node[name] = {f"GPU-{name}-{index}" for index in range(CARDS)}
        try:
            yield name
        finally:
            for path in (f"/api/v1/nodes/{name}", f"{INVENTORIES}/{name}"):
                with suppress(ApiRefused):  # a test may have deleted it
                    self.cluster.api.delete(path)
            self.nodes.remove(name)

    def ensure_operator(self) -> None:
        """See to it that one replica serves."""
        if not any(self.cluster.processes[name].alive() for name in self.operators.replicas):
            self.revive()
        self.cluster.wait_until(lambda: self.operators.leader() is not None, "a replica to lead", SETTLE_SECONDS)

    def _remove_pods(self) -> None:
        self.cluster.api.delete(PODS, {"gracePeriodSeconds": 0})
        wait_until(lambda: not self.cluster.api.get(f"{PODS}?limit=1")["items"], "all pods to be gone", 60)


@dataclass(slots=True)
class Case:
    """One scenario, and how it is judged."""

    world: World
    judge: Judge
    since: int

    def create(self, pods: Sequence[Json]) -> dict[str, str]:
        """Create pods, many at once; hands back their uids by name."""
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            made = list(pool.map(lambda pod: self.world.cluster.api.post(PODS, pod), pods))
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in made}

    def delete(self, pod_names: Iterable[str]) -> None:
        """Delete pods at once, and wait until they are gone."""
        wanted = set(pod_names)
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            paths = [f"{PODS}/{name}" for name in wanted]
            list(pool.map(lambda path: self.world.cluster.api.delete(path, {"gracePeriodSeconds": 0}), paths))
        wait_until(lambda: not wanted & set(self.pods()), f"{len(wanted)} pods to be gone", 30, LOOK_SECONDS)

    def pods(self) -> dict[str, Json]:
        """All pods now, by name."""
        return {pod["metadata"]["name"]: pod for pod in self.world.cluster.api.get(PODS)["items"]}

    def bound(self) -> dict[str, str]:
        """Node by name of every bound pod."""
        return {name: pod["spec"]["nodeName"] for name, pod in self.pods().items() if pod["spec"].get("nodeName")}

    def wait_bound(self, uids: Uids, timeout_seconds: float = SETTLE_SECONDS) -> None:
        """Wait until the judge has seen each of these pods bound."""
        self.world.cluster.wait_until(
            lambda: self.judge.has_seen_bound(uids.values()), f"{len(uids)} pods to be bound", timeout_seconds
        )

    def settle(self, uids: Uids, *, swallowed: int = 0, answers: Iterable[int] = ()) -> None:
        """Wait until all these pods are bound, then check everything that must hold whatever happened before.

        `swallowed`: so many records an API server that was killed may not have written. `answers`: HTTP codes
        that a Binding may get besides its one 201 and repeats' 409.
        """
        self.wait_bound(uids)
        self.check_world()
        violations = self.judge.verdict()
        assert not violations, violations
        counted = count_bindings(self.world.cluster, self.since)
        faults = judge_bindings(counted, uids, swallowed=swallowed, answers=answers)
        assert not faults, faults

    def check_world(self) -> None:
        """Wait until inventories and the leader's own view show exactly what the pods' annotations say."""
        held = self.held_shares()
        wait_until(
            lambda: shown_shares(self.world.cluster) == held, "inventories to equal the pods", 60, LOOK_SECONDS
        )
        wait_until(lambda: self.viewed_shares() == held, "the leader's view to equal the pods", 60, LOOK_SECONDS)
        assert self.held_shares() == held, "pods changed while they were compared"

    def held_shares(self) -> "Shares":
        """What live bound pods hold, by their own annotations."""
        found: Shares = {}
        for pod in self.pods().values():
            if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            text = (pod["metadata"].get("annotations") or {}).get(names.ASSIGNMENT_ANNOTATION, "")
            for container in json.loads(text)["containers"]:
                for card in container["cards"]:
                    key = (pod["spec"]["nodeName"], card["uuid"], pod["metadata"]["uid"])
                    slots, memory_mib, cores = found.get(key, (0, 0, 0))
                    found[key] = (slots + 1, memory_mib + card["memoryMiB"], cores + card["cores"])
        return found

    def viewed_shares(self) -> "Shares":
        """What the leader's ledger says, by its page of each node; bookings and reservations included."""
        leader = self.world.operators.leader()
        found: Shares = {}
        for node in self.world.nodes if leader else ():
            status, text = leader.get(f"/nodes/{node}")  # type: ignore[union-attr]  # no leader, no nodes
            if status == 200:
                found |= _shares(node, json.loads(text)["cards"])
        return found


Shares = dict[tuple[str, str, str], tuple[int, int, int]]
"""(node, card, pod's uid) -> slots, MiB, cores."""


def shown_shares(cluster: Cluster) -> Shares:
    """What the status of all inventories says."""
    found: Shares = {}
    for item in cluster.api.get(INVENTORIES)["items"]:
        found |= _shares(item["metadata"]["name"], item.get("status", {}).get("gpus", []))
    return found


def _shares(node: str, cards: Iterable[Json]) -> Shares:
    return {
        (node, card["uuid"], holder["uid"]): (holder["slots"], holder["memoryMiB"], holder["cores"])
        for card in cards
        for holder in card.get("holders", ())
    }


@contextmanager
def burst_world(cluster: Cluster, **settings: str) -> Iterator[World]:
    """Ten nodes of each preset, agents, the operator behind the proxy, kube-scheduler. Nothing is left behind."""
    cluster.clear()
    install(cluster)
    with FaultProxy(cluster.kubeconfig(), cluster.site.folder) as proxy:
        operators = Operators(cluster, {**QUICK, **settings}, route=proxy.kubeconfig)
        world = World(cluster, operators, proxy, create_nodes(cluster))
        try:
            operators.start()
            start_agents(cluster)
            cluster.wait_until(lambda: _learn_cards(world), "every node's cards to be published", 60)
            operators.wait_serving()
            operators.start_scheduler()
            cluster.wait_until(lambda: all(map(_is_open, _inventories(world))), "every inventory to be Ready", 60)
            yield world
        finally:
            stop_product(operators)
            if "fleet" in cluster.processes:
                cluster.end_process("fleet")
            cluster.clear()


def create_nodes(cluster: Cluster, count: int = NODES_PER_PRESET) -> list[str]:
    """So many nodes of each preset, named after it."""
    found: list[str] = []
    for prefix, resource in PRESETS:
        found += cluster.create_nodes(count, node_shape(resource), prefix=prefix)
    return found


def node_shape(resource: str) -> NodeShape:
    """A node that advertises as many slots as all its cards have."""
    return NodeShape(resources={resource: CARDS * LIMITS.slots})


def start_agents(cluster: Cluster) -> None:
    """One process with an agent for each node; it writes as an administrator, since one token is not 20 nodes'."""
    entries = [
        {
            "prefix": prefix,
            "count": NODES_PER_PRESET,
            "settings": {"slots": LIMITS.slots, "slotResource": resource},
        }
        for prefix, resource in PRESETS
    ]
    path = cluster.site.folder / "burst-nodes.yaml"
    cards = {"count": CARDS, "memoryMiB": LIMITS.memory_mib}
    path.write_text(yaml.safe_dump({"cards": cards, "nodes": entries}))
    command = [sys.executable, "-m", "vgpu.agent.fleet", "--kubeconfig", str(cluster.kubeconfig())]
    arguments = [*command, "--nodes", str(path), "--shared-watch"]
    cluster.start_process("fleet", arguments, {"PYTHONPATH": str(ROOT / "operator")})


def _inventories(world: World) -> list[Json]:
    items: list[Json] = world.cluster.api.get(INVENTORIES)["items"]
    return items


def _learn_cards(world: World) -> bool:
    world.uuids_of_node = {
        item["metadata"]["name"]: {gpu["uuid"] for gpu in item["spec"]["gpus"]} for item in _inventories(world)
    }
    return len(world.uuids_of_node) == len(world.nodes)


def _is_open(inventory: Json) -> bool:
    conditions = inventory.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
