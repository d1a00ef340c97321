"""The product comes to a cluster whose pods hold GPUs by other means: all go on, and no card is given twice."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from devcluster import Cluster
from devcluster.operators import gpu_pod, inventory_document
from tests.cluster.stage import EVENTS, PODS, Json, Stage, held, slots_shape, staged
from vgpu import names

pytestmark = pytest.mark.cluster
CARD_MIB = 40_960
CARDS = 2
SLOTS = 10

VOLCANO, HAMI, VOLCANO_DP, BY_HAND, DAEMON, MIRROR, LATE, LATE_FULL, DEFERRED, EMPTY = NODES = [
    f"node-{number:04d}" for number in range(10)
]
CLOSED = (BY_HAND, DAEMON, MIRROR, DEFERRED)
"""Nodes with a pod that may use any card."""


def uuid(node: str, card: int = 0) -> str:
    return f"GPU-{node}-{card}"


def running(name: str, node: str, limits: dict[str, str], annotations: dict[str, str] | None = None) -> Json:
    """A pod that another scheduler has bound."""
    pod = gpu_pod(name)
    pod["metadata"]["annotations"] = dict(annotations or {})
    pod["spec"] |= {"nodeName": node, "schedulerName": "another-scheduler"}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod


ONE_SLOT = {names.VOLCANO_NUMBER: "1"}


def run_daemon(cluster: Cluster) -> None:
    """A DaemonSet's one pod, bound to its node."""
    template = held(gpu_pod("daemon", memory_mib=None))
    template["metadata"] = {"labels": {"app": "daemon"}, "annotations": template["metadata"]["annotations"]}
    template["spec"] |= {"schedulerName": "another-scheduler", "nodeSelector": {"kubernetes.io/hostname": DAEMON}}
    spec = {"selector": {"matchLabels": {"app": "daemon"}}, "template": template}
    cluster.api.post("/apis/apps/v1/namespaces/default/daemonsets", {"metadata": {"name": "daemon"}, "spec": spec})
    mine = f"{PODS}?labelSelector=app%3Ddaemon"
    cluster.wait_until(lambda: len(cluster.api.get(mine)["items"]) == 1, "the DaemonSet's pod", 60)
    [pod] = cluster.api.get(mine)["items"]
    target = {"apiVersion": "v1", "kind": "Node", "name": DAEMON}
    name = pod["metadata"]["name"]
    cluster.api.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


def others() -> list[Json]:
    """What runs, or is about to, when the operator comes."""
    volcano = {
        names.VOLCANO_NODE: VOLCANO,
        names.VOLCANO_IDS: f"{uuid(VOLCANO)},NVIDIA,30000,50:",
        names.VOLCANO_BIND_PHASE: "success",
    }
    hami = {
        names.HAMI_NODE: HAMI,
        names.HAMI_ALLOCATED: f"{uuid(HAMI, 1)},NVIDIA,30000,50:;",
        names.HAMI_BIND_PHASE: "success",
    }
    dp = {names.VOLCANO_DP_INDEX: "1", names.VOLCANO_DP_ASSIGNED: "true"}
    mirror = {names.MIRROR_POD_ANNOTATION: "file"}
    return [
        running("volcano", VOLCANO, {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "30000"}, volcano),
        running("hami", HAMI, {names.HAMI_NUMBER: "1", names.HAMI_MEMORY: "30000"}, hami),
        running("volcano-dp", VOLCANO_DP, {names.VOLCANO_DP_MEMORY: "1000"}, dp),
        running("by-hand", BY_HAND, ONE_SLOT),
        held(running("static", MIRROR, ONE_SLOT, mirror)),
        held(running("never-ran", LATE, {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "4000"})),
        held(running("never-ran-too-big", LATE_FULL, {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "50000"})),
        held(running("never-ran-deferred", DEFERRED, ONE_SLOT)),
    ]


def documents() -> list[Json]:
    found = {node: inventory_document(node, CARDS, slots=SLOTS) for node in NODES}
    found[VOLCANO]["spec"] |= {"identity": "deferred", "plugin": "volcano"}
    found[HAMI]["spec"] |= {"identity": "deferred", "plugin": "hami", "slotResource": names.HAMI_NUMBER}
    found[DEFERRED]["spec"] |= {"identity": "deferred", "plugin": "volcano"}
    return list(found.values())


@dataclass(slots=True)
class Beside:
    """The stage, the others' pods as they were, and where the audit log stood before the operator came."""

    stage: Stage
    before: dict[str, Json]
    since: int


@pytest.fixture(scope="module")
def beside(cluster: Cluster) -> Iterator[Beside]:
    cluster.clear()
    resources = {names.VOLCANO_NUMBER: CARDS * SLOTS, names.HAMI_NUMBER: CARDS * SLOTS}
    assert cluster.create_nodes(len(NODES), replace(slots_shape(), resources=resources)) == NODES
    for pod in others():
        cluster.api.post(PODS, pod)
    run_daemon(cluster)
    runs = ("volcano", "hami", "volcano-dp", "by-hand")
    cluster.wait_until(lambda: all(phase(cluster, name) == "Running" for name in runs), "the others' pods to run")
    before = {pod["metadata"]["name"]: pod for pod in cluster.api.get(PODS)["items"]}
    since = cluster.audit_events().position
    with staged(cluster, documents()) as stage:
        yield Beside(stage, before, since)


def phase(cluster: Cluster, name: str) -> str:
    return str(cluster.api.get(f"{PODS}/{name}")["status"].get("phase"))


def holders(stage: Stage, node: str) -> dict[str, list[tuple[str, str]]]:
    """(pod, state) of every holder, by card."""
    gpus = stage.inventory(node).get("status", {}).get("gpus", [])
    return {gpu["uuid"]: [(h["name"], h["state"]) for h in gpu.get("holders", [])] for gpu in gpus}


def test_what_others_assigned_is_counted_on_the_card_that_they_named(beside: Beside) -> None:
    stage = beside.stage
    want = {
        VOLCANO: {uuid(VOLCANO): [("volcano", "legacy")], uuid(VOLCANO, 1): []},
        HAMI: {uuid(HAMI): [], uuid(HAMI, 1): [("hami", "legacy")]},
        VOLCANO_DP: {uuid(VOLCANO_DP): [], uuid(VOLCANO_DP, 1): [("volcano-dp", "legacy")]},
    }
    stage.cluster.wait_until(
        lambda: {node: holders(stage, node) for node in want} == want, "the holders to be shown"
    )


@pytest.mark.parametrize(
    ("node", "pod"),
    [(BY_HAND, "by-hand"), (DAEMON, "daemon"), (MIRROR, "static"), (DEFERRED, "never-ran-deferred")],
)
def test_a_pod_whose_cards_nobody_recorded_closes_its_node_and_is_named(
    beside: Beside, node: str, pod: str
) -> None:
    name = next(name for name, was in beside.before.items() if was["spec"]["nodeName"] == node)
    assert name.startswith(pod)
    message = beside.stage.wait_gate(node, "UnknownHolder")
    assert f"default/{name}" in message
    words = beside.stage.wait_told(name, "BoundWithoutAssignment")
    assert f"{node} takes no new GPU pods while this pod lives" in words


def test_a_pod_that_never_ran_on_an_exact_node_gets_its_card_late(beside: Beside) -> None:
    stage = beside.stage
    stage.cluster.wait_until(lambda: len(stage.cards("never-ran")) == 1, "the late assignment")
    assignment = json.loads(stage.pod("never-ran")["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION])
    assert assignment["podUid"] == beside.before["never-ran"]["metadata"]["uid"]
    assert assignment["node"] == LATE
    [card] = assignment["containers"][0]["cards"]
    assert card["uuid"] in {uuid(LATE, number) for number in range(CARDS)}
    assert card["memoryMiB"] == 4000
    stage.cluster.wait_until(
        lambda: holders(stage, LATE)[card["uuid"]] == [("never-ran", "running")], "the holder to be shown"
    )


def test_one_that_fits_nowhere_there_is_left_and_told(beside: Beside) -> None:
    words = beside.stage.wait_told("never-ran-too-big", "BoundWithoutAssignment")
    assert f"bound to {LATE_FULL} without cards, and none fit there now" in words
    assert beside.stage.cards("never-ran-too-big") == []


def test_new_pods_never_get_what_others_hold(beside: Beside) -> None:
    """As many pods as could ever fit, and more: whole cards and shares beside the others' shares."""
    stage = beside.stage
    for node in CLOSED:
        stage.wait_gate(node, "UnknownHolder")
    whole = [gpu_pod(f"whole-{number}", memory_mib=None) for number in range(8)]
    shares = [gpu_pod(f"share-{number}", memory_mib=10_000, cores=20) for number in range(12)]
    hami = [hami_share(f"hami-share-{number}") for number in range(6)]
    stage.create(*whole, *shares, *hami)
    settled(stage, [pod["metadata"]["name"] for pod in (*whole, *shares, *hami)])
    loads: dict[str, list[dict[str, Any]]] = {
        uuid(VOLCANO): [{"memoryMiB": 30_000, "cores": 50, "whole": False}],
        uuid(HAMI, 1): [{"memoryMiB": 30_000, "cores": 50, "whole": False}],
        uuid(VOLCANO_DP, 1): [{"memoryMiB": CARD_MIB, "cores": 0, "whole": True}],
    }
    given = 0
    for pod in stage.cluster.api.get(PODS)["items"]:
        text = pod["metadata"].get("annotations", {}).get(names.ASSIGNMENT_ANNOTATION)
        if text is None:
            continue
        node = pod["spec"]["nodeName"]
        assert node not in CLOSED, pod["metadata"]["name"]
        for card in json.loads(text)["containers"][0]["cards"]:
            assert card["uuid"].startswith(f"GPU-{node}-")
            loads.setdefault(card["uuid"], []).append(card)
            given += 1
    assert given >= 8
    for card_uuid, load in loads.items():
        assert sum(card["memoryMiB"] for card in load) <= CARD_MIB, card_uuid
        assert sum(card["cores"] for card in load) <= 100, card_uuid
        assert len(load) == 1 or not any(card["whole"] for card in load), card_uuid


def hami_share(name: str) -> Json:
    pod = gpu_pod(name)
    limits = {names.HAMI_NUMBER: "1", names.HAMI_MEMORY: "10000"}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod


def settled(stage: Stage, pod_names: list[str]) -> None:
    """Wait until each of these pods is bound or has been told why not."""

    def done() -> bool:
        told = {e["involvedObject"]["name"] for e in stage.cluster.api.get(EVENTS)["items"]
                if e["source"].get("component") == names.OPERATOR_FIELD_MANAGER}  # fmt: skip
        return {*pod_names} <= told | stage.bound().keys()

    stage.cluster.wait_until(done, "each pod to be bound or told why not", 60)


def test_nobody_who_was_there_is_touched(beside: Beside) -> None:
    """After all of the above, the others' pods are what they were."""
    stage = beside.stage
    for name, was in beside.before.items():
        now = stage.pod(name)
        assert now["metadata"]["uid"] == was["metadata"]["uid"], name
        assert "deletionTimestamp" not in now["metadata"], name
        assert now["spec"] == was["spec"], name
        annotations = dict(now["metadata"].get("annotations", {}))
        if name == "never-ran":
            annotations.pop(names.ASSIGNMENT_ANNOTATION)
        assert annotations == was["metadata"].get("annotations", {}), name
    touched = {e.name for e in stage.requests(beside.since) if e.resource == "pods" and e.name in beside.before
               and e.verb not in ("get", "list", "watch")}  # fmt: skip
    assert touched == {"never-ran"}
    everyone = stage.cluster.audit_events(beside.since).events
    assert [e for e in everyone if e.subresource == "eviction"] == []


def test_the_node_opens_when_the_pod_that_nobody_recorded_has_ended(beside: Beside) -> None:
    stage = beside.stage
    stage.delete("by-hand")
    stage.wait_gate(BY_HAND, "Ready")
