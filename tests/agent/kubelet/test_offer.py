"""Another plugin of the same resource takes our place without a word: it is noticed by what kubelet offers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.fake_kubelet import Endpoint, FakeKubelet, fake_kubelet
from tests.agent.kubelet_cases import shows
from tests.agent.kubelet_world import RESOURCE, Plugin, serving
from tests.kube.fake_api import until
from vgpu.agent.clock import SystemClock
from vgpu.agent.identity.pod_resources import KubeletPodResources
from vgpu.agent.kubelet.offer import REPLACED, OfferWatch
from vgpu.agent.kubelet.slots import Slots


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpu.agent.kubelet.offer.LOOK_SECONDS", 0.05)


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[FakeKubelet]:
    async with fake_kubelet(tmp_path) as running:
        yield running


@contextlib.asynccontextmanager
async def watched(kubelet: FakeKubelet, plugin: Plugin) -> AsyncIterator[None]:
    """What kubelet offers is looked at."""
    offered = KubeletPodResources(kubelet.pod_resources, RESOURCE).offered
    watch = asyncio.create_task(OfferWatch(plugin.link, plugin.board, offered, SystemClock()).run())
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def replace(kubelet: FakeKubelet, devices: dict[str, bool]) -> None:
    """Another plugin registers the same resource: ours is not told."""
    assert kubelet.endpoint is not None
    kubelet.endpoint = Endpoint(RESOURCE, kubelet.endpoint.channel, devices)
    await shows(kubelet, sum(devices.values()))


@pytest.mark.parametrize(
    "devices", [{"whole-0": True}, {"whole-0": False}, {}], ids=["it runs", "it has ended", "it had none"]
)
async def test_r31_our_slots_are_registered_anew_where_another_plugin_took_their_place(
    kubelet: FakeKubelet, devices: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(kubelet.plugin_folder, Slots(4, 4)) as plugin:
        await shows(kubelet, 4)
        await replace(kubelet, devices)
        assert plugin.link.in_use, "ours cannot know it from its stream"
        async with watched(kubelet, plugin):
            await shows(kubelet, 4)
        assert REPLACED in caplog.text


async def test_what_kubelet_was_told_is_no_reason_to_register_again(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(kubelet.plugin_folder, Slots(4, 4)) as plugin, watched(kubelet, plugin):
        await shows(kubelet, 4)
        first, looks = kubelet.endpoint, kubelet.offers_told
        plugin.board.put(Slots(4, 1))
        await shows(kubelet, 1)
        await until(lambda: kubelet.offers_told > looks + 3, "looked at several times")
        assert kubelet.endpoint is first
        assert REPLACED not in caplog.text


async def test_a_kubelet_that_does_not_tell_is_left_alone(kubelet: FakeKubelet) -> None:
    async with serving(kubelet.plugin_folder, Slots(4, 4)) as plugin:
        await shows(kubelet, 4)
        first, asked = kubelet.endpoint, 0

        async def offered() -> frozenset[str]:
            nonlocal asked
            asked += 1
            return await KubeletPodResources(kubelet.pod_resources.with_name("nowhere"), RESOURCE).offered()

        watch = asyncio.create_task(OfferWatch(plugin.link, plugin.board, offered, SystemClock()).run())
        await until(lambda: asked > 3, "asked several times")
        watch.cancel()
        assert kubelet.endpoint is first
