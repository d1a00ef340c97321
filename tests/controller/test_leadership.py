"""Nothing is answered before a take-over has read the cluster, and nothing after the leadership ends."""

import asyncio
import time

from vgpu.controller.fence import Fence
from vgpu.controller.leadership import Leadership


class Watch:
    """A relist that ends when it is told to."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def relist(self) -> None:
        await self.done.wait()


async def test_a_new_leader_refuses_until_every_list_is_folded_and_the_extender_is_open() -> None:
    fence, watches, opened, started = Fence(10, 4), [Watch(), Watch()], asyncio.Event(), asyncio.Event()

    async def open_extender() -> None:
        await opened.wait()

    leadership = Leadership(fence, watches, (open_extender,))
    leadership.on_start(started.set)
    assert leadership.refusal() == "this replica does not lead"
    fence.renewed(time.monotonic())
    work = asyncio.ensure_future(leadership.started())
    for event in (watches[0].done, watches[1].done, opened):
        await asyncio.sleep(0)
        assert leadership.refusal() == "this replica has just begun to lead and reads the cluster"
        assert not started.is_set()
        assert fence.holds_lease
        assert not fence.leading, "nobody decides on what may be older than the last leader's writes"
        event.set()
    await work
    assert leadership.refusal() == ""
    assert started.is_set()
    assert fence.leading


async def test_the_end_of_a_leadership_is_the_end_of_answers() -> None:
    fence = Fence(10, 4)
    fence.renewed(time.monotonic())

    async def open_extender() -> None:
        pass

    leadership = Leadership(fence, [], (open_extender,))
    await leadership.started()
    assert leadership.refusal() == ""
    fence.lost()
    assert leadership.refusal() == "this replica does not lead"
    leadership.stopped()
    fence.renewed(time.monotonic())
    assert leadership.refusal() != ""
    assert not fence.leading
