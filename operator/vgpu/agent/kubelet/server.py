"""kubelet's device plugin API: requests enter as messages, answers leave as messages.

Translates between gRPC on one side and the slot board and identity on the other, and decides nothing. It never
touches the cards' driver or the API server: kubelet calls Allocate inside its own loop and without a time limit.
"""

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, NoReturn

import grpc

from vgpu.agent.identity.port import AllocationRefused, ContainerAnswer, Identity, PreStartRefused
from vgpu.agent.kubelet import deviceplugin_pb2 as pb
from vgpu.agent.kubelet import deviceplugin_pb2_grpc as pb_grpc
from vgpu.agent.kubelet.board import SlotBoard
from vgpu.agent.kubelet.slots import Slots, preferred

LOG = logging.getLogger(__name__)
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
RECENT_ANSWERS = 32
"""So many answers back a slot is not given out again while others are free."""
OPTIONS = pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
Context = grpc.aio.ServicerContext[Any, Any]


class DevicePlugin(pb_grpc.DevicePluginServicer):
    """Serves one kubelet; `streams` is how many ListAndWatch calls are open."""

    def __init__(self, identity: Identity, board: SlotBoard) -> None:
        self.streams = 0
        self._identity = identity
        self._board = board
        self._recent: deque[frozenset[str]] = deque(maxlen=RECENT_ANSWERS)

    async def GetDevicePluginOptions(self, request: pb.Empty, context: Context) -> pb.DevicePluginOptions:
        """What of the API is used."""
        return OPTIONS

    async def ListAndWatch(self, request: pb.Empty, context: Context) -> AsyncIterator[pb.ListAndWatchResponse]:
        """The slots at once and after each change, as long as kubelet listens."""
        self._identity.kubelet_came()
        with self._counted():
            async for slots in self._board.watch():
                LOG.info("slots told to kubelet total=%d healthy=%d", slots.total, slots.healthy)
                yield listed(slots)

    async def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: Context
    ) -> pb.PreferredAllocationResponse:
        """Any free slots do; the lowest are asked for that were not given out just now."""
        recent = frozenset[str]().union(*self._recent)
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(
                    deviceIDs=preferred(
                        asked.available_deviceIDs, asked.must_include_deviceIDs, asked.allocation_size, recent
                    )
                )
                for asked in request.container_requests
            ]
        )

    async def Allocate(self, request: pb.AllocateRequest, context: Context) -> pb.AllocateResponse:
        """One answer for each container."""
        asked = [frozenset(r.devices_ids) for r in request.container_requests]
        await self._identity.ready_for(asked)
        try:
            answers = self._identity.allocate(asked)
        except AllocationRefused as error:
            await refuse(context, f"allocation refused: {error}")
        self._recent.extend(asked)
        return pb.AllocateResponse(container_responses=[_message(answer) for answer in answers])

    async def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse:
        """Return when the container may start; a refusal is tried again by kubelet."""
        try:
            await self._identity.pre_start(frozenset(request.devices_ids))
        except PreStartRefused as error:
            LOG.warning("container held back slots=%s problem=%s", ",".join(sorted(request.devices_ids)), error)
            await refuse(context, str(error))
        return pb.PreStartContainerResponse()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


def listed(slots: Slots) -> pb.ListAndWatchResponse:
    """The whole list as kubelet wants it."""
    return pb.ListAndWatchResponse(
        devices=[
            pb.Device(ID=slot, health=HEALTHY if number < slots.healthy else UNHEALTHY)
            for number, slot in enumerate(slots.ids)
        ]
    )


async def refuse(context: Context, message: str) -> NoReturn:
    """End the call with our words: kubelet shows them in the pod's event."""
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)


def _message(answer: ContainerAnswer) -> pb.ContainerAllocateResponse:
    return pb.ContainerAllocateResponse(
        envs=dict(answer.env),
        mounts=[
            pb.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in answer.mounts
        ],
        annotations=dict(answer.annotations),
        cdi_devices=[pb.CDIDevice(name=name) for name in answer.cdi_names],
    )
