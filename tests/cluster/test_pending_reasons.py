"""Every GPU pod that waits has been told why: one event per reason, when it changes, in words for people."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from devcluster import Cluster
from devcluster.operators import gpu_pod, inventory_document
from tests.cluster.stage import Json, Stage, shown, slots_shape, staged, wait_all_ready
from vgpu import names
from vgpu.controller.preempt.told import OWN_REASONS

pytestmark = pytest.mark.cluster
CARDS = 4
UNROUTED = "unrouted"
EVENT_BYTES = 1024


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[Stage]:
    """Two nodes of four cards, and a namespace whose pods no policy routes."""
    cluster.clear()
    nodes = cluster.create_nodes(2, slots_shape(40))
    with staged(cluster, [inventory_document(node, CARDS) for node in nodes]) as stage:
        unrouted = {"metadata": {"name": UNROUTED, "labels": {names.POLICY_ROUTE: "off"}}}
        cluster.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Namespace", **unrouted})
        )
        wait_all_ready(stage, nodes)
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    yield shared
    shared.remove_pods()


def asking(name: str, limits: dict[str, str]) -> Json:
    pod = gpu_pod(name)
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod


def waits_with(stage: Stage, name: str, reason: str) -> str:
    """The pod is told this reason, beside why nobody goes for it alone, in at most a KiB, and /explain says the
    same; hands back the words."""
    message = stage.wait_told(name, reason)
    [event] = [event for event in stage.events(name) if event["reason"] not in OWN_REASONS]
    assert event["count"] == 1
    assert event["type"] == "Warning"
    assert len(message.encode()) <= EVENT_BYTES
    answer = stage.explain(name)
    assert (answer["reason"], answer["message"]) == (reason, message)
    assert stage.node_of(name) == ""
    return message


# The pod's own request: (limits, reason, words).
ODD: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "R47 percent out of range": (
        {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY_PERCENT: "150"},
        "InvalidRequest",
        ("container main", names.VOLCANO_MEMORY_PERCENT, "150 is more than 100 percent"),
    ),
    "R47 cores out of range": (
        {names.VOLCANO_NUMBER: "1", names.VOLCANO_CORES: "101"},
        "InvalidRequest",
        (names.VOLCANO_CORES, "101 is more than 100 percent"),
    ),
    "R47 memory in bytes": (
        {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "8Gi"},
        "InvalidRequest",
        (names.VOLCANO_MEMORY, "8 GiB are 8192"),
    ),
    "R47 beyond counting": (
        {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "9223372036854775807"},
        "InvalidRequest",
        (names.VOLCANO_MEMORY, "9223372036854775807"),
    ),
    "R49 more cards than a node has": (
        {names.VOLCANO_NUMBER: "5"},
        "MoreCardsThanNode",
        ("a container cannot get more cards than the node has", "main asks for 5"),
    ),
    "R49 more cards than anything has": (
        {names.VOLCANO_NUMBER: "1000000000000000"},
        "MoreCardsThanNode",
        ("a container cannot get more cards than the node has",),
    ),
    "R49 more memory than a card has": (
        {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "50k"},
        "InsufficientMemory",
        ("wants 1 card of 50000 MiB", "0 of 2 nodes fit: 2 InsufficientMemory", "40960 of 40960 MiB"),
    ),
    "two presets in one pod": (
        {names.VOLCANO_NUMBER: "1", names.HAMI_MEMORY: "100"},
        "NumberMissing",
        (names.HAMI_MEMORY, names.VOLCANO_MEMORY),
    ),
    "the other preset's number": (
        {names.HAMI_NUMBER: "1"},
        "SlotResourceMismatch",
        ("0 of 2 nodes fit",),
    ),
}


@pytest.mark.parametrize("form", ODD)
def test_a_pod_is_told_what_is_wrong_with_its_own_request(stage: Stage, form: str) -> None:
    limits, reason, words = ODD[form]
    stage.create(asking("odd", limits), gpu_pod("ordinary"))
    stage.wait_bound("ordinary")
    message = waits_with(stage, "odd", reason)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "limits",
    [
        {names.VOLCANO_NUMBER: "4"},
        {names.VOLCANO_NUMBER: "4", names.VOLCANO_MEMORY: "0", names.VOLCANO_CORES: "0"},
    ],
    ids=["nothing but the number", "zero is the same as not given"],
)
def test_r46_r47_r51_what_is_not_given_is_named_with_its_default(stage: Stage, limits: dict[str, str]) -> None:
    stage.create(asking("first", limits), asking("second", limits))
    stage.wait_bound("first", "second")
    stage.create(asking("third", limits))
    message = waits_with(stage, "third", "ExclusiveHolder")
    assert message.startswith("wants 4 whole cards (memory given: none or 0); 0 of 2 nodes fit")


def test_r51_memory_alone_asks_for_no_cores(stage: Stage) -> None:
    stage.create(asking("big", {names.VOLCANO_NUMBER: "1", names.VOLCANO_MEMORY: "41000"}))
    message = waits_with(stage, "big", "InsufficientMemory")
    assert message.startswith("wants 1 card of 41000 MiB; ")


def test_r52_several_containers_are_named_and_an_init_container_alone_is_refused(stage: Stage) -> None:
    several = gpu_pod("several", memory_mib=100)
    [main] = several["spec"]["containers"]
    big = {"resources": {"limits": {names.VOLCANO_NUMBER: "2", names.VOLCANO_MEMORY: "50000"}}}
    several["spec"]["containers"] = [
        main,
        {"name": "plain", "image": "none"},
        {"name": "big", "image": "none", **big},
    ]
    init = gpu_pod("init", memory_mib=100)
    init["spec"]["initContainers"] = [{**init["spec"]["containers"][0], "name": "prepare"}]
    init["spec"]["containers"][0].pop("resources")
    stage.create(several, init)
    words = waits_with(stage, "several", "InsufficientMemory")
    assert words.startswith("wants main: 1 card of 100 MiB; big: 2 cards of 50000 MiB each; 0 of 2 nodes fit")
    assert "only plain init containers ask for GPUs" in waits_with(stage, "init", "OnlyInitContainers")


def test_a_selection_that_is_not_supported_is_refused_by_name(stage: Stage) -> None:
    pod = gpu_pod("chooser")
    pod["metadata"]["annotations"] = {names.VOLCANO_MODE: "mig"}
    other = gpu_pod("other")
    other["metadata"]["annotations"] = {names.HAMI_USE_UUID: "GPU-of-nobody"}
    stage.create(pod, other)
    assert names.VOLCANO_MODE in waits_with(stage, "chooser", "UnsupportedSelection")
    waits_with(stage, "other", "CardSelection")


def test_memory_without_a_number_is_told_where_no_policy_adds_it(stage: Stage) -> None:
    pod = gpu_pod("bad")
    del pod["spec"]["containers"][0]["resources"]["limits"][names.VOLCANO_NUMBER]
    created = stage.cluster.api.post(f"/api/v1/namespaces/{UNROUTED}/pods", pod)

    def told() -> list[Json]:
        items = stage.cluster.api.get(f"/api/v1/namespaces/{UNROUTED}/events")["items"]
        return [item for item in items if item["source"].get("component") == names.OPERATOR_FIELD_MANAGER]

    try:
        stage.cluster.wait_until(lambda: bool(told()), "the pod to be told what it lacks")
        [event] = told()
        assert event["involvedObject"]["uid"] == created["metadata"]["uid"]
        assert event["reason"] == "NumberMissing"
        assert f"add {names.VOLCANO_NUMBER}" in event["message"]
    finally:
        stage.cluster.api.delete(f"/api/v1/namespaces/{UNROUTED}/pods/bad", {"gracePeriodSeconds": 0})


def short_of_cpu(spec: Json) -> None:
    spec["containers"][0]["resources"]["requests"] = {"cpu": "1000"}


def wrong_node(spec: Json) -> None:
    spec["nodeSelector"] = {"example.com/zone": "nowhere"}


def tainted(stage: Stage, taints: list[dict[str, str]]) -> None:
    for node in ("node-0000", "node-0001"):
        stage.cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints or None}})


@pytest.mark.parametrize(
    ("change", "words"),
    [(short_of_cpu, "Insufficient cpu"), (wrong_node, "didn't match Pod's node affinity/selector")],
    ids=["CPU", "nodeSelector"],
)
def test_a_pod_that_only_other_filters_refuse_gets_their_words(stage: Stage, change: Any, words: str) -> None:
    pod = gpu_pod("held-back")
    change(pod["spec"])
    stage.create(pod)
    message = waits_with(stage, "held-back", "OtherFilters")
    assert message.startswith("wants 1 card of 4096 MiB; the cards fit on 2 nodes (node-0000, node-0001)")
    assert words in message


def test_a_pod_that_a_taint_keeps_out_is_told_so_and_bound_when_it_goes(stage: Stage) -> None:
    tainted(stage, [{"key": "example.com/closed", "effect": "NoSchedule"}])
    try:
        stage.create(gpu_pod("kept-out"))
        assert "untolerated taint" in waits_with(stage, "kept-out", "OtherFilters")
    finally:
        tainted(stage, [])
    stage.wait_bound("kept-out")
    assert stage.reasons("kept-out") == ["OtherFilters"]


def test_an_event_for_each_reason_when_it_changes_and_none_while_it_stays(stage: Stage) -> None:
    documents = [inventory_document(node, CARDS) for node in ("node-0000", "node-0001")]
    stage.create(gpu_pod("waits", memory_mib=50_000))
    stage.wait_told("waits", "InsufficientMemory")
    since = stage.position()
    for beat in range(50):
        node = f"/api/v1/nodes/node-000{beat % 2}"
        stage.cluster.api.patch(node, {"metadata": {"annotations": {"example.com/beat": str(beat)}}})
    stage.create(gpu_pod("passes"))
    stage.wait_bound("passes")
    stage.cluster.wait_until(lambda: stage.used_slots() == 1, "the inventory to show the pod that passed")
    assert [event for event in stage.requests(since) if event.resource == "events"] == []

    for document in documents:
        document["spec"]["readError"] = "driver not loaded"
    stage.publish(*documents)
    stage.wait_told("waits", "ReadError")
    assert stage.explain("waits")["reason"] == "ReadError"
    for document in documents:
        del document["spec"]["readError"]
    stage.publish(*documents)
    # Back at the first reason within ten minutes: /explain says so, no event is written again.
    stage.cluster.wait_until(
        lambda: stage.explain("waits")["reason"] == "InsufficientMemory", "the reason to return"
    )
    stage.create(gpu_pod("another", memory_mib=50_000))
    stage.wait_told("another", "InsufficientMemory")
    assert stage.reasons("waits") == ["InsufficientMemory", "ReadError"]
    assert [event["count"] for event in stage.events("waits")] == [1, 1]
    written = [shown(event).split()[:2] for event in stage.requests(since) if event.resource == "events"]
    assert written == [["create", "events"]] * 2


def test_a_long_answer_is_cut_to_a_kib(stage: Stage) -> None:
    pod = gpu_pod("long", memory_mib=50_000)
    [one] = pod["spec"]["containers"]
    pod["spec"]["containers"] = [{**one, "name": f"{'c' * 58}-{number:02d}"} for number in range(30)]
    stage.create(pod)
    message = waits_with(stage, "long", "InsufficientMemory")
    assert len(message.encode()) > EVENT_BYTES - 10


def test_the_same_reasons_are_counted_in_the_metrics(stage: Stage) -> None:
    stage.create(gpu_pod("big", memory_mib=50_000), gpu_pod("bigger", memory_mib=60_000))
    stage.create(asking("wrong", {names.VOLCANO_NUMBER: "1", names.VOLCANO_CORES: "101"}))
    for name, reason in (
        ("big", "InsufficientMemory"),
        ("bigger", "InsufficientMemory"),
        ("wrong", "InvalidRequest"),
    ):
        stage.wait_told(name, reason)
    [replica] = stage.operators.replicas.values()
    lines = replica.get("/metrics")[1].splitlines()
    pending = dict(line.split() for line in lines if line.startswith("vgpu_pending_pods{"))
    assert {key: float(value) for key, value in pending.items()} == {
        'vgpu_pending_pods{reason="InsufficientMemory"}': 2,
        'vgpu_pending_pods{reason="InvalidRequest"}': 1,
    }
