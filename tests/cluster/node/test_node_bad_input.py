"""What is wrong with a pod or its node never starts a container with wrong cards, is told, and heals by itself."""

import json
from collections.abc import Callable, Iterator

import pytest

from devcluster.operators import inventory_document
from tests.cluster.node import gpu_pods
from tests.cluster.node.stage import CARDS, CARDS_OF_NODE, Json, NodeStage
from tests.cluster.stage import PODS
from vgpu import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NOBODY = "nobody"
"""A scheduler that does not exist: its pods are bound by the tests."""
ELSEWHERE = inventory_document("elsewhere", 1)["spec"]["gpus"][0]["uuid"]
RUNTIME_LOOKS_IN = "/run/cdi"


def by_hand(name: str) -> Json:
    """A pod with a share of one card that only a test binds."""
    pod = gpu_pods.share(name)
    pod["spec"]["schedulerName"] = NOBODY
    return pod


def bind(stage: NodeStage, name: str, annotation: str | None = None) -> None:
    """Bind it with this text as its assignment: under the operator's account, the only one that may write it."""
    token = stage.node.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    annotations = {} if annotation is None else {names.ASSIGNMENT_ANNOTATION: annotation}
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "target": {"kind": "Node", "name": stage.node.name},
    }
    stage.node.client(token).post(f"{PODS}/{name}/binding", body)


def rewrite(stage: NodeStage, name: str, annotation: str) -> None:
    """Put another assignment in the place of the pod's, under the operator's account."""
    token = stage.node.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    body = {"metadata": {"annotations": {names.ASSIGNMENT_ANNOTATION: annotation}}}
    stage.node.client(token).patch(f"{PODS}/{name}/status", body)


def assigned(stage: NodeStage, name: str, *cards: str, **changes: str) -> str:
    """A right assignment for the pod, but for what is changed."""
    uid = stage.pod(name)["metadata"]["uid"]
    shares = [{"uuid": card, "memoryMiB": 4096, "cores": 0, "whole": False} for card in cards]
    own = {"v": 1, "podUid": uid, "node": stage.node.name, "nonce": "0123456789abcdef"}
    return json.dumps({**own, "containers": [{"name": "main", "cards": shares}], **changes})


def all_cards(stage: NodeStage) -> list[str]:
    return [gpu["uuid"] for gpu in stage.inventory(stage.node.name)["spec"]["gpus"]]


def assert_never_ran(stage: NodeStage, name: str) -> None:
    [status] = stage.pod(name)["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    assert "waiting" in status["state"]


def runs_with_its_own_cards(stage: NodeStage, name: str) -> None:
    stage.wait_running(name)
    assert gpu_pods.visible(stage, name) == set(stage.cards(name))


def test_a_pod_bound_by_hand_waits_until_the_operator_has_cards_for_it(stage: NodeStage) -> None:
    stage.create(gpu_pods.whole("all", cards=CARDS), by_hand("stray"))
    stage.wait_running("all")
    bind(stage, "stray")
    message = stage.wait_kubelet_says("stray", "has no assignment of cards")
    assert "default/stray" in message
    assert_never_ran(stage, "stray")
    stage.node.kubectl("delete", "pod", "all")
    runs_with_its_own_cards(stage, "stray")


def other_card(stage: NodeStage, name: str) -> str:
    return assigned(stage, name, ELSEWHERE)


def too_many_cards(stage: NodeStage, name: str) -> str:
    return assigned(stage, name, *all_cards(stage)[:2])


WRONG: dict[str, tuple[Callable[[NodeStage, str], str], str]] = {
    "another-nodes-card": (other_card, f"the assigned card {ELSEWHERE} is not on this node"),
    "too-many-cards": (too_many_cards, "its containers ask main: 1"),
}
"""What a readable assignment may be wrong with: how it is made, and what kubelet says of it."""


def test_a_wrong_assignment_starts_nothing_until_it_is_right(stage: NodeStage) -> None:
    stage.create(*(by_hand(name) for name in WRONG))
    for name, (make, _) in WRONG.items():
        bind(stage, name, make(stage, name))
    for name, (_, text) in WRONG.items():
        stage.wait_kubelet_says(name, text)
        assert_never_ran(stage, name)
    assert stage.cdi_files() == []
    for name in WRONG:
        rewrite(stage, name, assigned(stage, name, all_cards(stage)[0]))
    for name in WRONG:
        runs_with_its_own_cards(stage, name)


def test_a_card_that_comes_to_the_node_lets_the_pod_start_that_it_was_assigned_to(stage: NodeStage) -> None:
    stage.create(by_hand("early"))
    bind(stage, "early", other_card(stage, "early"))
    stage.wait_kubelet_says("early", ELSEWHERE)
    assert_never_ran(stage, "early")
    template = CARDS_OF_NODE["cards"]
    card = {"uuid": ELSEWHERE, "index": 0, "model": "A100", "memoryMiB": template["memoryMiB"]}
    stage.write_cards({"cards": [card]})
    runs_with_its_own_cards(stage, "early")


def unreadable(stage: NodeStage, name: str) -> str:
    return "{"


def another_pods(stage: NodeStage, name: str) -> str:
    return assigned(stage, name, all_cards(stage)[0], podUid="00000000-0000-0000-0000-000000000000")


def another_nodes(stage: NodeStage, name: str) -> str:
    return assigned(stage, name, all_cards(stage)[0], node="elsewhere")


NONE_AT_ALL = {"unreadable": unreadable, "another-pods": another_pods, "another-nodes": another_nodes}
"""Assignments that count as none."""


def test_an_assignment_that_is_not_the_pods_own_is_replaced_by_one_that_is(stage: NodeStage) -> None:
    stage.create(*(by_hand(name) for name in NONE_AT_ALL))
    foreign = {name: make(stage, name) for name, make in NONE_AT_ALL.items()}
    for name, text in foreign.items():
        bind(stage, name, text)
    for name in NONE_AT_ALL:
        runs_with_its_own_cards(stage, name)
        assert gpu_pods.assignment(stage, name)["podUid"] == stage.pod(name)["metadata"]["uid"]
        assert stage.pod(name)["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION] != foreign[name]


def test_an_altered_assignment_keeps_a_container_from_starting_again(stage: NodeStage) -> None:
    stage.create(gpu_pods.share("ours"))
    stage.wait_running("ours")
    inside = gpu_pods.environment(stage, "ours")
    right = stage.pod("ours")["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION]
    other = next(card for card in all_cards(stage) if card not in stage.cards("ours"))
    rewrite(stage, "ours", assigned(stage, "ours", other))
    gpu_pods.end_container(stage, "ours")
    stage.wait_kubelet_says("ours", "was altered since the pod was first let start")
    [status] = stage.pod("ours")["status"]["containerStatuses"]
    assert "running" not in status["state"]
    rewrite(stage, "ours", right)
    runs_with_its_own_cards(stage, "ours")
    assert gpu_pods.environment(stage, "ours") == inside


@pytest.fixture
def tiny_cdi_folder(stage: NodeStage) -> Iterator[str]:
    """The folder of CDI files has a small disk of its own; hands back the file that fills it."""
    stage.node.run("mkdir", "-p", RUNTIME_LOOKS_IN)
    stage.node.run("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", RUNTIME_LOOKS_IN)
    restart_containerd(stage)
    filler = f"{RUNTIME_LOOKS_IN}/filler"
    stage.node.run("sh", "-c", f"dd if=/dev/zero of={filler} bs=1k count=64 2>/dev/null || true")
    yield filler
    stage.remove_pods()
    stage.node.run("umount", RUNTIME_LOOKS_IN)
    restart_containerd(stage)


def restart_containerd(stage: NodeStage) -> None:
    """It watches the folder that it found at its start."""
    stage.node.end_process("containerd")
    stage.node.start_containerd()


def test_a_full_disk_for_cdi_files_delays_a_pod_until_there_is_room(
    tiny_cdi_folder: str, stage: NodeStage
) -> None:
    stage.create(gpu_pods.share("squeezed"))
    stage.wait_kubelet_says("squeezed", "its CDI file cannot be written on this node")
    assert_never_ran(stage, "squeezed")
    stage.node.run("rm", tiny_cdi_folder)
    runs_with_its_own_cards(stage, "squeezed")


def test_a_pod_waits_while_kubelet_does_not_tell_who_holds_what(stage: NodeStage) -> None:
    socket = stage.node.pod_resources_socket
    away = socket.rename(socket.with_suffix(".away"))
    try:
        stage.create(gpu_pods.share("unknown"))
        stage.wait_kubelet_says("unknown", "PodResources")
        assert_never_ran(stage, "unknown")
    finally:
        away.rename(socket)
    runs_with_its_own_cards(stage, "unknown")
