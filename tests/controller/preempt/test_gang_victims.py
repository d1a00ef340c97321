"""A gang that is evicted whole goes whole, and once, though its rest counts as entitled when its first left."""

from typing import Any

import pytest

from tests.controller.preempt.planner_world import Api, Last, Process, World, whole
from tests.controller.preempt.test_planner import play
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import Limits, QueueFact
from vgpu.core.terms import GroupName, GroupSource
from vgpu.errors import ApiUnavailable, OutcomeUnknown

GANG = GroupName(GroupSource.LABEL, "team", "g")
ONE_CARD = Limits(1000)


def member(minimum: int = 2) -> dict[str, Any]:
    return {"owner": "g", "group": GANG, "group_minimum": minimum}


def two_cards(**queue: Any) -> Api:
    """The gang of two is more than its queue deserves, each of its members alone is not."""
    return Api(nodes={"n1": 2}, queues=[QueueFact("default", deserved=ONE_CARD, **queue)])


async def let_come_back(world: World, process: Process, seconds: int) -> None:
    """The gang's controller makes members anew, and they start where they are let."""
    for number in range(seconds):
        await world.pass_time(1)
        if sum(pod.name.startswith("m") for pod in world.api.pods.values()) < 2:
            world.pod(f"m-{number}", whole(), **member())
        for pod in [pod for pod in world.api.pods.values() if pod.name.startswith("m-") and not pod.node]:
            view = process.ledger.view("n1")
            known = process.ledger.pod(pod.uid) is not None
            if not known or view is None or process.preemption.gangs.desk.refusal(pod) is not None:
                continue
            assert pod.request is not None
            placement = place(view, pod.request, pod.uid, Policies())
            if isinstance(placement, Placement):
                world._bind(pod, placement)
        process.hear()


async def goes_once(world: World) -> None:
    for name in ("m0", "m1"):
        world.low(name, whole(), **member())
    process = await world.begin()
    world.high("h", whole(2))
    await let_come_back(world, process, 120)
    assert sorted(world.api.evictions) == ["uid-m0", "uid-m1"]
    assert world.bound("uid-h")
    assert world.api.made == 1


def test_one_at_a_time() -> None:
    play(goes_once, two_cards(max_in_flight=1))


@pytest.mark.parametrize(
    "error",
    [
        ApiUnavailable(429, "TooManyRequests", "slow down"),
        ApiUnavailable(503, "", "busy"),
        OutcomeUnknown("no answer"),
    ],
    ids=["throttled", "failing", "no answer"],
)
def test_the_second_call_fails_a_while(error: Exception) -> None:
    api, calls = two_cards(), list[str]()

    def on_write(kind: str) -> None:
        if kind == "evict":
            calls.append(kind)
            if len(calls) == 2:
                api.raises["evict"] = [error, error, error]

    api.on_write = on_write
    play(goes_once, api)


@pytest.mark.parametrize("last", list(Last))
@pytest.mark.parametrize("ends", [True, False], ids=["victims end", "victims stay"])
def test_whoever_goes_on_asks_the_same_victims(last: Last, ends: bool) -> None:
    """The process dies at each of its first writes in turn: with the gang untouched, half gone, and gone."""
    halves = set()
    for dies_at in range(1, 9):

        async def killed(world: World, dies_at: int = dies_at) -> None:
            for name in ("m0", "m1"):
                world.low(name, whole(), **member())
            world.victims_end = ends
            await world.begin(dies_at, last)
            world.high("h", whole(2))
            await world.pass_time(5)
            halves.add(len(world.api.evictions))
            if ends:
                world.end_leaving()
            process = await world.begin()
            world.victims_end = True
            await let_come_back(world, process, 60)
            assert sorted(world.api.evictions) == ["uid-m0", "uid-m1"], dies_at
            assert world.bound("uid-h")

        play(killed, two_cards(max_in_flight=1))
    assert 1 in halves, "the gang was half gone when a process died"


def test_more_members_than_calls_at_once() -> None:
    async def scenario(world: World) -> None:
        for number in range(20):
            world.low(f"m{number}", whole(), **member(20))
        await world.begin()
        world.victims_end = False
        world.high("h", whole(20))
        await world.pass_time(10)
        assert len(world.api.evictions) == 20
        assert world.api.made == 1

    play(scenario, Api(nodes={"n1": 20}, queues=[QueueFact("default", deserved=Limits(8000))]))
