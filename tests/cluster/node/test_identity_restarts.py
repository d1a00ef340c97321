"""R34 on the real kubelet: the agent dies at the worst moments, and every container still finds its own cards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.node.gated import close_gate, gated, open_gate, wait_at_gate
from tests.cluster.node.pairs import pairs
from tests.cluster.node.stage import PATIENCE_SECONDS, Json, NodeStage, is_running
from tests.cluster.node.witness import assert_exact

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PAIRS_AT_ONCE = 4
HELD_BACK = "PreStartContainer rpc failed"
"""kubelet's own words while there is no agent."""


@contextmanager
def pod_resources_away(stage: NodeStage) -> Iterator[None]:
    """kubelet's PodResources cannot be reached: nobody gets through PreStartContainer."""
    socket = stage.node.pod_resources_socket
    aside = socket.with_name("aside")
    socket.rename(aside)
    try:
        yield
    finally:
        aside.rename(socket)


def pods_of(first: int, count: int = PAIRS_AT_ONCE) -> list[Json]:
    return [pod for pair in pairs(first, count) for pod in pair]


def names_of(pods: list[Json]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


def started_again(stage: NodeStage, pod_names: list[str], times: int = 1) -> None:
    def again() -> bool:
        pods = stage.items()
        return all(
            is_running(pods[name]) and pods[name]["status"]["containerStatuses"][0]["restartCount"] >= times
            for name in pod_names
        )

    stage.node.wait_until(again, f"{len(pod_names)} containers to have started again", PATIENCE_SECONDS)


def end_containers(stage: NodeStage, pod_names: list[str]) -> None:
    """Their first processes end at once, without kubelet's doing."""
    running = {name: stage.pod(name)["status"]["containerStatuses"][0]["containerID"] for name in pod_names}
    ids = {identifier.removeprefix("containerd://") for identifier in running.values()}
    table = [line.split() for line in stage.node.ctr("tasks", "ls").splitlines()[1:]]
    stage.node.run("kill", "-KILL", *(pid for identifier, pid, *_ in table if identifier in ids))


def test_r34_an_agent_killed_between_allocate_and_the_starts_changes_nobodys_cards(stage: NodeStage) -> None:
    """Half of the pods were not asked for yet, the other half is in the middle of PreStartContainer."""
    close_gate(stage)
    before, amid = [gated(pod) for pod in pods_of(0)], pods_of(PAIRS_AT_ONCE)
    every = names_of([*before, *amid])
    with pod_resources_away(stage):
        for early, late in zip(before, amid, strict=True):
            stage.create(early, late)
        wait_at_gate(stage, *names_of(before))
        for name in names_of(amid):
            stage.node.wait_until(
                lambda name=name: sandbox_runs(stage.pod(name)), f"the sandbox of {name}", PATIENCE_SECONDS
            )
        assert not stage.cdi_files(), "no container was let start yet"
        stage.kill_agent()
        open_gate(stage)
        for name in (every[0], every[-1]):
            stage.wait_kubelet_says(name, HELD_BACK)
    stage.start_agent()
    stage.wait_running(*every)
    pods = stage.items()
    assert assert_exact(stage, {name: pods[name] for name in every}) == len(every)


def test_r34_an_agent_killed_while_containers_restart_changes_nobodys_cards(stage: NodeStage) -> None:
    pods = pods_of(0)
    every = names_of(pods)
    stage.create(*pods)
    stage.wait_running(*every)
    cards = {name: stage.cards(name) for name in every}
    end_containers(stage, every[::2])
    stage.kill_agent()
    end_containers(stage, every[1::2])
    stage.wait_kubelet_says(every[1], HELD_BACK)
    stage.start_agent()
    started_again(stage, every)
    assert {name: stage.cards(name) for name in every} == cards
    assert assert_exact(stage, stage.items()) == len(every)


def test_without_the_answers_on_disk_no_container_starts_again_and_none_is_guessed(stage: NodeStage) -> None:
    """What the two tests above rest on: a lost log is noticed, by a message and not by wrong cards."""
    pods = pods_of(0, 1)
    every = names_of(pods)
    stage.create(*pods)
    stage.wait_running(*every)
    stage.kill_agent()
    os.unlink(stage.state_folder / "allocations.jsonl")
    end_containers(stage, every)
    stage.start_agent()
    for name in every:
        stage.wait_kubelet_says(name, "are in no answer that this agent remembers")
        assert not is_running(stage.pod(name))


def sandbox_runs(pod: Json) -> bool:
    """From then on kubelet asks for the container."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "PodReadyToStartContainers" and c["status"] == "True" for c in conditions)
