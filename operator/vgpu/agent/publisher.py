"""Publishes the inventory of one node, only when it differs from what the agent's own watch shows.

What is wanted enters by `want`, what the API server holds enters by the reflector (this is its sink), and one
server-side apply leaves when the two differ. An apply counts as done only when the watch shows it. Nothing is
ever written because time has passed. This is the only file of the agent that writes to the API.
"""

import asyncio
import json
import logging
from random import Random

from vgpu import names
from vgpu.agent.canonical import same_content
from vgpu.agent.clock import Clock, wait_for_event
from vgpu.agent.pace import Pace
from vgpu.agent.seen import NodeHead, SeenInventory
from vgpu.api.inventory import InventorySpec
from vgpu.api.model import read_json
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject, OutcomeUnknown
from vgpu.kube.client import ApiClient, WriteRequest
from vgpu.kube.objects import Key

LOG = logging.getLogger(__name__)
INVENTORIES_PATH = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
APPLY = "application/apply-patch+yaml"
WRITE_SECONDS = 10.0
ACKNOWLEDGE_SECONDS = 30.0


class Publisher:
    """Keeps one GpuNodeInventory as wanted."""

    def __init__(self, node: str, client: ApiClient, clock: Clock, random: Random | None = None) -> None:
        self.node = node
        self.synced_once = asyncio.Event()
        self._client = client
        self._clock = clock
        self._pace = Pace(clock, random or Random())
        self._asked_seconds = 0.0
        self._wanted: InventorySpec | None = None
        self._seen: SeenInventory | None = None
        self._changed = asyncio.Event()

    @property
    def last_good(self) -> InventorySpec | None:
        """The cards as last known: what this process wanted, after a start what the API server holds."""
        return self._wanted or (self._seen.spec if self._seen else None)

    @property
    def settled(self) -> bool:
        """Does the API server hold what is wanted, as far as the watch has shown?"""
        if self._wanted is None:
            return True
        seen = self._seen
        return seen is not None and bool(seen.owner_uid) and same_content(seen.spec, self._wanted)

    def use_client(self, client: ApiClient) -> None:
        """Write by this client from now on (another account)."""
        self._client = client

    def want(self, spec: InventorySpec | None) -> None:
        """The inventory should say this from now on; None: nothing is wanted, and nothing is written."""
        if not same_content(spec, self._wanted):
            self._wanted = spec
            self._changed.set()

    def put(self, item: SeenInventory) -> None:
        """The watch shows this object."""
        if item.name == self.node and item != self._seen:
            self._seen = item
            self._changed.set()

    def drop(self, key: Key) -> None:
        """The watch shows that this object is gone."""
        if self._seen is not None and key.uid == self._seen.uid:
            self._seen = None
            self._changed.set()

    def malformed(self, key: Key, message: str) -> None:
        """The object is there and cannot be read: it differs from anything wanted."""
        LOG.warning("inventory unreadable node=%s problem=%s", self.node, message)
        self.put(SeenInventory(key.name, key.uid, "", None))

    def synced(self) -> None:
        """The first list is complete: what has not been seen is not there."""
        self.synced_once.set()

    async def run(self) -> None:
        """Write whenever wanted and seen differ, until cancelled."""
        await self.synced_once.wait()
        while True:
            self._changed.clear()
            if self.settled:
                self._pace.settled()
                await self._changed.wait()
            else:
                await self._attempt()

    async def _attempt(self) -> None:
        pause_seconds = self._pace.next_pause_seconds(self._asked_seconds)
        self._asked_seconds = 0
        if pause_seconds > 0:
            await self._clock.sleep(pause_seconds)
            if self.settled:
                return
        seen, wanted = self._seen, self._wanted
        if wanted is None:
            return
        try:
            await self._apply(seen, wanted)
        except ApiRefused as error:
            LOG.error("inventory refused node=%s status=%d message=%s", self.node, error.status, error)
        except ApiUnavailable as error:
            self._asked_seconds = error.retry_after_seconds
            LOG.warning("API server unavailable node=%s status=%d message=%s", self.node, error.status, error)
        except (OutcomeUnknown, MalformedObject) as error:
            LOG.warning("inventory not confirmed node=%s message=%s", self.node, error)
        else:
            LOG.info("inventory published node=%s cards=%d", self.node, len(wanted.gpus))
            await self._wait_for_answer(seen, wanted)

    async def _apply(self, seen: SeenInventory | None, wanted: InventorySpec) -> None:
        """Apply once. Before a create the Node is read: its uid makes it the owner; no Node, no create."""
        owner_uid = (seen.owner_uid if seen else "") or await self._node_uid()
        metadata: dict[str, object] = {
            "name": self.node,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": owner_uid}],
        }
        if seen is not None:
            # An apply that names a uid never creates: what was deleted meanwhile is not revived with an old owner.
            metadata["uid"] = seen.uid
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.INVENTORY_KIND,
            "metadata": metadata,
            "spec": wanted.dump(),
        }
        await self._client.send(
            WriteRequest(
                method="PATCH",
                path=f"{INVENTORIES_PATH}/{self.node}",
                body=json.dumps(body, separators=(",", ":")).encode(),
                content_type=APPLY,
                params={"fieldManager": names.AGENT_FIELD_MANAGER, "force": "true"},
                timeout_seconds=WRITE_SECONDS,
            )
        )

    async def _node_uid(self) -> str:
        try:
            raw = await self._client.get(f"/api/v1/nodes/{self.node}")
        except ApiRefused as error:
            raise ApiRefused(error.status, error.reason, f"no inventory without its Node: {error}") from error
        return read_json(NodeHead, raw, f"Node {self.node}").metadata.uid

    async def _wait_for_answer(self, seen: SeenInventory | None, sent: InventorySpec) -> None:
        """Wait until the watch shows something new; an apply that it never shows is sent again."""
        while self._seen is seen and self._wanted is sent:
            self._changed.clear()
            if not await wait_for_event(self._changed, self._clock, ACKNOWLEDGE_SECONDS):
                LOG.warning("inventory not yet on the watch node=%s", self.node)
                return
