"""Pods that name a PodGroup: nothing of them starts until it is there, and then as it says."""

from dataclasses import replace

import pytest

from tests.controller.preempt.planner_world import World
from tests.controller.test_gangs import GATE, Bench, bench, member
from tests.controller.virtual_time import run_virtually
from vgpu.core.facts import PodFact
from vgpu.core.preempt.pod_groups import GroupKind
from vgpu.core.reasons import Reason
from vgpu.core.terms import GroupFact, GroupName, GroupSource, PodTerms

VOLCANO = GroupName(GroupSource.VOLCANO, "team", "g")
KUBERNETES = GroupName(GroupSource.KUBERNETES, "team", "g")


def in_group(name: str, group: GroupName = VOLCANO, *gates: str) -> PodFact:
    """A member whose own labels say nothing of how many must run."""
    return replace(member(name, "g", 2, *gates), terms=PodTerms(group=group, gates=frozenset(gates)))


async def read(it: Bench, source: GroupSource = GroupSource.VOLCANO, kind: GroupKind = GroupKind.READ) -> None:
    it.roster.gangs.put_kind(source, kind)
    it.gangs.rules_changed()
    await it.settle()


async def create(it: Bench, fact: GroupFact) -> None:
    it.roster.put_group(fact)
    it.gangs.rules_changed()
    await it.settle()


@pytest.mark.parametrize("gates", [(GATE,), ()], ids=["gated", "without a gate"])
def test_members_wait_for_a_podgroup_that_does_not_exist_and_go_on_when_it_does(gates: tuple[str, ...]) -> None:
    async def story() -> None:
        async with bench(4) as it:
            await read(it)
            await it.see(in_group("a1", VOLCANO, *gates), in_group("a2", VOLCANO, *gates))
            assert (it.sent(), it.held(), it.refusal("a1")) == ({}, {}, Reason.POD_GROUP_NOT_FOUND)
            assert {name: told.reason for name, told in it.lacks.items()} == dict.fromkeys(
                ("a1", "a2"), Reason.POD_GROUP_NOT_FOUND
            )
            assert "no PodGroup g (scheduling.volcano.sh) in namespace team" in it.lacks["a1"].message
            await create(it, GroupFact(VOLCANO, 2))
            assert it.sent() == {name: ["n0", *gates] for name in ("a1", "a2")}
            assert (it.lacks, it.refusal("a1")) == ({}, None)

    run_virtually(story())


def test_after_a_start_nobody_is_let_in_before_the_podgroups_were_read() -> None:
    async def story() -> None:
        async with bench(4) as it:
            await it.see(in_group("a1", VOLCANO, GATE), in_group("b1", KUBERNETES))
            assert (it.sent(), it.refusal("a1"), it.refusal("b1")) == ({}, Reason.GANG_WAITS, Reason.GANG_WAITS)
            it.roster.put_group(GroupFact(VOLCANO, 2))
            await read(it)
            assert (it.sent(), it.refusal("a1")) == ({}, Reason.GANG_INCOMPLETE)
            await it.see(in_group("a2", VOLCANO, GATE))
            assert sorted(it.sent()) == ["a1", "a2"]

    run_virtually(story())


def test_where_the_kind_is_not_served_each_starts_by_itself_and_that_is_said() -> None:
    async def story() -> None:
        async with bench(4) as it:
            await read(it, kind=GroupKind.ABSENT)
            await it.see(in_group("a1", VOLCANO, GATE))
            assert (it.sent(), it.lacks) == ({"a1": [GATE]}, {})
            pod = it.ledger.find_pod("team", "a1")
            assert pod is not None
            assert "this cluster serves no such kind" in it.desk.note_on(pod)

    run_virtually(story())


def test_who_waits_for_a_podgroup_again_is_woken_again() -> None:
    async def story() -> None:
        async with bench(4) as it:
            await read(it)
            await it.see(in_group("a1"))
            await create(it, GroupFact(VOLCANO, 1))
            assert it.sent() == {"a1": [None]}
            it.roster.drop_group(VOLCANO.key)
            await read(it)
            assert (it.sent(), it.refusal("a1")) == ({}, Reason.POD_GROUP_NOT_FOUND)
            await create(it, GroupFact(VOLCANO, 1))
            assert it.sent() == {"a1": [None]}

    run_virtually(story())


@pytest.mark.parametrize("first", ["pods", "group"])
def test_gates_of_pods_that_are_no_gang_are_lifted_whoever_came_first(first: str) -> None:
    async def story() -> None:
        async with bench(4) as it:
            await read(it, GroupSource.KUBERNETES)
            if first == "group":
                await create(it, GroupFact(KUBERNETES))
            await it.see(in_group("a1", KUBERNETES, GATE), in_group("a2", KUBERNETES, GATE))
            if first == "pods":
                assert it.sent() == {}
                await create(it, GroupFact(KUBERNETES))
            assert (it.sent(), it.lacks) == ({"a1": [GATE], "a2": [GATE]}, {})

    run_virtually(story())


def test_nobody_is_evicted_for_pods_whose_podgroup_is_missing_and_they_are_owed_nothing_of_their_queue() -> None:
    async def story() -> None:
        world = World()
        process = await world.begin()
        try:
            process.roster.gangs.put_kind(GroupSource.VOLCANO, GroupKind.READ)
            for number in range(4):
                world.low(f"low{number}")
            world.high("h", owner="g", group=VOLCANO)
            await world.pass_time(5)
            assert (world.api.evictions, world.api.facts()) == ([], [])
            waiting = process.roster.workloads["uid-h"]
            assert (waiting.active, "no PodGroup g" in waiting.inactive_why) == (False, True)
            assert [event.reason for event in world.api.events] == [Reason.POD_GROUP_NOT_FOUND.value]
            process.roster.put_group(GroupFact(VOLCANO, 1))
            process.preemption.rules_changed()
            await world.until(lambda: world.bound("uid-h"), "it runs")
            assert len(world.api.evictions) == 1
        finally:
            await world.close()

    run_virtually(story())
