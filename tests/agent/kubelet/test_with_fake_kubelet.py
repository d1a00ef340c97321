"""The shared cases against the kubelet in memory, and what only it can be made to do."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.fake_kubelet import FakeKubelet, fake_kubelet
from tests.agent.kubelet_cases import CASES, Case, shows
from tests.agent.kubelet_world import RESOURCE, Ask, serving
from tests.kube.fake_api import until
from vgpu.agent.kubelet.registration import ENDPOINT
from vgpu.agent.kubelet.slots import MAX_SLOTS, Slots


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[FakeKubelet]:
    async with fake_kubelet(tmp_path) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_shared_case(case: Case, kubelet: FakeKubelet) -> None:
    await case(kubelet)


async def test_nothing_is_registered_before_the_cards_are_known(kubelet: FakeKubelet) -> None:
    async with serving(kubelet.plugin_folder, None) as plugin:
        await asyncio.sleep(0)
        assert await kubelet.resource() is None
        plugin.board.put(Slots(2, 2))
        await shows(kubelet, 2)
        assert await kubelet.resource() == RESOURCE


async def test_a_plugin_that_was_there_before_kubelet_is_registered_once_it_comes(tmp_path: Path) -> None:
    kubelet = FakeKubelet(tmp_path)
    async with serving(kubelet.plugin_folder, Slots(2, 2)):
        await kubelet.start_kubelet()
        await shows(kubelet, 2)
        await kubelet.close()


async def test_a_refused_registration_is_tried_again(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet.refuse_registration = "the plugin is not wanted"
    async with serving(kubelet.plugin_folder, Slots(2, 2)):
        await until(lambda: "kubelet refuses the plugin: the plugin is not wanted" in caplog.text, "told")
        kubelet.refuse_registration = ""
        await shows(kubelet, 2)


async def test_a_kubelet_that_registers_and_never_listens_is_asked_again(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vgpu.agent.kubelet.registration.STREAM_SECONDS", 0.2)
    kubelet.deaf = True
    async with serving(kubelet.plugin_folder, Slots(2, 2)):
        await until(lambda: "kubelet has not listened" in caplog.text, "noticed")
        kubelet.deaf = False
        await shows(kubelet, 2)


async def test_a_removed_socket_is_made_anew(kubelet: FakeKubelet) -> None:
    own = kubelet.plugin_folder / ENDPOINT
    async with serving(kubelet.plugin_folder, Slots(2, 2)) as plugin:
        await shows(kubelet, 2)
        first = kubelet.endpoint
        own.unlink()
        await until(lambda: kubelet.endpoint is not first and own.exists(), "registered anew", 30)
        plugin.board.put(Slots(2, 1))
        await shows(kubelet, 1)


async def test_a_stale_socket_of_a_killed_plugin_is_no_hindrance(kubelet: FakeKubelet) -> None:
    own = kubelet.plugin_folder / ENDPOINT
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(own))
    async with serving(kubelet.plugin_folder, Slots(2, 2)):
        await shows(kubelet, 2)


async def test_r36_the_longest_list_is_far_below_what_kubelet_drops(kubelet: FakeKubelet) -> None:
    async with serving(kubelet.plugin_folder, Slots(MAX_SLOTS, MAX_SLOTS)):
        await shows(kubelet, MAX_SLOTS)


async def test_pod_resources_show_slots_of_app_containers_only(kubelet: FakeKubelet) -> None:
    async with serving(kubelet.plugin_folder, Slots(3, 3)):
        await shows(kubelet, 3)
        await kubelet.put_pod("pod", [Ask("first", 1, init=True), Ask("main", 2)])
        await until(lambda: kubelet.pods["pod"].view.phase == "Running", "runs")
        told = await kubelet.List(None, None)  # type: ignore[arg-type]  # neither is looked at
        assert [container.name for container in told.pod_resources[0].containers] == ["main"]
        assert len(told.pod_resources[0].containers[0].devices) == 2
