"""What is kept from decision to decision: it follows what changes, and a No is never said out of it."""

import asyncio
import math
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.core.building import make_request, want
from tests.core.preempt.decided import Decided
from tests.core.preempt.plan_cluster import PlanCluster
from vgpu.controller.preempt import deciding
from vgpu.controller.preempt.deciding import Deciding, Question
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.decision_world import NOTHING_LEARNT
from vgpu.core.preempt.pool import Pool, pool_for
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.victims import DisruptionFact

WHOLE = make_request(want(1))


def full(cards: int = 2) -> Decided:
    """A node whose cards are in the hands of low pods, and two high ones that wait."""
    cluster = PlanCluster(cards=cards)
    cluster.nodes = {name: replace(node, pods=110) for name, node in cluster.nodes.items()}
    cluster.restart()
    made = Decided(cluster)
    for number in range(cards):
        made.low(f"l{number}", WHOLE)
    for uid in ("h0", "h1"):
        made.marks[uid] = {"priority": 100}
        cluster.wait(uid, WHOLE)
    return made


def ask(deciding_: Deciding, made: Decided, uid: str) -> Plan | No:
    world = made.world()
    return deciding_.answer(Question(world, (world.workloads[uid],), NOTHING_LEARNT, made.cluster.now_seconds, 1))


def victims(answer: Plan | No) -> list[str]:
    assert isinstance(answer, Plan), answer
    return [victim.uid for victim in answer.victims]


def pools_made(monkeypatch: pytest.MonkeyPatch) -> list[Pool | No]:
    """Every pool that is made from nothing from now on."""
    made: list[Pool | No] = []

    def make(*given: Any) -> Pool | No:
        made.append(pool_for(*given))
        return made[-1]

    monkeypatch.setattr(deciding, "pool_for", make)
    return made


def test_a_budget_that_is_used_up_meanwhile_counts() -> None:
    """No workload has changed."""
    made, asked = full(cards=1), Deciding()
    made.more["disruptions"] = (DisruptionFact("ns/budget", 1, frozenset({"l0"})),)
    assert victims(ask(asked, made, "h0")) == ["l0"]
    made.more["disruptions"] = (DisruptionFact("ns/budget", 0, frozenset({"l0"})),)
    assert isinstance(ask(asked, made, "h1"), No)


def test_who_goes_already_does_not_go_again_and_nobody_is_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked, pools = full(), Deciding(), pools_made(monkeypatch)
    first = victims(ask(asked, made, "h0"))
    made.cluster.evict(first[0])
    second = victims(ask(asked, made, "h1"))
    assert len(first) == 1
    assert second == []  # the card that is being left is room enough
    assert len(pools) == 1


def test_pods_that_different_things_keep_from_starting_are_told_of_their_own() -> None:
    made, asked = full(), Deciding()
    for uid, why in (("h0", "its gate"), ("h1", "its queue")):
        made.marks[uid] = {"active": False, "inactive_why": why}
    for uid, why in (("h0", "its gate"), ("h1", "its queue")):
        world = made.world()
        question = Question(world, (world.workloads[uid],), NOTHING_LEARNT, made.cluster.now_seconds, 1)
        answer = asked.known_no(question) or asked.answer(question)
        assert isinstance(answer, No)
        assert answer.refusal.message.endswith(why)


def test_a_no_is_said_by_what_was_made_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked, pools = full(cards=1), Deciding(), pools_made(monkeypatch)
    assert victims(ask(asked, made, "h0")) == ["l0"]
    made.cluster.gone("l0")
    made.cluster.put(replace(made.cluster.running("other", WHOLE), daemonset_or_mirror=True))
    made.marks["other"] = {"daemonset_or_mirror": True}
    assert isinstance(ask(asked, made, "h1"), No)
    assert len(pools) == 2


def aside_of(
    made: Decided, quick_seconds: float, monkeypatch: pytest.MonkeyPatch, *, anew: bool = False
) -> list[bool]:
    """Of two decisions: were they worked out beside the loop? `anew`: nothing is kept from the first."""
    monkeypatch.setattr(deciding, "QUICK_SECONDS", quick_seconds)
    loops, aside = threading.get_ident(), list[bool]()
    asked = Deciding(lambda answer, seconds: aside.append(threading.get_ident() != loops))

    async def both() -> None:
        for uid in ("h0", "h1"):
            world = made.world()
            given = Question(world, (world.workloads[uid],), NOTHING_LEARNT, made.cluster.now_seconds, 1)
            assert isinstance(await asked.answer_aside(given), Plan)
            made.cluster.now_seconds += deciding.POOL_SECONDS * anew

    asyncio.run(both())
    return aside


def test_after_a_quick_decision_the_next_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert aside_of(full(), math.inf, monkeypatch) == [True, False]


def test_what_takes_long_or_is_worked_out_anew_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert aside_of(full(), 0.0, monkeypatch) == [True, True]
    assert aside_of(full(), math.inf, monkeypatch, anew=True) == [True, True]
