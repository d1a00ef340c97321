"""R08 on the real kubelet: a pod deleted by force keeps its cards until its last process has ended (invariant I3).

The API server forgets such a pod at once; only the node knows that the process is still there. The agent tells the
operator, which gives the cards to nobody; a pod that was bound to them before it knew waits on the node.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.node import gpu_pods
from tests.cluster.node.agent_processes import READER, child, end_agent, replace_agent, supervisor
from tests.cluster.node.stage import CARDS, PATIENCE_SECONDS, NodeStage
from tests.cluster.stage import PODS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

HEEDS_NOTHING = ("sh", "-c", "trap '' TERM; while :; do sleep 0.2; done")
STAYS = "was deleted and still has processes on this node"


class Stubborn:
    """A pod with all cards of the node whose process stays: the runtime's own process for it stands still."""

    def __init__(self, stage: NodeStage) -> None:
        stage.create(gpu_pods.whole("stubborn", cards=CARDS, command=HEEDS_NOTHING))
        stage.wait_running("stubborn")
        self._stage = stage
        self.uid: str = stage.pod("stubborn")["metadata"]["uid"]
        [self._pid] = first_processes(gpu_pods.container_id(stage, "stubborn")[0].removeprefix("containerd://"))
        self._shim = parent(self._pid)
        os.kill(self._shim, signal.SIGSTOP)

    def delete_by_force(self) -> None:
        """As `kubectl delete --force`: the API server knows it no more."""
        self._stage.node.api.delete(f"{PODS}/stubborn", {"gracePeriodSeconds": 0})
        assert "stubborn" not in self._stage.items()

    def runs(self) -> bool:
        """Is its process there?"""
        return Path(f"/proc/{self._pid}").exists()

    def let_go(self) -> None:
        """The runtime goes on; kubelet has it end the process."""
        if self.runs():
            os.kill(self._shim, signal.SIGCONT)

    def has_file(self) -> bool:
        """Does its CDI file stand?"""
        return any(self.uid in path.name for path in self._stage.cdi_files())


def first_processes(container: str) -> list[int]:
    """The processes of a container whose parent is not of it, as this process knows them."""
    own = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cgroup") if container in text_of(path)]
    return [pid for pid in own if parent(pid) not in own]


def parent(pid: int) -> int:
    """A process's parent; 0 where there is no such process."""
    lines = text_of(Path(f"/proc/{pid}/status")).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("PPid:")), 0)


def text_of(path: Path) -> str:
    """What it says; nothing where the process is gone."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def stubborn(stage: NodeStage) -> Iterator[Stubborn]:
    pod = Stubborn(stage)
    yield pod
    pod.let_go()


def create_next(stage: NodeStage, name: str) -> None:
    """A pod that wants all cards of the node, too; the operator finds them free."""
    stage.create(gpu_pods.whole(name, cards=CARDS))
    stage.wait_bound(name)


@contextmanager
def nobody_publishes(stage: NodeStage) -> Iterator[None]:
    """The agent's reader stands still, and so does who would replace it: the operator learns nothing."""
    pids = (supervisor(stage), child(stage, READER))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


def linger_message(stage: NodeStage) -> str:
    """What the inventory says of pods that linger; "" while none does."""
    return str(stage.condition(stage.node.name, "PodsLinger").get("message", ""))


def test_r08_a_pod_deleted_by_force_keeps_its_cards_whatever_was_away_meanwhile(
    stage: NodeStage, stubborn: Stubborn
) -> None:
    """kubelet stands still when the pod is deleted, and an agent that has just started knows it from its disk."""
    stage.node.pause("kubelet")
    try:
        stubborn.delete_by_force()
    finally:
        stage.node.resume("kubelet")
    replace_agent(stage)
    stage.create(gpu_pods.whole("next", cards=CARDS))
    stage.node.wait_until(
        lambda: bool(stage.reasons("next")), "the operator to refuse the next pod", PATIENCE_SECONDS
    )
    stage.node.wait_until(lambda: f"default/stubborn (uid {stubborn.uid}" in linger_message(stage), "it is named")
    assert stubborn.runs()
    assert stubborn.has_file()
    assert "nodeName" not in stage.pod("next")["spec"]
    holders = [h for gpu in stage.inventory(stage.node.name)["status"]["gpus"] for h in gpu["holders"]]
    assert {(h["uid"], h["state"]) for h in holders} == {(stubborn.uid, "lingering")}
    assert len(holders) == CARDS
    stubborn.let_go()
    stage.wait_running("next")
    assert not stubborn.runs()
    assert gpu_pods.visible(stage, "next") == set(stage.cards("next"))
    stage.node.wait_until(lambda: not linger_message(stage), "nothing to linger any more", PATIENCE_SECONDS)
    stage.node.wait_until(
        lambda: not stubborn.has_file(), "the file of the pod that is gone to go", PATIENCE_SECONDS
    )


def test_r08_a_pod_bound_before_anybody_knew_waits_on_the_node_and_both_are_named(
    stage: NodeStage, stubborn: Stubborn
) -> None:
    with nobody_publishes(stage):
        stubborn.delete_by_force()
        create_next(stage, "next")
        message = stage.wait_kubelet_says("next", STAYS)
        assert "default/next: card " in message
        assert f"default/stubborn (uid {stubborn.uid})" in message
        assert linger_message(stage) == ""
    stage.node.wait_until(lambda: "default/next" in linger_message(stage), "both to be named", PATIENCE_SECONDS)
    assert f"default/stubborn (uid {stubborn.uid}" in linger_message(stage)
    assert stubborn.runs()
    assert stage.pod("next")["status"]["phase"] == "Pending"
    stubborn.let_go()
    stage.wait_running("next")
    assert not stubborn.runs()
    assert gpu_pods.visible(stage, "next") == set(stage.cards("next"))


def test_r08_where_processes_cannot_be_seen_the_agent_says_so_and_both_pods_run(
    stage: NodeStage, stubborn: Stubborn
) -> None:
    """The rule switched off: what the test above looks for fails without it."""
    said = len(stage.agent_log())
    replace_agent(stage, VGPU_AGENT_CONTROL_GROUPS="/nowhere")
    try:
        stubborn.delete_by_force()
        create_next(stage, "beside")
        stage.wait_running("beside")
        assert stubborn.runs()
        assert stage.agent_log()[said:].count("processes of pods deleted by force cannot be seen") == 1
    finally:
        end_agent(stage)  # the stage starts its usual one
