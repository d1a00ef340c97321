"""The real node starts anew: pods keep their own cards or fail and hold none, and nobody gets another's."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.node import gpu_pods
from tests.cluster.node.stage import CARDS, CARDS_OF_NODE, PATIENCE_SECONDS, NodeStage, is_running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

BOOT = "another-boot"


def reboot(stage: NodeStage, *, kubelet_forgets: bool) -> None:
    """Every process of node and pods ends, /run is empty of CDI files, and all start again in no order.

    A kubelet that lives through it starts the containers again; a new one asks its plugins first, and fails the
    pods of plugins that are not there yet.
    """
    stage.kill_agent()
    if kubelet_forgets:
        stage.node.end_process("kubelet")
    stage.node.end_process("containerd")
    for pid in of_pods(stage):
        os.kill(pid, signal.SIGKILL)
    stage.node.wait_until(lambda: not list(of_pods(stage)), "every process of pods to end")
    for path in stage.cdi_files():
        path.unlink()
    stage.write_cards({**CARDS_OF_NODE, "bootId": BOOT})
    stage.node.start_containerd()
    if kubelet_forgets:
        stage.node.start_kubelet()
    stage.start_agent()


def of_pods(stage: NodeStage) -> Iterator[int]:
    """Processes of this node's containers, and those that containerd has beside each of them."""
    own = os.readlink(f"/proc/{stage.node.namespaces.pid}/ns/pid")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            contained = stage.node.namespaces.control_group in (path / "cgroup").read_text()
            beside = os.readlink(path / "ns/pid") == own and b"containerd-shim" in (path / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if contained or beside:
            yield int(path.name)


@pytest.mark.parametrize("kubelet_forgets", [True, False], ids=["new kubelet", "same kubelet"])
def test_r32_after_a_reboot_pods_have_their_own_cards_or_none(stage: NodeStage, kubelet_forgets: bool) -> None:
    asked = [gpu_pods.whole("a"), gpu_pods.share("b"), gpu_pods.share("c", cards=2), gpu_pods.whole("d", cards=2)]
    pods = [pod["metadata"]["name"] for pod in asked]
    stage.create(*asked)
    stage.wait_running(*pods)
    uids = {name: stage.pod(name)["metadata"]["uid"] for name in pods}
    before = {name: gpu_pods.container_id(stage, name)[0] for name in pods}
    cards = {name: set(stage.cards(name)) for name in pods}

    def is_settled(name: str) -> bool:
        pod = stage.pod(name)
        if pod["status"]["phase"] == "Failed":
            return True
        return is_running(pod) and pod["status"]["containerStatuses"][0]["containerID"] != before[name]

    reboot(stage, kubelet_forgets=kubelet_forgets)
    stage.node.wait_until(
        lambda: all(map(is_settled, pods)), "every pod to have started again or failed", PATIENCE_SECONDS
    )
    stage.wait_open()
    assert stage.inventory(stage.node.name)["spec"]["bootId"] == BOOT
    back = [name for name in pods if stage.pod(name)["status"]["phase"] == "Running"]
    for name in back:
        assert stage.pod(name)["metadata"]["uid"] == uids[name]
        assert gpu_pods.visible(stage, name) == cards[name]
    assert kubelet_forgets or back == pods
    stage.node.wait_until(
        lambda: stage.used_slots() == sum(len(cards[name]) for name in back), "failed pods to hold nothing"
    )
    free = CARDS - len(set[str]().union(*(cards[name] for name in back)))
    stage.create(gpu_pods.whole("rest", cards=free))
    stage.wait_running("rest")
    assert not gpu_pods.visible(stage, "rest") & set[str]().union(*(cards[name] for name in back))
