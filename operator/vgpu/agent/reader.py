"""The process that reads the cards: `python -m vgpu.agent.reader`, options in the environment.

A source's readings enter, and which pods linger from the process that serves kubelet, if there is one; the node's
inventory leaves to the API server, and the cards to that process. Alone, without a feed, it is an agent that only
publishes.
"""

import asyncio
import logging
import os
import sys

from vgpu.agent.assembly import USER_AGENT, labels_if_needed, watch_of
from vgpu.agent.clock import Clock, SystemClock
from vgpu.agent.config import read_settings
from vgpu.agent.isolation import library_fault
from vgpu.agent.kubelet.cards_feed import FEED_SOCKET, CardsTeller, cards_of
from vgpu.agent.node_agent import NodeAgent
from vgpu.agent.options import AgentOptions
from vgpu.agent.process import run_process
from vgpu.agent.publisher import Publisher
from vgpu.agent.source import SourceHangs
from vgpu.agent.source_choice import make_source
from vgpu.agent.supervise.beat import beat, beat_pipe
from vgpu.api.inventory import InventorySpec
from vgpu.api.lingering import Lingering
from vgpu.core.facts import Plugin
from vgpu.errors import ConfigurationError
from vgpu.kube.client import ApiClient

LOG = logging.getLogger(__name__)
FEED_VARIABLE = "VGPU_AGENT_FEED"
HANGS_STATUS = 1


class TellingPublisher(Publisher):
    """Publishes, and tells the cards at once, whatever the API server does."""

    def __init__(
        self, node: str, client: ApiClient, clock: Clock, teller: CardsTeller, lingering: Lingering | None = None
    ) -> None:
        """`lingering`: the pods that linger; None: what the inventory says of them stays until somebody knows."""
        super().__init__(node, client, clock)
        self._teller = teller
        self._lingering = lingering
        self._read: InventorySpec | None = None

    def want(self, spec: InventorySpec | None) -> None:
        """The inventory should say this from now on, with the lingering pods, and these are the cards."""
        self._read = spec
        super().want(self._with_lingering(spec))
        self._teller.tell(cards_of(spec))

    def lingers(self, pods: Lingering) -> None:
        """These pods linger from now on, and no others."""
        self._lingering = pods
        if self._read is not None:
            super().want(self._with_lingering(self._read))

    def _with_lingering(self, spec: InventorySpec | None) -> InventorySpec | None:
        pods, known = self._lingering, self.last_good
        if pods is None:
            pods = known.lingering if known else ()
        return spec and spec.model_copy(update={"lingering": pods})


async def run_reader(options: AgentOptions, *, feed: bool) -> None:
    """Run one node's reader until cancelled. Raises ConfigurationError before anything is written."""
    if not options.node:
        raise ConfigurationError("no node name: set NODE_NAME (spec.nodeName by the downward API) or --node")
    node, clock = options.node, SystemClock()
    settings_file = read_settings(options.config)
    source = make_source(options.source, node, options.fixed_file)
    async with (
        await ApiClient.connect(kubeconfig=options.kubeconfig, user_agent=USER_AGENT) as client,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(beat(beat_pipe(), clock))
        settings = settings_file.for_node(node, await labels_if_needed(client, node, settings_file, clock))
        teller = CardsTeller(options.state_folder / FEED_SOCKET, clock)
        feeding = feed and settings.plugin is Plugin.VGPU
        publisher = TellingPublisher(node, client, clock, teller, None if feeding else ())
        if feeding:
            tasks.create_task(teller.run(publisher.lingers))
        tasks.create_task(watch_of(client, publisher).run())
        tasks.create_task(NodeAgent(source, settings, publisher, clock, library_fault).run())


def main() -> int:
    """Entry point of the process; its exit status."""
    options, feed = AgentOptions.from_environment(), os.environ.get(FEED_VARIABLE) == "on"
    status = 0
    try:
        status = run_process(lambda: run_reader(options, feed=feed), options.log_level)
    except* SourceHangs:
        LOG.error("the driver hangs: this process ends, another one tries node=%s", options.node)
        status = HANGS_STATUS
    return status


if __name__ == "__main__":
    sys.exit(main())
