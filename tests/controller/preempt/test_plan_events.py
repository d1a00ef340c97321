"""What victims and preemptors are told of a plan: each other, the rule, the cards; and why it came to nothing."""

from tests.controller.preempt.planner_world import Api, World, whole
from tests.controller.preempt.test_gang_plan import draining, lose, scene
from tests.controller.preempt.test_planner import fill, play
from vgpu.controller.preempt.told import event_about
from vgpu.core.preempt.facts import QueueFact
from vgpu.kube.objects import Key


def said(world: World, reason: str) -> dict[str, str]:
    """By pod."""
    return {event.object_name: event.message for event in world.api.events if event.reason == reason}


def cards_of(world: World, pod: str) -> list[str]:
    assignment = world.api.pods[f"uid-{pod}"].assignment
    assert assignment is not None
    return [card.uuid for container in assignment.containers for card in container.cards]


def test_a_gang_is_named_to_its_victims_and_each_member_its_own_cards() -> None:
    async def story(world: World) -> None:
        scene(world)
        await world.begin()
        await world.until(lambda: world.bound("uid-m0") and world.bound("uid-m1"), "the gang to run")
        await world.pass_time(2)
        victims = said(world, "Preempted")
        assert set(victims) == {f"l{n}" for n in range(4)}
        assert all("evicted for gang team/g (" in message for message in victims.values())
        members = said(world, "Preempting")
        for name in ("m0", "m1"):
            cards = cards_of(world, name)
            assert members[name].startswith("gang team/g evicts 4 pods (")
            assert f"{', '.join(cards)} on n1 are held for this pod" in members[name]
            assert sum(any(card in message for card in cards) for message in victims.values()) == 2

    play(story)


def test_why_a_plan_came_to_nothing_is_one_reason_with_the_cause_in_words() -> None:
    async def story(world: World) -> None:
        fill(world)
        world.victims_end = False
        await world.begin()
        world.high("h", whole(4))
        await world.until(lambda: len(world.api.evictions) == 4, "evictions")
        world.high("hh", whole(4), priority=200)
        await world.until(lambda: "h" in said(world, "PreemptionEnded"), "h to be told")
        assert said(world, "PreemptionEnded")["h"].startswith("TakenOver: ")
        assert "hh" in said(world, "PreemptionEnded")["h"]
        world.victims_end = True
        world.end_leaving()
        await world.until(lambda: world.bound("uid-hh"), "hh to be bound")
        await world.pass_time(2)
        assert "hh" not in said(world, "PreemptionEnded"), "a plan whose owner is bound has nothing to tell"

    play(story)


def test_a_hold_that_nobody_used_is_told_with_its_cause() -> None:
    async def story(world: World) -> None:
        await draining(world)
        world.end_leaving()
        await world.pass_time(70)
        await lose(world)
        assert said(world, "PreemptionEnded")["m0"].startswith("HoldExpired: ")

    play(story, Api(queues=[QueueFact("default", hold_timeout_seconds=60)]))


def test_an_event_is_never_longer_than_the_api_server_takes() -> None:
    event = event_about(Key("team", "p", "uid"), "Preempting", "ä" * 1000)
    assert len(event.message.encode()) <= 1024
