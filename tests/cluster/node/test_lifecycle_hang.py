"""A process of the agent hangs while pods arrive: kubelet goes on, the node closes, pods stay, it opens again."""

import os
import signal
from collections.abc import Iterator

import pytest

from devcluster.errors import StartFailed
from tests.cluster.node import gpu_pods
from tests.cluster.node.agent_processes import (
    READER,
    SERVER,
    end_agent,
    lockable,
    replace_agent,
    signal_child,
    supervisor,
    wait_replaced,
)
from tests.cluster.node.stage import PATIENCE_SECONDS, NodeStage
from vgpu.core.reasons import Reason

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

GOES_ON_SECONDS = 20
"""So long kubelet may stand still (10 s), and what a busy machine needs to start a container."""


@pytest.fixture(scope="module")
def lockable_agent(product: NodeStage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The agent's processes can be made to hold their interpreter's lock."""
    product.settle()
    replace_agent(product, PYTHONPATH=lockable(tmp_path_factory.mktemp("lockable")))
    yield
    end_agent(product)


def own_cards_or_none(stage: NodeStage, name: str) -> None:
    """A pod that met the hang runs with its own cards, or failed and runs nowhere."""
    stage.node.wait_until(
        lambda: stage.pod(name)["status"]["phase"] != "Pending", f"{name} to be settled", PATIENCE_SECONDS
    )
    if stage.pod(name)["status"]["phase"] == "Running":
        assert gpu_pods.visible(stage, name) == set(stage.cards(name))
    else:
        assert stage.pod(name)["status"]["reason"] == "UnexpectedAdmissionError"


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGUSR1], ids=["stopped", "interpreter-lock-held"])
@pytest.mark.parametrize("name", [SERVER, READER])
def test_a_process_that_hangs_while_pods_arrive(
    lockable_agent: None, stage: NodeStage, name: str, number: signal.Signals
) -> None:
    stage.create(gpu_pods.share("before"))
    stage.wait_running("before")
    before = gpu_pods.container_id(stage, "before")
    hung = signal_child(stage, name, number)
    stage.create(gpu_pods.share("meanwhile"))
    stage.wait_bound("meanwhile")
    stage.create(gpu_pods.plain(stage, "plain"))
    stage.wait_running("plain", timeout_seconds=GOES_ON_SECONDS)
    stage.wait_gate(stage.node.name, Reason.NO_ALLOCATABLE)
    wait_replaced(stage, name, hung)
    stage.wait_open()
    own_cards_or_none(stage, "meanwhile")
    assert gpu_pods.container_id(stage, "before") == before
    stage.create(gpu_pods.share("after"))
    stage.wait_running("after")
    assert gpu_pods.visible(stage, "after") == set(stage.cards("after"))


def test_kubelet_stands_still_as_long_as_nobody_ends_a_hanging_server(
    lockable_agent: None, stage: NodeStage
) -> None:
    """The rule switched off: what the test above looks for fails without a supervisor, until it is there again."""
    first = supervisor(stage)
    os.kill(first, signal.SIGSTOP)
    try:
        signal_child(stage, SERVER, signal.SIGSTOP)
        stage.create(gpu_pods.share("meanwhile"))
        stage.wait_bound("meanwhile")
        stage.create(gpu_pods.plain(stage, "plain"))
        with pytest.raises(StartFailed, match="in vain"):
            stage.wait_running("plain", timeout_seconds=GOES_ON_SECONDS)
    finally:
        os.kill(first, signal.SIGCONT)
    stage.wait_running("plain", timeout_seconds=GOES_ON_SECONDS)
    stage.wait_open()
