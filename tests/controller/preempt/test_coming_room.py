"""Room that comes by itself is promised to one only, and to nobody once it does not come."""

from dataclasses import replace

import pytest

from tests.controller.preempt.planner_world import Api, World, now, percent, play_beside_lows, whole
from vgpu.core.placement import Policies, place
from vgpu.core.preempt.facts import QueueFact
from vgpu.core.preempt.preview import Outcome, preview
from vgpu.core.reasons import Refusal
from vgpu.core.request import PodRequest
from vgpu.core.terms import PodTerms

GRACE_SECONDS = 600


def deleted(world: World, name: str, grace_seconds: int = GRACE_SECONDS) -> None:
    """A person deletes the pod."""
    pod = world.api.pods[f"uid-{name}"]
    terms = replace(pod.terms or PodTerms(), deletion_seconds=now() + grace_seconds)
    world.api.pods[pod.uid] = replace(pod, terminating=True, terms=terms)


def test_one_takes_room_that_comes_and_the_next_ones_evict() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        deleted(world, "l0")
        for number in range(3):
            world.high(f"h{number}", created_seconds=number)
        await world.until(lambda: len(world.api.evictions) == 2, "two pods to go")
        await world.pass_time(20)
        assert len(world.api.evictions) == 2
        assert not world.api.of_owner("uid-h0")
        assert world.api.of_owner("uid-h1")
        assert world.api.of_owner("uid-h2")

    play_beside_lows(scenario)


def test_each_takes_one_of_those_who_leave_before_anybody_is_evicted() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        deleted(world, "l0")
        deleted(world, "l1")
        for number in range(3):
            world.high(f"h{number}", created_seconds=number)
        await world.pass_time(20)
        assert len(world.api.evictions) == 1
        assert world.api.of_owner("uid-h2")
        assert world.api.made == 1

    play_beside_lows(scenario)


def test_room_that_comes_costs_no_write_and_no_second_look() -> None:
    async def scenario(world: World) -> None:
        process = await world.begin()
        deleted(world, "l0")
        world.high("h0")
        await world.pass_time(5)
        decisions = process.decisions
        await world.pass_time(60)
        assert process.decisions == decisions
        assert not world.api.writes

    play_beside_lows(scenario)


def test_who_ranks_higher_takes_it_and_who_waited_for_it_evicts() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        deleted(world, "l0")
        world.high("mid", priority=50)
        await world.pass_time(5)
        assert not world.api.evictions
        world.high("top")
        await world.until(lambda: bool(world.api.evictions), "a pod to go")
        await world.pass_time(20)
        assert len(world.api.evictions) == 1
        assert world.api.of_owner("uid-mid")
        assert not world.api.of_owner("uid-top")

    play_beside_lows(scenario)


def test_who_takes_it_for_more_than_came_makes_the_other_evict() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        deleted(world, "l0")
        world.high("mid", priority=50)
        await world.pass_time(5)
        world.high("top", whole(2))
        await world.pass_time(20)
        [plan] = world.api.of_owner("uid-top")
        assert len(plan.victims) == 1
        assert len(world.api.evictions) == 2
        assert world.api.of_owner("uid-mid")

    play_beside_lows(scenario)


def test_what_if_sees_that_it_is_taken() -> None:
    async def scenario(world: World) -> None:
        process = await world.begin()
        deleted(world, "l0")
        world.high("h0", created_seconds=1)
        world.high("h1", created_seconds=2, gated=True)
        await world.pass_time(5)
        seen = process.preemption.planner.world()
        first, second = (seen.workloads[f"uid-h{number}"] for number in range(2))
        assert preview(seen, [first], now()).outcome is Outcome.AS_PODS_LEAVE
        second = replace(second, active=True)
        assert preview(seen, [second], now()).outcome is Outcome.PLAN

    play_beside_lows(scenario)


def test_a_pod_that_hangs_on_its_way_out_stops_nobody() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        deleted(world, "l0", grace_seconds=5)
        world.high("h0")
        await world.pass_time(5 + 60 - 1)
        assert not world.api.evictions
        await world.pass_time(2)
        assert len(world.api.evictions) == 1
        await world.pass_time(20)
        assert len(world.api.evictions) == 1

    play_beside_lows(scenario)


def test_how_long_it_may_take_says_the_queue_of_who_waits() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        deleted(world, "l0", grace_seconds=5)
        world.high("h0")
        await world.pass_time(5 + 10 - 1)
        assert not world.api.evictions
        await world.pass_time(2)
        assert len(world.api.evictions) == 1

    play_beside_lows(scenario, Api(queues=[QueueFact("default", stuck_timeout_seconds=10)]))


def test_who_was_promised_it_and_goes_leaves_it_to_the_next() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        world.api.pods["uid-l1"] = replace(world.api.pods["uid-l1"], priority=100)
        world.api.pods["uid-l2"] = replace(world.api.pods["uid-l2"], priority=100)
        world.api.pods["uid-l3"] = replace(world.api.pods["uid-l3"], priority=100)
        deleted(world, "l0")
        world.high("h0", created_seconds=1)
        world.high("h1", created_seconds=2)
        await world.pass_time(5)
        refusal = world.process.preemption.planner.refusal if world.process else None
        assert refusal is not None
        assert refusal("uid-h0") is None
        assert refusal("uid-h1") is not None
        del world.api.pods["uid-h0"]
        await world.pass_time(5)
        assert refusal("uid-h1") is None

    play_beside_lows(scenario)


@pytest.mark.parametrize(
    ("gone_first", "request_of_high"),
    [
        pytest.param("", whole(2), id="two leave"),
        pytest.param("l0", whole(2), id="one has left and one leaves"),
        pytest.param("", percent(60, 2), id="shares"),
    ],
)
def test_room_that_comes_in_pieces_is_held_and_nobody_goes(gone_first: str, request_of_high: PodRequest) -> None:
    """Else those of lower rank take the pieces, and somebody has to go for what was about to be free."""

    async def scenario(world: World) -> None:
        process = await world.begin()
        for name in {"l0", "l1"} - {gone_first}:
            deleted(world, name)
        if gone_first:
            del world.api.pods[f"uid-{gone_first}"]
        await world.pass_time(1)
        world.high("h0", request_of_high)
        await world.pass_time(2)
        [plan] = world.api.of_owner("uid-h0")
        assert plan.victims == ()
        world.pod("low")
        world.api.pods.pop("uid-l0", None)
        await world.pass_time(2)
        view, low = process.ledger.view("n1"), world.api.pods["uid-low"]
        assert view is not None
        assert low.request is not None
        assert isinstance(place(view, low.request, low.uid, Policies()), Refusal)
        del world.api.pods["uid-l1"]
        await world.until(lambda: world.bound("uid-h0"), "it to start")
        assert not world.api.evictions

    play_beside_lows(scenario)


@pytest.mark.parametrize(
    ("leaving", "asked", "held"),
    [
        pytest.param(["half0"], 50, False, id="what one gives is enough"),
        pytest.param(["half0"], 60, True, id="more than one gives, beside what is free"),
        pytest.param(["half0", "part1"], 60, True, id="of two"),
    ],
)
def test_shares_of_one_card_come_in_pieces_too(leaving: list[str], asked: int, held: bool) -> None:
    async def scenario(world: World) -> None:
        process = await world.begin()
        for number in range(1, 4):
            world.api.pods[f"uid-l{number}"] = replace(world.api.pods[f"uid-l{number}"], priority=100)
        del world.api.pods["uid-l0"]
        process.hear()
        world.low("half0", percent(50), priority=100)
        process.hear()
        world.low("part1", percent(20), priority=100)
        process.hear()
        for name in leaving:
            deleted(world, name)
        world.high("h0", percent(asked))
        await world.pass_time(2)
        assert [plan.victims for plan in world.api.of_owner("uid-h0")] == [()] * held
        assert not world.api.evictions

    play_beside_lows(scenario)


def test_room_in_pieces_of_which_one_never_comes_is_held_no_longer_than_it_hangs() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        for name in ("l0", "l1"):
            deleted(world, name, grace_seconds=5)
        world.high("h0", whole(2))
        await world.pass_time(3)
        del world.api.pods["uid-l0"]
        await world.pass_time(60)
        assert not world.api.evictions
        await world.pass_time(4)
        assert len(world.api.evictions) == 1
        assert world.api.evictions[0] not in ("uid-l0", "uid-l1")

    play_beside_lows(scenario)


def test_room_in_pieces_is_held_as_long_as_somebody_has_time_to_leave_it() -> None:
    """The hold's own time begins when all who leave are gone."""

    async def scenario(world: World) -> None:
        await world.begin()
        for name in ("l0", "l1"):
            deleted(world, name, grace_seconds=400)
        world.high("h0", whole(2))
        await world.pass_time(3)
        [plan] = world.api.of_owner("uid-h0")
        await world.pass_time(390)
        assert [one.uid for one in world.api.of_owner("uid-h0")] == [plan.uid]
        del world.api.pods["uid-l0"], world.api.pods["uid-l1"]
        await world.until(lambda: world.bound("uid-h0"), "it to start")
        assert world.api.made == 1

    play_beside_lows(scenario)
