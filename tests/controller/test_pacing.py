"""Keys become due in order of time; a rate is not passed."""

import asyncio

from vgpu.controller.pacing import DueKeys, Pace


def test_a_key_is_given_once_and_not_before_its_time() -> None:
    due: DueKeys[str] = DueKeys()
    due.add("a", 5)
    assert due.take(4.9) is None
    assert due.take(5) == "a"
    assert due.take(100) is None


def test_adding_again_keeps_the_earlier_time() -> None:
    due: DueKeys[str] = DueKeys()
    due.add("a", 5)
    due.add("a", 9)
    due.add("b", 9)
    due.add("b", 5.5)
    assert [due.take(6), due.take(6), due.take(10)] == ["a", "b", None]


def test_a_discarded_key_is_not_given_and_may_be_added_later() -> None:
    due: DueKeys[str] = DueKeys()
    due.add("a", 1)
    due.discard("a")
    assert due.take(10) is None
    due.add("a", 20)
    assert due.take(10) is None
    assert due.take(20) == "a"


async def test_waiting_ends_when_an_earlier_key_arrives() -> None:
    due: DueKeys[str] = DueKeys()
    now = asyncio.get_running_loop().time()
    due.add("late", now + 1000)
    waiting = asyncio.ensure_future(due.next())
    await asyncio.sleep(0)
    due.add("soon", now)
    assert await asyncio.wait_for(waiting, 5) == "soon"
    assert "late" in due


async def test_turns_are_spaced() -> None:
    pace = Pace(100)
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(4):
        await pace.turn()
    assert loop.time() - started >= 0.03
