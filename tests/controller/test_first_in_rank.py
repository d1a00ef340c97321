"""What is freed is held for the first in rank before anybody else is answered."""

import asyncio
from dataclasses import replace

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, inventory, node, pending
from tests.controller.test_nominator import Bench, bench
from tests.controller.virtual_time import run_virtually
from vgpu.core.facts import Scheduling, Taint

FIRST, SECOND = 100, 10


def two_wait(it: Bench) -> None:
    """A card is taken; a pod of high and one of low priority were refused, the low one earlier."""
    it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
    it.ledger.put_pod(pending("low", priority=SECOND, memory_mib=CARD_MIB))
    it.ledger.put_pod(pending("high", priority=FIRST, memory_mib=CARD_MIB))
    for name in ("low", "high"):
        assert it.ask(name, "node-a") == []


async def test_who_is_woken_first_does_not_get_what_another_comes_before() -> None:
    async with bench("node-a", nomination_settle_seconds=60) as it:
        two_wait(it)
        it.consumer.drain()
        it.ledger.drop_pod("uid-old")
        assert it.ask("low", "node-a") == []
        assert it.sink.written == [], "held, and not written yet: kube-scheduler may be at it"
        assert it.ask("high", "node-a") == ["node-a"]


async def test_the_first_in_rank_gets_it_at_once_and_nobody_is_held_for() -> None:
    async with bench("node-a", nomination_settle_seconds=60) as it:
        two_wait(it)
        it.ledger.drop_pod("uid-old")
        assert it.ask("high", "node-a") == ["node-a"]
        assert it.ledger.nomination("uid-low") is None


async def test_what_the_first_leaves_is_for_the_next() -> None:
    async with bench("node-a", "node-b", nomination_settle_seconds=60) as it:
        it.ledger.put_pod(bound("other", "node-b", memory_mib=CARD_MIB))
        two_wait(it)
        it.ledger.drop_pod("uid-old")
        it.ledger.drop_pod("uid-other")
        [node_of_low] = it.ask("low", "node-a", "node-b")
        assert it.ask("high", "node-a", "node-b")[0] != node_of_low


async def test_nobody_is_held_for_after_a_pod_whose_preferences_are_weighed() -> None:
    async with bench("node-a", "node-b", nomination_settle_seconds=60) as it:
        it.ledger.put_pod(bound("other", "node-b", memory_mib=CARD_MIB))
        two_wait(it)
        high = it.ledger.find_pod("team", "high")
        assert high is not None
        it.ledger.put_pod(replace(high, scheduling=Scheduling(soft_preferences=True)))
        it.ledger.drop_pod("uid-old")
        it.ledger.drop_pod("uid-other")
        assert sorted(it.ask("high", "node-a", "node-b")) == ["node-a", "node-b"]
        assert it.ledger.nomination("uid-low") is None


async def test_what_is_held_is_written_when_its_time_comes() -> None:
    async with bench("node-a") as it:
        two_wait(it)
        await it.settle()
        it.ledger.drop_pod("uid-old")
        assert it.ask("low", "node-a") == []
        await it.settle()
        assert it.sink.written == [("high", "node-a")]


def test_one_that_was_chosen_already_and_is_held_for_before_its_turn_is_written_to_once() -> None:
    async def scenario() -> None:
        async with bench("node-a", "node-b", nominations_per_second=1) as it:
            it.ledger.put_pod(bound("other", "node-b", memory_mib=CARD_MIB))
            two_wait(it)
            it.consumer.drain()
            await asyncio.sleep(1)
            it.ledger.drop_pod("uid-old")
            it.ledger.drop_pod("uid-other")
            it.consumer.drain()
            await asyncio.sleep(0.5)
            assert it.sink.written == [("high", "node-a")], "the other has its turn in a second"
            assert it.ask("high", "node-a", "node-b") == ["node-a"]
            assert it.ledger.nomination("uid-low") is not None
            await asyncio.sleep(5)
            assert it.sink.written == [("high", "node-a"), ("low", "node-b")]

    run_virtually(scenario())


async def test_a_new_node_is_held_like_a_freed_card() -> None:
    async with bench("node-a", nomination_settle_seconds=60) as it:
        two_wait(it)
        it.consumer.drain()
        it.ledger.put_node(node("node-b"))
        it.ledger.put_inventory(inventory("node-b"))
        assert it.ask("low", "node-a", "node-b") == []
        assert it.ask("high", "node-a", "node-b") == ["node-b"]


async def test_what_the_first_in_rank_may_not_have_is_free_for_others() -> None:
    async with bench("node-a", nomination_settle_seconds=60) as it:
        two_wait(it)
        it.ledger.put_node(node("node-a", taints=(Taint("k", "v", "NoSchedule"),)))
        it.ledger.drop_pod("uid-old")
        assert it.ask("low", "node-a") == ["node-a"], "taints are kube-scheduler's own filter"


def without_an_answer(it: Bench) -> None:
    """kube-scheduler met no extender when it tried the pod of high priority: the leader had just died."""
    high = pending("high", priority=FIRST, memory_mib=CARD_MIB)
    it.ledger.put_pod(replace(high, unschedulable=False, attempt_failed=True))


@pytest.mark.parametrize("known_before", [True, False])
async def test_who_met_no_extender_keeps_its_place_under_the_next_leader(known_before: bool) -> None:
    async with bench("node-a", nomination_settle_seconds=60) as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("low", priority=SECOND, memory_mib=CARD_MIB))
        if known_before:
            without_an_answer(it)
        it.consumer.drain()
        it.nominator.start_over()
        if not known_before:
            without_an_answer(it)
        assert it.ask("low", "node-a") == []
        it.ledger.drop_pod("uid-old")
        assert it.ask("low", "node-a") == []
        assert it.ask("high", "node-a") == ["node-a"]


async def test_who_met_no_extender_is_sent_in_its_turn() -> None:
    async with bench("node-a") as it:
        two_wait(it)
        await it.settle()
        without_an_answer(it)
        it.ledger.drop_pod("uid-old")
        await it.settle()
        assert it.sink.written == [("high", "node-a")]


@pytest.mark.parametrize("leading", [True, False])
async def test_only_the_leader_holds(leading: bool) -> None:
    async with bench("node-a", nomination_settle_seconds=60) as it:
        two_wait(it)
        it.ledger.drop_pod("uid-old")
        if not leading:
            it.fence.lost()
        it.ask("low", "node-a")
        assert (it.ledger.nomination("uid-high") is not None) is leading
