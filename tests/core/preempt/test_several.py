"""What would happen to pods one after another, and to those who would lose their cards to them."""

from dataclasses import replace
from typing import Any

from tests.core.building import make_request, want
from tests.core.preempt.decided import Decided
from tests.core.preempt.test_decision import TWO_QUEUES, WHOLE, make
from vgpu.core.preempt.afterwards import after
from vgpu.core.preempt.facts import Gang
from vgpu.core.preempt.preview import Outcome, Preview, preview
from vgpu.core.preempt.several import preview_all, preview_each
from vgpu.core.preempt.victims import DisruptionFact
from vgpu.core.reasons import Reason

TWO = make_request(want(2))


def filled(**marks: Any) -> Decided:
    made = make(queues=TWO_QUEUES)
    for i in range(4):
        made.low(f"l{i}", WHOLE, queue="low", **marks)
    return made


def wait(made: Decided, *uids: str, **marks: Any) -> None:
    for uid in uids:
        made.marks[uid] = {"priority": 100, "queue": "high", **marks}
        made.cluster.wait(uid, marks.pop("request", WHOLE))


def each(made: Decided, *uids: str) -> Preview:
    world = made.world()
    return preview_each(world, [world.workloads[uid] for uid in uids], made.cluster.now_seconds)


def test_each_evicts_another_and_takes_other_cards() -> None:
    made = filled()
    wait(made, "h0", "h1", "h2")
    found = each(made, "h2", "h0", "h1")
    assert [pod.uid for pod in found.pods] == ["h0", "h1", "h2"]
    assert len({one.pod.uid for one in found.goes}) == 3
    assert len({card.uuid for _, seat in found.seats for one in seat.containers for card in one.cards}) == 3
    assert found.cost is not None
    assert (found.cost.pods, found.waits, found.outcome) == (3, 0, Outcome.PLAN)
    after_all = {one.name: one.after.cards_thousandths for one in found.queues}
    assert after_all == {"high": 3000, "low": 1000}


def test_as_the_planner_decides_on_them_one_after_another() -> None:
    made, asked = filled(), filled()
    wait(asked, "h0", "h1")
    foretold = [one.pod.uid for one in each(asked, "h0", "h1").goes]
    for uid in ("h0", "h1"):
        made.preempt(uid, WHOLE, queue="high")
    assert made.cluster.evictions == foretold


def test_who_finds_no_room_any_more_is_counted_and_told_why() -> None:
    made = filled()
    wait(made, *(f"h{i}" for i in range(5)))
    found = each(made, *(f"h{i}" for i in range(5)))
    assert (len(found.goes), found.waits) == (4, 1)
    assert found.refusal is not None


def test_a_budget_that_the_first_used_up_stops_the_next() -> None:
    made = filled()
    made.more = {"disruptions": (DisruptionFact("ns/b", 1, frozenset(f"l{i}" for i in range(4))),)}
    wait(made, "h0", "h1")
    found = each(made, "h0", "h1")
    assert (len(found.goes), found.waits) == (1, 1)
    assert found.limits == ("of 4 pods under disruption budget ns/b at most 1 may go now",)


def test_what_is_free_and_what_is_not_are_told_together() -> None:
    made = make(queues=TWO_QUEUES)
    for i in range(3):
        made.low(f"l{i}", WHOLE, queue="low")
    wait(made, "h0", "h1")
    found = each(made, "h0", "h1")
    assert (found.outcome, len(found.seats), len(found.goes)) == (Outcome.PLAN, 2, 1)


def test_whoever_loses_his_cards_is_decided_on_anew_and_what_that_costs_is_told() -> None:
    made = filled()
    plan = made.ask("mid", TWO, queue="low", priority=50)
    assert not isinstance(plan, tuple)
    made.cluster.plan("mid", [one.uid for one in plan.victims], plan.seats)  # type: ignore[union-attr]
    for one in plan.victims:  # type: ignore[union-attr]
        made.cluster.put(replace(made.cluster.pods[one.uid], terminating=True))
    made.marks["top"] = {"priority": 100, "queue": "low"}
    made.cluster.wait("top", TWO)
    world = made.world()
    found = preview_all(world, [world.workloads["top"]], made.cluster.now_seconds)
    assert found.takes
    assert found.goes == ()
    [loser] = found.anew
    assert [pod.uid for pod in loser.pods] == ["mid"]
    assert (loser.outcome, len(loser.goes)) == (Outcome.PLAN, 2)


def test_of_those_who_may_go_by_right_only_those_are_counted_who_may_go_now() -> None:
    made = make()
    made.low("a", WHOLE)
    made.low("b", WHOLE)
    for uid in ("g0", "g1"):
        made.low(uid, WHOLE, gang=Gang("team/g", 2), preemptable=uid == "g0")
    made.more = {"disruptions": (DisruptionFact("ns/none", 0, frozenset({"a"})),)}
    made.ask("h", make_request(want(4)))
    world = made.world()
    found = preview(world, [world.workloads["h"]], made.cluster.now_seconds)
    assert (found.outcome, found.may_go) == (Outcome.NO, 1)
    spared = {reason: (count, text) for reason, count, text in found.spared}
    assert spared[Reason.EVICTION_LIMITS][0] == 2
    assert "disruption budget ns/none" in spared[Reason.EVICTION_LIMITS][1]
    assert [one.may_go for one in found.obstacles] == [1]


def test_nothing_is_changed_by_what_comes_after() -> None:
    made = filled()
    wait(made, "h0")
    world, before = made.world(), made.world()
    answer = preview(world, [world.workloads["h0"]], made.cluster.now_seconds)
    assert after(world, answer) != before
    assert world == before
