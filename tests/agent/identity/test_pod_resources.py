"""Who holds which slots, over kubelet's socket."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.fake_kubelet import fake_kubelet
from tests.agent.identity.bench import RushClock
from tests.agent.kubelet_world import RESOURCE, Ask, serving
from tests.kube.fake_api import until
from vgpu.agent.identity.pod_resources import (
    CALM_SECONDS,
    LONGEST_CALM_SECONDS,
    PACE_SECONDS,
    KubeletPodResources,
    PodResourcesAway,
    SharedPodResources,
    ShownPod,
)
from vgpu.agent.kubelet.slots import Slots


async def test_slots_come_by_container_without_plain_init_containers(tmp_path: Path) -> None:
    async with fake_kubelet(tmp_path) as kubelet, serving(kubelet.plugin_folder, Slots(8, 8)):
        await until(lambda: kubelet.endpoint and kubelet.endpoint.devices, "served")
        await kubelet.put_pod("p", [Ask("i", 1, init=True), Ask("a", 2), Ask("b", 1)])
        await until(lambda: len(kubelet.pods["p"].grants) == 3, "allocated")
        given = {name: frozenset(grant.ids) for name, grant in kubelet.pods["p"].grants.items()}
        shown = await KubeletPodResources(kubelet.pod_resources, RESOURCE).shown()
        assert shown == [ShownPod("default", "p", {"a": given["a"], "b": given["b"]})]
        assert await KubeletPodResources(kubelet.pod_resources, "other/resource").shown() == []


async def test_a_socket_that_is_away_is_named_and_one_that_comes_back_is_used(tmp_path: Path) -> None:
    socket = tmp_path / "pod-resources" / "kubelet.sock"
    client = KubeletPodResources(socket, RESOURCE)
    with pytest.raises(PodResourcesAway, match=str(socket)):
        await client.shown()
    async with fake_kubelet(tmp_path) as kubelet:
        assert await client.shown() == []
        await kubelet.stop_kubelet()
        with pytest.raises(PodResourcesAway):
            await client.shown()
        await kubelet.start_kubelet()
        assert await client.shown() == []


class CountedLists:
    """Each list tells its number; it begins when asked and ends when let."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.clock = RushClock()
        self.go = asyncio.Event()

    async def shown(self) -> list[ShownPod]:
        self.begun.append(self.clock.now)
        number = len(self.begun)
        await self.go.wait()
        return [ShownPod("ns", f"list-{number}", {})]


async def test_who_asks_while_a_list_is_under_way_gets_a_later_one() -> None:
    lists = CountedLists()
    shared = SharedPodResources(lists, lists.clock)
    early = [asyncio.create_task(shared.shown()) for _ in range(3)]
    await asyncio.sleep(0.01)
    late = [asyncio.create_task(shared.shown()) for _ in range(3)]
    await asyncio.sleep(0.01)
    lists.go.set()
    assert {(await task)[0].name for task in early} == {"list-1"}
    assert {(await task)[0].name for task in late} == {"list-2"}
    assert lists.begun[1] == lists.begun[0] + PACE_SECONDS


async def test_no_list_begins_just_after_an_answer_to_allocate_but_answers_do_not_put_it_off_for_ever() -> None:
    lists = CountedLists()
    lists.go.set()
    shared = SharedPodResources(lists, lists.clock)
    began = lists.clock.now
    shared.answered()
    await shared.shown()
    assert lists.begun == [began + CALM_SECONDS]
    sleep, asked = lists.clock.sleep, lists.clock.now

    async def answered_meanwhile(seconds: float) -> None:
        await sleep(seconds)
        shared.answered()

    lists.clock.sleep = answered_meanwhile  # type: ignore[method-assign]
    shared.answered()
    await shared.shown()
    assert lists.begun[-1] == asked + LONGEST_CALM_SECONDS


async def test_one_who_gives_up_does_not_end_the_list_of_the_others() -> None:
    lists = CountedLists()
    shared = SharedPodResources(lists, lists.clock)
    one, other = (asyncio.create_task(shared.shown()) for _ in range(2))
    await asyncio.sleep(0.01)
    one.cancel()
    lists.go.set()
    assert (await other)[0].name == "list-1"
