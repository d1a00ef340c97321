"""One order for an eviction, whatever becomes of its calls: repeated while it stands, counted once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.controller.cluster_facts import bound, ledger_of
from tests.controller.virtual_time import run_virtually
from vgpu.controller.preempt.evictions import EvictionParts, Evictions, Order
from vgpu.errors import ApiRefused, OutcomeUnknown
from vgpu.kube.objects import Key


class Play:
    """One pod, one order for it, and what the API says; `stands`: is the order still to be carried out?"""

    def __init__(self) -> None:
        self.ledger = ledger_of("n1")
        self.pod = bound("l", "n1")
        self.ledger.put_pod(self.pod)
        self.says: Exception | None = None
        self.calls = 0
        self.stands = True
        self.over = False
        self.accepted: list[str] = []
        self.evictions = Evictions(
            EvictionParts(
                ledger=self.ledger,
                writer=self,
                unix_seconds=lambda: int(asyncio.get_running_loop().time()),
                accepted=lambda order: self.accepted.append(order.pod.uid),
                answered=lambda outcome: None,
                settled=lambda order: None,
            )
        )

    async def evict(self, pod: Key) -> None:
        self.calls += 1
        if self.says is not None:
            raise self.says

    def ask(self, plan: str = "plan-1") -> None:
        async def tell() -> None:
            pass

        key = Key(self.pod.namespace, self.pod.name, self.pod.uid)
        over = lambda: self.over  # noqa: E731
        self.evictions.ask(Order("team/p", key, "n1", "rule", lambda: self.stands, tell, over, plan=plan))


def play(scenario: Callable[[Play], Awaitable[None]]) -> None:
    async def run() -> None:
        it = Play()
        await scenario(it)
        await it.evictions.close()

    run_virtually(run())


def test_what_left_after_a_call_without_an_answer_counts_once() -> None:
    async def scenario(it: Play) -> None:
        it.says = OutcomeUnknown("no answer")
        it.ask()
        await asyncio.sleep(1)
        it.stands = False
        await asyncio.sleep(20)
        calls = it.calls
        await asyncio.sleep(60)
        assert it.calls == calls, "it is not to be carried out any more"
        it.ledger.put_pod(replace(it.pod, terminating=True))
        for _ in range(3):
            it.evictions.forget_gone()
        it.ledger.drop_pod(it.pod.uid)
        for _ in range(3):
            it.evictions.forget_gone()
        assert it.accepted == [it.pod.uid]

    play(scenario)


@pytest.mark.parametrize("answer", [None, ApiRefused(404, "NotFound", 'pods "l" not found')])
def test_who_is_seen_to_leave_before_the_answer_comes_counts_once(answer: ApiRefused | None) -> None:
    async def scenario(it: Play) -> None:
        called, answered = asyncio.Event(), asyncio.Event()

        async def slow(pod: Key) -> None:
            called.set()
            await answered.wait()
            if answer is not None:
                raise answer

        it.evict = slow  # type: ignore[method-assign]
        it.ask()
        await called.wait()
        it.ledger.put_pod(replace(it.pod, terminating=True))
        it.evictions.forget_gone()
        assert it.accepted == [it.pod.uid], "its leaving tells"
        answered.set()
        await asyncio.sleep(1)
        assert it.accepted == [it.pod.uid]

    play(scenario)


def test_what_leaves_when_nobody_asks_any_more_is_not_counted() -> None:
    async def scenario(it: Play) -> None:
        it.says = OutcomeUnknown("no answer")
        it.ask()
        await asyncio.sleep(1)
        it.stands, it.over = False, True
        await asyncio.sleep(20)
        it.evictions.forget_gone()
        it.ledger.drop_pod(it.pod.uid)
        it.evictions.forget_gone()
        assert it.accepted == []

    play(scenario)


def test_since_when_it_fails_is_known_until_it_does_not() -> None:
    async def scenario(it: Play) -> None:
        it.says = OutcomeUnknown("no answer")
        it.ask()
        await asyncio.sleep(30)
        asked = it.evictions.of_plan("plan-1", it.pod.uid)
        assert asked is not None
        assert asked.fails_since == int(asyncio.get_running_loop().time()) - 30
        assert asked.failure == "no answer"
        it.says = ApiRefused(403, "Forbidden", "never")
        await asyncio.sleep(10)
        assert asked.fails_since is None
        assert not asked.unknown
        assert "never" in asked.failure

    play(scenario)


def test_another_plan_of_the_same_name_knows_nothing_of_it() -> None:
    async def scenario(it: Play) -> None:
        it.says = ApiRefused(403, "Forbidden", "never")
        it.ask()
        await asyncio.sleep(1)
        assert it.evictions.of_plan("plan-2", it.pod.uid) is None
        it.says = None
        it.ask("plan-2")
        await asyncio.sleep(1)
        assert it.accepted == [it.pod.uid]
        asked = it.evictions.of_plan("plan-2", it.pod.uid)
        assert asked is not None
        assert asked.refusals == 0

    play(scenario)
