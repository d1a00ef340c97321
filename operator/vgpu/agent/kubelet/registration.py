"""Keeps the device plugin served and known to kubelet, whatever kubelet does.

The plugin and kubelet's folder enter; nothing leaves but two sockets' traffic. A kubelet that starts anew removes
every socket of its folder and knows no plugin, so each new kubelet.sock means: serve on a new socket, register.
The folder is looked at once in half a second: two stat calls. inotify would need one of the few instances that a
node has for all its processes, and so this way as well.
"""

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from vgpu.agent.clock import Clock
from vgpu.agent.kubelet import deviceplugin_pb2 as pb
from vgpu.agent.kubelet import deviceplugin_pb2_grpc as pb_grpc
from vgpu.agent.kubelet.board import SlotBoard
from vgpu.agent.kubelet.server import OPTIONS, DevicePlugin
from vgpu.agent.kubelet.socket_mark import SocketMark, mark_of

LOG = logging.getLogger(__name__)
API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
ENDPOINT = "vgpu.sock"
REGISTER_SECONDS = 5.0
LOOK_SECONDS = 0.5
STREAM_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 10.0
# Channels share connections, and their pauses after a failure, unless told otherwise: a new kubelet would wait.
CHANNEL = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class NotRegistered(Exception):
    """kubelet does not know the plugin now; the message says why."""


class KubeletLink:
    """Serves `plugin` in kubelet's folder and registers it for one resource."""

    def __init__(self, plugin: DevicePlugin, board: SlotBoard, folder: Path, resource: str, clock: Clock) -> None:
        self._plugin = plugin
        self._board = board
        self._kubelet = folder / KUBELET_SOCKET
        self._own = folder / ENDPOINT
        self._resource = resource
        self._clock = clock
        self._failures = 0
        self._problem = ""
        self._doubt = ""

    @property
    def in_use(self) -> bool:
        """Does a kubelet listen now?"""
        return self._plugin.streams > 0

    def register_anew(self, problem: str) -> None:
        """kubelet does not have this plugin, whatever it looks like from here."""
        self._doubt = problem

    async def run(self) -> None:
        """Serve and register, again and again, until cancelled. Nothing is registered before slots are known."""
        await self._board.known()
        while True:
            kubelet = mark_of(self._kubelet)
            try:
                if kubelet is None:
                    raise NotRegistered(f"{self._kubelet} is not there: kubelet does not run")
                async with self._serving():
                    await self._register()
                    await self._while_known(kubelet)
            except NotRegistered as error:
                self._complain(str(error))
                await self._pause(kubelet)

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        """Serve on a new socket. What lies there under its name is of a process that is gone."""
        try:
            self._own.unlink(missing_ok=True)
        except OSError as error:
            raise NotRegistered(f"{self._own} cannot be served: {error}") from error
        server = grpc.aio.server()
        pb_grpc.add_DevicePluginServicer_to_server(self._plugin, server)
        try:
            server.add_insecure_port(f"unix://{self._own}")
            await server.start()
            yield
        except RuntimeError as error:
            raise NotRegistered(f"{self._own} cannot be served: {error}") from error
        finally:
            await server.stop(grace=None)

    async def _register(self) -> None:
        request = pb.RegisterRequest(
            version=API_VERSION, endpoint=ENDPOINT, resource_name=self._resource, options=OPTIONS
        )
        async with grpc.aio.insecure_channel(f"unix://{self._kubelet}", options=CHANNEL) as channel:
            try:
                await pb_grpc.RegistrationStub(channel).Register(request, timeout=REGISTER_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise NotRegistered(f"kubelet refuses the plugin: {error.details()}") from error

    async def _while_known(self, kubelet: SocketMark) -> None:
        """Return when another kubelet is there. Raises NotRegistered where this one has lost the plugin."""
        own, silent_since, listening = mark_of(self._own), self._clock.monotonic(), False
        self._doubt = ""
        while mark_of(self._kubelet) == kubelet:
            if mark_of(self._own) != own:
                raise NotRegistered(f"{self._own} was removed")
            if self._doubt:
                raise NotRegistered(self._doubt)
            now = self._clock.monotonic()
            if self.in_use:
                if not listening:
                    LOG.info("registered with kubelet resource=%s", self._resource)
                silent_since, listening, self._failures, self._problem = now, True, 0, ""
            elif now - silent_since >= STREAM_SECONDS:
                raise NotRegistered(f"kubelet has not listened for {STREAM_SECONDS:g} s")
            await self._clock.sleep(LOOK_SECONDS)

    async def _pause(self, kubelet: SocketMark | None) -> None:
        """Wait 1 to 10 seconds, or until another kubelet is there."""
        until = self._clock.monotonic() + min(2.0 ** min(self._failures - 1, 10), LONGEST_PAUSE_SECONDS)
        while mark_of(self._kubelet) == kubelet and self._clock.monotonic() < until:
            await self._clock.sleep(LOOK_SECONDS)

    def _complain(self, problem: str) -> None:
        self._failures += 1
        if problem != self._problem:
            LOG.warning("not registered with kubelet resource=%s problem=%s", self._resource, problem)
        self._problem = problem
