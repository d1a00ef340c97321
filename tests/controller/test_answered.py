"""Who was answered with nodes and is about to be bound keeps its place in rank, for a moment."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, inventory, ledger_of, pending
from tests.controller.test_first_in_rank import FIRST, SECOND, two_wait
from tests.controller.test_nominator import Bench, bench
from tests.controller.test_nominator_owed import Owing
from tests.controller.virtual_time import run_virtually
from vgpu.controller import answered as answered_module
from vgpu.controller.answered import COMING_SECONDS, MOST_COUNTED, REST_SECONDS, AnsweredPods
from vgpu.core.facts import PodFact, Scheduling
from vgpu.core.filtering import FilterAnswer
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import Nomination, Turns, nominate
from vgpu.core.placement import Policies
from vgpu.core.views import NodeView

SETTLE = 0.2
MORE = 0.01
LOW = pending("low", priority=SECOND, memory_mib=CARD_MIB)
HIGH = pending("high", priority=FIRST, memory_mib=CARD_MIB)
BEFORE_COMING_ENDS = COMING_SECONDS - SETTLE


def virtually(scenario: Coroutine[Any, Any, None]) -> None:
    run_virtually(scenario)


def put(it: Bench, *pods: PodFact) -> None:
    for pod in pods:
        it.ledger.put_pod(pod)
    it.consumer.drain()


def gone(it: Bench, *uids: str) -> None:
    for uid in uids:
        it.ledger.drop_pod(uid)
    it.consumer.drain()


async def high_is_answered(it: Bench) -> None:
    """The only card is freed; of the two that wait, the first in rank is answered with it."""
    two_wait(it)
    it.consumer.drain()
    await asyncio.sleep(1)
    gone(it, "uid-old")
    assert it.ask("high", "node-a") == ["node-a"]


async def answered_with_both(it: Bench, high: PodFact) -> None:
    """Two cards are freed and the first in rank is answered with both; then one comes that is owed a card."""
    put(it, *(bound(f"old-{name}", f"node-{name}", memory_mib=CARD_MIB) for name in "ab"), high)
    await asyncio.sleep(1)
    gone(it, "uid-old-a", "uid-old-b")
    assert sorted(it.ask("high", "node-a", "node-b")) == ["node-a", "node-b"]
    put(it, LOW)


def test_the_card_of_one_about_to_be_bound_is_not_given_to_the_next() -> None:
    async def scenario() -> None:
        async with bench("node-a", nomination_settle_seconds=SETTLE) as it:
            await high_is_answered(it)
            await asyncio.sleep(BEFORE_COMING_ENDS)
            assert it.ledger.nomination("uid-low") is None
            put(it, bound("high", "node-a", memory_mib=CARD_MIB))
            await asyncio.sleep(60)
            assert it.sink.written == []

    virtually(scenario())


def test_what_one_leaves_who_does_not_come_is_given_to_the_next() -> None:
    async def scenario() -> None:
        async with bench("node-a", nomination_settle_seconds=SETTLE) as it:
            await high_is_answered(it)
            await asyncio.sleep(COMING_SECONDS + MORE)
            assert it.sink.written == [("low", "node-a")]

    virtually(scenario())


def test_one_that_is_answered_over_and_over_and_never_bound_keeps_nobody_waiting_for_longer() -> None:
    async def scenario() -> None:
        async with bench("node-a", nomination_settle_seconds=SETTLE) as it:
            await high_is_answered(it)
            while it.sink.written == []:
                assert it.ask("high", "node-a") == ["node-a"]
                await asyncio.sleep(0.1)
            assert it.sink.written == [("low", "node-a")]

    virtually(asyncio.wait_for(scenario(), COMING_SECONDS + 2))


@pytest.mark.parametrize("why", ["gone", "bound elsewhere", "being deleted"])
def test_the_room_of_one_that_will_not_come_is_offered_at_once(why: str) -> None:
    async def scenario() -> None:
        async with bench("node-a", "node-b", nomination_settle_seconds=SETTLE) as it:
            it.ledger.put_pod(bound("other", "node-b", memory_mib=CARD_MIB))
            await high_is_answered(it)
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == []
            if why == "gone":
                gone(it, "uid-high")
            elif why == "bound elsewhere":
                put(it, bound("high", "node-b", memory_mib=CARD_MIB))
            else:
                put(it, replace(HIGH, terminating=True))
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low", "node-a")]

    virtually(scenario())


@pytest.mark.parametrize("soft", [False, True], ids=["", "soft preferences"])
def test_kube_scheduler_may_choose_any_node_of_the_answer_and_the_other_one_is_given_away_then(soft: bool) -> None:
    async def scenario() -> None:
        offers = Owing(uids={"uid-low"}, first="high")
        async with bench("node-a", "node-b", offers=offers, nomination_settle_seconds=SETTLE) as it:
            await answered_with_both(it, replace(HIGH, scheduling=Scheduling(soft_preferences=soft)))
            await asyncio.sleep(BEFORE_COMING_ENDS)
            assert it.sink.written == []
            put(it, bound("high", "node-b", memory_mib=CARD_MIB))
            await asyncio.sleep(MORE)
            assert it.sink.written == [("low", "node-a")]

    virtually(scenario())


def test_room_that_is_left_beside_it_is_given_away_at_once() -> None:
    async def scenario() -> None:
        offers = Owing(uids={"uid-low"}, first="high")
        async with bench("node-a", offers=offers, nomination_settle_seconds=SETTLE) as it:
            it.ledger.put_inventory(inventory("node-a", cards=2))
            put(it, *(bound(f"old-{i}", "node-a", card=i, memory_mib=CARD_MIB) for i in range(2)), HIGH)
            await asyncio.sleep(1)
            gone(it, "uid-old-0", "uid-old-1")
            assert it.ask("high", "node-a") == ["node-a"]
            put(it, LOW)
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low", "node-a")]

    virtually(scenario())


def test_what_is_freed_where_it_was_not_sent_is_given_away_at_once() -> None:
    async def scenario() -> None:
        async with bench("node-a", "node-b", nomination_settle_seconds=SETTLE) as it:
            it.ledger.put_pod(bound("other", "node-b", memory_mib=CARD_MIB))
            await high_is_answered(it)
            gone(it, "uid-other")
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low", "node-b")]

    virtually(scenario())


def test_who_comes_before_it_goes_before_it() -> None:
    async def scenario() -> None:
        offers = Owing(uids={"uid-low"}, first="low")
        async with bench("node-a", offers=offers, nomination_settle_seconds=SETTLE) as it:
            put(it, bound("old", "node-a", memory_mib=CARD_MIB), HIGH)
            await asyncio.sleep(1)
            gone(it, "uid-old")
            assert it.ask("high", "node-a") == ["node-a"]
            put(it, LOW)
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low", "node-a")]

    virtually(scenario())


async def test_nothing_is_held_for_the_next_where_one_is_about_to_be_bound() -> None:
    async with bench("node-a", nomination_settle_seconds=60) as it:
        two_wait(it)
        put(it, pending("last", memory_mib=CARD_MIB))
        assert it.ask("last", "node-a") == []
        gone(it, "uid-old")
        assert it.ask("high", "node-a") == ["node-a"]
        put(it, bound("small", "node-a"))
        gone(it, "uid-small")
        it.ask("last", "node-a")
        assert it.ledger.nomination("uid-low") is None
        gone(it, "uid-high")
        assert it.ask("last", "node-a") == [], "what was left aside for one that is gone is held for the next"
        assert it.ledger.nomination("uid-low") is not None


def test_a_sample_that_missed_does_not_lead_to_a_card_of_one_about_to_be_bound() -> None:
    async def scenario() -> None:
        async with bench("node-a", "node-b", nomination_settle_seconds=SETTLE) as it:
            put(it, bound("old", "node-a", memory_mib=CARD_MIB), HIGH, LOW)
            assert it.ask("high", "node-b") == ["node-b"]
            assert it.ask("low", "node-a") == []
            await asyncio.sleep(BEFORE_COMING_ENDS)
            assert it.sink.written == []
            gone(it, "uid-high")
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low", "node-b")]

    virtually(scenario())


def test_a_sample_that_missed_leads_to_a_node_where_nobody_is_about_to_be_bound() -> None:
    async def scenario() -> None:
        async with bench("node-a", "node-b", "node-c", nomination_settle_seconds=SETTLE) as it:
            put(it, bound("old", "node-a", memory_mib=CARD_MIB), HIGH, LOW)
            assert it.ask("high", "node-b") == ["node-b"]
            assert it.ask("low", "node-a") == []
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low", "node-c")]

    virtually(scenario())


def test_one_that_is_answered_while_a_chosen_one_waits_to_be_sent_goes_first() -> None:
    async def scenario() -> None:
        async with bench("node-a", "node-b", nomination_settle_seconds=SETTLE, nominations_per_second=1) as it:
            chosen = [replace(LOW, uid=f"uid-{i}", name=f"low-{i}", priority=SECOND - i) for i in range(2)]
            put(it, *(bound(f"old-{name}", f"node-{name}", memory_mib=CARD_MIB) for name in "ab"), *chosen)
            for pod in chosen:
                assert it.ask(pod.name, "node-a", "node-b") == []
            await asyncio.sleep(1)
            gone(it, "uid-old-a", "uid-old-b")
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low-0", "node-a")], "the other has its turn in a second"
            put(it, HIGH)
            assert it.ask("high", "node-a", "node-b") == ["node-b"]
            await asyncio.sleep(BEFORE_COMING_ENDS)
            assert it.ledger.nomination("uid-1") is None
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low-0", "node-a"), ("low-1", "node-b")]

    virtually(scenario())


def test_an_owed_pod_is_not_sent_while_it_is_about_to_be_bound() -> None:
    async def scenario() -> None:
        async with bench("node-a", offers=Owing(uids={"uid-high"}), nomination_settle_seconds=SETTLE) as it:
            put(it, bound("old", "node-a", memory_mib=CARD_MIB), HIGH)
            gone(it, "uid-old")
            assert it.ask("high", "node-a") == ["node-a"]
            await asyncio.sleep(BEFORE_COMING_ENDS)
            assert it.sink.written == []
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("high", "node-a")]

    virtually(scenario())


def test_an_owed_pod_that_is_about_to_be_bound_elsewhere_is_offered_what_was_freed_if_it_does_not_come() -> None:
    async def scenario() -> None:
        async with bench(
            "node-a", "node-b", offers=Owing(uids={"uid-high"}), nomination_settle_seconds=SETTLE
        ) as it:
            put(it, bound("old", "node-a", memory_mib=CARD_MIB))
            await asyncio.sleep(1)
            put(it, HIGH)
            assert it.ask("high", "node-b") == ["node-b"]
            gone(it, "uid-old")
            await asyncio.sleep(BEFORE_COMING_ENDS)
            assert it.sink.written == []
            put(it, bound("thief", "node-b", memory_mib=CARD_MIB))
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("high", "node-a")]

    virtually(scenario())


def test_a_member_of_a_gang_that_is_about_to_be_bound_is_counted_as_well() -> None:
    """It does not start alone, and nobody else may start where it is about to."""

    class InGangs(Owing):
        def turns(self) -> Turns:
            return Turns(alone=lambda pod: pod.name != "high")

    async def scenario() -> None:
        async with bench(
            "node-a", "node-b", offers=InGangs(uids={"uid-low"}), nomination_settle_seconds=SETTLE
        ) as it:
            await answered_with_both(it, HIGH)
            await asyncio.sleep(BEFORE_COMING_ENDS)
            assert it.sink.written == []

    virtually(scenario())


def test_a_new_lead_knows_nothing_of_earlier_answers() -> None:
    async def scenario() -> None:
        async with bench("node-a", nomination_settle_seconds=SETTLE) as it:
            await high_is_answered(it)
            it.nominator.start_over()
            await asyncio.sleep(MORE)
            assert it.sink.written == [("high", "node-a")]

    virtually(scenario())


@dataclass
class Counting(Owing):
    """Counts how often somebody asked whose turn it is."""

    asked: int = 0

    def turns(self) -> Turns:
        self.asked += 1
        return super().turns()


def test_nobody_is_looked_for_while_it_is_waited_for() -> None:
    offers = Counting()

    async def scenario() -> None:
        async with bench("node-a", offers=offers, nomination_settle_seconds=SETTLE) as it:
            await high_is_answered(it)
            await asyncio.sleep(SETTLE + MORE)
            before = offers.asked
            await asyncio.sleep(BEFORE_COMING_ENDS - SETTLE - MORE)
            assert offers.asked == before
            put(it, bound("high", "node-a", memory_mib=CARD_MIB))
            await asyncio.sleep(600)
            assert offers.asked == before, "nothing is free"

    virtually(scenario())


def test_a_burst_of_those_who_come_is_looked_at_once_in_a_while() -> None:
    """Each takes a slot of the two cards; one that asks for a whole card waits behind them."""
    offers, many = Counting(uids={LOW.uid}), 20

    async def scenario() -> None:
        async with bench("node-a", offers=offers, nomination_settle_seconds=SETTLE) as it:
            it.ledger.put_inventory(inventory("node-a", cards=2))
            comes = [pending(f"high-{i}", CARD_MIB // 10, priority=FIRST) for i in range(many)]
            put(it, *(bound(f"old-{i}", "node-a", card=i, memory_mib=CARD_MIB) for i in range(2)), *comes)
            await asyncio.sleep(1)
            gone(it, "uid-old-0", "uid-old-1")
            for pod in comes:
                assert it.ask(pod.name, "node-a") == ["node-a"]
            put(it, LOW)
            await asyncio.sleep(SETTLE + MORE)
            before = offers.asked
            for pod in comes:
                gone(it, pod.uid)
                await asyncio.sleep(SETTLE / 20)
            await asyncio.sleep(SETTLE + MORE)
            assert [name for name, _ in it.sink.written] == ["low"]
            assert offers.asked - before <= 5

    virtually(scenario())


def test_one_that_cannot_be_judged_keeps_no_other_from_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(views: Sequence[NodeView], waiting: Sequence[PodFact], *rest: Any) -> list[Nomination]:
        if any(pod.name == "high" for pod in waiting):
            raise ValueError("nobody foresaw this")
        return nominate(views, waiting, *rest)

    async def scenario() -> None:
        async with bench("node-a", nomination_settle_seconds=SETTLE) as it:
            await high_is_answered(it)
            monkeypatch.setattr(answered_module, "nominate", poisoned)
            await asyncio.sleep(SETTLE + MORE)
            assert it.sink.written == [("low", "node-a")]

    virtually(scenario())


MISSED = FilterAnswer([])
NO_FIT = FilterAnswer([], no_fit_anywhere=True)
NODES = FilterAnswer(["node-a", "node-b"])


def pods_of(*pods: PodFact) -> tuple[Ledger, AnsweredPods]:
    ledger = ledger_of("node-a", "node-b")
    for pod in pods:
        ledger.put_pod(pod)
    return ledger, AnsweredPods(ledger, Policies())


def views_of(ledger: Ledger) -> list[NodeView]:
    return [view for name in ("node-a", "node-b") if (view := ledger.view(name)) is not None]


@pytest.mark.parametrize(
    ("between", "later_seconds", "want"),
    [
        pytest.param(None, COMING_SECONDS, False, id="its time is over"),
        pytest.param(MISSED, COMING_SECONDS, False, id="a sample that missed is no change"),
        pytest.param(NO_FIT, COMING_SECONDS, True, id="its cards fitted nowhere since"),
        pytest.param(None, COMING_SECONDS + REST_SECONDS, True, id="it has rested"),
    ],
)
def test_one_that_was_waited_for_in_vain_is_counted_again(
    between: FilterAnswer | None, later_seconds: float, want: bool
) -> None:
    async def scenario() -> None:
        _, answered = pods_of(HIGH)
        answered.note(HIGH, NODES)
        assert answered.counted_on("node-a")
        await asyncio.sleep(later_seconds)
        assert not answered.counted_on("node-a")
        if between is not None:
            answered.note(HIGH, between)
        answered.note(HIGH, NODES)
        assert answered.counted_on("node-a") is want

    virtually(scenario())


@pytest.mark.parametrize("answer", [MISSED, NO_FIT])
async def test_one_that_is_refused_is_not_counted(answer: FilterAnswer) -> None:
    _, answered = pods_of(HIGH)
    answered.note(HIGH, NODES)
    answered.note(HIGH, answer)
    assert not answered.counted_on("node-a")


async def test_one_is_counted_on_each_node_that_it_may_take() -> None:
    ledger, answered = pods_of(HIGH, LOW)
    answered.note(HIGH, NODES)
    assert answered.nominate(views_of(ledger), [LOW], 1, Turns()) == []
    assert answered.take_back() == set()
    ledger.drop_pod(HIGH.uid)
    assert answered.take_back() == {"node-a", "node-b"}


async def test_one_that_is_asked_about_anew_is_a_candidate_like_any_other() -> None:
    ledger, answered = pods_of(HIGH, LOW)
    answered.note(HIGH, NODES)
    found = answered.nominate(views_of(ledger), [LOW, HIGH], 2, Turns(), asking=HIGH.uid)
    assert [one.pod.name for one in found] == ["high", "low"]
    assert answered.next_over() is None, "nothing is left aside for it"


async def test_only_the_last_so_many_are_counted() -> None:
    many = [pending(f"pod-{number}") for number in range(MOST_COUNTED + 1)]
    _, answered = pods_of(*many)
    for pod, node in zip(many, ["node-a", *["node-b"] * MOST_COUNTED], strict=True):
        answered.note(pod, FilterAnswer([node]))
    assert answered.counted_on("node-b")
    assert not answered.counted_on("node-a")


async def test_its_queue_is_filled_once_however_many_nodes_it_may_take() -> None:
    ledger, answered = pods_of(HIGH, LOW)
    answered.note(HIGH, NODES)
    seen: list[Counter[str]] = []

    def admits(served: Sequence[PodFact], pod: PodFact) -> bool:
        seen.append(Counter(one.name for one in served))
        return True

    ledger.put_inventory(inventory("node-a", cards=2))
    found = answered.nominate(views_of(ledger), [LOW], 1, Turns(admits=admits))
    assert [(one.pod.name, one.placement.node) for one in found] == [("low", "node-a")]
    assert seen == [Counter(["high"])]
