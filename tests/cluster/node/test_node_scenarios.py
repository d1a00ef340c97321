"""Scenarios of whose cards a container gets, on the real kubelet, by the numbers of their public reports."""

from collections.abc import Iterator, Sequence

import pytest

from tests.cluster.node import gpu_pods
from tests.cluster.node.agent_processes import end_agent, replace_agent, settings_file
from tests.cluster.node.stage import CARDS, PATIENCE_SECONDS, STATE, Json, NodeStage, busybox_pod
from vgpu import names
from vgpu.core.reasons import Reason

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

REPLICASETS = "/apis/apps/v1/namespaces/default/replicasets"
REFUSED = "UnexpectedAdmissionError"
CRASHES = ("sh", "-c", "exit 1")


def at_once(counts: Sequence[int]) -> list[Json]:
    """Pods of so many cards each, told apart by their memory, and one that crashes between each two."""
    pods = []
    for number, cards in enumerate(counts):
        pods.append(gpu_pods.share(f"pod-{number}", cards=cards, memory_mib=1001 + number))
        pods.append(gpu_pods.share(f"crashes-{number}", memory_mib=501 + number, command=CRASHES))
    return pods[:-1]


def assert_own(stage: NodeStage, pod_names: Sequence[str]) -> None:
    assert {name: gpu_pods.found(stage, name) for name in pod_names} == {
        name: gpu_pods.wanted(stage, name) for name in pod_names
    }


@pytest.mark.parametrize("counts", [(1, 1, 1), (1, 2, 3)], ids=["equal counts", "different counts"])
def test_r05_pods_bound_at_once_beside_a_crashing_one_find_their_own(
    stage: NodeStage, counts: Sequence[int]
) -> None:
    pods = at_once(counts)
    stage.create(*pods)
    staying = [f"pod-{number}" for number in range(len(counts))]
    stage.wait_running(*staying)
    stage.node.wait_until(lambda: gpu_pods.restarts(stage, "crashes-0") > 0, "the crashing pod to start again")
    assert_own(stage, staying)


@pytest.fixture
def deferred(stage: NodeStage) -> Iterator[NodeStage]:
    """A node whose runtime is taken for one without CDI."""
    replace_agent(stage, VGPU_AGENT_CONFIG=settings_file(stage, identity="deferred"))
    assert stage.inventory(stage.node.name)["spec"]["identity"] == "deferred"
    yield stage
    stage.remove_pods()
    end_agent(stage)


@pytest.mark.parametrize("counts", [(1, 1, 1), (1, 2, 3)], ids=["equal counts", "different counts"])
def test_r05_on_a_deferred_node_pods_bound_at_once_find_their_own_or_fail(
    deferred: NodeStage, counts: Sequence[int]
) -> None:
    """kubelet may see a pod more than three seconds before the agent: then the pod fails, and nothing swaps."""
    stage = deferred
    stage.create(*at_once(counts))
    staying = [f"pod-{number}" for number in range(len(counts))]

    def settled(name: str) -> bool:
        status = stage.pod(name)["status"]
        return status.get("phase") == "Failed" or status.get("phase") == "Running"

    stage.node.wait_until(
        lambda: all(map(settled, staying)), "every pod to run or to have failed", PATIENCE_SECONDS
    )
    failed = [name for name in staying if stage.pod(name)["status"]["phase"] == "Failed"]
    print(f"seen too late by the agent: {len(failed)} of {len(staying)}")
    running = sorted({*staying} - {*failed})
    assert running
    stage.wait_running(*running)
    assert_own(stage, running)
    for name in failed:
        assert stage.pod(name)["status"]["reason"] == REFUSED


def test_r06_a_pod_of_all_cards_finds_each_of_them_whatever_slots_kubelet_chose(stage: NodeStage) -> None:
    stage.create(gpu_pods.share("other", memory_mib=100), gpu_pods.share("all", cards=CARDS))
    stage.wait_running("other", "all")
    assert_own(stage, ["other", "all"])
    assert len(gpu_pods.visible(stage, "all")) == CARDS


@pytest.fixture
def tiny_state_folder(stage: NodeStage) -> Iterator[str]:
    """The agent's folder has a small disk of its own; hands back the file that fills it."""
    end_agent(stage)
    stage.node.run("mkdir", "-p", str(STATE))
    stage.node.run("mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(STATE))
    stage.start_agent()
    stage.wait_open()
    filler = f"{STATE}/filler"
    stage.node.run("sh", "-c", f"dd if=/dev/zero of={filler} bs=1k count=64 2>/dev/null || true")
    yield filler
    stage.node.api.delete(REPLICASETS, {"propagationPolicy": "Foreground"})
    stage.node.wait_until(lambda: not stage.node.api.get(REPLICASETS)["items"], "the owner to be gone")
    stage.remove_pods()
    end_agent(stage)
    stage.node.run("umount", str(STATE))


def replicaset(name: str) -> Json:
    """An owner of one pod with a share."""
    pod = busybox_pod("unused", command=gpu_pods.SLEEPS, limits=dict.fromkeys((names.VOLCANO_NUMBER,), "1"))
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def test_r24_a_node_that_refuses_every_pod_is_closed_after_three_and_opened_by_the_next_agent(
    tiny_state_folder: str, stage: NodeStage
) -> None:
    """The owner makes a new pod for each that fails."""

    def failed() -> list[Json]:
        return [pod for pod in stage.items().values() if pod["status"].get("phase") == "Failed"]

    stage.node.api.post(REPLICASETS, replicaset("owner"))
    stage.wait_gate(stage.node.name, Reason.ADMISSION_REFUSED)
    waiting = next(name for name, pod in stage.items().items() if pod["status"]["phase"] == "Pending")
    stage.wait_told(waiting, Reason.ADMISSION_REFUSED)
    refused = failed()
    assert len(refused) == 3
    assert {pod["status"]["reason"] for pod in refused} == {REFUSED}
    assert all("No space left" in pod["status"]["message"] for pod in refused)
    assert stage.used_slots() == 0
    stage.node.run("rm", tiny_state_folder)
    end_agent_of_a_closed_node(stage)
    stage.start_agent()
    stage.wait_open()
    stage.wait_running(waiting)
    assert len(failed()) == len(refused)
    assert gpu_pods.visible(stage, waiting) == set(stage.cards(waiting))


def end_agent_of_a_closed_node(stage: NodeStage) -> None:
    stage.kill_agent()
    stage.node.wait_until(lambda: stage.allocatable() == 0, "kubelet to offer nothing")
