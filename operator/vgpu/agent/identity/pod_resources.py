"""Which container holds which slots, as kubelet's PodResources API tells it.

Enters: the socket and the name of the slot resource. Leaves: ShownPod for every pod that kubelet runs with slots;
kubelet names no uid. Its List leaves out plain init containers. May not live here: what it means.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from vgpu.agent.clock import Clock
from vgpu.agent.identity.matching import Ids
from vgpu.agent.kubelet.podresources_pb2 import (
    AllocatableResourcesRequest,
    ContainerDevices,
    ContainerResources,
    ListPodResourcesRequest,
)
from vgpu.agent.kubelet.podresources_pb2_grpc import PodResourcesListerStub
from vgpu.agent.kubelet.registration import CHANNEL
from vgpu.errors import VgpuError

AnswerT = TypeVar("AnswerT")
LIST_SECONDS = 5.0
PACE_SECONDS = 0.05
"""kubelet allows 100 calls a second, ten at once, to all its clients together."""
CALM_SECONDS = 0.25
LONGEST_CALM_SECONDS = 2.0
LARGEST_ANSWER_BYTES = 16 * 2**20  # kubelet's own limit for this API


class PodResourcesAway(VgpuError):
    """kubelet did not answer; the message says where it was asked and what came."""


@dataclass(frozen=True, slots=True)
class ShownPod:
    """A pod that holds slots: container name -> slots. Plain init containers are not among them."""

    namespace: str
    name: str
    containers: Mapping[str, Ids]

    @property
    def ids(self) -> Ids:
        """All slots that are shown for it."""
        return frozenset().union(*self.containers.values())


class PodResources(Protocol):
    """Who holds slots now."""

    async def shown(self) -> list[ShownPod]:
        """A list that kubelet makes after this call. Raises PodResourcesAway."""


class KubeletPodResources:
    """The API on kubelet's socket. A connection for each list: the socket's file is another after a restart."""

    def __init__(self, socket: Path, resource: str) -> None:
        self._socket = socket
        self._resource = resource

    async def shown(self) -> list[ShownPod]:
        """A list that kubelet makes after this call. Raises PodResourcesAway."""
        answer = await self._ask(lambda stub: stub.List(ListPodResourcesRequest(), timeout=LIST_SECONDS))
        pods = [ShownPod(pod.namespace, pod.name, self._slots(pod.containers)) for pod in answer.pod_resources]
        return [pod for pod in pods if pod.containers]

    async def offered(self) -> Ids:
        """The healthy slots that kubelet knows of, those in use included. Raises PodResourcesAway."""
        request = AllocatableResourcesRequest()
        answer = await self._ask(lambda stub: stub.GetAllocatableResources(request, timeout=LIST_SECONDS))
        return self._own(answer.devices)

    async def _ask(self, question: Callable[[PodResourcesListerStub], Awaitable[AnswerT]]) -> AnswerT:
        options = (*CHANNEL, ("grpc.max_receive_message_length", LARGEST_ANSWER_BYTES))
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=options) as channel:
            try:
                return await question(PodResourcesListerStub(channel))
            except grpc.aio.AioRpcError as error:
                raise PodResourcesAway(
                    f"kubelet's PodResources at {self._socket} does not answer ({error.details()})"
                ) from error

    def _slots(self, containers: Iterable[ContainerResources]) -> dict[str, Ids]:
        found = {container.name: self._own(container.devices) for container in containers}
        return {name: ids for name, ids in found.items() if ids}

    def _own(self, devices: Iterable[ContainerDevices]) -> Ids:
        own = (device for device in devices if device.resource_name == self._resource)
        return frozenset(slot for device in own for slot in device.device_ids)


class SharedPodResources:
    """Spares kubelet: who asks before a list has begun shares it, and lists begin at a pace.

    A list makes kubelet forget the slots of a pod whose Allocate is under way (see matching), so none begins just
    after an answer, before kubelet has written it down; unless answers never pause.
    """

    def __init__(self, inner: PodResources, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._begins_at = clock.monotonic()
        self._calm_at = self._begins_at
        self._next: asyncio.Task[list[ShownPod]] | None = None

    async def shown(self) -> list[ShownPod]:
        """A list that kubelet makes after this call. Raises PodResourcesAway."""
        if self._next is None:
            self._next = asyncio.create_task(self._begin())
        return await asyncio.shield(self._next)

    def answered(self) -> None:
        """An Allocate was answered just now."""
        self._calm_at = self._clock.monotonic() + CALM_SECONDS

    async def _begin(self) -> list[ShownPod]:
        latest = self._clock.monotonic() + LONGEST_CALM_SECONDS
        while (wait_seconds := max(self._begins_at, min(self._calm_at, latest)) - self._clock.monotonic()) > 0:
            await self._clock.sleep(wait_seconds)
        self._next = None  # who asks from now on needs a later list
        self._begins_at = self._clock.monotonic() + PACE_SECONDS
        return await self._inner.shown()
