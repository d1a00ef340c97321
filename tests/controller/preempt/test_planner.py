"""From a pod that waits to its cards: who is evicted, in which order things are written, and when nothing is."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.controller.preempt.planner_world import BORN, Api, World, percent, whole
from tests.controller.virtual_time import run_virtually
from vgpu.controller.writes import EventWrite
from vgpu.core.placement import Placement
from vgpu.core.preempt.facts import Limits, PlanPhase, QueueFact, StopPolicy
from vgpu.core.reasons import Reason
from vgpu.core.recount import reservations_of
from vgpu.errors import ApiUnavailable, OutcomeUnknown
from vgpu.kube.objects import Key

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def play(scenario: Callable[[World], Awaitable[None]], api: Api | None = None) -> None:
    """Run a scenario on a virtual clock."""

    async def run() -> None:
        world = World(api)
        await scenario(world)
        await world.close()

    run_virtually(run())


def fill(world: World, count: int = 4) -> None:
    for number in range(count):
        world.low(f"l{number}")


def test_s01_one_whole_card_costs_one_pod() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(world.api.evictions) == 1
        assert sum(pod.name.startswith("l") for pod in world.api.pods.values()) == 3

    play(scenario)


def test_s03_three_of_four_shares_go() -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            world.low(f"l{number}", percent(25, 4))
        await world.begin()
        world.high("h", percent(60, 4))
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(world.api.evictions) == 3

    play(scenario)


def test_a_pod_that_goes_while_it_is_decided_on_gets_no_plan(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()

        def gone(answer: Any) -> None:
            world.api.pods.pop("uid-h", None)
            process.hear()

        process.meanwhile = gone
        world.high("h")
        await world.pass_time(5)
        assert process.decisions == 1
        assert "plan begun" not in caplog.text
        assert not list(process.ledger.plans.all())

    play(scenario)


def test_room_that_goes_to_another_while_it_is_decided_on_is_not_held_twice() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        world.pod("other", preempt_never=True)
        process = await world.begin()
        await world.pass_time(1)
        sent: list[Placement] = []

        def send_another_there(answer: Any) -> None:
            if not sent:
                [(_, placement)] = answer.seats
                sent.append(placement)
                assert process.ledger.nominate("uid-other", "n1", placement)

        process.meanwhile = send_another_there
        world.high("h")
        await world.until(lambda: bool(world.api.made), "a plan")
        [plan] = world.api.of_owner("uid-h")
        [card] = plan.reservations
        assert card.reservation.uuid not in {one.uuid for one in reservations_of([("", sent[0])])}
        assert process.decisions > 1
        assert world.api.made == 1

    play(scenario)


def test_a_victim_that_is_gone_before_its_eviction_is_answered_is_owed_all_the_same() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        evict = process.writer.evict

        async def evict_and_hear_it_end(pod: Key) -> None:
            await evict(pod)
            world.api.pods.pop(pod.uid)
            process.hear()

        process.writer.evict = evict_and_hear_it_end  # type: ignore[method-assign]
        world.high("h", whole(2))
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(world.api.evictions) == 2
        [plan] = process.preemption.book.all()
        owed = {debt.uid: debt.pods for debt in process.preemption.recovery.debts(plan)}
        assert owed == {uid.replace("uid-", "job-"): 1 for uid in world.api.evictions}

    play(scenario)


def test_what_is_still_owed_is_told_plan_by_plan_until_it_is_back() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        world.high("h", whole(2))
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        [plan] = process.preemption.book.all()
        names = sorted(uid.removeprefix("uid-") for uid in world.api.evictions)
        owed = [
            {"plan": f"team/{plan.name}", "uid": f"job-{name}", "namespace": "team", "name": name, "pods": 1}
            for name in names
        ]
        told = process.preemption.people.owed()
        assert (told["leading"], sorted(told["debts"], key=lambda debt: debt["name"])) == (True, owed)
        del world.api.pods["uid-h"]
        world.pod("again", owner=names[0])
        await world.pass_time(1)
        world.low("again", owner=names[0])
        await world.pass_time(3)
        assert process.preemption.people.owed()["debts"] == owed[1:]

    play(scenario)


def test_the_plan_stands_before_anybody_goes_and_the_cards_are_held_meanwhile() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        world.victims_end = False
        process = await world.begin()
        world.high("h")

        def look(kind: str) -> None:
            if kind == "evict":
                [plan] = world.api.of_owner("uid-h")
                assert plan.phase is PlanPhase.PLANNED
                assert process.ledger.plans.get(f"team/{plan.name}") is not None

        world.api.on_write = look
        await world.until(lambda: bool(world.api.evictions), "an eviction")
        await world.pass_time(1)
        [plan] = world.api.of_owner("uid-h")
        assert plan.phase is PlanPhase.DRAINING
        assert plan.evictions_sent == frozenset(world.api.evictions)
        assert [debt.pods for debt in plan.debts] == [1]
        assert not world.bound("uid-h")
        world.victims_end = True
        await world.until(lambda: world.bound("uid-h"), "h to be bound")

    play(scenario)


def test_equal_classes_evict_nobody_and_the_pod_is_told_why() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        world.pod("h")
        await world.pass_time(5)
        assert world.api.evictions == []
        assert world.api.plans == {}
        assert "NoLowerRank" in [event.reason for event in world.api.events]
        refusal = process.preemption.planner.refusal("uid-h")
        assert refusal is not None
        assert "team/h" in refusal.message

    play(scenario)


def test_many_equal_pods_cost_one_decision_for_each_change() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        for number in range(300):
            world.pod(f"w{number}")
        await world.pass_time(3)
        assert 1 <= process.decisions <= 2, "their coming is one change; all hear of it within a moment"
        refusals = {process.preemption.planner.refusal(f"uid-w{number}") for number in range(300)}
        assert len(refusals) == 300, "each is named in what it is told"

    play(scenario)


def test_nothing_is_decided_and_written_while_nothing_changes() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        world.pod("w")
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        await world.pass_time(30)
        decisions, writes = process.decisions, dict(world.api.writes)
        await world.pass_time(3600)
        assert process.decisions == decisions
        assert dict(world.api.writes) == writes

    play(scenario)


def test_s38_a_preemptor_that_goes_before_the_first_eviction_costs_nobody_anything() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        world.high("h")

        def look(kind: str) -> None:
            if kind == "create":
                del world.api.pods["uid-h"]
                process.hear()

        world.api.on_write = look
        await world.pass_time(10)
        assert world.api.writes["create"] == 1
        assert world.api.asked == []
        assert world.api.plans == {}

    play(scenario)


def test_s44_a_budget_makes_the_planner_wait_and_then_choose_another() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("h")
        world.api.raises["evict"] = [ApiUnavailable(429, "TooManyRequests", BUDGET) for _ in range(3)]
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(set(world.api.asked[:3])) == 1, "the same pod is asked for while the budget may yield"
        assert len(world.api.evictions) == 1
        assert world.api.evictions[0] != world.api.asked[0]

    play(scenario)


@pytest.mark.parametrize(
    "error",
    [
        ApiUnavailable(429, "TooManyRequests", "Too many requests, please try again later."),
        ApiUnavailable(500, "InternalError", "etcd has no leader"),
        ApiUnavailable(0, "", "connection refused"),
        OutcomeUnknown("no answer"),
    ],
    ids=["throttled", "failing", "away", "no answer"],
)
def test_s45_the_same_pod_is_asked_again_and_none_is_added(error: Exception) -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("h")
        world.api.raises["evict"] = [error for _ in range(6)]
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(set(world.api.asked)) == 1
        assert len(world.api.asked) == 7
        assert len(world.api.evictions) == 1

    play(scenario)


def test_an_answer_that_was_lost_makes_no_second_plan() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("h")
        world.api.raises["create"] = [OutcomeUnknown("no answer"), ApiUnavailable(503, "", "busy")]
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert world.api.made == 1
        assert len(world.api.evictions) == 1

    play(scenario)


def has_evicted(world: World, count: int) -> bool:
    return len(world.api.evictions) == count


def has_plan(world: World, uid: str) -> bool:
    return bool(world.api.of_owner(uid))


def test_s78_a_pod_whose_plans_are_taken_over_again_and_again_may_evict_all_the_same() -> None:
    """All its victims are of one workload, which never evicted anybody."""

    async def scenario(world: World) -> None:
        for number in range(4):
            world.low(f"l{number}", owner="train")
        world.victims_end = False
        await world.begin()
        world.high("h")
        for number in range(1, 5):
            await world.until(partial(has_evicted, world, number), "h to evict one more", 10)
            top = world.high(f"top{number}", priority=200)
            await world.until(partial(has_plan, world, top.uid), "the takeover")

    play(scenario)


def test_s33_a_higher_pod_takes_the_cards_and_the_lower_one_is_decided_on_anew() -> None:
    async def scenario(world: World) -> None:
        for number in range(3):
            world.low(f"k{number}", priority=1000)
        world.low("l0")
        world.low("l1", node_name="n2", priority=60)
        world.victims_end = False
        await world.begin()
        world.pod("m", priority=90)
        await world.until(lambda: bool(world.api.evictions), "the eviction for m")
        world.high("hh")
        await world.until(lambda: len(world.api.evictions) == 2, "another pod to go for m")
        assert world.api.evictions == ["uid-l0", "uid-l1"]
        world.victims_end = True
        await world.until(lambda: world.bound("uid-hh") and world.bound("uid-m"), "both to be bound")
        assert world.api.pods["uid-hh"].node == "n1"

    play(scenario, Api(nodes={"n1": 4, "n2": 1}))


def test_s40_room_elsewhere_spares_who_was_not_asked_to_go_yet() -> None:
    async def scenario(world: World) -> None:
        world.low("l0", whole(2))
        world.low("l1", whole(2), node_name="n2", priority=100)
        process = await world.begin()
        world.high("h", whole(2))

        def look(kind: str) -> None:
            if kind == "create":
                del world.api.pods["uid-l1"]
                process.hear()

        world.api.on_write = look
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert world.api.pods["uid-h"].node == "n2"
        assert world.api.evictions == []

    play(scenario, Api(nodes={"n1": 2, "n2": 2}))


def test_s83_a_queue_that_waits_is_woken_by_its_moment_alone() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("h", created_seconds=BORN + 1000)
        await world.pass_time(250)
        assert world.api.evictions == []
        await world.pass_time(100)
        assert len(world.api.evictions) == 1

    play(scenario, Api(queues=[QueueFact("default", wait_before_seconds=300)]))


def test_s68_and_s63_a_queue_on_hold_or_at_its_cap_evicts_nobody_until_it_may() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        world.high("h")
        await world.pass_time(5)
        assert world.api.evictions == []
        process.change_queue(QueueFact("default"))
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(world.api.evictions) == 1

    play(scenario, Api(queues=[QueueFact("default", stop_policy=StopPolicy.HOLD)]))


def test_hold_and_drain_empties_a_queue_a_few_at_a_time() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        bare = world.api.pods["uid-l3"]
        assert bare.terms is not None
        world.api.pods["uid-l3"] = replace(
            bare, owner_uid="", terms=replace(bare.terms, owner=type(bare.terms.owner)())
        )
        world.victims_end = False
        await world.begin()
        await world.pass_time(5)
        assert len(world.api.evictions) == 1
        world.victims_end = True
        await world.pass_time(10)
        assert sorted(world.api.evictions) == ["uid-l0", "uid-l1", "uid-l2"]
        assert list(world.api.pods) == ["uid-l3"], "nothing would bring it back"

    draining = QueueFact("default", stop_policy=StopPolicy.HOLD_AND_DRAIN, max_in_flight=1)
    play(scenario, Api(queues=[draining]))


def test_max_in_flight_paces_the_evictions_of_a_plan() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        world.victims_end = False
        await world.begin()
        world.high("h", whole(4))
        await world.pass_time(5)
        assert len(world.api.evictions) == 2
        world.victims_end = True
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(set(world.api.evictions)) == 4

    play(scenario, Api(queues=[QueueFact("default", max_in_flight=2)]))


def test_an_unreadable_plan_stands_alone() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        process.preemption.book.malformed(Key("team", "odd", "uid-odd"), "spec: no")
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound")

    play(scenario)


def test_who_does_not_lead_decides_nothing_and_holds_what_plans_say() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        process.writer.fence.lost()
        world.high("h")
        await world.pass_time(5)
        assert dict(world.api.writes) == {}
        assert process.decisions == 0

    play(scenario)


def test_victim_and_preemptor_are_told_of_each_other() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        await world.begin()
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        await world.pass_time(2)
        said = {(event.object_name, event.reason): event.message for event in world.api.events}
        [victim] = world.api.evictions
        name = victim.removeprefix("uid-")
        assert "team/h" in said[name, "Preempted"]
        assert "WithinQueue" in said[name, "Preempted"]
        assert f"team/{name}" in said["h", "Preempting"]
        pod = world.api.pods["uid-h"]
        assert pod.assignment is not None
        [card] = [card.uuid for container in pod.assignment.containers for card in container.cards]
        assert card in said[name, "Preempted"]
        assert card in said["h", "Preempting"]
        order = [event.reason for event in world.api.events]
        assert order.index("Preempted") >= 0

    play(scenario)


def test_s86_two_at_once_evict_one_set_of_sharers_though_the_first_eviction_is_not_answered_yet() -> None:
    """Four pods share the four cards of each node: one such set leaves room for both."""

    async def scenario(world: World) -> None:
        for number in range(8):
            world.low(f"l{number}", percent(25, 4), f"n{number // 4 + 1}")
        process = await world.begin()
        asked, answer = process.writer.evict, asyncio.Event()

        async def slow(pod: Key) -> None:
            await answer.wait()
            await asked(pod)

        process.writer.evict = slow  # type: ignore[method-assign]
        world.high("h1")
        world.high("h2")
        await world.until(lambda: len(world.api.plans) == 2, "both to have a plan")
        assert sorted(len(plan.victims) for plan in world.api.facts()) == [0, 4]
        answer.set()
        await world.until(lambda: world.bound("uid-h1") and world.bound("uid-h2"), "both to be bound")
        assert len(world.api.evictions) == 4

    play(scenario, Api({"n1": 4, "n2": 4}))


def test_nobody_waits_until_it_is_written_that_a_victim_goes() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        process = await world.begin()
        written = asyncio.Event()

        async def slow(event: EventWrite) -> None:
            await written.wait()
            world.api.events.append(event)

        process.writer.write_event = slow  # type: ignore[method-assign]
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert world.api.events == []
        written.set()
        await world.pass_time(2)
        assert "Preempted" in {event.reason for event in world.api.events}

    play(scenario)


def test_who_goes_on_with_a_plan_tells_those_who_are_leaving() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        world.victims_end = False
        await world.begin()
        world.high("h")
        await world.until(lambda: len(world.api.evictions) == 1, "the victim to be asked")
        world.api.events.clear()
        await world.begin()
        await world.pass_time(2)
        [told] = [event for event in world.api.events if event.reason == "Preempted"]
        assert f"uid-{told.object_name}" in world.api.evictions
        assert told.if_absent

    play(scenario)


@pytest.mark.parametrize("cards", [2, 4], ids=["cards full", "cards free"])
def test_a_queue_at_its_capability_takes_from_its_own_whether_cards_are_free_or_not(cards: int) -> None:
    async def scenario(world: World) -> None:
        fill(world, 2)
        await world.begin()
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound")
        assert len(world.api.evictions) == 1

    play(scenario, Api(nodes={"n1": cards}, queues=[QueueFact("default", capability=Limits(2000))]))


def test_a_victim_that_only_the_queue_needs_gone_goes() -> None:
    """The pod's own card is free: what it lacks is room in its queue."""

    async def scenario(world: World) -> None:
        fill(world, 4)
        for name in ("uid-l0", "uid-l1"):
            del world.api.pods[name]  # the cards before those that are in use
        process = await world.begin()
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound", 30)
        assert len(world.api.evictions) == 1
        assert process.decisions == 1

    play(scenario, Api(nodes={"n1": 4}, queues=[QueueFact("default", capability=Limits(2000))]))


def test_a_queue_at_its_capability_says_so_where_nobody_may_go() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2)
        process = await world.begin()
        world.pod("same")
        await world.pass_time(5)
        refusal = process.preemption.planner.refusal("uid-same")
        assert (world.api.evictions, refusal and refusal.reason) == ([], Reason.QUEUE_CAPABILITY)

    play(scenario, Api(nodes={"n1": 4}, queues=[QueueFact("default", capability=Limits(2000))]))
