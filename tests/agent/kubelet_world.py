"""What the shared cases ask of a kubelet, be it the one in memory or a real one, and the plugin that they test.

A world is a node: its kubelet's folder, what the Node's status shows, and pods that are bound to it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vgpu.agent.clock import SystemClock
from vgpu.agent.identity.port import AllocationRefused, ContainerAnswer, PreStartRefused
from vgpu.agent.kubelet.board import SlotBoard
from vgpu.agent.kubelet.registration import KubeletLink
from vgpu.agent.kubelet.server import DevicePlugin
from vgpu.agent.kubelet.slots import Slots

RESOURCE = "volcano.sh/vgpu-number"


@dataclass(frozen=True)
class Ask:
    """One container and the slots that it wants; `init`: a plain init container."""

    container: str
    slots: int
    init: bool = False


@dataclass
class PodView:
    """A pod as the API shows it. `message` is what its status or its last warning event says."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    running: set[str] = field(default_factory=set)
    cdi_names: dict[str, list[str]] = field(default_factory=dict)
    """By container, where the world can tell: what its runtime was asked for."""


class World(Protocol):
    """One node."""

    plugin_folder: Path

    async def start_kubelet(self) -> None:
        """Start it; it finds the pods that were there before. Returns when the Node's status is its own."""

    async def stop_kubelet(self) -> None:
        """As kill -9."""

    async def allocatable(self) -> int | None:
        """Of RESOURCE, as the Node's status has it; None where it has none."""

    async def capacity(self) -> int | None:
        """Of RESOURCE."""

    async def put_pod(self, name: str, asks: Sequence[Ask]) -> None:
        """Bind a pod with these containers to the node."""

    async def pod(self, name: str) -> PodView:
        """The pod now."""

    async def restart_container(self, name: str, container: str) -> None:
        """End the container's process; kubelet starts it anew."""

    async def delete_pod(self, name: str) -> None:
        """Delete the pod; returns when kubelet has let go of it."""


@dataclass
class ScriptedIdentity:
    """Names each answer by its number. `held_back` and `refuse` are messages with which it refuses meanwhile."""

    allocated: dict[str, frozenset[str]] = field(default_factory=dict)
    started: list[frozenset[str]] = field(default_factory=list)
    held_back: str = ""
    refuse: str = ""

    async def ready_for(self, requests: Sequence[frozenset[str]]) -> None:
        """Nothing is needed."""

    def allocate(self, requests: Sequence[frozenset[str]]) -> list[ContainerAnswer]:
        if self.refuse:
            raise AllocationRefused(self.refuse)
        answers = []
        for ids in requests:
            nonce = f"n{len(self.allocated)}"
            self.allocated[nonce] = ids
            answers.append(ContainerAnswer((), {"NONCE": nonce}))
        return answers

    async def pre_start(self, ids: frozenset[str]) -> None:
        if self.held_back:
            raise PreStartRefused(self.held_back)
        self.started.append(ids)

    def kubelet_came(self) -> None:
        """Nothing here depends on it."""

    def cards_changed(self, cards: object) -> None:
        """The slots are put on the board by the case."""


@dataclass
class Plugin:
    """A plugin that is served for a world's kubelet."""

    board: SlotBoard
    identity: ScriptedIdentity
    link: KubeletLink


@contextlib.asynccontextmanager
async def serving(
    folder: Path, slots: Slots | None, identity: ScriptedIdentity | None = None
) -> AsyncIterator[Plugin]:
    """Serve `slots`; the end is as hard as a killed process."""
    board, identity = SlotBoard(), identity or ScriptedIdentity()
    if slots is not None:
        board.put(slots)
    link = KubeletLink(DevicePlugin(identity, board), board, folder, RESOURCE, SystemClock())
    task = asyncio.create_task(link.run())
    try:
        yield Plugin(board, identity, link)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
