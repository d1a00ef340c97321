"""Scenarios of cards and slots that change under running pods, on the real kubelet, by their numbers."""

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from tests.cluster.node import gpu_pods
from tests.cluster.node.agent_processes import end_agent, replace_agent, settings_file
from tests.cluster.node.stage import (
    CARDS,
    LIBRARY,
    MEMORY_MIB,
    PATIENCE_SECONDS,
    SLOTS,
    SLOTS_PER_CARD,
    Json,
    NodeStage,
    busybox_pod,
)
from vgpu import names
from vgpu.agent.kubelet import deviceplugin_pb2 as pb
from vgpu.agent.kubelet import deviceplugin_pb2_grpc as pb_grpc
from vgpu.agent.kubelet.slots import MAX_SLOTS
from vgpu.core.reasons import Reason

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OTHER = "GPU-in-the-same-place"


@pytest.fixture
def fresh(stage: NodeStage) -> NodeStage:
    """The agent is new: it spaces its writes of the inventory the longer the more cards changed of late."""
    replace_agent(stage)
    return stage


def rows(stage: NodeStage) -> list[Json]:
    """The node's cards one by one, as the inventory names them."""
    keys = ("uuid", "index", "minor", "model", "memoryMiB", "pciBusId")
    gpus = stage.inventory(stage.node.name)["spec"]["gpus"]
    return [{key: gpu[key] for key in keys if key in gpu} for gpu in sorted(gpus, key=lambda gpu: gpu["index"])]


def wait_health(stage: NodeStage, uuid: str, health: str) -> Json:
    """Wait until the inventory says so of the card; hands back what it says."""

    def card() -> Json:
        gpus = stage.inventory(stage.node.name)["spec"]["gpus"]
        return next((gpu for gpu in gpus if gpu["uuid"] == uuid), {})

    stage.node.wait_until(lambda: card().get("health") == health, f"{uuid} to be {health}", PATIENCE_SECONDS)
    return card()


def wait_condition(stage: NodeStage, kind: str, *, present: bool) -> str:
    """Wait until a condition is told, or no longer; hands back its message."""
    node = stage.node.name
    stage.node.wait_until(
        lambda: bool(stage.condition(node, kind)) == present, f"{kind} to be told: {present}", 60
    )
    return str(stage.condition(node, kind).get("message", ""))


def test_r35_cards_that_cannot_be_read_close_the_node_and_stay_listed(stage: NodeStage) -> None:
    stage.create(gpu_pods.share("before"))
    stage.wait_running("before")
    before, listed = gpu_pods.container_id(stage, "before"), rows(stage)
    stage.write_cards({"readError": "the driver is being replaced"})
    stage.wait_gate(stage.node.name, Reason.READ_ERROR)
    stage.node.wait_until(lambda: stage.allocatable() == 0, "kubelet to offer nothing")
    assert rows(stage) == listed
    assert gpu_pods.container_id(stage, "before") == before
    stage.write_cards()
    stage.wait_open()
    assert rows(stage) == listed


def test_a_missing_isolation_library_closes_the_node_and_starts_no_container_without_limits(
    stage: NodeStage,
) -> None:
    stage.create(gpu_pods.share("before"), gpu_pods.whole("alone"))
    stage.wait_running("before", "alone")
    stage.outside(LIBRARY).unlink()
    gpu_pods.end_container(stage, "before")
    assert str(LIBRARY) in stage.wait_kubelet_says("before", "could not be held to its memory")
    stage.write_cards()  # the agent looks at the library whenever it looks at its cards
    message = stage.wait_gate(stage.node.name, Reason.ISOLATION_ERROR)
    assert str(LIBRARY) in message
    stage.create(gpu_pods.share("waits"))
    stage.wait_told("waits", Reason.ISOLATION_ERROR)
    stage.provide_library()
    stage.write_cards()
    stage.wait_running("before", "waits", "alone")
    stage.wait_open()


@pytest.fixture
def too_many_slots(stage: NodeStage) -> Iterator[int]:
    """More slots than kubelet can be told of; hands back how many."""
    end_agent(stage)
    stage.write_cards({"cards": {"count": 20, "memoryMiB": MEMORY_MIB}})
    stage.start_agent(VGPU_AGENT_CONFIG=settings_file(stage, slots=1000))
    stage.wait_open(MAX_SLOTS)
    yield 20 * 1000
    stage.remove_pods()
    end_agent(stage)


def test_r36_slots_that_kubelet_cannot_be_told_of_are_contradicted_aloud(
    too_many_slots: int, stage: NodeStage
) -> None:
    message = wait_condition(stage, Reason.SLOTS_MISMATCH, present=True)
    assert str(MAX_SLOTS) in message
    assert str(too_many_slots) in message
    assert f"left_out={too_many_slots - MAX_SLOTS}" in stage.agent_log()
    stage.create(gpu_pods.share("one", cards=20))
    stage.wait_running("one")


class AnotherPlugin(pb_grpc.DevicePluginServicer):
    """Offers whole cards under the same name, as an old plugin that nobody removed."""

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's names
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        ended = threading.Event()
        context.add_callback(ended.set)
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=f"whole-{n}", health="Healthy") for n in range(CARDS)])
        ended.wait()


def test_r31_another_plugin_of_the_same_resource_is_told_and_outlived(stage: NodeStage) -> None:
    stage.create(gpu_pods.share("before"))
    stage.wait_running("before")
    before = gpu_pods.container_id(stage, "before")
    server = grpc.server(futures.ThreadPoolExecutor(4))
    pb_grpc.add_DevicePluginServicer_to_server(AnotherPlugin(), server)
    server.add_insecure_port(f"unix://{stage.node.plugin_dir}/another.sock")
    server.start()
    try:
        with grpc.insecure_channel(f"unix://{stage.node.plugin_dir}/kubelet.sock") as channel:
            request = pb.RegisterRequest(
                version="v1beta1", endpoint="another.sock", resource_name=names.VOLCANO_NUMBER
            )
            pb_grpc.RegistrationStub(channel).Register(request, timeout=10)
        message = wait_condition(stage, Reason.SLOTS_MISMATCH, present=True)
        assert f"kubelet offers {CARDS} " in message
        stage.wait_open()  # the agent notices and registers again
        wait_condition(stage, Reason.SLOTS_MISMATCH, present=False)
    finally:
        server.stop(None).wait()
    stage.wait_open()
    assert gpu_pods.container_id(stage, "before") == before
    stage.create(gpu_pods.share("after"))
    stage.wait_running("after")
    assert gpu_pods.visible(stage, "after") == set(stage.cards("after"))


def test_r38_r39_one_lost_card_leaves_the_others_and_comes_back(fresh: NodeStage) -> None:
    stage = fresh
    stage.create(gpu_pods.whole("on-it"))
    stage.wait_running("on-it")
    before, [uuid] = gpu_pods.container_id(stage, "on-it"), stage.cards("on-it")
    cards = rows(stage)
    lost = next(row for row in cards if row["uuid"] == uuid)
    stage.write_cards({
        "cards": [row for row in cards if row is not lost],
        "lost": [{"index": lost["index"], "reason": "GPU is lost", "uuid": uuid}],
    })  # fmt: skip
    stage.node.wait_until(lambda: stage.allocatable() == SLOTS - SLOTS_PER_CARD, "its slots to be taken out")
    assert wait_health(stage, uuid, "Unhealthy")["healthReason"] == "lost: GPU is lost"
    assert gpu_pods.container_id(stage, "on-it") == before
    stage.node.wait_until(
        lambda: "default/on-it" in stage.condition(stage.node.name)["message"], "the condition to name its pod"
    )
    stage.create(gpu_pods.whole("others", cards=CARDS - 1), gpu_pods.share("waits", memory_mib=MEMORY_MIB))
    stage.wait_running("others")
    assert gpu_pods.visible(stage, "others") == {row["uuid"] for row in cards} - {uuid}
    stage.node.kubectl("delete", "pod", "on-it")
    stage.write_cards({"cards": cards})
    wait_health(stage, uuid, "Healthy")
    stage.wait_running("waits")
    assert stage.cards("waits") == [uuid]
    stage.node.wait_until(lambda: stage.allocatable() == SLOTS, "its slots to be back")


def test_r42_a_card_swapped_under_a_running_pod_is_no_card_of_that_pod(fresh: NodeStage) -> None:
    stage = fresh
    stage.create(gpu_pods.whole("on-it"), gpu_pods.whole("beside"))
    stage.wait_running("on-it", "beside")
    inside = {name: gpu_pods.environment(stage, name) for name in ("on-it", "beside")}
    [uuid] = stage.cards("on-it")
    cards = rows(stage)
    swapped = [{**row, "uuid": OTHER} if row["uuid"] == uuid else row for row in cards]
    stage.write_cards({"cards": swapped})
    assert uuid in wait_condition(stage, Reason.ORPHANED_CARDS, present=True)
    for name in inside:
        gpu_pods.end_container(stage, name)
    assert "swapped" in stage.wait_kubelet_says("on-it", f"the assigned card {uuid} is not on this node")
    [status] = stage.pod("on-it")["status"]["containerStatuses"]
    assert "running" not in status["state"]
    stage.node.wait_until(lambda: gpu_pods.restarts(stage, "beside") > 0, "the other to start again")
    stage.wait_running("beside")
    assert gpu_pods.environment(stage, "beside") == inside["beside"]
    stage.create(gpu_pods.whole("new", cards=CARDS - 1))
    stage.wait_running("new")
    assert OTHER in gpu_pods.visible(stage, "new")
    stage.node.kubectl("delete", "pod", "new")
    stage.write_cards({"cards": cards})
    stage.wait_running("on-it")
    assert gpu_pods.environment(stage, "on-it") == inside["on-it"]


def test_limits_are_numbered_as_nvml_counts_the_cards(fresh: NodeStage) -> None:
    """Half of each of two cards of different size, whose names are not in the order of their places."""
    stage = fresh
    small, large = 10_000, 20_000
    cards = [
        {"uuid": "GPU-z", "index": 0, "minor": 1, "model": "A", "memoryMiB": small},
        {"uuid": "GPU-a", "index": 1, "minor": 0, "model": "B", "memoryMiB": large},
    ]
    stage.write_cards({"cards": cards})
    wait_health(stage, "GPU-z", "Healthy")
    stage.wait_open(2 * SLOTS_PER_CARD)
    limits = {names.VOLCANO_NUMBER: "2", names.VOLCANO_MEMORY_PERCENT: "50"}
    stage.create(busybox_pod("halves", command=gpu_pods.SLEEPS, limits=limits))
    stage.wait_running("halves")
    assert gpu_pods.found(stage, "halves") == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-z,GPU-a",
        f"{gpu_pods.MEMORY_LIMIT}0": f"{small // 2}m",
        f"{gpu_pods.MEMORY_LIMIT}1": f"{large // 2}m",
    }
