"""What a plan says of itself: whom it waits for now, who takes a seat, why it ended; and by which name."""

from tests.controller.preempt.planner_world import Api, World, percent
from tests.controller.preempt.test_gang_plan import VOLCANO, draining, lose, member, scene
from tests.controller.preempt.test_planner import play
from vgpu.core.preempt.facts import PlanPhase, QueueFact
from vgpu.core.preempt.plan import key_of
from vgpu.core.preempt.pod_groups import GroupKind
from vgpu.core.terms import GroupFact, GroupSource


def waits(world: World) -> str:
    """What the one living plan waits for, as the operator answers."""
    assert world.process is not None
    [text] = world.process.preemption.people.owed()["waits"].values()
    return str(text)


def told(world: World, reason: str) -> list[tuple[str, str]]:
    return [(event.object_name, event.message) for event in world.api.events if event.reason == reason]


def test_it_waits_for_its_victims_and_then_for_its_pod_and_never_for_who_is_gone() -> None:
    async def story(world: World) -> None:
        world.victims_end = world.schedules = False
        world.low("low")
        world.high("h")
        await world.begin()
        await world.until(lambda: world.api.evictions == ["uid-low"], "the eviction")
        await world.pass_time(1)
        assert waits(world) == "team/low to end"
        world.end_leaving()
        await world.pass_time(1)
        assert waits(world) == "team/h to be bound"

    play(story, Api(nodes={"n1": 1}))


def test_who_was_not_asked_yet_is_said_to_be() -> None:
    async def story(world: World) -> None:
        world.victims_end = False
        scene(world)
        await world.begin()
        await world.until(lambda: len(world.api.evictions) == 1, "one eviction")
        await world.pass_time(1)
        asked = world.api.evictions[0].removeprefix("uid-")
        assert waits(world).endswith(f" to be asked to go, team/{asked} to end")
        assert f"team/{asked} and" not in waits(world).partition(" to be asked")[0]
        assert world.process is not None
        assert [*world.process.preemption.people.owed()["asked"].values()] == [1]

    play(story, Api(queues=[QueueFact("default", max_in_flight=1)]))


def test_an_empty_seat_is_waited_for_until_a_moment_and_who_takes_it_is_told() -> None:
    async def story(world: World) -> None:
        await draining(world)
        world.end_leaving()
        await world.pass_time(1)
        assert waits(world).startswith("1 more member of the gang, until 20")
        world.schedules = False
        member(world, "m2")
        await world.pass_time(2)
        assert waits(world) == "team/m0, team/m2 to be bound"
        [(name, message)] = told(world, "SeatTaken")
        assert name == "m2"
        assert "takes the place of a member of gang team/g that is gone: " in message
        assert "on n1" in message
        statuses = [raw["status"] for raw in world.api.plans.values()]
        assert "uid-" not in str([status.get("waitsFor") for status in statuses])

    play(story)


def test_a_plan_that_evicts_nobody_has_a_phase_and_names_who_leaves() -> None:
    async def story(world: World) -> None:
        world.victims_end = False
        world.low("low")
        world.high("first")
        await world.begin()
        await world.until(lambda: world.api.evictions == ["uid-low"], "the eviction")
        del world.api.pods["uid-first"]  # the card is left to whom comes next
        second = world.high("second")
        await world.until(lambda: bool(world.api.of_owner(second.uid)), "its plan")
        await world.pass_time(1)
        [plan] = world.api.of_owner(second.uid)
        assert (plan.victims, plan.phase) == ((), PlanPhase.DRAINING)
        status = world.api.plans[plan.namespace, plan.name]["status"]
        assert status["waitsFor"] == waits(world) == "team/low to end, though not for it"
        assert [name for name, _ in told(world, "Preempting")] == ["first"]
        [(name, message)] = told(world, "CardsHeld")
        assert (name, "until team/low have ended" in message) == ("second", True)
        before = world.api.writes.copy()
        world.victims_end = True
        await world.until(lambda: world.bound("uid-second"), "it runs")
        await world.until(lambda: key_of(plan) not in {key_of(one) for one in world.api.facts()}, "its end")
        more = world.api.writes - before
        assert (more["status"], more["nominate"], more["delete"]) <= (1, 1, 2)

    play(story, Api(nodes={"n1": 1}))


def test_a_gang_whose_podgroup_is_gone_keeps_its_cards_and_is_not_sent_in_vain() -> None:
    """It may come again, as a queue may. Whoever was sent meanwhile would not come, and be barred from there."""

    async def story(world: World) -> None:
        world.victims_end = False
        scene(world, VOLCANO)
        process = await world.begin()
        roster = process.roster
        roster.gangs.put_kind(GroupSource.VOLCANO, GroupKind.READ)
        roster.put_group(GroupFact(VOLCANO, 2))
        process.preemption.rules_changed()
        await world.until(lambda: len(world.api.evictions) == 4, "evictions")
        await world.pass_time(1)
        roster.drop_group(VOLCANO.key)
        process.preemption.rules_changed()
        world.end_leaving()
        await world.pass_time(60)
        assert waits(world) == "the PodGroup of team/m0, team/m1 to be there"
        assert not world.api.writes["nominate"]
        roster.put_group(GroupFact(VOLCANO, 2))
        process.preemption.rules_changed()
        await world.until(lambda: world.bound("uid-m0") and world.bound("uid-m1"), "both to start")
        assert world.api.made == 1

    play(story)


def test_an_end_says_why_where_its_owner_still_waits() -> None:
    async def no_podgroup(world: World) -> None:
        await draining(world, VOLCANO)
        assert world.process is not None
        world.process.roster.drop_group(VOLCANO.key)
        world.process.preemption.rules_changed()
        await world.pass_time(2)
        [(name, message)] = told(world, "PreemptionEnded")
        assert (name, message.startswith("OwnerChanged: gang team/g (Volcano PodGroup) is none any more")) == (
            "m0",
            True,
        )

    async def another_size(world: World) -> None:
        await draining(world)
        world.high("small", percent(25), owner="g", group=member(world, "m9").terms.group, group_minimum=2)  # type: ignore[union-attr]
        await lose(world, "m9")
        ends = told(world, "PreemptionEnded")
        assert {message.partition(":")[0] for _, message in ends} == {"OwnerChanged"}
        assert all("ask for other cards than the ones that are held" in message for _, message in ends)

    play(no_podgroup)
    play(another_size)


def test_no_two_plans_of_an_owner_have_one_name_nor_after_a_restart() -> None:
    async def story(world: World) -> None:
        names: list[str] = []
        for number in range(3):
            world.victims_end = True
            for low in range(4):
                world.low(f"l{number}{low}")
            gang = [member(world, f"m{number}{n}") for n in range(2)]
            await world.begin()
            await world.until(lambda: bool(world.api.plans), "a plan")
            names += [key_of(plan) for plan in world.api.facts()]
            await run(world, [pod.uid for pod in gang])
        assert len(set(names)) == 3
        assert len({name.rpartition("-")[0] for name in names}) == 1, "the same owner"

    play(story)


async def run(world: World, uids: list[str]) -> None:
    """Let them run, end, and their plan be cleared away."""
    await world.until(lambda: all(world.bound(uid) for uid in uids), "the gang to run")
    for uid in list(world.api.pods):
        del world.api.pods[uid]
    await world.until(lambda: not world.api.plans, "the plan to go", seconds=4000)
