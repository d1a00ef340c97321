"""The publisher against an API server over HTTP: writes only on difference, heals, retries until seen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from tests.agent.inventory_api import INVENTORIES, NODES, InventoryApi, inventory_api, until
from tests.agent.samples import HandClock, make_card, make_reading, make_spec
from tests.kube.fake_api import Fault
from vgpu.agent.assembly import watch_of
from vgpu.agent.canonical import unreadable
from vgpu.agent.pace import Pace
from vgpu.agent.publisher import Publisher

FIRST = make_spec()
SECOND = make_spec(make_reading(count=4))


class World:
    """A publisher that runs, and its API server."""

    def __init__(self, api: InventoryApi, publisher: Publisher, clock: HandClock) -> None:
        self.api, self.publisher, self.clock = api, publisher, clock

    async def settled(self) -> None:
        """Everything is as wanted, and the publisher has had its turn to notice."""
        await until(lambda: self.publisher.synced_once.is_set() and self.publisher.settled, "settled")
        for _ in range(20):
            await asyncio.sleep(0)

    async def after_pauses(self) -> None:
        """Turn the clock until everything is as wanted."""
        for _ in range(400):
            self.clock.advance(1)
            with suppress(AssertionError):
                await until(lambda: self.publisher.settled, "settled", 0.02)
                return
        raise AssertionError("never settled")


@asynccontextmanager
async def publisher(api: InventoryApi, clock: HandClock) -> AsyncIterator[World]:
    client = api.client()
    publisher = Publisher("n1", client, clock, Random(1))
    watch = watch_of(client, publisher)
    tasks = [asyncio.create_task(watch.run()), asyncio.create_task(publisher.run())]
    try:
        yield World(api, publisher, clock)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with inventory_api() as api, publisher(api, HandClock()) as running:
        yield running


async def test_the_first_inventory_is_created_and_owned_by_its_node(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    stored = world.api.get(INVENTORIES, "n1")
    assert stored is not None
    assert world.api.holds(FIRST)
    assert stored["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid-n1"}
    ]
    assert world.api.applies == 1


async def test_equal_content_is_never_written_again(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    world.publisher.want(make_spec())
    world.clock.advance(100_000)
    for number in range(50):
        stored = world.api.get(INVENTORIES, "n1")
        assert stored is not None
        world.api.put(INVENTORIES, {**stored, "status": {"usedSlots": number}})
    world.publisher.want(SECOND)
    await world.settled()
    assert world.api.applies == 2


async def test_r34_a_restarted_agent_writes_nothing(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    async with publisher(world.api, HandClock()) as restarted:
        restarted.publisher.want(FIRST)
        await restarted.settled()
        assert restarted.publisher.last_good == FIRST
    assert world.api.applies == 1


async def test_a_deleted_inventory_is_made_again(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    world.api.remove(INVENTORIES, "n1")
    await until(lambda: not world.publisher.settled, "deletion seen")
    await world.after_pauses()
    assert world.api.holds(FIRST)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"gpus": []}, id="cards gone"),
        pytest.param({"readError": "made up"}, id="read error"),
        pytest.param({"slotResource": "nvidia.com/gpu"}, id="resource"),
        pytest.param({"gpus": "not a list"}, id="unreadable"),
    ],
)
async def test_what_others_alter_is_put_right(world: World, change: dict[str, object]) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    world.api.alter(change)
    await until(lambda: not world.publisher.settled, "alteration seen")
    await world.after_pauses()
    assert world.api.holds(FIRST)


async def test_a_lost_owner_is_put_right(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    stored = world.api.get(INVENTORIES, "n1")
    assert stored is not None
    world.api.put(INVENTORIES, {**stored, "metadata": {"name": "n1", "uid": stored["metadata"]["uid"]}})
    await until(lambda: not world.publisher.settled, "alteration seen")
    await world.after_pauses()
    healed = world.api.get(INVENTORIES, "n1")
    assert healed is not None
    assert healed["metadata"]["ownerReferences"]


async def test_two_quick_changes_are_one_write(world: World) -> None:
    world.publisher.want(FIRST)
    world.publisher.want(SECOND)
    await world.settled()
    assert world.api.holds(SECOND)
    assert world.api.applies == 1


async def test_a_change_during_a_write_follows_it(world: World) -> None:
    world.api.faults.append(Fault("PATCH", action="drop_after"))
    world.publisher.want(FIRST)
    await until(lambda: world.api.applies == 1, "first write")
    world.publisher.want(SECOND)
    await world.after_pauses()
    assert world.api.holds(SECOND)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault("PATCH", status=500, times=3), id="500"),
        pytest.param(Fault("PATCH", status=503, reason="ServiceUnavailable", times=3), id="503"),
        pytest.param(Fault("PATCH", status=429, headers={"Retry-After": "7"}, times=2), id="429"),
        pytest.param(Fault("PATCH", status=409, reason="Conflict", times=2), id="conflict"),
        pytest.param(Fault("PATCH", status=403, reason="Forbidden", times=2), id="forbidden"),
        pytest.param(Fault("PATCH", status=404, reason="NotFound", times=2), id="kind not installed"),
        pytest.param(Fault("PATCH", action="drop_before", times=2), id="connection lost before"),
        pytest.param(Fault("PATCH", action="drop_after", times=1), id="answer lost"),
        pytest.param(Fault("GET", part="nodes/n1", status=500, times=2), id="node unreadable"),
        pytest.param(Fault("GET", part="watch", status=500, times=1), id="watch refused"),
    ],
)
async def test_a_failing_write_is_tried_until_the_watch_shows_it(world: World, fault: Fault) -> None:
    world.api.faults.append(fault)
    world.publisher.want(FIRST)
    await world.after_pauses()
    assert world.api.holds(FIRST)


async def test_an_answer_that_was_lost_is_not_sent_again_once_seen(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    world.clock.advance(3600)
    world.api.faults.append(Fault("PATCH", action="drop_after"))
    world.publisher.want(SECOND)
    await world.settled()
    world.clock.advance(3600)
    await until(lambda: world.clock.sleeping == [], "nothing waits")
    assert world.api.applies == 2


async def test_the_servers_wish_to_wait_is_kept(world: World) -> None:
    world.api.faults.append(Fault("PATCH", status=429, headers={"Retry-After": "55"}))
    world.publisher.want(FIRST)
    await until(lambda: world.clock.sleeping == [55], "pause as asked")


async def test_no_node_means_no_inventory_until_it_is_there(world: World) -> None:
    world.api.remove(NODES, "n1")
    world.publisher.want(FIRST)
    for attempts in (1, 2, 3):
        await until(lambda n=attempts: world.api.count("GET", NODES) == n, "Node was asked for")
        await until(lambda: world.clock.sleeping != [], "pause")
        if attempts < 3:
            world.clock.advance(60)
    assert world.api.applies == 0
    world.api.put(NODES, {"metadata": {"name": "n1", "uid": "node-uid-new"}})
    await world.after_pauses()
    stored = world.api.get(INVENTORIES, "n1")
    assert stored is not None
    assert stored["metadata"]["ownerReferences"][0]["uid"] == "node-uid-new"


async def test_a_write_that_comes_after_a_deletion_does_not_revive_the_object(world: World) -> None:
    """The apply names the uid it saw, so the server refuses it when that object is gone."""
    world.publisher.want(FIRST)
    await world.settled()
    world.clock.advance(3600)
    world.publisher.want(SECOND)
    world.api.objects.pop(("apis/vgpu.dev/v1alpha1/gpunodeinventories", "", "n1"))
    await until(lambda: world.api.applies == 2, "write refused")
    assert world.api.spec() is None


async def test_nothing_wanted_means_nothing_written_even_when_an_object_is_there(world: World) -> None:
    world.api.put(INVENTORIES, {"metadata": {"name": "n1"}, "spec": FIRST.dump()})
    await until(lambda: world.publisher.last_good == FIRST, "seen")
    world.publisher.want(None)
    world.clock.advance(3600)
    await world.settled()
    assert world.api.applies == 0


async def test_objects_of_other_nodes_are_not_ours(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    world.api.put(INVENTORIES, {"metadata": {"name": "n2"}, "spec": SECOND.dump()})
    world.api.remove(INVENTORIES, "n2")
    world.publisher.want(unreadable("gone", FIRST))
    await world.after_pauses()
    assert world.api.applies == 2


async def test_missed_deletions_are_healed_after_the_watch_comes_back(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    world.api.objects.pop(("apis/vgpu.dev/v1alpha1/gpunodeinventories", "", "n1"))
    world.api.version += 1
    world.api.compact()
    world.api.drop_watches()
    await until(lambda: not world.publisher.settled, "missed deletion seen")
    await world.after_pauses()
    assert world.api.holds(FIRST)


async def test_a_card_that_falls_is_one_write_and_none_follows(world: World) -> None:
    world.publisher.want(FIRST)
    await world.settled()
    world.clock.advance(3600)
    world.publisher.want(make_spec(make_reading(make_card(0, problem="lost"), make_card(1))))
    await world.settled()
    assert world.api.applies == 2


def test_pauses_grow_to_a_minute_and_end_with_a_calm_one() -> None:
    clock = HandClock()
    pace = Pace(clock, Random(3))
    pauses = [pace.next_pause_seconds() for _ in range(9)]
    assert pauses[0] == 0
    for pause, longest in zip(pauses[1:], [2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert longest / 2 <= pause <= longest
    pace.settled()
    clock.advance(59)
    assert pace.next_pause_seconds() >= 30
    pace.settled()
    clock.advance(60)
    assert pace.next_pause_seconds() == 0


async def test_without_the_comparison_the_same_content_would_be_written_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the counts of writes above can fail: the rule they guard is switched off."""
    monkeypatch.setattr("vgpu.agent.publisher.same_content", lambda _left, _right: False)
    world.publisher.want(FIRST)
    for _ in range(3):
        await until(lambda: world.clock.sleeping != [], "waits before the next write")
        world.clock.advance(60)
    await until(lambda: world.api.applies > 1, "written again")
