"""What is logged when a container is held back: one line, from whichever side of the port it comes."""

import logging
from pathlib import Path
from typing import NoReturn, cast

import grpc
import pytest

from tests.agent.identity.bench import Bench, make_pod
from vgpu.agent.kubelet import deviceplugin_pb2 as pb
from vgpu.agent.kubelet.board import SlotBoard
from vgpu.agent.kubelet.server import Context, DevicePlugin


class Call:
    """One call of kubelet's; it ends with what `abort` was given."""

    def __init__(self) -> None:
        self.ended_with: tuple[grpc.StatusCode, str] | None = None

    async def abort(self, code: grpc.StatusCode, message: str) -> NoReturn:
        self.ended_with = (code, message)
        raise grpc.aio.AbortError


async def test_a_container_held_back_is_logged_once_with_the_words_that_kubelet_gets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bench, call = Bench(tmp_path), Call()
    running = bench.run(make_pod("p", assignment=""))
    plugin = DevicePlugin(bench.identity, SlotBoard())
    request = pb.PreStartContainerRequest(devices_ids=sorted(running.slots["main"]))
    with pytest.raises(grpc.aio.AbortError):
        await plugin.PreStartContainer(request, cast(Context, call))
    assert call.ended_with is not None
    code, message = call.ended_with
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "ns/p has no assignment of cards" in message
    told = [record.getMessage() for record in caplog.records if "ns/p" in record.getMessage()]
    assert told == [f"container held back slots={','.join(sorted(running.slots['main']))} problem={message}"]
