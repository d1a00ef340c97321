"""R08 from the node to the API server: the inventory names lingering pods, and changes only when they do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.inventory_api import INVENTORIES, NODES, InventoryApi, inventory_api, until
from tests.agent.kubelet.test_lingering_feed import POD
from tests.agent.samples import make_card, make_reading, make_spec
from vgpu.agent.assembly import watch_of
from vgpu.agent.canonical import unreadable
from vgpu.agent.clock import SystemClock
from vgpu.agent.kubelet.cards_feed import CardsListener, CardsTeller
from vgpu.agent.reader import TellingPublisher
from vgpu.api.lingering import Lingering

CARDS = make_spec()
SICK = make_spec(make_reading(make_card(0, problem="ECC"), make_card(1)))
TOLD = [
    {
        "namespace": "team",
        "name": "p",
        "uid": "uid-p",
        "cards": [
            {"uuid": "GPU-0", "slots": 1, "memoryMiB": 4096, "cores": 30},
            {"uuid": "GPU-1", "slots": 1, "memoryMiB": 81920, "cores": 0, "whole": True},
        ],
    }
]


@pytest.fixture
async def api() -> AsyncIterator[InventoryApi]:
    async with inventory_api() as serving:
        yield serving


@asynccontextmanager
async def reader(
    api: InventoryApi, folder: Path, known: Lingering | None = None
) -> AsyncIterator[TellingPublisher]:
    """A reader's publisher, with its end of the feed."""
    client, clock = api.client(), SystemClock()
    teller = CardsTeller(folder / "cards.sock", clock)
    publisher = TellingPublisher("n1", client, clock, teller, known)
    works = [watch_of(client, publisher).run(), publisher.run(), teller.run(publisher.lingers)]
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await publisher.synced_once.wait()
        yield publisher
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[CardsListener]:
    """The other end of the feed."""
    listener = CardsListener(folder / "cards.sock", lambda cards: None, lambda: None)
    task = asyncio.create_task(listener.run())
    try:
        yield listener
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def lingering(api: InventoryApi) -> Any:
    """What the inventory says: nothing while there is none of it."""
    return (api.spec() or {}).get("lingering")


def store(api: InventoryApi, pods: Lingering) -> None:
    """An earlier reader published this."""
    owner = {"kind": "Node", "name": "n1", "uid": "node-uid-n1", "apiVersion": "v1"}
    spec = CARDS.model_copy(update={"lingering": pods}).dump()
    metadata = {"name": "n1", "uid": "inventory-1", "ownerReferences": [owner]}
    api.put(INVENTORIES, {"metadata": metadata, "spec": spec})
    assert api.get(NODES, "n1")


async def test_what_the_serving_process_tells_is_published_and_taken_back(
    api: InventoryApi, tmp_path: Path
) -> None:
    async with serving(tmp_path) as listener, reader(api, tmp_path) as publisher:
        publisher.want(CARDS)
        await until(lambda: api.holds(CARDS), "published")
        assert lingering(api) is None
        listener.tell((POD,))
        await until(lambda: lingering(api) == TOLD, "named")
        assert api.holds(CARDS.model_copy(update={"lingering": (POD,)}))
        listener.tell(())
        await until(lambda: api.holds(CARDS), "taken back")
        assert "lingering" not in (api.spec() or {})


async def test_cards_change_beside_lingering_pods_and_the_same_word_is_written_once(
    api: InventoryApi, tmp_path: Path
) -> None:
    async with reader(api, tmp_path) as publisher:
        publisher.want(CARDS)
        publisher.lingers((POD,))
        await until(lambda: publisher.settled and lingering(api) == TOLD, "named")
        before = api.applies
        publisher.want(CARDS)
        publisher.lingers((POD,))
        assert publisher.settled
        publisher.want(SICK)
        await until(lambda: publisher.settled and api.holds(SICK.model_copy(update={"lingering": (POD,)})), "sick")
        publisher.want(unreadable("NVML is away", publisher.last_good))
        await until(lambda: publisher.settled and bool((api.spec() or {}).get("readError")), "unreadable")
        assert lingering(api) == TOLD
        assert api.applies == before + 2


async def test_a_reader_that_starts_leaves_them_until_somebody_knows(api: InventoryApi, tmp_path: Path) -> None:
    """Else their cards would be given on between its start and the first word of the serving process."""
    store(api, (POD,))
    async with reader(api, tmp_path) as publisher:
        publisher.want(SICK)
        await until(lambda: publisher.settled and api.applies == 1, "published")
        assert lingering(api) == TOLD
        publisher.lingers(())
        await until(lambda: publisher.settled and lingering(api) is None, "taken back")


async def test_a_reader_whom_nobody_tells_takes_them_back(api: InventoryApi, tmp_path: Path) -> None:
    """Another's plugin serves this node now: nobody here will ever see those processes."""
    store(api, (POD,))
    async with reader(api, tmp_path, ()) as publisher:
        publisher.want(CARDS)
        await until(lambda: publisher.settled and api.holds(CARDS), "taken back")


async def test_nothing_is_published_for_a_node_without_cards(api: InventoryApi, tmp_path: Path) -> None:
    async with reader(api, tmp_path) as publisher:
        publisher.lingers((POD,))
        publisher.want(None)
        assert publisher.settled
    assert api.applies == 0
