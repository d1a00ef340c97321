"""A driver call never returns on the real node while pods arrive: from NVML's interface to running containers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import standin_library  # noqa: F401  # a fixture
from tests.cluster.node import gpu_pods
from tests.cluster.node.agent_processes import end_agent, replace_agent
from tests.cluster.node.stage import SLOTS_PER_CARD, NodeStage
from vgpu.core.reasons import Reason

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SLOTS = 2 * SLOTS_PER_CARD
GOES_ON_SECONDS = 20
"""Ten for kubelet, ten for a busy machine to start a container."""
MACHINE = """driver 550.54.15
cuda 12040
card uuid=GPU-0 name=A100 memory_mib=81920 minor=0 bus=00000000:10:00.0 action=0
card uuid=GPU-1 name=A100 memory_mib=81920 minor=1 bus=00000000:11:00.0 action=0
"""
HARMLESS_XID = "event 0 8 13\n"
"""It makes the agent look at its cards."""


@pytest.fixture
def machine(stage: NodeStage, standin_library: Path, tmp_path: Path) -> Iterator[Path]:  # noqa: F811
    """The agent reads its cards by NVML's own interface, from a driver that plays this file."""
    path = tmp_path / "machine"
    path.write_text(MACHINE)
    driver = {"LD_LIBRARY_PATH": str(standin_library.parent), "VGPU_NVML_STANDIN": str(path)}
    replace_agent(stage, SLOTS, VGPU_AGENT_SOURCE="nvml", **driver)
    yield path
    end_agent(stage)


def play(machine: Path, text: str) -> None:
    """The machine is like this from now on."""
    fresh = machine.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(machine)


def test_a_driver_call_that_never_returns_closes_the_node_and_holds_up_nobody(
    machine: Path, stage: NodeStage
) -> None:
    stage.create(gpu_pods.share("before"))
    stage.wait_running("before")
    before = gpu_pods.container_id(stage, "before")
    play(machine, MACHINE + "hang 1\n" + HARMLESS_XID)
    stage.create(gpu_pods.share("meanwhile"), gpu_pods.plain(stage, "plain"))
    # What serves kubelet knows the cards as they were.
    stage.wait_running("meanwhile", "plain", timeout_seconds=GOES_ON_SECONDS)
    assert gpu_pods.visible(stage, "meanwhile") == set(stage.cards("meanwhile"))
    stage.wait_gate(stage.node.name, Reason.READ_ERROR)
    stage.node.wait_until(lambda: stage.allocatable() == 0, "kubelet to offer nothing")
    assert gpu_pods.container_id(stage, "before") == before
    gpu_pods.end_container(stage, "before")
    stage.node.wait_until(lambda: gpu_pods.restarts(stage, "before") > 0, "its container to start again")
    stage.wait_running("before")
    play(machine, MACHINE)
    stage.wait_open(SLOTS)
    stage.create(gpu_pods.share("after"))
    stage.wait_running("after")
