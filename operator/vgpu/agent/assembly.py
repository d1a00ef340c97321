"""Puts one agent together: settings, publisher and the watch of its one object.

Used by the agent's own process and by fleets of simulated nodes alike, so that both run the same code.
"""

import logging
from collections.abc import Mapping

from vgpu.agent.clock import Clock
from vgpu.agent.config import SettingsFile
from vgpu.agent.publisher import INVENTORIES_PATH, Publisher
from vgpu.agent.seen import NodeHead, SeenInventory, decode_seen
from vgpu.api.model import read_json
from vgpu.errors import ApiError, MalformedObject
from vgpu.kube.client import ApiClient
from vgpu.kube.reflector import Reflector, ReflectorSpec

LOG = logging.getLogger(__name__)
USER_AGENT = "vgpu-agent"
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0


def watch_of(client: ApiClient, publisher: Publisher) -> Reflector[SeenInventory]:
    """The watch of the publisher's one object."""
    spec = ReflectorSpec(path=INVENTORIES_PATH, params={"fieldSelector": f"metadata.name={publisher.node}"})
    return Reflector(client, spec, decode_seen, publisher)


async def labels_of(client: ApiClient, node: str, clock: Clock) -> Mapping[str, str]:
    """The Node's labels; waits until it can be read."""
    pause_seconds = FIRST_RETRY_SECONDS
    while True:
        try:
            raw = await client.get(f"/api/v1/nodes/{node}")
            return read_json(NodeHead, raw, f"Node {node}").metadata.labels
        except (ApiError, MalformedObject) as error:
            LOG.warning("labels cannot be read yet node=%s problem=%s", node, error)
        await clock.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, LONGEST_RETRY_SECONDS)


async def labels_if_needed(
    client: ApiClient, node: str, settings: SettingsFile, clock: Clock
) -> Mapping[str, str]:
    """The Node's labels where an entry of the settings chooses by label; otherwise nothing is read."""
    return await labels_of(client, node, clock) if settings.needs_labels else {}
