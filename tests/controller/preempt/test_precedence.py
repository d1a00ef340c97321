"""Before a plan's owner is sent somewhere, whoever comes first in rank and could start there now is sent."""

from dataclasses import replace

from tests.controller.preempt.planner_world import World, now, play_beside_lows, whole
from vgpu.controller.preempt.precedence import MOST_SENT
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.terms import PodTerms


async def victim_of(world: World, name: str, request_cards: int = 1, priority: int = 100) -> str:
    """The pod comes and somebody is evicted for it, who does not end yet: the victim's uid."""
    known = set(world.api.evictions)
    world.high(name, whole(request_cards), priority=priority)
    await world.until(lambda: len(world.api.evictions) == len(known) + request_cards, f"room for {name}")
    await world.pass_time(1)
    return next(uid for uid in world.api.evictions if uid not in known)


async def ends(world: World, uid: str) -> None:
    """The pod is gone at last."""
    del world.api.pods[uid]
    await world.pass_time(2)


def one_plan(world: World, name: str) -> PlanFact:
    [plan] = world.api.of_owner(f"uid-{name}")
    return plan


def test_whose_own_plan_drains_still_takes_what_a_lower_plan_got_free_first() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        first = await victim_of(world, "top")
        second = await victim_of(world, "mid", priority=50)
        await ends(world, second)
        assert world.bound("uid-top")
        assert not world.bound("uid-mid")
        await ends(world, first)
        assert world.bound("uid-mid")
        assert len(world.api.evictions) == 2

    play_beside_lows(scenario)


def test_of_equal_rank_each_takes_its_own() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        first = await victim_of(world, "one")
        second = await victim_of(world, "other")
        await ends(world, second)
        assert world.bound("uid-other")
        assert not world.bound("uid-one")
        await ends(world, first)
        assert world.bound("uid-one")
        assert world.api.made == 2

    play_beside_lows(scenario)


def test_who_comes_as_the_cards_become_free_takes_them_when_he_ranks_higher() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        victim = await victim_of(world, "mid", priority=50)
        world.high("top")
        await ends(world, victim)
        assert world.bound("uid-top")
        assert not world.bound("uid-mid")

    play_beside_lows(scenario)


def test_who_needs_more_than_is_free_lets_the_lower_one_start() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        await victim_of(world, "top", 2)
        second = await victim_of(world, "mid", priority=50)
        await ends(world, second)
        assert world.bound("uid-mid")
        assert not world.bound("uid-top")

    play_beside_lows(scenario)


def test_who_may_not_evict_takes_nothing_that_a_plan_holds() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        world.high("never", preempt_never=True)
        victim = await victim_of(world, "mid", priority=50)
        await ends(world, victim)
        assert world.bound("uid-mid")
        assert not world.bound("uid-never")

    play_beside_lows(scenario)


def test_room_that_came_by_itself_goes_to_the_first_who_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        pod = world.api.pods["uid-l0"]
        terms = replace(pod.terms or PodTerms(), deletion_seconds=now() + 600)
        world.api.pods[pod.uid] = replace(pod, terminating=True, terms=terms)
        world.high("first", created_seconds=1)
        await world.pass_time(1)
        await victim_of(world, "second")
        assert not world.api.of_owner("uid-first")
        await ends(world, "uid-l0")
        assert world.bound("uid-first")
        assert not world.bound("uid-second")
        assert one_plan(world, "second").victims
        assert len(world.api.evictions) == 1

    play_beside_lows(scenario)


def test_whose_plan_ends_is_decided_on_before_those_of_lower_rank() -> None:
    async def scenario(world: World) -> None:
        await world.begin()
        world.pod("waits", priority=0)
        await victim_of(world, "mid", 2, priority=50)
        of_lower: list[PlanFact] = []
        world.api.on_write = lambda kind: of_lower.extend(world.api.of_owner("uid-waits"))
        world.high("top")
        await world.pass_time(20)
        assert not of_lower
        assert len(world.api.evictions) == 3
        assert not one_plan(world, "top").victims
        assert len(one_plan(world, "mid").victims) == 1

    play_beside_lows(scenario)


def test_who_does_not_come_is_not_sent_before_others_for_ever() -> None:
    async def scenario(world: World) -> None:
        process = await world.begin()
        await victim_of(world, "top")
        send = process.preemption.sender.send
        process.preemption.sender.send = lambda uid, to: uid != "uid-top" and send(uid, to)  # type: ignore[method-assign]
        in_vain, victim = 0, await victim_of(world, "mid", priority=50)
        await ends(world, victim)
        while not world.bound("uid-mid"):
            in_vain += 1
            known = set(world.api.evictions)
            world.low(f"again{in_vain}")
            await world.until(lambda known=known: len(world.api.evictions) > len(known), "room for mid")  # type: ignore[misc]
            await world.pass_time(1)
            await ends(world, next(uid for uid in world.api.evictions if uid not in known))
        assert in_vain == MOST_SENT

    play_beside_lows(scenario)
