"""What the chapters act on: a real node with its own control plane, and what its API server says.

Enters: a running node. Leaves: objects and tables. May not live here: what is told.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devcluster.demo.stage import Stage
from devcluster.errors import StartFailed
from devcluster.node.real_node import RealNode
from vgpu import names

Object = Mapping[str, Any]
INVENTORY = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
SYSTEM_PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
PODS = "/api/v1/namespaces/default/pods"
WAIT_SECONDS = 180.0
WARNINGS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Scene:
    """The node, with the cluster that it is the only node of."""

    node: RealNode

    def own_node(self) -> Object:
        """The Node object."""
        return self.node.api.get(f"/api/v1/nodes/{self.node.name}")

    def inventories(self) -> Sequence[Object]:
        """Every inventory."""
        items: Sequence[Object] = self.node.api.get(INVENTORY)["items"]
        return items

    def system_pods(self) -> Sequence[Object]:
        """The product's pods."""
        items: Sequence[Object] = self.node.api.get(SYSTEM_PODS)["items"]
        return items

    def pods(self) -> Sequence[Object]:
        """The users' pods."""
        items: Sequence[Object] = self.node.api.get(PODS)["items"]
        return items

    def allocatable(self) -> int:
        """The slots that kubelet offers."""
        return int(self.own_node()["status"].get("allocatable", {}).get(names.VOLCANO_NUMBER, "0"))

    def wait(self, stage: Stage, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition. Raises StartFailed with the warnings that the cluster's events hold."""
        try:
            stage.wait(condition, what, WAIT_SECONDS)
        except StartFailed as error:
            raise StartFailed("\n".join([str(error), *self._warnings()])) from error

    def _warnings(self) -> list[str]:
        """The newest warnings about pods; there is no name service on this node, and that is no trouble."""
        query = "fieldSelector=type%3DWarning,involvedObject.kind%3DPod,reason%21%3DMissingClusterDNS"
        events = self.node.api.get(f"/api/v1/events?{query}")["items"]
        newest_first = sorted(events, key=lambda event: event["lastTimestamp"] or "", reverse=True)
        told = dict.fromkeys(f"{event['involvedObject']['name']}: {event['message']}" for event in newest_first)
        return list(told)[:WARNINGS_SHOWN]


def has_condition(item: Object, kind: str) -> bool:
    """Whether a condition of an object is true."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)
