"""The node agents of the demo: one process plays them all, each under its own pod's token.

Enters: which nodes there are and which slot resource each advertises. Leaves: agent pods, their tokens, one
process. May not live here: what an agent does.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from devcluster.cluster import Cluster
from devcluster.product import ROOT
from vgpu import names

FLEET = "fleet"
CARDS = 8
SLOTS_PER_CARD = 10
PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"


class Agents:
    """One agent for each node, lost and found by name."""

    def __init__(self, cluster: Cluster, slot_resources: Mapping[str, str]) -> None:
        """`slot_resources` is the resource of each node, by node."""
        self._cluster = cluster
        self._slot_resources = slot_resources
        self._tokens: dict[str, Path] = {}
        self._generation = 0

    def start(self) -> None:
        """Start every agent."""
        for node in self._slot_resources:
            self._start_pod(node)
        file = self._write()
        token = next(iter(self._tokens.values())).read_text()
        command = [sys.executable, "-m", "vgpu.agent.fleet", "--nodes", str(file)]
        environment = {"PYTHONPATH": str(ROOT / "operator"), "KUBECONFIG": str(self._cluster.kubeconfig(token))}
        self._cluster.start_process(FLEET, command, environment)

    def lose(self, node: str) -> None:
        """The agent's pod and process are gone; kubelet takes the node's slots back, as it does by itself."""
        self._cluster.api.delete(f"{PODS}/{self._pod(node)}", {"gracePeriodSeconds": 0})
        del self._tokens[node]
        self._reload()
        self._cluster.set_allocatable(node, self._slot_resources[node], 0)

    def restore(self, node: str) -> None:
        """A new agent pod runs there and kubelet offers the slots again."""
        self._generation += 1
        self._start_pod(node)
        self._reload()
        self._cluster.set_allocatable(node, self._slot_resources[node], CARDS * SLOTS_PER_CARD)

    def _pod(self, node: str) -> str:
        return f"{names.AGENT_ACCOUNT}-{node}-{self._generation}"

    def _start_pod(self, node: str) -> None:
        label, value = names.AGENT_POD_LABEL
        container = {"name": "agent", "image": "none"}
        spec = {"serviceAccountName": names.AGENT_ACCOUNT, "nodeName": node, "containers": [container]}
        metadata = {"name": self._pod(node), "labels": {label: value}}
        self._cluster.api.post(PODS, {"metadata": metadata, "spec": spec})
        token = self._cluster.token_for_service_account(names.NAMESPACE, names.AGENT_ACCOUNT, self._pod(node))
        self._tokens[node] = self._cluster.site.folder / f"agent-{node}-{self._generation}.token"
        self._tokens[node].write_text(token)

    def _write(self) -> Path:
        entries: list[dict[str, Any]] = [
            {
                "name": node,
                "tokenFile": str(file),
                "settings": {"slots": SLOTS_PER_CARD, "slotResource": self._slot_resources[node]},
            }
            for node, file in sorted(self._tokens.items())
        ]
        path = self._cluster.site.folder / "fleet-nodes.yaml"
        path.write_text(yaml.safe_dump({"cards": {"count": CARDS}, "nodes": entries}))
        return path

    def _reload(self) -> None:
        self._write()
        os.kill(self._cluster.processes[FLEET].pid, signal.SIGHUP)
