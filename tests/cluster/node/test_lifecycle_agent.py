"""Agent and kubelet come and go on the real node: it closes, running pods stay as they are, it opens by itself."""

import dataclasses
import signal
from collections.abc import Iterator

import pytest

from devcluster.node import NodeOptions
from tests.cluster.node import gpu_pods
from tests.cluster.node.agent_processes import replace_agent
from tests.cluster.node.stage import AGENT, PATIENCE_SECONDS, SLOTS, Json, NodeStage
from vgpu.core.reasons import Reason

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

KUBELETS_OWN_SECONDS = 10
"""How often kubelet writes its status unless told otherwise."""


@pytest.fixture
def slow_kubelet(stage: NodeStage) -> Iterator[NodeStage]:
    """The node's kubelet writes its status as seldom as it does by default."""
    usual = stage.node.node_options
    restart_kubelet(stage, dataclasses.replace(usual, status_update_seconds=KUBELETS_OWN_SECONDS))
    stage.wait_open()
    yield stage
    restart_kubelet(stage, usual)


def restart_kubelet(stage: NodeStage, options: NodeOptions) -> None:
    """Killed and started; comes back when the new one has told its status."""
    before = heartbeat(stage)
    stage.node.end_process("kubelet")
    stage.node.node_options = options
    stage.node.start_kubelet()
    stage.node.wait_until(lambda: heartbeat(stage) > before, "kubelet to write its status", PATIENCE_SECONDS)


def heartbeat(stage: NodeStage) -> str:
    conditions = stage.node.api.get(f"/api/v1/nodes/{stage.node.name}")["status"]["conditions"]
    return max(condition["lastHeartbeatTime"] for condition in conditions)


def start(stage: NodeStage, *pods: Json) -> dict[str, tuple[str, int]]:
    """Create pods and wait until they run; hands back their containers."""
    stage.create(*pods)
    pod_names = [pod["metadata"]["name"] for pod in pods]
    stage.wait_running(*pod_names)
    return containers(stage, *pod_names)


def containers(stage: NodeStage, *pod_names: str) -> dict[str, tuple[str, int]]:
    return {name: gpu_pods.container_id(stage, name) for name in pod_names}


def test_r27_a_killed_agent_closes_the_node_and_the_next_one_opens_it(slow_kubelet: NodeStage) -> None:
    """With kubelet's own interval for its status."""
    stage = slow_kubelet
    before = start(stage, gpu_pods.share("before"))
    inside = gpu_pods.environment(stage, "before")
    stage.kill_agent()
    stage.node.wait_until(lambda: stage.allocatable() == 0, "kubelet to offer nothing", PATIENCE_SECONDS)
    assert stage.capacity() == SLOTS
    stage.wait_gate(stage.node.name, Reason.NO_ALLOCATABLE)
    stage.create(gpu_pods.share("waits"))
    assert stage.node.name in stage.wait_told("waits", Reason.NO_ALLOCATABLE)
    assert containers(stage, "before") == before
    stage.start_agent()
    stage.wait_open()
    stage.wait_running("waits")
    assert containers(stage, "before") == before
    assert gpu_pods.environment(stage, "before") == inside


def test_r28_r31_a_kubelet_that_restarts_is_registered_with_again(stage: NodeStage) -> None:
    before = start(stage, gpu_pods.share("before"), gpu_pods.whole("alone"))
    restart_kubelet(stage, stage.node.node_options)
    stage.wait_open()
    stage.node.wait_until(
        lambda: not stage.condition(stage.node.name, Reason.SLOTS_MISMATCH), "no contradiction to be told", 20
    )
    assert containers(stage, "before", "alone") == before
    start(stage, gpu_pods.share("after"))
    assert stage.allocatable() == SLOTS


def test_r34_a_restart_of_the_agent_changes_nothing_of_what_runs(stage: NodeStage) -> None:
    before = start(stage, gpu_pods.share("before"), gpu_pods.whole("alone", cards=2))
    inside = {name: gpu_pods.environment(stage, name) for name in before}
    files = {path: (path.read_text(), path.stat().st_ino) for path in stage.cdi_files()}
    generation = stage.inventory(stage.node.name)["metadata"]["generation"]
    assert len(files) == len(before)
    replace_agent(stage)
    assert stage.inventory(stage.node.name)["metadata"]["generation"] == generation
    assert {path: (path.read_text(), path.stat().st_ino) for path in stage.cdi_files()} == files
    assert containers(stage, *before) == before
    for name in before:
        gpu_pods.end_container(stage, name)
    stage.node.wait_until(lambda: all(gpu_pods.restarts(stage, name) for name in before), "both to start again")
    stage.wait_running(*before)
    assert {name: gpu_pods.environment(stage, name) for name in before} == inside


def test_an_agent_that_was_told_to_end_lets_in_what_was_bound_a_moment_ago(stage: NodeStage) -> None:
    before = start(stage, gpu_pods.share("before"))
    agent = stage.node.processes[AGENT]
    said = len(stage.agent_log())
    agent.signal(signal.SIGTERM)
    stage.node.wait_until(lambda: "ending soon" in stage.agent_log()[said:], "the agent to be told")
    start(stage, gpu_pods.share("late"))
    stage.node.wait_until(lambda: not agent.alive(), "the agent to end", PATIENCE_SECONDS)
    stage.node.wait_until(lambda: stage.allocatable() == 0, "kubelet to offer nothing", PATIENCE_SECONDS)
    assert containers(stage, "before") == before
    stage.start_agent()
    stage.wait_open()
