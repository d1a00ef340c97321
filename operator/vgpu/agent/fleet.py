"""Hundreds of agents with simulated cards in one process: `python -m vgpu.agent.fleet --nodes nodes.yaml`.

Each node has the same publisher and health code as a real agent; only its cards come from the file. Real agents
have one watch each; --shared-watch gives all of them one, so that a large fleet costs little. SIGHUP reads the
file again: cards that changed are published, nodes that went are no longer looked after.
"""

import asyncio
import logging
import signal
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import yaml

from vgpu.agent.assembly import USER_AGENT, watch_of
from vgpu.agent.clock import SystemClock
from vgpu.agent.fixed import HeldSource
from vgpu.agent.node_agent import NodeAgent
from vgpu.agent.nodes_file import FleetNode, read_nodes
from vgpu.agent.process import LEVELS, run_process
from vgpu.agent.publisher import INVENTORIES_PATH, Publisher
from vgpu.agent.seen import decode_seen
from vgpu.agent.shared_watch import SharedWatch
from vgpu.errors import ConfigurationError
from vgpu.kube.client import ApiClient
from vgpu.kube.reflector import Reflector, ReflectorSpec

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """One running agent of the fleet."""

    node: FleetNode
    source: HeldSource
    agent: NodeAgent
    publisher: Publisher
    task: asyncio.Task[None]


class Fleet:
    """Runs one agent for each node of the file."""

    def __init__(self, client: ApiClient, kubeconfig: Path, *, shared: SharedWatch | None) -> None:
        self._client = client
        self._kubeconfig = kubeconfig
        self._shared = shared
        self._clock = SystemClock()
        self._members: dict[str, Member] = {}

    @property
    def settled(self) -> bool:
        """Is every inventory as wanted, as far as the watches have shown?"""
        return all(m.publisher.synced_once.is_set() and m.publisher.settled for m in self._members.values())

    def follow(self, nodes: dict[str, FleetNode], tasks: asyncio.TaskGroup) -> None:
        """Run agents for exactly these nodes from now on."""
        for name in [name for name in self._members if name not in nodes]:
            self._members.pop(name).task.cancel()
            if self._shared:
                self._shared.leave(name)
        for name, node in nodes.items():
            member = self._members.get(name)
            if member is None or member.node.token_file != node.token_file:
                if member:
                    member.task.cancel()
                self._members[name] = self._start(node, tasks)
            else:
                member.source.replace(node.document)
                member.agent.apply_settings(node.settings)
        LOG.info("fleet nodes=%d", len(nodes))

    def _start(self, node: FleetNode, tasks: asyncio.TaskGroup) -> Member:
        source = HeldSource(node.document, node.name)
        publisher = Publisher(node.name, self._client, self._clock)
        agent = NodeAgent(source, node.settings, publisher, self._clock)
        return Member(node, source, agent, publisher, tasks.create_task(self._run(node, publisher, agent)))

    async def _run(self, node: FleetNode, publisher: Publisher, agent: NodeAgent) -> None:
        async with AsyncExitStack() as stack:
            client = self._client
            if node.token_file:
                try:
                    client = await client_with_token(self._kubeconfig, node.token_file)
                except ConfigurationError as error:
                    LOG.error("agent does not run node=%s problem=%s", node.name, error)
                    return
                await stack.enter_async_context(client)
                publisher.use_client(client)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(agent.run())
            if self._shared:
                self._shared.join(publisher)
            else:
                tasks.create_task(watch_of(client, publisher).run())


async def client_with_token(kubeconfig: Path, token_file: Path) -> ApiClient:
    """A client of the fleet's server under another account. Raises ConfigurationError."""
    with tempfile.TemporaryDirectory() as folder:
        own = write_kubeconfig(kubeconfig, token_file, Path(folder))
        return await ApiClient.connect(kubeconfig=own, user_agent=USER_AGENT)


def write_kubeconfig(kubeconfig: Path, token_file: Path, folder: Path) -> Path:
    """The same clusters, every user with this token."""
    raw = yaml.safe_load(kubeconfig.read_text())
    for cluster in raw.get("clusters", ()):
        authority = cluster["cluster"].get("certificate-authority")
        if authority:
            cluster["cluster"]["certificate-authority"] = str((kubeconfig.parent / authority).resolve())
    for user in raw.get("users", ()):
        user["user"] = {"tokenFile": str(token_file.resolve())}
    own = folder / "kubeconfig"
    own.write_text(yaml.safe_dump(raw))
    return own


async def run_fleet(kubeconfig: Path, nodes_path: Path, *, shared_watch: bool) -> None:
    """Run the fleet until cancelled. Raises ConfigurationError when the file is wrong at the start."""
    nodes = read_nodes(nodes_path)
    reload = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.set)
    async with (
        await ApiClient.connect(kubeconfig=kubeconfig, user_agent=USER_AGENT) as client,
        asyncio.TaskGroup() as tasks,
    ):
        shared = SharedWatch() if shared_watch else None
        if shared:
            spec = ReflectorSpec(path=INVENTORIES_PATH)
            tasks.create_task(Reflector(client, spec, decode_seen, shared).run())
        fleet = Fleet(client, kubeconfig, shared=shared)
        while True:
            fleet.follow(nodes, tasks)
            await reload.wait()
            reload.clear()
            try:
                nodes = read_nodes(nodes_path)
            except ConfigurationError as error:
                LOG.error("nodes file unchanged in effect problem=%s", error)


def fleet(
    kubeconfig: Annotated[Path, typer.Option(envvar="KUBECONFIG", help="the fleet's account")],
    nodes: Annotated[Path, typer.Option(help="the nodes and their cards (YAML)")],
    shared_watch: Annotated[bool, typer.Option(help="one watch for all agents")] = False,
    log_level: Annotated[str, typer.Option(envvar="VGPU_LOG_LEVEL", help=", ".join(LEVELS))] = "info",
) -> None:
    """Run simulated agents for all nodes of a file."""
    raise typer.Exit(run_process(lambda: run_fleet(kubeconfig, nodes, shared_watch=shared_watch), log_level))


if __name__ == "__main__":
    typer.run(fleet)
