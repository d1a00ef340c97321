"""A real node as the shared cases of tests/agent/kubelet_cases.py want it."""

import asyncio
from collections.abc import Sequence
from typing import Any

from devcluster.errors import ApiRefused
from devcluster.node import BUSYBOX_IMAGE, RealNode
from tests.agent.kubelet_world import RESOURCE, Ask, PodView

PODS = "/api/v1/namespaces/default/pods"
ENDS_WHEN_TOLD = "trap 'exit 1' TERM; while :; do sleep 0.1; done"


class RealKubelet:
    """One node; `forget` makes it as it was between two cases."""

    def __init__(self, node: RealNode) -> None:
        self.plugin_folder = node.plugin_dir
        self._node = node
        self._pods: set[str] = set()

    async def start_kubelet(self) -> None:
        before = await asyncio.to_thread(self._heartbeat)
        await asyncio.to_thread(self._node.start_kubelet)
        await self._until(lambda: self._heartbeat() > before, "kubelet writes its status")

    async def stop_kubelet(self) -> None:
        await asyncio.to_thread(self._node.end_process, "kubelet")

    async def allocatable(self) -> int | None:
        return await asyncio.to_thread(self._of_status, "allocatable")

    async def capacity(self) -> int | None:
        return await asyncio.to_thread(self._of_status, "capacity")

    async def put_pod(self, name: str, asks: Sequence[Ask]) -> None:
        self._pods.add(name)
        kinds: dict[str, list[dict[str, Any]]] = {"initContainers": [], "containers": []}
        for ask in asks:
            container = {
                "name": ask.container, "image": BUSYBOX_IMAGE, "resources": {"limits": {RESOURCE: str(ask.slots)}},
                "command": ["true"] if ask.init else ["sh", "-c", ENDS_WHEN_TOLD],
            }  # fmt: skip
            kinds["initContainers" if ask.init else "containers"].append(container)
        body = {
            "metadata": {"name": name},
            "spec": {"nodeName": self._node.name, "terminationGracePeriodSeconds": 1, **kinds},
        }
        await asyncio.to_thread(self._node.api.post, PODS, body)

    async def pod(self, name: str) -> PodView:
        status = (await asyncio.to_thread(self._node.api.get, f"{PODS}/{name}"))["status"]
        containers = status.get("containerStatuses", ()) or ()
        waiting = [c["state"].get("waiting", {}).get("message", "") for c in containers]
        return PodView(
            phase=status.get("phase", ""),
            reason=status.get("reason", ""),
            message=" ".join([status.get("message", ""), *waiting]),
            running={c["name"] for c in containers if "running" in c["state"]},
        )

    async def restart_container(self, name: str, container: str) -> None:
        await asyncio.to_thread(self._node.kubectl, "exec", name, "-c", container, "--", "kill", "-TERM", "1")

    async def delete_pod(self, name: str) -> None:
        # With a grace period of 0 the API server would forget the pod while kubelet still has its slots.
        await asyncio.to_thread(self._node.kubectl, "delete", "pod", name, "--wait=true")
        self._pods.discard(name)

    async def forget(self) -> None:
        """No pod of a case is left, and the node says that its plugin is gone."""
        for name in list(self._pods):
            await self.delete_pod(name)
        await self._until(lambda: not self._of_status("allocatable"), "nothing is allocatable")

    def _of_status(self, part: str) -> int | None:
        status = self._node.api.get(f"/api/v1/nodes/{self._node.name}")["status"]
        value = status.get(part, {}).get(RESOURCE)
        return None if value is None else int(value)

    def _heartbeat(self) -> str:
        try:
            node = self._node.api.get(f"/api/v1/nodes/{self._node.name}")
        except ApiRefused:
            return ""
        return max((c.get("lastHeartbeatTime", "") for c in node["status"].get("conditions", ())), default="")

    async def _until(self, condition: Any, what: str) -> None:
        await asyncio.to_thread(self._node.wait_until, condition, what, 60)
