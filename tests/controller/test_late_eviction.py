"""Pods bound without cards are evicted only where a person wants it, and then one per owner at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.controller.virtual_time import run_virtually
from vgpu.controller.late_eviction import LateEvictions
from vgpu.core.facts import CardFact, InventoryFact, NodeFact, PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest, PodRequest
from vgpu.errors import ApiUnavailable, LeaseRunsOut
from vgpu.kube.objects import Key

SLOT = "volcano.sh/vgpu-number"
REQUEST = PodRequest(SLOT, (ContainerRequest("main", ContainerKind.APP, 1, CardRequest(memory_mib=9_000)),))

BUDGET = ApiUnavailable(429, "TooManyRequests", "a disruption budget forbids it")


class Evicted:
    """Remembers evictions by virtual time; refuses the first `refusals`."""

    def __init__(self, refusals: int = 0, refusal: ApiUnavailable = BUDGET) -> None:
        self.at: list[tuple[float, str]] = []
        self.refusals = refusals
        self.refusal = refusal
        self.refused_at = 0.0

    async def evict(self, pod: Key) -> None:
        if self.refusals:
            self.refusals -= 1
            self.refused_at = asyncio.get_running_loop().time()
            raise self.refusal
        self.at.append((asyncio.get_running_loop().time(), pod.uid))


def late_pod(uid: str, owner: str, *, ever_ran: bool = False) -> PodFact:
    return PodFact(
        uid, "default", uid, node="n1", owner_uid=owner, wants_gpus=True, request=REQUEST, ever_ran=ever_ran
    )


def ledger_with(*pods: PodFact) -> Ledger:
    ledger = Ledger()
    ledger.put_node(NodeFact("n1", "u1", frozenset({(SLOT, 10)})))
    ledger.put_inventory(InventoryFact("n1", SLOT, (CardFact("c1", 0, "A", 8_000, 100, 10, True),)))
    for pod in pods:
        ledger.put_pod(pod)
    return ledger


@asynccontextmanager
async def evictions(ledger: Ledger, sink: Evicted, *, enabled: bool = True) -> AsyncIterator[LateEvictions]:
    now = asyncio.get_running_loop().time
    late = LateEvictions(ledger, sink, enabled=enabled, interval_seconds=300, now=now)
    task = asyncio.create_task(late.run())
    yield late
    await asyncio.sleep(1000)
    task.cancel()


@pytest.mark.parametrize(
    ("enabled", "owner", "want"), [(True, "rs", ["p"]), (False, "rs", []), (True, "", [])],
    ids=["wanted", "off by default", "nothing would bring it back"],
)  # fmt: skip
def test_a_late_pod_goes_only_where_it_is_wanted_and_has_an_owner(
    enabled: bool, owner: str, want: list[str]
) -> None:
    pod, sink = late_pod("p", owner), Evicted()

    async def story() -> None:
        async with evictions(ledger_with(pod), sink, enabled=enabled) as late:
            late.offer(pod)

    run_virtually(story())
    assert [uid for _, uid in sink.at] == want


def test_one_owner_loses_one_pod_in_five_minutes() -> None:
    pods, sink = [late_pod("a", "rs"), late_pod("b", "rs"), late_pod("c", "other")], Evicted()

    async def story() -> None:
        async with evictions(ledger_with(*pods), sink) as late:
            for pod in pods:
                late.offer(pod)

    run_virtually(story())
    times = {uid: at for at, uid in sink.at}
    assert set(times) == {"a", "b", "c"}
    assert abs(times["a"] - times["b"]) >= 300
    assert abs(times["a"] - times["c"]) < 1


def test_a_pod_that_began_to_run_or_got_cards_meanwhile_stays() -> None:
    pod, sink = late_pod("p", "rs"), Evicted()
    ledger = ledger_with(pod)

    async def story() -> None:
        async with evictions(ledger, sink) as late:
            late.offer(pod)
            ledger.put_pod(late_pod("p", "rs", ever_ran=True))

    run_virtually(story())
    assert sink.at == []


def test_a_forbidden_eviction_is_tried_again_after_the_interval() -> None:
    pod, sink = late_pod("p", "rs"), Evicted(refusals=1)

    async def story() -> None:
        async with evictions(ledger_with(pod), sink) as late:
            late.offer(pod)

    run_virtually(story())
    assert [uid for _, uid in sink.at] == ["p"]
    assert sink.at[0][0] - sink.refused_at >= 300


def test_an_eviction_that_the_fence_held_back_is_made_a_moment_later() -> None:
    pod, sink = late_pod("p", "rs"), Evicted(refusals=1, refusal=LeaseRunsOut("in the margin"))

    async def story() -> None:
        async with evictions(ledger_with(pod), sink) as late:
            late.offer(pod)

    run_virtually(story())
    assert [uid for _, uid in sink.at] == ["p"]
    assert sink.at[0][0] - sink.refused_at < 10
