"""The API server that the agent's tests talk to: the one in memory, with the inventory's atomic spec."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.kube.fake_api import FakeApi, until
from vgpu.agent.publisher import INVENTORIES_PATH as INVENTORIES
from vgpu.api.inventory import InventorySpec

__all__ = ["INVENTORIES", "InventoryApi", "inventory_api", "until"]
NODES = "/api/v1/nodes"


class InventoryApi(FakeApi):
    """An apply replaces the whole spec, as x-kubernetes-map-type: atomic says."""

    @staticmethod
    def _check(stored: dict[str, Any], body: dict[str, Any], **more: Any) -> None:
        FakeApi._check(stored, body, **more)
        if body.get("kind") == "GpuNodeInventory":
            stored.pop("spec", None)

    @property
    def applies(self) -> int:
        """Writes that reached the server."""
        return sum(self.count(method) for method in ("PATCH", "POST", "PUT", "DELETE"))

    def spec(self, node: str = "n1") -> dict[str, Any] | None:
        """What is stored."""
        stored = self.get(INVENTORIES, node)
        return copy.deepcopy(stored.get("spec")) if stored else None

    def holds(self, spec: InventorySpec, node: str = "n1") -> bool:
        """Is exactly this content stored?"""
        stored = self.spec(node)
        return stored is not None and InventorySpec.model_validate(stored).canonical() == spec.canonical()

    def alter(self, change: dict[str, Any], node: str = "n1") -> None:
        """Somebody else changes the spec."""
        stored = copy.deepcopy(self.get(INVENTORIES, node)) or {}
        stored["spec"] |= change
        self.put(INVENTORIES, stored)


@asynccontextmanager
async def inventory_api(*nodes: str) -> AsyncIterator[InventoryApi]:
    """Serve it, with these Nodes."""
    api = InventoryApi()
    async with api.serve():
        for node in nodes or ("n1",):
            api.put(NODES, {"metadata": {"name": node, "uid": f"node-uid-{node}", "labels": {"pool": "a100"}}})
        yield api
