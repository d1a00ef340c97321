"""Puts identity together for one node: the log, the watch of its pods, PodResources, files and the collector.

Settings and a client enter; an Identity that answers, and the work that must run beside it, leave. No rule here.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpu.agent.clock import Clock
from vgpu.agent.config import CardFiles, NodeSettings
from vgpu.agent.identity.allocation_log import AllocationLog
from vgpu.agent.identity.collect import Collector
from vgpu.agent.identity.contract import Rules
from vgpu.agent.identity.deferred import DeferredIdentity
from vgpu.agent.identity.files import ContainerFiles, Places
from vgpu.agent.identity.lingering import LingeringBoard
from vgpu.agent.identity.pod_processes import ControlGroups
from vgpu.agent.identity.pod_resources import KubeletPodResources, SharedPodResources
from vgpu.agent.identity.pod_watch import PodDecoder, PodSeen, PodWatch
from vgpu.agent.identity.port import CardsNow, ContainerAnswer
from vgpu.agent.identity.prestart import NodeIdentity, World
from vgpu.core.facts import Identity
from vgpu.errors import ApiRefused
from vgpu.kube.client import ApiClient
from vgpu.kube.reflector import Reflector, ReflectorSpec

PODS_PATH = "/api/v1/pods"
NOT_FOUND = 404
READ_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Where this agent keeps its own, where kubelet serves PodResources, and where the kernel shows its groups."""

    state: Path = Path("/var/lib/vgpu/agent")
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    control_groups: Path = Path("/sys/fs/cgroup")


class ApiPods:
    """Pods as the API server has them now."""

    def __init__(self, client: ApiClient, decode: PodDecoder) -> None:
        self._client = client
        self._decode = decode

    async def read(self, namespace: str, name: str) -> PodSeen | None:
        """None when there is none of that name. Raises ApiError and MalformedObject."""
        try:
            raw = await self._client.get(
                f"/api/v1/namespaces/{namespace}/pods/{name}", timeout_seconds=READ_SECONDS
            )
        except ApiRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return self._decode(raw).fact


class IdentityService:
    """One node's identity. `run` must be running for pods to be known, files of gone pods to be removed, and
    lingering pods to be seen."""

    def __init__(
        self, node: str, client: ApiClient, settings: NodeSettings, paths: NodePaths, clock: Clock
    ) -> None:
        resource = settings.effective_slot_resource
        decode = PodDecoder(resource)
        watch = PodWatch()
        kubelet = SharedPodResources(KubeletPodResources(paths.pod_resources, resource), clock)
        files = ContainerFiles(places_of(settings, paths.state), rules_of(settings))
        self._log = AllocationLog(paths.state / "allocations.jsonl")
        spec = ReflectorSpec(path=PODS_PATH, params={"fieldSelector": f"spec.nodeName={node}"})
        self._reflector = Reflector(client, spec, decode, watch)
        self._processes = ControlGroups(paths.control_groups)
        world = World(node, watch, kubelet, ApiPods(client, decode), self._processes, clock, kubelet.answered)
        self.lingering = LingeringBoard()
        self._collector = Collector(world, self._log, files, self.lingering)
        self._sweeper = files.sweeper
        exact = settings.effective_identity is Identity.EXACT
        self._answers = (NodeIdentity if exact else DeferredIdentity)(world, self._log, files)

    async def ready_for(self, requests: Sequence[frozenset[str]]) -> None:
        """Wait, seconds at most, until these can be answered."""
        await self._answers.ready_for(requests)

    def allocate(self, requests: Sequence[frozenset[str]]) -> list[ContainerAnswer]:
        """One answer for each set of slot ids, on disk before this returns. Raises AllocationRefused."""
        return self._answers.allocate(requests)

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Make ready what a container with these slots needs. Raises PreStartRefused, after 20 s at the latest."""
        await self._answers.pre_start(ids)

    def kubelet_came(self) -> None:
        """A kubelet begins to listen."""
        self._answers.kubelet_came()

    def cards_changed(self, cards: CardsNow) -> None:
        """These are the node's cards from now on."""
        self._answers.cards_changed(cards)

    async def run(self) -> None:
        """Watch and collect until cancelled."""
        try:
            self._processes.check()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._reflector.run())
                tasks.create_task(self._collector.run())
                tasks.create_task(self._sweeper.run())
        finally:
            self._log.close()


def places_of(settings: NodeSettings, state: Path) -> Places:
    """The node's folders as set."""
    return Places(Path(settings.cdi_folder), state, settings.isolation_library)


def rules_of(settings: NodeSettings) -> Rules:
    """What the contract depends on, as set."""
    return Rules(
        oversubscribed=settings.memory_scale_percent > 100,
        device_files=settings.card_files is CardFiles.CDI,
    )
