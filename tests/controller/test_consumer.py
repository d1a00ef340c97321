"""When the ledger's changes are told: the first at once, a stream of them gathered."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.controller.cluster_facts import ledger_of, pending
from tests.controller.virtual_time import run_virtually
from vgpu.controller.consumer import Consumer
from vgpu.core.ledger import Changes, Ledger

REST_SECONDS = 0.03


class Heard:
    """What was told, and when."""

    def __init__(self) -> None:
        self.ledger: Ledger = ledger_of("node-a")
        self.ledger.take_changes()
        self.consumer = Consumer(self.ledger, REST_SECONDS)
        self.consumer.add(self)
        self.told: list[tuple[float, set[str]]] = []

    def changed(self, changes: Changes) -> None:
        self.told.append((asyncio.get_running_loop().time(), set(changes.pods)))

    def put(self, name: str) -> None:
        self.ledger.put_pod(pending(name))
        self.consumer.poke()


def play(scenario: Callable[[Heard], Awaitable[None]]) -> None:
    async def run() -> None:
        heard = Heard()
        running = asyncio.create_task(heard.consumer.run())
        await scenario(heard)
        running.cancel()

    run_virtually(run())


def test_the_first_change_after_a_quiet_time_is_told_at_once() -> None:
    async def scenario(heard: Heard) -> None:
        for name in ("p", "q"):
            await asyncio.sleep(1)
            at = asyncio.get_running_loop().time()
            heard.put(name)
            await asyncio.sleep(REST_SECONDS / 3)
            assert heard.told[-1] == (at, {f"uid-{name}"})

    play(scenario)


def test_what_changes_in_one_turn_of_the_loop_is_told_together() -> None:
    async def scenario(heard: Heard) -> None:
        await asyncio.sleep(1)
        for name in "pqr":
            asyncio.get_running_loop().call_soon(heard.put, name)
        await asyncio.sleep(REST_SECONDS / 3)
        assert [names for _, names in heard.told] == [{"uid-p", "uid-q", "uid-r"}]

    play(scenario)


def test_changes_soon_after_are_gathered_and_none_is_lost() -> None:
    async def scenario(heard: Heard) -> None:
        await asyncio.sleep(1)
        heard.put("first")
        for name in "pqr":
            await asyncio.sleep(REST_SECONDS / 10)
            heard.put(name)
        await asyncio.sleep(1)
        (began, first), (later, rest) = heard.told
        assert (first, rest) == ({"uid-first"}, {"uid-p", "uid-q", "uid-r"})
        assert later == pytest.approx(began + REST_SECONDS)

    play(scenario)


def test_a_stream_of_changes_is_told_no_more_often_than_the_rest_between_allows() -> None:
    async def scenario(heard: Heard) -> None:
        for number in range(1000):
            heard.put(f"p{number}")
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert len(heard.told) <= 1.2 / REST_SECONDS
        assert len(set().union(*(names for _, names in heard.told))) == 1000

    play(scenario)
