"""What a large gang's plan costs, in nodes asked and looks at the plan: it grows no faster than the gang."""

from collections import Counter

import pytest

from tests.controller.preempt.planner_world import Api, World, whole
from tests.controller.preempt.test_planner import play
from vgpu.controller.preempt import plan_worlds
from vgpu.core import index
from vgpu.core.preempt import needed, spots
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.terms import GroupName, GroupSource

GANG = GroupName(GroupSource.LABEL, "team", "g")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of these is done."""
    done: Counter[str] = Counter()

    def count(owner: object, name: str, what: str) -> None:
        known = getattr(owner, name)

        def counting(*args: object, **given: object) -> object:
            done[what] += 1
            return known(*args, **given)

        monkeypatch.setattr(owner, name, counting)

    count(plan_worlds.PlanWorlds, "of", "looks at the plan")
    count(index, "evaluate", "nodes asked")
    count(spots, "place", "nodes asked")
    count(needed, "fits_later", "nodes checked")
    count(GangDesk, "preemptors_of", "who starts together")
    return done


def start(counted: Counter[str], members: int) -> Counter[str]:
    """A gang of pods of eight cards takes as many full nodes; what that costs from the moment it comes."""

    async def scenario(world: World) -> None:
        for number in range(members):
            world.low(f"l{number}", whole(8), f"n{number}")
        await world.begin()
        counted.clear()
        for number in range(members):
            world.high(f"m{number}", whole(8), owner="g", group=GANG, group_minimum=members)
        bound = [f"uid-m{number}" for number in range(members)]
        await world.until(lambda: all(map(world.bound, bound)), "the gang to be bound")
        assert len(world.api.evictions) == members

    play(scenario, Api(nodes={f"n{number}": 8 for number in range(members)}))
    return Counter(counted)


def test_twice_the_gang_costs_about_twice_the_work(counted: Counter[str]) -> None:
    few, many = start(counted, 12), start(counted, 24)
    assert many["nodes asked"] <= 2.5 * few["nodes asked"]
    assert many["nodes checked"] <= 2.5 * few["nodes checked"]


def test_a_look_at_the_plan_counts_for_all_its_victims(counted: Counter[str]) -> None:
    assert start(counted, 24)["looks at the plan"] < 24


def test_a_gang_is_asked_once_who_starts_together(counted: Counter[str]) -> None:
    assert start(counted, 24)["who starts together"] < 24
