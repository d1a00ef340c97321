"""Queues on a real control plane: what kubectl shows of them, and pods whose queue does not let them start."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devcluster import Cluster
from devcluster.operators import gpu_pod, inventory_document
from tests.cluster.stage import Json, Stage, slots_shape, staged, wait_all_ready
from vgpu import names

pytestmark = pytest.mark.cluster
CARDS = 2
CARD_MIB = 40_960
QUEUES = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"
IDLE_SECONDS = 8.0
"""Longer than every interval after which something could be written again."""
VOLCANO_GROUPS = "podgroups.scheduling.volcano.sh"


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[Stage]:
    """Two nodes of two cards."""
    cluster.clear()
    nodes = cluster.create_nodes(2, slots_shape(20))
    with staged(cluster, [inventory_document(node, CARDS) for node in nodes]) as stage:
        wait_all_ready(stage, nodes)
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    yield shared
    shared.remove_pods()
    for queue in shared.cluster.api.get(QUEUES)["items"]:
        if queue["metadata"]["name"] != "default":
            shared.cluster.api.delete(f"{QUEUES}/{queue['metadata']['name']}")


def put_queue(stage: Stage, name: str, **spec: object) -> None:
    """Create the queue, or give it this spec."""
    document = {
        "apiVersion": names.API_VERSION,
        "kind": names.QUEUE_KIND,
        "metadata": {"name": name},
        "spec": spec,
    }
    stage.cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(document))


def in_queue(name: str, queue: str, memory_mib: int | None = None) -> Json:
    pod = gpu_pod(name, memory_mib=memory_mib)
    pod["metadata"].setdefault("labels", {})[names.POLICY_QUEUE] = queue
    return pod


def row(stage: Stage, queue: str) -> dict[str, str]:
    """What `kubectl get gq` shows of the queue, by column, which begins where its head does."""
    head, values = stage.cluster.kubectl("get", "gq", queue).splitlines()
    begins = [(word.group(), word.start()) for word in re.finditer(r"\S+", head)]
    ends = [start for _, start in begins[1:]] + [len(values)]
    return {name: values[start:end].strip() for (name, start), end in zip(begins, ends, strict=True)}


def shows(stage: Stage, queue: str, **want: str) -> None:
    stage.cluster.wait_until(
        lambda: want.items() <= row(stage, queue).items(), f"queue {queue} to show {want}", 30
    )


def test_kubectl_shows_what_pods_use_and_nothing_is_written_while_nothing_changes(stage: Stage) -> None:
    put_queue(stage, "team", deserved={"cards": "1"})
    start = stage.position()
    stage.create(*(in_queue(f"p{i}", "team", CARD_MIB // 2) for i in range(3)))
    stage.wait_bound("p0", "p1", "p2")
    shows(stage, "team", DESERVED="1", CAPABILITY="", USED="1.5", PENDING="0", STATE="Active")
    shows(stage, "team", ENTITLED="1", BORROWED="0.5")
    stage.cluster.wait_until(lambda: stage.used_slots() == 3, "the inventories to show the pods")
    time.sleep(IDLE_SECONDS)
    written = [line for line in stage.writes(start) if "gpuqueues/status" in line]
    assert set(written) == {"patch gpuqueues/status team"}
    position = stage.position()
    time.sleep(IDLE_SECONDS)
    assert stage.writes(position) == []


def test_a_pod_whose_queue_does_not_exist_binds_at_once_when_it_does(stage: Stage) -> None:
    stage.create(in_queue("early", "late"))
    message = stage.wait_told("early", "QueueNotFound")
    assert "there is no GpuQueue late" in message
    assert stage.explain("early")["reason"] == "QueueNotFound"
    assert stage.node_of("early") == ""
    put_queue(stage, "late")
    stage.wait_bound("early", timeout_seconds=10)
    shows(stage, "late", USED="1", STATE="Active")


def test_a_queue_on_hold_starts_nothing_and_goes_on_when_it_is_let(stage: Stage) -> None:
    put_queue(stage, "held", stopPolicy="Hold")
    stage.create(in_queue("waits", "held"))
    assert "stopPolicy" in stage.wait_told("waits", "QueueStopped")
    shows(stage, "held", USED="0", PENDING="1", STATE="Held")
    put_queue(stage, "held", stopPolicy="None")
    stage.wait_bound("waits", timeout_seconds=10)


def test_a_queue_takes_no_more_than_its_capability_and_the_next_pod_as_soon_as_it_may(stage: Stage) -> None:
    put_queue(stage, "capped", capability={"cards": "1"})
    stage.create(in_queue("first", "capped"))
    stage.wait_bound("first")
    stage.create(in_queue("second", "capped"))
    assert "would use 2 cards of 1" in stage.wait_told("second", "QueueCapability")
    stage.delete("first")
    stage.wait_bound("second", timeout_seconds=10)
    stage.create(in_queue("third", "capped"))
    stage.wait_told("third", "QueueCapability")
    put_queue(stage, "capped", capability={"cards": "2"})
    stage.wait_bound("third", timeout_seconds=10)


def definition() -> Json:
    """Volcano's PodGroup, as far as it matters here."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": VOLCANO_GROUPS},
        "spec": {
            "group": "scheduling.volcano.sh",
            "scope": "Namespaced",
            "names": {
                "plural": "podgroups",
                "singular": "podgroup",
                "kind": "PodGroup",
                "listKind": "PodGroupList",
            },
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                    },
                }
            ],
        },
    }


@contextmanager
def volcano(stage: Stage) -> Iterator[None]:
    """Volcano's kind is served meanwhile, and watched by who leads."""
    replica = stage.operators.leader()
    assert replica is not None

    def watched() -> bool:
        return "Volcano's pod groups" in replica.get("/metrics")[1]

    assert not watched()
    try:
        stage.cluster.kubectl("apply", "-f", "-", input=json.dumps(definition()))
        stage.cluster.wait_until(watched, "the groups to be watched", 30)
        yield
    finally:
        stage.cluster.kubectl("delete", "crd", VOLCANO_GROUPS)
    stage.cluster.wait_until(lambda: not watched(), "the watch to end with its kind", 30)


def in_group(name: str, group: str) -> Json:
    pod = gpu_pod(name)
    pod["metadata"].setdefault("annotations", {})[names.VOLCANO_GROUP_KEYS[0]] = group
    return pod


def test_volcanos_groups_are_watched_as_soon_as_their_kind_is_defined(stage: Stage) -> None:
    with volcano(stage):
        pass


def test_a_pod_waits_for_the_podgroup_that_it_names_where_there_can_be_one(stage: Stage) -> None:
    stage.create(in_group("free", "none"))
    stage.wait_bound("free")
    with volcano(stage):
        stage.create(in_group("waits", "g"))
        message = stage.wait_told("waits", "PodGroupNotFound")
        assert "no PodGroup g (scheduling.volcano.sh) in namespace default" in message
        assert stage.explain("waits")["reason"] == "PodGroupNotFound"
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"minMember": 1},
        }
        stage.cluster.kubectl("apply", "-f", "-", input=json.dumps(group))
        stage.wait_bound("waits", timeout_seconds=10)
