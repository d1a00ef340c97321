"""The process that serves kubelet: `python -m vgpu.agent.server`, options in the environment.

The cards enter from the process that reads them, kubelet's questions from kubelet, the node's pods from the API
server; answers and CDI files leave, and to the reader which pods linger. It never touches the cards' driver, so
that no driver can make it hang. On SIGTERM it goes on serving for five seconds: pods that were bound a moment ago
are still let in.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from vgpu.agent.assembly import USER_AGENT, labels_if_needed
from vgpu.agent.clock import Clock, SystemClock
from vgpu.agent.config import read_settings
from vgpu.agent.identity.lingering import LingeringBoard
from vgpu.agent.identity.pod_resources import KubeletPodResources
from vgpu.agent.identity.port import CardsNow, Identity
from vgpu.agent.identity.service import IdentityService, NodePaths
from vgpu.agent.kubelet.board import SlotBoard
from vgpu.agent.kubelet.cards_feed import FEED_SOCKET, CardsListener
from vgpu.agent.kubelet.offer import OfferWatch
from vgpu.agent.kubelet.registration import KubeletLink
from vgpu.agent.kubelet.server import DevicePlugin
from vgpu.agent.kubelet.slots import slots_of, without_health
from vgpu.agent.options import AgentOptions
from vgpu.agent.process import run_process
from vgpu.agent.supervise.beat import beat, beat_pipe
from vgpu.agent.supervise.policy import NOTHING_TO_DO_STATUS
from vgpu.core.facts import Plugin
from vgpu.errors import ConfigurationError
from vgpu.kube.client import ApiClient

LOG = logging.getLogger(__name__)
DRAIN_SECONDS = 5.0
Work = Callable[[], Coroutine[Any, Any, None]]


class NotNeeded(Exception):
    """This process has nothing to do on this node."""


class NodeServer:
    """What one kubelet is served: the slots of the cards as they are, and identity."""

    def __init__(
        self,
        identity: Identity,
        lingering: LingeringBoard,
        options: AgentOptions,
        resource: str,
        clock: Clock,
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._board = SlotBoard()
        plugin = DevicePlugin(identity, self._board)
        self._link = KubeletLink(plugin, self._board, options.plugins_folder, resource, clock)
        kubelet = KubeletPodResources(options.pod_resources, resource)
        self._offer = OfferWatch(self._link, self._board, kubelet.offered, clock)
        self._listener = CardsListener(options.state_folder / FEED_SOCKET, self._told, self._lost)
        lingering.follow(self._listener.tell)

    def _told(self, cards: CardsNow) -> None:
        self._identity.cards_changed(cards)
        slots = slots_of(cards)
        if slots.left_out:
            LOG.warning("kubelet is not told all slots told=%d left_out=%d", slots.total, slots.left_out)
        self._board.put(slots)

    def _lost(self) -> None:
        """Identity keeps the cards as last known: containers of running pods still start again."""
        if self._board.slots is not None:
            self._board.put(without_health(self._board.slots))

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listener.run())
            tasks.create_task(self._link.run())
            tasks.create_task(self._offer.run())

    async def drain(self) -> None:
        """Go on for a while if kubelet listens."""
        if self._link.in_use:
            LOG.info("ending soon serving_seconds=%g", DRAIN_SECONDS)
            await self._clock.sleep(DRAIN_SECONDS)


def ending_signal() -> asyncio.Event:
    """Set at SIGTERM or SIGINT, which no longer end the process by themselves."""
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    return ending


async def serve_until(server: NodeServer, beside: Work, ending: asyncio.Event) -> None:
    """Serve, with other work beside it, until `ending` is set and the server has drained; raises what ends it."""
    serving = asyncio.ensure_future(_together(server.run, beside))
    draining = asyncio.ensure_future(_drain_after(ending, server))
    try:
        await asyncio.wait({serving, draining}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
    finally:
        serving.cancel()
        draining.cancel()
        await asyncio.gather(serving, draining, return_exceptions=True)


async def _together(*works: Work) -> None:
    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(work())


async def _drain_after(ending: asyncio.Event, server: NodeServer) -> None:
    await ending.wait()
    await server.drain()


async def run_server(options: AgentOptions) -> None:
    """Serve this node's kubelet until a signal. Raises ConfigurationError, or NotNeeded if others do."""
    if not options.node:
        raise ConfigurationError("no node name: set NODE_NAME (spec.nodeName by the downward API) or --node")
    node, clock = options.node, SystemClock()
    settings_file = read_settings(options.config)
    async with await ApiClient.connect(kubeconfig=options.kubeconfig, user_agent=USER_AGENT) as client:
        beating = asyncio.create_task(beat(beat_pipe(), clock))
        try:
            settings = settings_file.for_node(node, await labels_if_needed(client, node, settings_file, clock))
            if settings.plugin is not Plugin.VGPU:
                raise NotNeeded(f"the plugin of {settings.plugin} serves kubelet here")
            paths = NodePaths(options.state_folder, options.pod_resources, options.control_groups)
            identity = IdentityService(node, client, settings, paths, clock)
            server = NodeServer(identity, identity.lingering, options, settings.effective_slot_resource, clock)
            await serve_until(server, identity.run, ending_signal())
        finally:
            beating.cancel()


def main() -> int:
    """Entry point of the process; its exit status."""
    options = AgentOptions.from_environment()
    try:
        return run_process(lambda: run_server(options), options.log_level)
    except NotNeeded as error:
        LOG.info("nothing to serve node=%s reason=%s", options.node, error)
        return NOTHING_TO_DO_STATUS


if __name__ == "__main__":
    sys.exit(main())
