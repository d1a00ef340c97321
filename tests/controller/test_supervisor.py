"""Tasks that end are started again, and said to be down meanwhile."""

import asyncio

import pytest

from vgpu.controller import supervisor
from vgpu.controller.supervisor import Supervisor


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_SECONDS", 0.0)


async def test_a_task_that_fails_is_started_again() -> None:
    starts: list[int] = []
    enough = asyncio.Event()

    async def work() -> None:
        starts.append(1)
        if len(starts) < 3:
            raise RuntimeError("broken")
        enough.set()
        await asyncio.Event().wait()

    supervised = Supervisor()
    supervised.start("work", work)
    await asyncio.wait_for(enough.wait(), 5)
    assert supervised.problems() == []
    await supervised.stop()
    assert len(starts) == 3


async def test_a_task_that_is_down_is_named_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_SECONDS", 60.0)

    async def work() -> None:
        raise RuntimeError("no such thing")

    supervised = Supervisor()
    supervised.start("work", work)
    for _ in range(10):
        await asyncio.sleep(0)
    assert supervised.problems() == ["work: stopped, starts again soon (RuntimeError: no such thing)"]
    await supervised.stop()


async def test_stopping_cancels_the_work_itself() -> None:
    ended = asyncio.Event()
    running = asyncio.Event()

    async def work() -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    supervised = Supervisor()
    supervised.start("work", work)
    await running.wait()
    await supervised.stop()
    assert ended.is_set()
