"""S42: the operator dies at every single write of a plan's life; the next process goes on with the same plan."""

import pytest

from tests.controller.preempt.planner_world import Api, Last, World, percent, whole
from tests.controller.virtual_time import run_virtually
from vgpu.core.facts import PodFact
from vgpu.core.preempt.facts import PlanPhase

MOST_WRITES = 40


async def four_cards(world: World) -> list[PodFact]:
    """Three of four shares go for one pod: several evictions, several cards."""
    for number in range(4):
        world.low(f"l{number}", percent(25, 4))
    return [world.high("h", percent(60, 4))]


async def two_after_each_other(world: World) -> list[PodFact]:
    """Two preemptors, whose plans must not meet."""
    for number in range(4):
        world.low(f"l{number}")
    return [world.high("h0", whole(2)), world.high("h1")]


SCENES = {"four cards": four_cards, "two preemptors": two_after_each_other}


async def play(scene: str, dies_at: int, last: Last) -> tuple[list[str], int]:
    """Evictions that were accepted, and how many writes the first process did."""
    world = World(Api())
    owners = await SCENES[scene](world)
    seen: dict[str, set[frozenset[str]]] = {}

    def look(kind: str) -> None:
        for plan in world.api.facts():
            if plan.phase in (PlanPhase.PLANNED, PlanPhase.DRAINING):
                seen.setdefault(plan.owner_uids[0], set()).add(frozenset(one.uid for one in plan.victims))

    world.api.on_write = look
    first = await world.begin(dies_at, last)
    await world.until(lambda: first.writer.dead.is_set() or all(world.bound(pod.uid) for pod in owners), "an end")
    await world.pass_time(3)
    if first.writer.dead.is_set():
        await world.begin()
    await world.until(lambda: all(world.bound(pod.uid) for pod in owners), "all owners to be bound")
    await world.pass_time(3)
    await world.close()
    assert all(len(sets) == 1 for sets in seen.values()), f"a second set of victims: {seen}"
    living = [plan for plan in world.api.facts() if plan.phase in (PlanPhase.PLANNED, PlanPhase.DRAINING)]
    assert living == [], "every plan has come to its end"
    assert len(set(world.api.evictions)) == len(world.api.evictions)
    return world.api.evictions, first.writer.count


@pytest.mark.parametrize("last", Last, ids=lambda last: last.name.lower())
@pytest.mark.parametrize("scene", SCENES)
def test_s42_whatever_write_is_the_last_the_same_pods_go(scene: str, last: Last) -> None:
    evicted, writes = run_virtually(play(scene, 0, last))
    assert evicted
    assert writes < MOST_WRITES
    for dies_at in range(1, writes + 1):
        again, _ = run_virtually(play(scene, dies_at, last))
        assert sorted(again) == sorted(evicted), f"write {dies_at} was the last one"
