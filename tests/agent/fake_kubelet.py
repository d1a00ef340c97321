"""A kubelet in memory with real sockets: of its device manager what a plugin can notice, and no more.

Behaves as tests/agent/kubelet_cases.py says; those cases are run against a real kubelet too.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.agent.kubelet_world import Ask, PodView
from vgpu.agent.kubelet import deviceplugin_pb2 as pb
from vgpu.agent.kubelet import deviceplugin_pb2_grpc as pb_grpc
from vgpu.agent.kubelet import podresources_pb2 as resources_pb
from vgpu.agent.kubelet import podresources_pb2_grpc as resources_grpc

RETRY_SECONDS = 0.05
LOCAL = (("grpc.use_local_subchannel_pool", 1),)


@dataclass
class Grant:
    """What one container was given; kept over restarts, as in kubelet's checkpoint."""

    ask: Ask
    ids: list[str]
    answer: pb.ContainerAllocateResponse


@dataclass
class Pod:
    """One pod and what became of it."""

    asks: Sequence[Ask]
    view: PodView = field(default_factory=PodView)
    grants: dict[str, Grant] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


@dataclass
class Endpoint:
    """One registered plugin and the devices that it told."""

    resource: str
    channel: grpc.aio.Channel
    devices: dict[str, bool] = field(default_factory=dict)

    @property
    def stub(self) -> Any:
        return pb_grpc.DevicePluginStub(self.channel)


class FakeKubelet(pb_grpc.RegistrationServicer, resources_grpc.PodResourcesListerServicer):
    """`plugin_folder` has its sockets, `pod_resources` is where it tells who holds what."""

    def __init__(self, folder: Path) -> None:
        self.plugin_folder = folder / "device-plugins"
        self.pod_resources = folder / "pod-resources" / "kubelet.sock"
        self.pods: dict[str, Pod] = {}
        self.endpoint: Endpoint | None = None
        self._former: list[Endpoint] = []
        self.refuse_registration = ""
        self.deaf = False
        """Accepts a registration and then never asks the plugin anything."""
        self.offers_told = 0
        """How often it was asked which devices it can give."""
        self._capacity: int | None = None
        self._servers: list[grpc.aio.Server] = []
        self._streams: set[asyncio.Task[None]] = set()
        self._admission = asyncio.Lock()

    # -- its own life

    async def start_kubelet(self) -> None:
        """As kubelet starts: every socket of the folder goes, no plugin is known, the checkpoint is read."""
        for folder in (self.plugin_folder, self.pod_resources.parent):
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                path.unlink()
        for path, add in (
            (self.plugin_folder / "kubelet.sock", pb_grpc.add_RegistrationServicer_to_server),
            (self.pod_resources, resources_grpc.add_PodResourcesListerServicer_to_server),
        ):
            server = grpc.aio.server()
            add(self, server)
            server.add_insecure_port(f"unix://{path}")
            await server.start()
            self._servers.append(server)

    async def stop_kubelet(self) -> None:
        """As kill -9: connections break, pods run on."""
        for stream in self._streams:
            stream.cancel()
        for server in self._servers:
            await server.stop(None)
        self._servers.clear()
        for endpoint in (*self._former, *([self.endpoint] if self.endpoint else ())):
            await endpoint.channel.close()
        self._former.clear()
        self.endpoint, self._capacity = None, None

    async def close(self) -> None:
        """End everything."""
        for pod in self.pods.values():
            if pod.task:
                pod.task.cancel()
        await self.stop_kubelet()

    # -- what the node's status shows

    async def allocatable(self) -> int | None:
        """Healthy devices; None while no plugin has registered since kubelet started."""
        return sum(self.endpoint.devices.values()) if self.endpoint else None

    async def capacity(self) -> int | None:
        """All devices, those of a plugin that has gone included."""
        return self._capacity

    async def resource(self) -> str | None:
        """The resource that is advertised."""
        return self.endpoint.resource if self.endpoint else None

    # -- pods

    async def put_pod(self, name: str, asks: Sequence[Ask]) -> None:
        """A pod was bound to this node."""
        pod = self.pods[name] = Pod(asks)
        pod.task = asyncio.create_task(self._live(pod))

    async def pod(self, name: str) -> PodView:
        """The pod as the API shows it."""
        return self.pods[name].view

    async def delete_pod(self, name: str) -> None:
        """The pod ends and is gone."""
        pod = self.pods.pop(name)
        if pod.task:
            pod.task.cancel()

    async def restart_container(self, name: str, container: str) -> None:
        """The container's process ended; kubelet starts it anew with the answer that it was once given."""
        pod = self.pods[name]
        pod.view.running -= {container}
        pod.task = asyncio.create_task(self._start(pod, pod.grants[container]))

    async def _live(self, pod: Pod) -> None:
        async with self._admission:
            problem = await self._admit(pod)
        if problem:
            pod.view.phase, pod.view.reason, pod.view.message = "Failed", "UnexpectedAdmissionError", problem
            pod.grants.clear()
            return
        for grant in pod.grants.values():
            await self._start(pod, grant)
        pod.view.phase = "Running"

    async def _admit(self, pod: Pod) -> str:
        """Allocate for each container in turn. Ids of a plain init container are used again in the same pod."""
        reusable: list[str] = []
        for ask in pod.asks:
            endpoint = self.endpoint
            taken = {i for other in self.pods.values() for g in other.grants.values() for i in g.ids} - set(
                reusable
            )
            free = [i for i, well in endpoint.devices.items() if well and i not in taken] if endpoint else []
            if endpoint is None or len(free) < ask.slots:
                return f"wants {ask.slots} slots, {len(free)} are free"
            must = [i for i in reusable if i in free][: ask.slots]
            try:
                ids = await self._preferred(endpoint, free, must, ask.slots)
                request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
                answer = await endpoint.stub.Allocate(request)
            except grpc.aio.AioRpcError as error:
                return f"Allocate failed due to {error.details()}"
            pod.grants[ask.container] = Grant(ask, ids, answer.container_responses[0])
            reusable = [*reusable, *ids] if ask.init else [i for i in reusable if i not in ids]
        return ""

    async def _preferred(self, endpoint: Endpoint, free: list[str], must: list[str], size: int) -> list[str]:
        if len(must) == size:
            return must
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=free, must_include_deviceIDs=must, allocation_size=size
        )
        answer = await endpoint.stub.GetPreferredAllocation(
            pb.PreferredAllocationRequest(container_requests=[asked])
        )
        return list(answer.container_responses[0].deviceIDs)

    async def _start(self, pod: Pod, grant: Grant) -> None:
        """PreStartContainer, again and again until it agrees."""
        while True:
            request = pb.PreStartContainerRequest(devices_ids=grant.ids[::-1])
            try:
                if self.endpoint is None:
                    raise LookupError("no plugin")
                await self.endpoint.stub.PreStartContainer(request, timeout=30)
            except (grpc.aio.AioRpcError, LookupError) as error:
                said = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                pod.view.message = f"PreStartContainer failed: {said}"
                await asyncio.sleep(RETRY_SECONDS)
                continue
            pod.view.message = ""
            pod.view.cdi_names[grant.ask.container] = [device.name for device in grant.answer.cdi_devices]
            if not grant.ask.init:
                pod.view.running |= {grant.ask.container}
            return

    # -- its two services

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:
        if self.refuse_registration or request.version != "v1beta1":
            await context.abort(grpc.StatusCode.UNKNOWN, self.refuse_registration or "unsupported version")
        if not self.deaf:
            channel = grpc.aio.insecure_channel(f"unix://{self.plugin_folder / request.endpoint}", options=LOCAL)
            endpoint = Endpoint(request.resource_name, channel)
            stream = asyncio.create_task(self._follow(endpoint))
            self._streams.add(stream)
            stream.add_done_callback(self._streams.discard)
        return pb.Empty()

    async def _follow(self, endpoint: Endpoint) -> None:
        options = await endpoint.stub.GetDevicePluginOptions(pb.Empty())
        assert options.pre_start_required
        former, self.endpoint = self.endpoint, endpoint
        if former:
            self._former.append(former)  # a channel that is closed under a call leaves that call without an end
        try:
            async for told in endpoint.stub.ListAndWatch(pb.Empty()):
                endpoint.devices = {device.ID: device.health == "Healthy" for device in told.devices}
                self._capacity = len(endpoint.devices)
        except grpc.aio.AioRpcError:
            pass
        endpoint.devices = dict.fromkeys(endpoint.devices, False)

    async def GetAllocatableResources(
        self, request: resources_pb.AllocatableResourcesRequest, context: Any
    ) -> resources_pb.AllocatableResourcesResponse:
        """The healthy devices, one entry each."""
        endpoint = self.endpoint
        self.offers_told += 1
        healthy = [slot for slot, well in endpoint.devices.items() if well] if endpoint else []
        devices = [
            resources_pb.ContainerDevices(resource_name=endpoint.resource, device_ids=[slot])
            for slot in healthy
            if endpoint
        ]
        return resources_pb.AllocatableResourcesResponse(devices=devices)

    async def List(self, request: resources_pb.ListPodResourcesRequest, context: Any) -> Any:
        """Containers with their ids; plain init containers are never shown."""
        resource = self.endpoint.resource if self.endpoint else ""
        return resources_pb.ListPodResourcesResponse(
            pod_resources=[
                resources_pb.PodResources(
                    name=name,
                    namespace="default",
                    containers=[
                        resources_pb.ContainerResources(
                            name=grant.ask.container,
                            devices=[
                                resources_pb.ContainerDevices(resource_name=resource, device_ids=[slot])
                                for slot in grant.ids
                            ],
                        )
                        for grant in pod.grants.values()
                        if not grant.ask.init
                    ],
                )
                for name, pod in self.pods.items()
            ]
        )


@contextlib.asynccontextmanager
async def fake_kubelet(folder: Path) -> AsyncIterator[FakeKubelet]:
    """A kubelet that has started."""
    kubelet = FakeKubelet(folder)
    await kubelet.start_kubelet()
    try:
        yield kubelet
    finally:
        await kubelet.close()
