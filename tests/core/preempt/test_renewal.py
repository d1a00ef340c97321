"""A pool that is brought up to date is the one that would be made anew."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

import pytest

from vgpu.core.preempt import renewal
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.eligible import Standing, standing_of
from vgpu.core.preempt.facts import Amounts, Gang, Limits, QueueFact, Workload
from vgpu.core.preempt.pool import Pool, pool_for
from vgpu.core.preempt.problem import Allowance
from vgpu.core.preempt.quotas import guarantees
from vgpu.core.preempt.rank import LARGEST_BOOST
from vgpu.core.preempt.renewal import renewed
from vgpu.core.preempt.swaps import MOST_SWAPS, Swap
from vgpu.core.preempt.victims import DisruptionFact
from vgpu.core.terms import OwnerRef

NOW = 10_000
CARD = Amounts(1000, 32_768, 100)
QUEUES = {
    "mine": QueueFact("mine", deserved=Limits(cards_thousandths=100_000), min_runtime_preempt_seconds=100),
    "lender": QueueFact("lender", guarantee=Limits(cards_thousandths=2000), min_runtime_reclaim_seconds=50),
    "kept": QueueFact("kept", reclaimable=False),
}
ME = Workload("me", "ns", "me", "mine", 100, CARD, CARD, 0, owner=OwnerRef("job", "Job", "job"))


def random_workload(random: Random, uid: str) -> Workload:
    running = random.random() < 0.9
    return Workload(
        uid,
        "ns",
        uid,
        random.choice(["mine", "lender", "lender", "kept"]),
        random.choice([0, 50, 100]),
        CARD,
        CARD,
        0,
        owner=OwnerRef(f"rs-{uid}", "ReplicaSet", uid) if random.random() < 0.9 else OwnerRef(),
        node=random.choice(["n1", "n2", "n3"]) if running else None,
        running=running,
        terminating=random.random() < 0.1,
        started_seconds=NOW - random.choice([10, 60, 200, 5000]),
        preemptable=random.random() < 0.9,
    )


def world_of(workloads: dict[str, Workload], queues: Mapping[str, QueueFact] = QUEUES) -> DecisionWorld:
    covered = DisruptionFact("ns/budget", 1, frozenset({"w1", "w2", "w3"}))
    turns = (("job", "rs-w4"), ("rs-w4", "job"))
    swaps = tuple(Swap(*turns[i % 2], NOW - 5) for i in range(MOST_SWAPS))
    return DecisionWorld(
        {}, workloads, standing_of(queues, workloads.values()), disruptions=(covered,), swaps=swaps
    )


def changed(random: Random, workloads: dict[str, Workload]) -> dict[str, Workload]:
    """Some pods end, begin, or are being deleted."""
    after = dict(workloads)
    for number in range(random.randint(1, 4)):
        uid = f"w{random.randint(0, 14)}"
        if uid not in after:
            after[uid] = random_workload(random, uid)
        elif random.random() < 0.5:
            after[uid] = replace(after[uid], terminating=True)
        else:
            del after[uid]
            after[f"w{20 + number}"] = random_workload(random, f"w{20 + number}")
    return after


def pairs(
    seeds: range = range(300), queues: Mapping[str, QueueFact] = QUEUES
) -> Iterator[tuple[Pool | None, Pool]]:
    """Pools brought up to date, some times over, beside those made anew."""
    for seed in seeds:
        random = Random(seed)
        workloads = {"me": ME, **{f"w{n}": random_workload(random, f"w{n}") for n in range(12)}}
        world = world_of(workloads, queues)
        pool = pool_for(world, [ME], NOW)
        assert isinstance(pool, Pool)
        for _ in range(4):
            before, workloads = world, changed(random, workloads)
            world = world_of(workloads, queues)
            anew = pool_for(world, [ME], NOW)
            assert isinstance(anew, Pool)
            known = renewed(pool, before, world, [ME])
            yield known, anew
            pool = anew if known is None else known


def differs(known: Pool, anew: Pool) -> bool:
    """In anything but the tally of those who are spared, and the order of the own ones."""
    if set(known.scale.classes) != set(anew.scale.classes):
        return False  # a class that is gone stands for nothing
    units = {node: of_node for node, of_node in known.victims.units.items() if of_node}
    return (
        known.candidates.rights != anew.candidates.rights
        or units != anew.victims.units
        or set(known.victims.allowances) != set(anew.victims.allowances)
        or known.victims.unfit != anew.victims.unfit
        or {one.uid for one in known.own} != {one.uid for one in anew.own}
        or known.own_gives != anew.own_gives
        or until(known) > until(anew)
    )


def until(pool: Pool) -> float:
    """When somebody may go who is protected."""
    return math.inf if pool.candidates.until_seconds is None else pool.candidates.until_seconds


def test_it_is_the_one_that_would_be_made_anew() -> None:
    found = list(pairs())
    assert [number for number, (known, anew) in enumerate(found) if known and differs(known, anew)] == []
    assert sum(known is not None for known, _ in found) > len(found) // 3


def test_it_is_where_others_are_entitled_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"lender": replace(QUEUES["lender"], deserved=Limits(cards_thousandths=2000))}
    found = list(pairs(queues=QUEUES | few))
    assert [number for number, (known, anew) in enumerate(found) if known and differs(known, anew)] == []
    assert sum(known is not None for known, _ in found) > len(found) // 3
    monkeypatch.setattr(renewal, "_moved", lambda before, now: frozenset())
    assert any(known is not None and differs(known, anew) for known, anew in pairs(queues=QUEUES | few))


def test_it_is_not_when_who_left_is_not_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = renewal._changes
    monkeypatch.setattr(renewal, "_changes", lambda before, now: ([], honest(before, now)[1]))
    assert any(known is not None and differs(known, anew) for known, anew in pairs())


def test_it_is_not_when_guarantees_stay_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = guarantees
    seen: list[tuple[Allowance, ...]] = []

    def first(standing: Standing, queue: str) -> tuple[Allowance, ...]:
        seen.append(honest(standing, queue))
        return seen[0]

    monkeypatch.setattr(renewal, "guarantees", first)
    assert any(known is not None and differs(known, anew) for known, anew in pairs())


def test_nothing_is_brought_up_to_date_where_a_gang_or_ones_own_entitlement_changed() -> None:
    member = replace(
        random_workload(Random(1), "g"), gang=Gang("g", 2), running=True, node="n1", terminating=False
    )
    before = world_of({"me": ME, "g": member})
    pool = pool_for(before, [ME], NOW)
    assert isinstance(pool, Pool)
    assert renewed(pool, before, before, [ME]) is not None
    assert renewed(pool, before, world_of({"me": ME}), [ME]) is None
    one_card = QUEUES | {"mine": replace(QUEUES["mine"], deserved=Limits(cards_thousandths=1000))}
    before = world_of({"me": ME, "g": member}, one_card)
    more = replace(ME, uid="more", priority=ME.priority + LARGEST_BOOST)
    assert renewed(pool, before, world_of({"me": ME, "g": member, "more": more}, one_card), [ME]) is None
