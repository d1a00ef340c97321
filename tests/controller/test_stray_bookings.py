"""A booking of a pod that no list and no watch shows ends with its pod, and stands while the pod does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.controller.cluster_facts import ledger_of, request
from tests.controller.kubernetes_json import encode
from tests.controller.pod_store import FAILURES, Fate, PodStore
from vgpu.controller.sinks import PodSink
from vgpu.controller.stray_bookings import StrayBookings, StrayParts
from vgpu.controller.translate import Translator
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Booking, Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.kube.store import Store
from vgpu.settings import OperatorSettings


@dataclass
class Bench:
    ledger: Ledger
    api: PodStore
    store: Store[PodFact]
    flights: set[str] = field(default_factory=set)

    def book(self, name: str = "p1") -> None:
        """The binder knew the pod by a read; its Binding was answered with success."""
        view = self.ledger.view("n1")
        assert view is not None
        placement = place(view, request(), f"uid-{name}", Policies())
        assert isinstance(placement, Placement)
        self.ledger.book(Booking(f"uid-{name}", "team", name, "n1", "0" * 16, placement))

    async def list_pods(self, *shown: str) -> None:
        """A whole list that shows these pods, and time for what follows from it."""
        self.store.begin_list()
        for name in shown:
            self.store.fold_object(encode(self.api.pods["team", name]))
        for key in self.store.unseen():
            self.store.drop(key)
        self.store.end_list()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0.002)

    @property
    def booked(self) -> set[str]:
        return {booking.name for booking in self.ledger.bookings()}


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    ledger, api = ledger_of("n1"), PodStore()
    translator = Translator(OperatorSettings(), lambda name: None)
    flights: set[str] = set()

    async def read_pod(namespace: str, name: str) -> PodFact:
        raw = await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return translator.decode_pod(raw).fact

    strays = StrayBookings(StrayParts(ledger, read_pod, flights.__contains__, lambda: None, again_seconds=0.001))
    store = Store(translator.decode_pod, PodSink(ledger, lambda: None, strays.synced))
    task = asyncio.ensure_future(strays.run())
    try:
        yield Bench(ledger, api, store, flights)
    finally:
        assert not task.done(), "it has ended by itself"
        task.cancel()
        await asyncio.wait({task})


async def test_a_pod_that_was_bound_and_deleted_unseen_holds_nothing_after_the_next_list() -> None:
    async with bench() as it:
        it.book()
        await it.settle()
        assert it.booked == {"p1"}, "without a list nothing is known"
        await it.list_pods()
        assert it.booked == set()
        view = it.ledger.view("n1")
        assert view is not None
        assert view.cards[0].free_slots == 10


async def test_another_pod_of_the_same_name_is_not_this_one() -> None:
    async with bench() as it:
        it.book()
        it.api.add("p1", uid="uid-of-another")
        await it.list_pods("p1")
        assert it.booked == set()


async def test_a_pod_created_after_the_list_began_keeps_its_cards_until_it_is_gone() -> None:
    async with bench() as it:
        it.book()
        it.api.add("p1")
        await it.list_pods()
        assert it.booked == {"p1"}
        del it.api.pods["team", "p1"]
        await it.list_pods()
        assert it.booked == set()


async def test_while_an_attempt_is_under_way_the_booking_is_its_own() -> None:
    async with bench() as it:
        it.book()
        it.flights.add("uid-p1")
        await it.list_pods()
        assert (it.booked, it.api.reads) == ({"p1"}, 0)
        it.flights.clear()
        await it.settle()
        assert it.booked == set()


async def test_what_cannot_be_read_is_asked_again() -> None:
    async with bench() as it:
        it.book()
        it.api.read_fates = [Fate.BROKEN, Fate.FORBIDDEN, Fate.BUSY]
        assert all(fate in FAILURES for fate in it.api.read_fates)
        await it.list_pods()
        assert (it.booked, it.api.reads) == (set(), 4)


async def test_a_pod_that_the_list_shows_is_not_asked_about() -> None:
    async with bench() as it:
        it.api.add(
            "p1", spec={"containers": [{"name": "main", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}]}
        )
        it.book()
        await it.list_pods("p1")
        assert (it.booked, it.api.reads) == ({"p1"}, 0)
