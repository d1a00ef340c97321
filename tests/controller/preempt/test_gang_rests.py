"""A gang that did not use its room rests while it has it; once others have taken it, it waits as others do."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound
from tests.controller.preempt.planner_world import Api, World, now
from tests.controller.preempt.test_planner import play
from tests.controller.test_gangs import HOLD_SECONDS, Bench, bench, member
from tests.controller.virtual_time import run_virtually
from vgpu.controller.preempt.gang_rooms import GangRooms
from vgpu.core.preempt.facts import Limits, QueueFact
from vgpu.core.preempt.gang_state import GangState
from vgpu.core.terms import GroupName, GroupSource

BOTH = [["uid-a0", "uid-a1"]]
HOLD: dict[str, Any] = {"hold_timeout_seconds": 60}


async def rest(it: Bench) -> None:
    """A gang of two is sent, does not come, and rests."""
    await it.see(member("a0"), member("a1"))
    assert it.sent()
    await asyncio.sleep(HOLD_SECONDS + 1)
    await it.settle()
    assert it.held() == {}


def short(it: Bench) -> list[list[str]]:
    """Who is to be decided on."""
    return [[pod.uid for pod in pods] for pods in it.desk.preemptors()]


def test_once_others_have_its_room_it_is_short_of_room() -> None:
    async def story() -> None:
        async with bench(2) as it:
            await rest(it)
            assert short(it) == []
            before = len(it.short)
            await it.see(bound("x", "n0", 0, CARD_MIB))
            assert (short(it), it.held(), len(it.short) > before) == (BOTH, {}, True)
            await it.lose("x")
            assert (short(it), list(it.held())) == ([], ["gang team/g"])

    run_virtually(story())


def test_while_it_has_room_elsewhere_it_rests_on_and_nothing_is_held_again() -> None:
    async def story() -> None:
        async with bench(2, 3) as it:
            await rest(it)
            for number in range(2):
                await it.see(bound(f"x{number}", "n0", number, CARD_MIB))
            await it.see(bound("y0", "n1", 0, CARD_MIB))
            assert (short(it), it.held(), it.sent()) == ([], {}, {})
            await it.see(bound("y1", "n1", 1, CARD_MIB))
            assert short(it) == BOTH

    run_virtually(story())


def test_what_comes_between_the_look_and_its_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room that was found elsewhere is taken while the look goes on."""

    async def story() -> None:
        async with bench(2, 2) as it:
            await rest(it)
            look, takers = GangRooms.find, [bound("y", "n1", 0, CARD_MIB)]

            async def slowly(self: GangRooms, states: Sequence[GangState]) -> Any:
                found = await look(self, states)
                while found[0] and takers:
                    it.ledger.put_pod(takers[0])
                    it.roster.put_pod(takers.pop())
                    it.consumer.drain()
                return found

            monkeypatch.setattr(GangRooms, "find", slowly)
            await it.see(bound("x", "n0", 0, CARD_MIB), bound("z", "n0", 1, CARD_MIB))
            assert short(it) == BOTH

    run_virtually(story())


def test_once_others_have_its_room_in_the_queue_it_is_short_of_room() -> None:
    async def story() -> None:
        async with bench(2, 3, queue=QueueFact("default", capability=Limits(3000))) as it:
            await rest(it)
            await it.see(bound("x0", "n1", 0, CARD_MIB))
            assert short(it) == []
            await it.see(bound("x1", "n1", 1, CARD_MIB))
            assert (short(it), it.held()) == (BOTH, {})

    run_virtually(story())


def test_what_the_queue_kept_back_does_not_rest() -> None:
    """Its capability was lowered meanwhile: it lets two start, and not the three for whom cards were held."""

    async def story() -> None:
        async with bench(4, queue=QueueFact("default", capability=Limits(3000))) as it:
            await it.see(*(member(f"a{n}", created=f"2026-01-01T00:00:0{n}Z") for n in range(3)))
            assert len(it.sent()) == 3
            it.roster.put_queue(QueueFact("default", capability=Limits(2000)))
            it.gangs.rules_changed()
            await asyncio.sleep(HOLD_SECONDS + 1)
            await it.settle()
            assert (sorted(it.sent()), it.held()) == (["a0", "a1"], {"gang team/g": {"uid-a0", "uid-a1"}})
            await asyncio.sleep(HOLD_SECONDS + 1)
            await it.settle()
            assert (it.held(), it.sent()) == ({}, {})

    run_virtually(story())


def test_those_who_took_its_room_go_for_a_gang_of_higher_rank() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        for number in range(2):
            world.high(
                f"m{number}",
                owner="g",
                group=GroupName(GroupSource.LABEL, "team", "g"),
                group_minimum=2,
                created_seconds=now(),
            )
        await world.pass_time(90)
        for number in range(4):
            world.low(f"l{number}")
        await world.until(lambda: world.bound("uid-m0") and world.bound("uid-m1"), "the gang to be bound")
        assert len(world.api.evictions) == 2

    play(scenario, Api(queues=[QueueFact("default", **HOLD)]))
