"""Evictions stop, whatever the queues, classes, sizes and gangs are; with a rule switched off they do not.

Each instance is one random contest; `make soak` plays 20,000 of them.
"""

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.core.preempt.contest import Contest, Rules, random_contest
from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.entitlement import entitled_uids
from vgpu.core.preempt.facts import QueueFact, Workload
from vgpu.core.preempt.limits import within
from vgpu.core.preempt.usage import UNUSED, usage_by_queue

FEW = 500
MANY = 20_000
FIRST_SEED = int(os.environ.get("VGPU_CONTEST_SEED", "0"))


def first_circle(rules: Rules, count: int) -> int | None:
    """Seed of the first contest that goes in circles, or None."""
    seeds = range(FIRST_SEED, FIRST_SEED + count)
    return next((seed for seed in seeds if random_contest(seed, rules).circles()), None)


def by_what_runs(
    queues: dict[str, QueueFact], everyone: Sequence[Workload], starting: Sequence[Workload]
) -> frozenset[str]:
    """The rule of others: who starts is entitled while his queue stays within what it deserves, who runs is while
    his queue is."""
    usage = usage_by_queue(everyone)
    name = starting[0].queue
    after = usage.get(name, UNUSED).used + sum_of(w.claim for w in starting)
    may = {w.uid for w in starting} if within(after, queues[name].deserved) else set()
    return frozenset(may) | {
        w.uid for w in everyone if w.running and within(usage[w.queue].used, queues[w.queue].deserved)
    }


def by_the_cards_in_hand(
    queues: dict[str, QueueFact], everyone: Sequence[Workload], _: Sequence[Workload]
) -> frozenset[str]:
    """Our walk, over what each is charged now instead of what he claims."""
    return entitled_uids(queues, [replace(w, claim=w.amounts) for w in everyone])


@pytest.fixture(scope="module")
def played() -> dict[int, tuple[Contest, bool]]:
    """Some contests at their end, by seed, and whether they went in circles."""
    contests = {seed: random_contest(seed, Rules()) for seed in range(FIRST_SEED, FIRST_SEED + FEW)}
    return {seed: (contest, contest.circles()) for seed, contest in contests.items()}


def test_nobody_goes_in_circles(played: dict[int, tuple[Contest, bool]]) -> None:
    assert [seed for seed, (_, circles) in played.items() if circles] == []


def test_no_eviction_breaks_a_guarantee_or_a_cap(played: dict[int, tuple[Contest, bool]]) -> None:
    assert [(seed, contest.wrongs) for seed, (contest, _) in played.items() if contest.wrongs] == []


def test_contests_are_not_empty(played: dict[int, tuple[Contest, bool]]) -> None:
    """Circles can only be missed where there are evictions."""
    assert sum(contest.evictions for contest, _ in played.values()) >= FEW // 2


def test_broken_guarantees_and_caps_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the check of all victims together switched off."""
    monkeypatch.setattr("tests.core.preempt.contest.refuse_victims", lambda *_: None)
    words = {"keeps", "uses"}
    for seed in range(MANY):
        contest = random_contest(seed, Rules())
        contest.circles()
        words -= {word for word in words if any(word in wrong for wrong in contest.wrongs)}
        if not words:
            return
    pytest.fail(f"never noticed: {words}")


@pytest.mark.soak
def test_nobody_goes_in_circles_in_twenty_thousand_contests() -> None:
    assert first_circle(Rules(), MANY) is None


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(hold=False), id="the freed room is not held"),
        pytest.param(Rules(by_what_runs, hold=False), id="entitled by what runs, not held"),
        pytest.param(Rules(by_what_runs), id="entitled by what runs, though held"),
        pytest.param(Rules(by_the_cards_in_hand), id="entitled by the cards in hand, not by the claim"),
    ],
)
def test_circles_come_back_when_a_rule_is_switched_off(rules: Rules) -> None:
    assert first_circle(rules, MANY) is not None
