"""What would happen: the decision's own answer, with what it rests on."""

from dataclasses import replace
from typing import Any

import pytest

from tests.core.building import make_request, want
from tests.core.preempt.test_decision import QUARTERS, SIXTY, TWO_QUEUES, WHOLE, make
from vgpu.core.placement import Placement
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid
from vgpu.core.preempt.facts import Amounts, Gang, Limits, QueueFact
from vgpu.core.preempt.guest import with_guest
from vgpu.core.preempt.preview import Outcome, Preview, pods_before, preview
from vgpu.core.preempt.protection import No, Right
from vgpu.core.preempt.swaps import Swap
from vgpu.core.preempt.usage import QueueUsage
from vgpu.core.reasons import Reason
from vgpu.core.terms import OwnerRef, PodTerms


def shown(made: Any, *uids: str, avoid: Avoid = NOTHING_LEARNT) -> Preview:
    world = made.world()
    return preview(world, [world.workloads[uid] for uid in uids], made.cluster.now_seconds, avoid)


def reasons(answer: Preview) -> dict[str, Reason | None]:
    return {one.pod.uid: one.reason for one in answer.stays}


def filled(**fields: Any) -> Any:
    made = make(queues=TWO_QUEUES, **fields)
    for i in range(4):
        made.low(f"l{i}", QUARTERS, queue="low")
    return made


def test_s85_the_answer_is_the_plan_that_the_same_decision_makes() -> None:
    made = filled()
    plan = made.ask("h", SIXTY, queue="high")
    answer = shown(made, "h")
    assert isinstance(plan, Plan)
    assert answer.outcome is Outcome.PLAN
    assert (answer.seats, answer.rule, answer.exact, answer.cost, answer.takes) == (
        plan.seats,
        plan.rule,
        plan.exact,
        plan.cost,
        plan.takes,
    )
    assert [one.pod.uid for one in answer.goes] == [victim.uid for victim in plan.victims]


def test_s03_three_go_by_right_and_the_fourth_is_told_to_be_needless() -> None:
    made = filled()
    made.ask("h", SIXTY, queue="high")
    answer = shown(made, "h")
    assert [one.right for one in answer.goes] == [Right.RECLAIM] * 3
    [fourth] = answer.stays
    assert fourth.right is Right.RECLAIM
    assert "need not" in fourth.why


def test_a_victims_loss_is_its_cards_times_the_time_since_it_started() -> None:
    made = make()
    made.low("l", make_request(want(4, percent=50)), started_seconds=made.cluster.now_seconds - 60)
    made.ask("h", make_request(want(4)))
    assert [one.lost_work for one in shown(made, "h").goes] == [2000 * 60]


@pytest.mark.parametrize(
    ("marks", "want_reason"),
    [
        ({"priority": 100}, Reason.NO_LOWER_RANK),
        ({"preemptable": False}, Reason.NEVER_A_VICTIM),
        ({"owner": OwnerRef()}, Reason.NEVER_A_VICTIM),
        ({"cooldown_seconds": 10_000}, Reason.PROTECTED),
    ],
    ids=["class", "says-so", "bare", "cooldown"],
)
def test_who_stays_on_the_node_is_told_why(marks: dict[str, Any], want_reason: Reason) -> None:
    made = make()
    made.low("spared", make_request(want(2)), **marks)
    made.low("goes", make_request(want(2)))
    made.ask("h", WHOLE)
    answer = shown(made, "h")
    assert [one.pod.uid for one in answer.goes] == ["goes"]
    assert reasons(answer) == {"spared": want_reason}
    assert [(reason, count) for reason, count, _ in answer.spared] == [(want_reason, 1)]


def test_a_pair_that_is_held_apart_is_told_so() -> None:
    made = make()
    made.low("spared", make_request(want(2)), owner=OwnerRef("a", "ReplicaSet", "a"))
    made.low("goes", make_request(want(2)))
    made.ask("h", WHOLE, owner=OwnerRef("b", "ReplicaSet", "b"))
    now = made.cluster.now_seconds
    made.more = {"swaps": (Swap("a", "b", now - 2), Swap("b", "a", now - 1), Swap("a", "b", now))}
    assert reasons(shown(made, "h")) == {"spared": Reason.SWAP_FROZEN}


def test_who_could_not_be_evicted_by_an_earlier_plan_is_told_so() -> None:
    made = make()
    made.low("spared", make_request(want(2)))
    made.low("goes", make_request(want(2)))
    made.ask("h", WHOLE)
    [one] = shown(made, "h", avoid=Avoid(victims=frozenset({"spared"}))).stays
    assert "earlier plan" in one.why


def test_what_is_free_is_used_first_and_nobody_is_said_to_go() -> None:
    made = make()
    made.low("l", make_request(want(3)))
    made.ask("h", WHOLE)
    answer = shown(made, "h")
    assert (answer.outcome, answer.goes) == (Outcome.FITS_NOW, ())


def test_room_that_is_only_becoming_free_is_told_apart() -> None:
    made = make()
    made.low("l", make_request(want(4)))
    made.cluster.put(replace(made.cluster.pods["l"], terminating=True))
    made.ask("h", WHOLE)
    assert shown(made, "h").outcome is Outcome.AS_PODS_LEAVE


def test_one_who_may_evict_nobody_still_takes_what_is_free() -> None:
    made = make()
    made.low("l", make_request(want(3)))
    made.ask("h", WHOLE, preempt_never=True)
    assert shown(made, "h").outcome is Outcome.FITS_NOW
    made.low("m", WHOLE)
    answer = shown(made, "h")
    assert answer.outcome is Outcome.NO
    assert answer.refusal is not None
    assert answer.refusal.reason is Reason.PREEMPTION_NEVER


def test_s30_a_no_names_the_nearest_nodes_and_what_they_lack() -> None:
    made = make()
    made.low("same", make_request(want(4)), priority=100)
    answer = made.ask("h", WHOLE)
    assert isinstance(answer, No)
    told = shown(made, "h")
    assert told.outcome is Outcome.NO
    assert told.refusal == answer.refusal
    assert [(one.node, one.may_go) for one in told.obstacles] == [("n1", 0)]


def test_s75_a_no_that_passes_says_when() -> None:
    made = make(queues={"q": QueueFact("q", min_runtime_preempt_seconds=300)})
    now = made.cluster.now_seconds
    made.low("young", make_request(want(4)), started_seconds=now - 120)
    made.ask("h", WHOLE)
    assert shown(made, "h").until_seconds == now + 180


def test_queues_are_told_before_and_after() -> None:
    made = filled()
    made.ask("h", SIXTY, queue="high")
    changes = {one.name: (one.usage.used, one.after) for one in shown(made, "h").queues}
    cards = {
        name: (before.cards_thousandths, after.cards_thousandths) for name, (before, after) in changes.items()
    }
    assert cards == {"high": (0, 2400), "low": (4000, 1000)}


def test_nothing_is_changed_by_asking() -> None:
    made = filled()
    made.ask("h", SIXTY, queue="high")
    before, version = made.world(), made.cluster.ledger.version
    shown(made, "h")
    assert made.world() == before
    assert made.cluster.ledger.version == version


def test_those_who_are_served_before_are_counted() -> None:
    made = filled()
    made.ask("h", SIXTY, queue="high")
    made.ask("later", SIXTY, queue="high", priority=50)
    world = made.world()
    assert pods_before(world, world.workloads["h"]) == 0
    assert pods_before(world, world.workloads["later"]) == 1


def test_those_who_could_not_start_whatever_others_gave_are_not_served_before() -> None:
    card = Limits(cards_thousandths=1000)
    made = make(queues={**TWO_QUEUES, "full": QueueFact("full", deserved=card, capability=card)})
    made.low("runs", WHOLE, queue="full", priority=100)
    made.ask("capped", WHOLE, queue="full")
    made.ask("nowhere", SIXTY, queue="low", nowhere_why="its labels do not match the node selector")
    made.ask("member", SIXTY, queue="low", gang=Gang("team/g", 2))
    made.ask("able", SIXTY, queue="low")
    made.ask("later", SIXTY, queue="low", priority=50)
    world = made.world()
    assert pods_before(world, world.workloads["later"]) == 1


def test_a_guest_is_answered_as_the_pod_is_once_it_exists() -> None:
    made = filled()
    empty = made.world()
    made.ask("h", SIXTY, queue="high")
    fact = replace(made.cluster.pods["h"], priority=100, terms=PodTerms())
    there = shown(made, "h")
    world = with_guest(empty, fact, "high")
    answer = preview(world, [world.workloads["h"]], made.cluster.now_seconds)
    assert [one.pod.uid for one in answer.goes] == [one.pod.uid for one in there.goes]
    assert answer.seats == there.seats
    assert "h" not in empty.workloads
    assert isinstance(answer.seats[0][1], Placement)


def test_what_a_queue_has_promised_is_promised_beside_a_guest_too() -> None:
    """Not by plans alone: also for gangs that start."""
    made = make(queues=TWO_QUEUES)
    fact = replace(made.cluster.wait("h", WHOLE), terms=PodTerms())
    made.cluster.gone("h")
    world = made.world()
    usage = {"high": QueueUsage(promised=Amounts(2000))}
    world = with_guest(replace(world, standing=replace(world.standing, usage=usage)), fact, "high")
    assert world.standing.usage_of("high").promised == Amounts(2000)


def test_a_guest_takes_part_in_what_its_queue_deserves() -> None:
    made = make(queues=TWO_QUEUES)
    fact = replace(made.cluster.wait("h", WHOLE), terms=PodTerms())
    made.cluster.gone("h")
    world = with_guest(made.world(), fact, "high")
    assert world.standing.entitled == {"h"}
    assert with_guest(made.world(), fact, "low").standing.entitled == set()
