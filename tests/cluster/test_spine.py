"""From a watch event to a bound pod with its GPU UUIDs: the operator and kube-scheduler as real processes."""

import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from devcluster import HOLD_ANNOTATION, AuditEvent, Cluster, NodeShape
from devcluster.operators import (
    Operators,
    gpu_pod,
    inventory_document,
    publish_inventories,
    start_product,
    stop_product,
)
from devcluster.product import ROOT
from vgpu import names

pytestmark = pytest.mark.cluster

CARDS = 8
CARD_MIB = 40_960
USER = f"system:serviceaccount:{names.NAMESPACE}:{names.OPERATOR_ACCOUNT}"
PODS = "/api/v1/namespaces/default/pods"
IDLE_SECONDS = 15.0


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Operators]:
    """Three nodes of eight cards, one operator replica, kube-scheduler."""
    cluster.clear()
    nodes = cluster.create_nodes(
        3, NodeShape(resources={names.VOLCANO_NUMBER: 80}, cpu="64", memory="512Gi", pods=250)
    )
    operators = start_product(cluster, VGPU_EVENT_SETTLE_SECONDS="0.5")
    publish_inventories(cluster, nodes, CARDS)
    cluster.wait_until(lambda: all(is_ready(cluster, node) for node in nodes), "every inventory to be Ready")
    yield operators
    stop_product(operators)
    cluster.clear()


@pytest.fixture
def spine(running: Operators) -> Iterator[Operators]:
    """The same, without pods before and after each test."""
    yield running
    remove_pods(running.cluster)


def is_ready(cluster: Cluster, node: str) -> bool:
    status = inventory(cluster, node).get("status", {})
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))


def inventory(cluster: Cluster, node: str) -> dict[str, Any]:
    return cluster.api.get(f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}/{node}")


def inventories(cluster: Cluster) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.api.get(f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}")["items"]
    return items


def used_slots(cluster: Cluster) -> int:
    return sum(item.get("status", {}).get("totals", {}).get("usedSlots", 0) for item in inventories(cluster))


def queue_shows(cluster: Cluster, name: str, *, waiting: int, in_use: bool = True) -> bool:
    """Whether the queue's status shows so many waiting pods, and something in use, or nothing."""
    path = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}/{name}"
    status = cluster.api.get(path).get("status", {})
    return status.get("pendingPods", 0) == waiting and (status.get("used", {}).get("cards", "0") != "0") is in_use


def shows_its_cards(item: dict[str, Any]) -> bool:
    """A status follows its spec after a moment: at most one write in five seconds."""
    shown = {gpu["uuid"] for gpu in item["status"]["gpus"]}
    return shown == {gpu["uuid"] for gpu in item["spec"]["gpus"]}


def apply_inventory(cluster: Cluster, document: dict[str, Any]) -> None:
    manager = ("--server-side", "--field-manager", names.AGENT_FIELD_MANAGER)
    cluster.kubectl("apply", *manager, "-f", "-", input=json.dumps(document))


def holder_names(item: dict[str, Any]) -> list[str]:
    return sorted(holder["name"] for gpu in item["status"]["gpus"] for holder in gpu.get("holders", []))


def remove_pods(cluster: Cluster) -> None:
    cluster.api.delete(PODS, {"gracePeriodSeconds": 0})
    cluster.wait_until(lambda: not cluster.api.get(PODS)["items"], "all pods to be gone")
    cluster.wait_until(lambda: used_slots(cluster) == 0, "every inventory to show nothing used")
    cluster.wait_until(
        lambda: queue_shows(cluster, "default", waiting=0, in_use=False), "the queue to show nothing used"
    )


def create(cluster: Cluster, *pods: dict[str, Any]) -> None:
    for pod in pods:
        cluster.api.post(PODS, pod)


def pod(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.api.get(f"{PODS}/{name}")


def is_bound(cluster: Cluster, name: str) -> bool:
    return bool(pod(cluster, name)["spec"].get("nodeName"))


def wait_bound(cluster: Cluster, *pod_names: str) -> None:
    cluster.wait_until(lambda: all(is_bound(cluster, name) for name in pod_names), f"{pod_names} to be bound")


def assignment(cluster: Cluster, name: str) -> dict[str, Any]:
    text = pod(cluster, name)["metadata"]["annotations"][names.ASSIGNMENT_ANNOTATION]
    found: dict[str, Any] = json.loads(text)
    return found


def events_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """The operator's events about one pod."""
    items = cluster.api.get("/api/v1/namespaces/default/events")["items"]
    ours = [item for item in items if item["source"].get("component") == names.OPERATOR_FIELD_MANAGER]
    uid = pod(cluster, name)["metadata"]["uid"]
    return [item for item in ours if item["involvedObject"].get("uid") == uid]


def test_pods_are_bound_with_cards_of_their_node_and_the_inventory_shows_them(spine: Operators) -> None:
    cluster = spine.cluster
    shared = [gpu_pod(f"shared-{i}", memory_mib=16_000, cores=30) for i in range(12)]
    whole = [gpu_pod(f"whole-{i}", memory_mib=None, number=2) for i in range(3)]
    create(cluster, *shared, *whole)
    pod_names = [p["metadata"]["name"] for p in [*shared, *whole]]
    wait_bound(cluster, *pod_names)
    loads: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in pod_names:
        bound, given = pod(cluster, name), assignment(cluster, name)
        assert given["podUid"] == bound["metadata"]["uid"]
        assert given["node"] == bound["spec"]["nodeName"]
        for card in given["containers"][0]["cards"]:
            assert card["uuid"].startswith(f"GPU-{given['node']}-")
            loads[card["uuid"]].append(card)
    for uuid, cards in loads.items():
        assert sum(card["memoryMiB"] for card in cards) <= CARD_MIB, uuid
        assert sum(card["cores"] for card in cards) <= 100, uuid
        assert len(cards) == 1 or not any(card["whole"] for card in cards), uuid
    cluster.wait_until(lambda: used_slots(cluster) == 12 + 6, "the inventories to show every holder")
    shown = {
        (gpu["uuid"], holder["name"])
        for item in inventories(cluster)
        for gpu in item["status"]["gpus"]
        for holder in gpu.get("holders", [])
    }
    want = {
        (card["uuid"], name) for name in pod_names for card in assignment(cluster, name)["containers"][0]["cards"]
    }
    assert shown == want


def test_kubectl_shows_who_has_what(spine: Operators) -> None:
    cluster = spine.cluster
    create(cluster, gpu_pod("one", memory_mib=16_000, cores=30))
    wait_bound(cluster, "one")
    cluster.wait_until(lambda: used_slots(cluster) == 1, "the inventory to show the pod")
    lines = cluster.kubectl("get", "gni").splitlines()
    row = next(line for line in lines if line.startswith(pod(cluster, "one")["spec"]["nodeName"]))
    assert row.split()[1:7] == ["8/8", "1/80", "16000/327680", "30/800", "True", "Ready"]


def test_a_pod_that_fits_nowhere_is_told_why_once(spine: Operators) -> None:
    cluster = spine.cluster
    create(cluster, gpu_pod("huge", memory_mib=50_000))
    cluster.wait_until(lambda: len(events_of(cluster, "huge")) == 1, "an event about the pod")
    [event] = events_of(cluster, "huge")
    assert event["reason"] == "InsufficientMemory"
    assert "wants 1 card of 50000 MiB; 0 of 3 nodes fit: 3 InsufficientMemory" in event["message"]
    assert "best node node-0000" in event["message"]
    assert event["count"] == 1
    status, text = next(iter(spine.replicas.values())).get("/explain?pod=default/huge")
    assert status == 200
    assert json.loads(text)["message"] == event["message"]


def test_a_request_that_cannot_be_read_is_told_and_disturbs_nobody(spine: Operators) -> None:
    """Where pods are not routed, no policy adds the number that a request for memory alone lacks."""
    cluster = spine.cluster
    unrouted = {"metadata": {"name": "unrouted", "labels": {names.POLICY_ROUTE: "off"}}}
    cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Namespace", **unrouted}))
    path = "/api/v1/namespaces/unrouted"
    bad = gpu_pod("bad")
    del bad["spec"]["containers"][0]["resources"]["limits"][names.VOLCANO_NUMBER]
    cluster.api.post(f"{path}/pods", bad)
    create(cluster, gpu_pod("good"))
    wait_bound(cluster, "good")

    def told() -> list[str]:
        items = cluster.api.get(f"{path}/events")["items"]
        component = names.OPERATOR_FIELD_MANAGER
        return [item["reason"] for item in items if item["source"].get("component") == component]

    cluster.wait_until(lambda: told() == ["NumberMissing"], "the pod to be told what it lacks")
    cluster.api.delete(f"{path}/pods/bad", {"gracePeriodSeconds": 0})


def test_a_pod_that_other_filters_refuse_gets_their_words(spine: Operators) -> None:
    cluster = spine.cluster
    greedy = gpu_pod("greedy")
    greedy["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1000"}
    create(cluster, greedy)
    cluster.wait_until(lambda: len(events_of(cluster, "greedy")) == 1, "an event about the pod")
    [event] = events_of(cluster, "greedy")
    assert event["reason"] == "OtherFilters"
    assert "Insufficient cpu" in event["message"]


def test_a_waiting_pod_is_bound_when_the_pod_before_it_goes(spine: Operators) -> None:
    cluster = spine.cluster
    create(cluster, *(gpu_pod(f"full-{i}", memory_mib=None, number=8) for i in range(3)))
    wait_bound(cluster, *(f"full-{i}" for i in range(3)))
    create(cluster, gpu_pod("next"))
    cluster.wait_until(lambda: len(events_of(cluster, "next")) == 1, "the pod to be told that it waits")
    freed = pod(cluster, "full-1")["spec"]["nodeName"]
    cluster.api.delete(f"{PODS}/full-1", {"gracePeriodSeconds": 0})
    wait_bound(cluster, "next")
    assert pod(cluster, "next")["spec"]["nodeName"] == freed


def test_a_pod_that_waits_for_a_card_that_a_new_inventory_brings_is_woken(spine: Operators) -> None:
    """No pod and no node changes here, so kube-scheduler itself sees nothing."""
    cluster = spine.cluster
    create(cluster, *(gpu_pod(f"full-{i}", memory_mib=None, number=8) for i in range(3)))
    wait_bound(cluster, *(f"full-{i}" for i in range(3)))
    create(cluster, gpu_pod("next"))
    cluster.wait_until(lambda: len(events_of(cluster, "next")) == 1, "the pod to be told that it waits")
    publish_inventories(cluster, ["node-0000"], CARDS + 1)
    try:
        wait_bound(cluster, "next")
        assert assignment(cluster, "next")["containers"][0]["cards"][0]["uuid"] == "GPU-node-0000-8"
    finally:
        remove_pods(cluster)
        publish_inventories(cluster, ["node-0000"], CARDS)


def test_a_quiet_cluster_costs_nothing_but_the_lease(spine: Operators) -> None:
    cluster = spine.cluster
    create(cluster, gpu_pod("runs"), gpu_pod("waits", memory_mib=50_000))
    wait_bound(cluster, "runs")
    cluster.wait_until(lambda: len(events_of(cluster, "waits")) == 1, "the pod to be told that it waits")
    cluster.wait_until(lambda: used_slots(cluster) == 1, "the inventory to show the pod")
    cluster.wait_until(
        lambda: all(shows_its_cards(item) for item in inventories(cluster)), "all status to be up to date"
    )
    cluster.wait_until(lambda: queue_shows(cluster, "default", waiting=1), "the queue to show the pods")
    start = cluster.audit_events().position
    time.sleep(IDLE_SECONDS)
    idle = [event for event in cluster.audit_events(start).events if event.user == USER]
    assert [show(event) for event in idle if event.resource != "leases" and event.verb != "watch"] == []
    assert {show(event) for event in idle if event.resource == "leases"} <= {"update leases"}


def test_events_of_queues_cause_no_write_but_their_status(spine: Operators) -> None:
    """kopf watches them; none of its own bookkeeping may reach the API server."""
    cluster = spine.cluster
    path = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"
    replica = next(iter(spine.replicas.values()))
    known = replica.metric("vgpu_queues")
    start = cluster.audit_events().position
    cluster.api.post(
        path, {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, "metadata": {"name": "team"}, "spec": {}}
    )
    cluster.wait_until(lambda: replica.metric("vgpu_queues") == known + 1, "the queue to be seen")
    cluster.api.patch(f"{path}/team", {"spec": {"priority": 7}})
    cluster.api.delete(f"{path}/team")
    cluster.wait_until(lambda: replica.metric("vgpu_queues") == known, "the queue to be seen gone")
    since = [event for event in cluster.audit_events(start).events if event.user == USER]
    written = {show(event) for event in since if event.verb not in ("watch", "get", "list")}
    assert written <= {"update leases", "patch gpuqueues/status"}


def test_a_pod_that_was_bound_by_hand_gets_its_cards_before_it_runs(spine: Operators) -> None:
    cluster = spine.cluster
    placed = gpu_pod("by-hand")
    placed["spec"]["nodeName"] = "node-0001"
    placed["metadata"]["annotations"] = {HOLD_ANNOTATION: "true"}
    create(cluster, placed)
    cluster.wait_until(lambda: used_slots(cluster) == 1, "the inventory to show the pod")
    assert assignment(cluster, "by-hand")["containers"][0]["cards"][0]["memoryMiB"] == 4096
    assert [holder_names(item) for item in inventories(cluster)] == [[], ["by-hand"], []]


def test_a_pod_that_nobody_gave_cards_closes_its_node_and_is_told(spine: Operators) -> None:
    """Where pods cannot be told apart nothing is assigned afterwards: the pod may use any card of the node."""
    cluster = spine.cluster
    document = inventory_document("node-0001", CARDS)
    document["spec"]["identity"] = "deferred"
    apply_inventory(cluster, document)
    unknown = gpu_pod("unknown")
    unknown["spec"]["nodeName"] = "node-0001"
    create(cluster, unknown)
    try:
        cluster.wait_until(lambda: not is_ready(cluster, "node-0001"), "the node to be closed")
        [ready] = [c for c in inventory(cluster, "node-0001")["status"]["conditions"] if c["type"] == "Ready"]
        assert ready["reason"] == "UnknownHolder"
        assert "default/unknown" in ready["message"]
        cluster.wait_until(lambda: len(events_of(cluster, "unknown")) == 1, "the pod's readers to be told")
        assert events_of(cluster, "unknown")[0]["reason"] == "BoundWithoutAssignment"
        cluster.api.delete(f"{PODS}/unknown", {"gracePeriodSeconds": 0})
        cluster.wait_until(lambda: is_ready(cluster, "node-0001"), "the node to be open again")
    finally:
        publish_inventories(cluster, ["node-0001"], CARDS)


def test_an_annotation_only_update_of_nodes_costs_nothing(spine: Operators) -> None:
    cluster, replica = spine.cluster, next(iter(spine.replicas.values()))
    before = replica.metric("vgpu_recounts_total"), replica.metric("vgpu_writes_total")
    for number in range(100):
        patch = {"metadata": {"annotations": {"example.com/beat": str(number)}}}
        cluster.api.patch(f"/api/v1/nodes/node-000{number % 3}", patch)
    create(cluster, gpu_pod("after"))
    wait_bound(cluster, "after")
    cluster.wait_until(lambda: used_slots(cluster) == 1, "the inventory to show the pod")
    after = replica.metric("vgpu_recounts_total"), replica.metric("vgpu_writes_total")
    assert after[0] - before[0] <= 4
    assert after[1] - before[1] <= 6


def test_a_killed_operator_starts_again_with_the_same_view_and_repeats_nothing(spine: Operators) -> None:
    cluster = spine.cluster
    create(cluster, gpu_pod("runs", memory_mib=None), gpu_pod("waits", memory_mib=50_000))
    wait_bound(cluster, "runs")
    cluster.wait_until(lambda: len(events_of(cluster, "waits")) == 1, "the pod to be told that it waits")
    [told] = events_of(cluster, "waits")
    cluster.wait_until(lambda: used_slots(cluster) == 1, "the inventory to show the pod")
    spine.kill()
    start = cluster.audit_events().position
    spine.start()
    spine.wait_serving()
    create(cluster, gpu_pod("later", memory_mib=None))
    wait_bound(cluster, "later")
    cluster.wait_until(lambda: used_slots(cluster) == 2, "the inventory to show both pods")

    def answered() -> list[tuple[str, int]]:
        since = cluster.audit_events(start).events
        return [(event.verb, event.code) for event in since if event.user == USER and event.resource == "events"]

    cluster.wait_until(lambda: answered() == [("create", 409)], "the API server to say that the event is there")
    card = assignment(cluster, "runs")["containers"][0]["cards"][0]["uuid"]
    assert assignment(cluster, "later")["containers"][0]["cards"][0]["uuid"] != card
    assert events_of(cluster, "waits") == [told]
    writes = Counter(
        show(event)
        for event in cluster.audit_events(start).events
        if event.user == USER and event.verb in ("patch", "update", "delete") and event.resource != "leases"
    )
    assert set(writes) <= {"patch gpunodeinventories/status", "patch gpuqueues/status"}


def test_another_replica_takes_over_and_serves(spine: Operators) -> None:
    cluster = spine.cluster
    spine.start("operator-1")
    spine.wait_ready("operator-1")
    assert spine.replicas["operator-1"].metric("vgpu_leader") == 0
    spine.stop("operator-0")
    spine.wait_serving("operator-1")
    create(cluster, gpu_pod("after-the-change"))
    wait_bound(cluster, "after-the-change")
    spine.start("operator-0")
    spine.wait_ready("operator-0")
    spine.kill("operator-1")
    spine.wait_serving("operator-0")
    create(cluster, gpu_pod("after-the-kill"))
    wait_bound(cluster, "after-the-kill")


def test_the_operator_leaves_at_once_and_gives_the_lease_back(spine: Operators) -> None:
    cluster = spine.cluster
    path = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.LEASE_NAME}"
    process = cluster.processes["operator-0"]
    spine.stop("operator-0")
    try:
        assert not process.alive()
        assert not cluster.api.get(path)["spec"].get("holderIdentity")
        assert "Traceback" not in process.log_tail()
    finally:
        spine.start("operator-0")
        spine.wait_serving("operator-0")


def test_the_account_may_write_the_services_slices(running: Operators) -> None:
    token = running.cluster.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    for family in ("ipv4", "ipv6"):
        slice_ = f"endpointslices.discovery.k8s.io/{names.EXTENDER_SERVICE}-{family}"
        asked = running.cluster.kubectl("auth", "can-i", "patch", slice_, "-n", names.NAMESPACE, token=token)
        assert asked.strip() == "yes"


def test_an_api_server_that_restarts_and_forgets_costs_nothing_but_a_pause(spine: Operators) -> None:
    """Watches are resumed from a version that is gone: 410, so everything is listed anew, deletions included."""
    cluster = spine.cluster
    create(cluster, gpu_pod("goes", memory_mib=None, number=8), gpu_pod("stays"))
    wait_bound(cluster, "goes", "stays")
    cluster.pause("operator-0")
    cluster.api.delete(f"{PODS}/goes", {"gracePeriodSeconds": 0})
    cluster.wait_until(lambda: len(cluster.api.get(PODS)["items"]) == 1, "the pod to be gone")
    cluster.forget_history()
    cluster.resume("operator-0")
    spine.wait_serving()
    spine.wait_ready()
    cluster.wait_until(lambda: used_slots(cluster) == 1, "the inventory to show the one pod that is left")
    create(cluster, gpu_pod("after"))
    wait_bound(cluster, "after")


def test_an_operator_that_starts_before_the_api_server_waits_for_it(spine: Operators) -> None:
    cluster = spine.cluster
    spine.stop()
    token = cluster.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    cluster.stop_apiserver()
    try:
        replica = spine.start(token=token)
        cluster.wait_until(lambda: replica.get("/healthz")[0] == 200, "the operator to answer its probe")
        status, text = replica.get("/readyz")
        assert status == 503
        assert "pods: not listed yet" in text
    finally:
        cluster.start_apiserver()
    spine.wait_serving()
    create(cluster, gpu_pod("after"))
    wait_bound(cluster, "after")


@pytest.mark.parametrize(
    ("variables", "want"),
    [
        ({"VGPU_FILTER_BEST_NODES": "none"}, "VGPU_FILTER_BEST_NODES"),
        ({}, "POD_IP"),
        ({"VGPU_ADVERTISE_ADDRESS": "127.0.0.1:1", "VGPU_LEASE_SECONDS": "5"}, "VGPU_RENEW_DEADLINE_SECONDS"),
    ],
)
def test_a_wrong_setting_is_named_and_ends_the_start(
    cluster: Cluster, variables: dict[str, str], want: str
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "vgpu.controller.main", "run", "--kubeconfig", str(cluster.kubeconfig())],
        env={"PYTHONPATH": str(ROOT / "operator"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert want in run.stderr
    assert "Traceback" not in run.stderr


def test_a_kubeconfig_that_does_not_exist_is_named(tmp_path: Any) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "vgpu.controller.main", "run", "--kubeconfig", str(tmp_path / "none")],
        env={"PYTHONPATH": str(ROOT / "operator"), "VGPU_ADVERTISE_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert "none" in run.stderr


def show(event: AuditEvent) -> str:
    return f"{event.verb} {event.resource}{'/' if event.subresource else ''}{event.subresource}"
