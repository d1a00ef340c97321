"""A gang loses a bound member while cards are held for the one that it lacked: it needs room for both at once."""

from tests.controller.cluster_facts import CARD_MIB, bound
from tests.controller.test_gangs import Bench, bench, member, runs
from tests.controller.virtual_time import run_virtually

HELD = {"gang team/g": {"uid-a1", "uid-a2"}}


async def lose_the_bound_one(it: Bench) -> None:
    """Cards are held for the second member when the first, which runs, goes; nobody else is there."""
    await it.see(runs(member("a0"), "n0", 0), member("a1"))
    assert (it.sent(), it.held()) == ({"a1": ["n0"]}, {"gang team/g": {"uid-a1"}})
    await it.lose("a0")
    assert it.sent() == {}


def test_when_it_is_complete_again_cards_are_held_for_all_that_it_lacks() -> None:
    async def story() -> None:
        async with bench(2) as it:
            await lose_the_bound_one(it)
            await it.see(member("a2"))
            assert (sorted(it.sent()), it.held()) == (["a1", "a2"], HELD)

    run_virtually(story())


def test_without_room_for_all_it_holds_nothing_and_waits_for_room() -> None:
    async def story() -> None:
        async with bench(2) as it:
            await lose_the_bound_one(it)
            await it.see(bound("x", "n0", 0, CARD_MIB), member("a2"))
            assert (it.sent(), it.held()) == ({}, {})
            assert [[pod.uid for pod in pods] for pods in it.desk.preemptors()] == [["uid-a1", "uid-a2"]]

    run_virtually(story())
