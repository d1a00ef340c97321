"""Whatever is wrong is said where its author looks, costs nobody else anything, and the loop goes on."""

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from devcluster import ApiRefused, Cluster
from devcluster.operators import gpu_pod, inventory_document
from tests.cluster.stage import INVENTORIES, PODS, Json, Stage, slots_shape, staged, wait_all_ready
from vgpu import names
from vgpu.controller.pki import create_authority, issue_client

pytestmark = pytest.mark.cluster
CARDS = 2
GOOD = "node-0000"
LAX_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.INVENTORY_PLURAL}.{names.GROUP}"
BAD_NODES = 40


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[Stage]:
    """One good node, and nodes for what is bad."""
    cluster.clear()
    cluster.create_nodes(1 + BAD_NODES, slots_shape(20))
    with staged(cluster, [inventory_document(GOOD, CARDS)]) as stage:
        wait_all_ready(stage, [GOOD])
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    """After each test an ordinary pod is bound, the one process still runs and has no traceback in its log."""
    [process] = [shared.cluster.processes[name] for name in shared.operators.replicas]
    pid = process.pid
    yield shared
    shared.create(gpu_pod("ordinary"))
    shared.wait_bound("ordinary")
    [process] = [shared.cluster.processes[name] for name in shared.operators.replicas]
    process.require_alive()
    assert process.pid == pid
    assert "Traceback" not in shared.operators.log()
    for item in shared.cluster.api.get(INVENTORIES)["items"]:
        if item["metadata"]["name"] != GOOD:
            shared.cluster.api.delete(f"{INVENTORIES}/{item['metadata']['name']}")
    shared.remove_pods()


# Inventories.


def bad(node: str, **spec: Any) -> Json:
    document = inventory_document(node, CARDS)
    document["spec"] |= spec
    return document


def bad_card(node: str, **changes: Any) -> Json:
    document = inventory_document(node, CARDS)
    document["spec"]["gpus"][1] |= changes
    return document


@pytest.fixture
def lax(shared: Stage) -> Iterator[Stage]:
    """The schema of a time before the CRD's rules; objects written now stay when the rules are back."""
    api = shared.cluster.api
    versions = api.get(CRD)["spec"]["versions"]
    loose = deepcopy(versions)
    for version in loose:
        version["schema"] = {"openAPIV3Schema": LAX_SCHEMA}
    api.patch(CRD, {"spec": {"versions": loose}})
    shared.cluster.wait_until(lambda: takes_anything(shared), "the schema to be lax")
    yield shared
    api.patch(CRD, {"spec": {"versions": versions}})
    shared.cluster.wait_until(lambda: not takes_anything(shared), "the rules to be back")


def takes_anything(stage: Stage) -> bool:
    probe = bad("probe", gpus="none")
    try:
        stage.cluster.api.post(f"{INVENTORIES}?dryRun=All", probe)
    except ApiRefused:
        return False
    return True


# (spec or card, reason of the Ready condition, words of its message); the first card of each stays good.
WHOLE: dict[str, tuple[dict[str, Any], str]] = {
    "no cards but a word": ({"gpus": "none"}, "gpus"),
    "a card that is a number": ({"gpus": [7]}, "spec.gpus[0] has no readable uuid"),
    "a card without a uuid": ({"gpus": [{"index": 0}]}, "spec.gpus[0] has no readable uuid"),
    "an unknown slot resource": ({"slotResource": "example.com/gpu"}, "'example.com/gpu' is none of"),
    "a slot resource of another type": ({"slotResource": 7}, "slotResource"),
    "an unknown identity": ({"identity": "sometimes"}, "'sometimes' is none of"),
    "an unknown plugin": ({"plugin": "mine"}, "'mine' is none of"),
    "a read error that is a list": ({"readError": ["x"]}, "readError"),
}
CARD: dict[str, tuple[dict[str, Any], str]] = {
    "negative memory": ({"memoryMiB": -5}, "memoryMiB"),
    "memory beyond counting": ({"memoryMiB": 2**62}, "memoryMiB"),
    "memory in words": ({"memoryMiB": "80 GiB"}, "memoryMiB"),
    "a fraction of a slot": ({"slots": 2.5}, "slots"),
    "no slots": ({"slots": 0}, "slots"),
    "slots beyond counting": ({"slots": 10**9}, "slots"),
    "more cores than a card has": ({"cores": 1000}, "cores"),
    "an unknown mode": ({"mode": "time-sliced"}, "mode"),
    "a negative index": ({"index": -1}, "index"),
    "peers that are a number": ({"nvlinkPeers": 3}, "nvlinkPeers"),
    "a card listed twice": ({"uuid": "FIRST"}, "ListedTwice"),
}


def test_an_inventory_from_before_the_rules_closes_its_node_and_says_on_itself_what_is_wrong(
    stage: Stage, lax: Stage
) -> None:
    want: dict[str, str] = {}
    documents = []
    for number, (spec, words) in enumerate(WHOLE.values(), 1):
        node = f"node-{number:04d}"
        documents.append(bad(node, **spec))
        want[node] = words
    publish_lax(lax, documents)
    for node, words in want.items():
        message = stage.wait_gate(node, "InventoryInvalid")
        assert words in message, node
    stage.create(gpu_pod("waits", memory_mib=50_000))
    assert f"{len(want)} InventoryInvalid" in stage.wait_told("waits", "InsufficientMemory")


def test_a_card_that_cannot_be_read_takes_nothing_and_is_named_while_the_next_card_goes_on(
    stage: Stage, lax: Stage
) -> None:
    want: dict[str, str] = {}
    documents = []
    for number, (changes, words) in enumerate(CARD.values(), 1):
        node = f"node-{number:04d}"
        first = f"GPU-{node}-0"
        documents.append(bad_card(node, **{k: first if v == "FIRST" else v for k, v in changes.items()}))
        want[node] = words
    publish_lax(lax, documents)
    for node, words in want.items():
        lax.cluster.wait_until(lambda node=node: bool(stage.condition(node)), f"a condition of {node}")  # type: ignore[misc]
        assert words in stage.condition(node)["message"], (node, stage.condition(node))
    stage.create(*(gpu_pod(f"whole-{number:02d}", memory_mib=None) for number in range(CARDS + len(want))))
    stage.cluster.wait_until(
        lambda: len(stage.bound()) >= CARDS + len(want) - 1, "every readable card to be given", 60
    )
    given = [card for name in stage.bound() for card in stage.cards(name)]
    assert len(given) == len({*given})
    assert {uuid for uuid in given if uuid.endswith("-1")} == {f"GPU-{GOOD}-1"}
    stage.remove_pods()


def publish_lax(stage: Stage, documents: list[Json]) -> None:
    for document in documents:
        stage.cluster.api.post(INVENTORIES, document)


def test_the_crd_itself_refuses_what_is_wrong_with_words_for_its_author(stage: Stage) -> None:
    for spec, words in (
        ({"gpus": "none"}, "spec.gpus"),
        ({"identity": "sometimes"}, "spec.identity"),
        ({"slotResource": "no domain"}, "slotResource must be a resource name with a domain"),
    ):
        with pytest.raises(ApiRefused, match=words) as refused:
            stage.cluster.api.post(INVENTORIES, bad("node-0001", **spec))
        assert refused.value.code == 422


def test_an_inventory_of_a_node_that_does_not_exist_takes_nothing_and_says_so(stage: Stage) -> None:
    stage.publish(inventory_document("ghost", CARDS))
    assert "does not exist" in stage.wait_gate("ghost", "NodeGone")


# Annotations.


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod that was bound with an annotation that nobody can read: which, and words of its event."""

    key: str
    value: str
    words: str


GARBAGE: dict[str, Bound] = {
    "not JSON": Bound(names.ASSIGNMENT_ANNOTATION, "{", names.ASSIGNMENT_ANNOTATION),
    "a list": Bound(names.ASSIGNMENT_ANNOTATION, "[]", names.ASSIGNMENT_ANNOTATION),
    "another pod's": Bound(names.ASSIGNMENT_ANNOTATION, "OTHER-UID", "made for the pod with uid"),
    "another node's": Bound(names.ASSIGNMENT_ANNOTATION, "OTHER-NODE", "made for node elsewhere"),
    "a container that is not there": Bound(names.ASSIGNMENT_ANNOTATION, "OTHER-NAME", "containers that the pod"),
    "negative memory": Bound(names.ASSIGNMENT_ANNOTATION, "NEGATIVE", "memoryMiB"),
    "huge memory": Bound(names.ASSIGNMENT_ANNOTATION, "HUGE", "memoryMiB"),
    "deep nesting": Bound(names.ASSIGNMENT_ANNOTATION, "[" * 50_000, names.ASSIGNMENT_ANNOTATION),
    "volcano garbage": Bound(names.VOLCANO_IDS, "GPU-a,NVIDIA", names.VOLCANO_IDS),
    "volcano negative": Bound(names.VOLCANO_IDS, "GPU-a,NVIDIA,-3000,50:", names.VOLCANO_IDS),
    "volcano huge": Bound(names.VOLCANO_IDS, f"GPU-a,NVIDIA,{10**30},50:", names.VOLCANO_IDS),
    "volcano-dp words": Bound(names.VOLCANO_DP_INDEX, "first", names.VOLCANO_DP_INDEX),
    "hami too many": Bound(names.HAMI_ALLOCATED, "GPU-a,NVIDIA,1,0:;" * 40, names.HAMI_ALLOCATED),
}


# Another system's annotation counts only where the pod asks for that system's resource.
ASKED_OF_OTHERS = {names.VOLCANO_DP_INDEX: names.VOLCANO_DP_NUMBER, names.HAMI_ALLOCATED: names.HAMI_NUMBER}


def value_of(what: Bound, uid: str, node: str) -> str:
    card = {"uuid": f"GPU-{node}-0", "memoryMiB": 100, "cores": 0, "whole": False}
    container = {"name": "main", "cards": [card]}
    made: Json = {"v": 1, "podUid": uid, "node": node, "nonce": "0" * 16, "containers": [container]}
    match what.value:
        case "OTHER-UID":
            made["podUid"] = "of-another"
        case "OTHER-NODE":
            made["node"] = "elsewhere"
        case "OTHER-NAME":
            container["name"] = "nobody"
        case "NEGATIVE":
            card["memoryMiB"] = -1
        case "HUGE":
            card["memoryMiB"] = 10**30
        case _:
            return what.value
    return json.dumps(made)


def test_an_assignment_that_cannot_be_read_closes_its_node_and_its_pod_is_told(stage: Stage) -> None:
    """Only the operator's account may write vgpu.dev/assignment, so it is what writes here. On an exact node a pod
    that has not run yet would get cards late instead."""
    api = stage.cluster.api
    token = stage.cluster.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    operator = stage.cluster.client(token)
    nodes = {f"pod-{number:02d}": f"node-{number:04d}" for number in range(1, len(GARBAGE) + 1)}
    stage.publish(*(bad(node, identity="deferred", plugin="volcano") for node in nodes.values()))
    wait_all_ready(stage, list(nodes.values()))
    for (name, node), what in zip(nodes.items(), GARBAGE.values(), strict=True):
        pod = gpu_pod(name)
        pod["spec"] |= {"nodeName": node, "schedulerName": "another"}
        pod["metadata"]["annotations"] = {names.VOLCANO_NODE: node, names.HAMI_NODE: node}
        own = what.key == names.ASSIGNMENT_ANNOTATION
        if not own:
            pod["metadata"]["annotations"][what.key] = what.value
        if what.key in ASKED_OF_OTHERS:
            pod["spec"]["containers"][0]["resources"] = {"limits": {ASKED_OF_OTHERS[what.key]: "1"}}
        created = api.post(PODS, pod)
        if own:
            value = value_of(what, created["metadata"]["uid"], node)
            operator.patch(f"{PODS}/{name}/status", {"metadata": {"annotations": {what.key: value}}})
    for (name, node), what in zip(nodes.items(), GARBAGE.values(), strict=True):
        assert f"default/{name}" in stage.wait_gate(node, "UnknownHolder")
        assert what.words in stage.wait_told(name, "AssignmentIgnored"), name
        assert all(len(event["message"].encode()) <= 1024 for event in stage.events(name))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (names.VOLCANO_MODE, "mps"),
        (names.NUMA_BIND, "perhaps"),
        (names.HAMI_NODE_POLICY, "best"),
        (names.POLICY_SCORE, "binpack,spread"),
        (names.HAMI_SCORING_WEIGHTS, "x" * 10_000),
    ],
)
def test_a_selection_that_cannot_be_read_refuses_its_pod_by_the_annotations_name(
    stage: Stage, key: str, value: str
) -> None:
    pod = gpu_pod("chooser")
    pod["metadata"]["annotations"] = {key: value}
    stage.create(pod)
    message = stage.wait_told("chooser", "UnsupportedSelection")
    assert key in message
    assert len(message.encode()) <= 1024
    assert stage.explain("chooser")["reason"] == "UnsupportedSelection"


# What kube-scheduler sends.


@dataclass(frozen=True, slots=True)
class Answer:
    """What the extender said."""

    status: int
    text: str

    @property
    def error(self) -> str:
        return str(json.loads(self.text).get("Error", ""))


def client_context(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def ask(
    stage: Stage, path: str, body: bytes, *, context: ssl.SSLContext | None = None, method: str = "POST"
) -> Answer:
    """One request to the leader's extender; its certificate is for the Service's name."""
    [replica] = stage.operators.replicas.values()
    context = context or client_context(stage.operators.client_files())
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", replica.extender_port, context=context, timeout=30)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return Answer(response.status, response.read().decode())
    finally:
        connection.close()


def filter_args(limits: dict[str, str], *node_names: str, **more: Any) -> bytes:
    pod = gpu_pod("asked")
    pod["metadata"] |= {"namespace": "default", "uid": "asked-uid"}
    pod["spec"]["containers"][0]["resources"]["limits"] = limits
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": list(node_names), **more}).encode()


ONE = {names.VOLCANO_NUMBER: "1"}
BODIES: dict[str, tuple[str, bytes, str]] = {
    "no body": ("filter", b"", "ExtenderArgs"),
    "not JSON": ("filter", b"{", "ExtenderArgs"),
    "not text": ("filter", b"\xff\xfe\x00", "ExtenderArgs"),
    "a list": ("filter", b"[]", "ExtenderArgs"),
    "deep nesting": ("filter", b"[" * 100_000, "ExtenderArgs"),
    "no pod": ("filter", b'{"NodeNames": ["node-0000"]}', "Pod"),
    "a pod that is a word": ("prioritize", b'{"Pod": "me", "NodeNames": []}', "Pod"),
    "names that are numbers": (
        "filter",
        b'{"Pod": {"metadata": {"uid": "u", "name": "n"}}, "NodeNames": [7]}',
        "NodeNames",
    ),
    "no fields": ("bind", b"{}", "BindArgs"),
    "a name that is a path": (
        "bind",
        b'{"PodName": "../../nodes", "PodNamespace": "default", "PodUID": "u", "Node": "node-0000"}',
        "PodName",
    ),
    "victims that are a list": (
        "preempt",
        b'{"Pod": {"metadata": {}}, "NodeNameToMetaVictims": []}',
        "PreemptArgs",
    ),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_request_that_cannot_be_read_is_answered_with_400_and_the_fault(stage: Stage, what: str) -> None:
    verb, body, words = BODIES[what]
    answer = ask(stage, f"/v1/{verb}", body)
    assert answer.status == 400
    assert words in answer.error
    assert len(answer.error) <= 600


def test_other_verbs_paths_and_sizes_are_refused_by_http(stage: Stage) -> None:
    assert ask(stage, "/v1/filter", b"", method="GET").status == 405
    assert ask(stage, "/v1/unbind", b"{}").status == 404
    assert ask(stage, "/filter", b"{}").status == 404
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused while the body was still being sent
        assert ask(stage, "/v1/filter", b" " * (17 * 2**20)).status == 413


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({names.VOLCANO_NUMBER: "-1"}, "-1"),
        ({names.VOLCANO_NUMBER: "1e99"}, "1e99"),
        ({names.VOLCANO_NUMBER: "one"}, "one"),
        ({**ONE, names.VOLCANO_MEMORY: "0.5"}, "0.5"),
        ({**ONE, names.VOLCANO_MEMORY: "9" * 400}, "at most 64 characters"),
        ({**ONE, names.VOLCANO_CORES: "-30"}, "-30"),
    ],
)
def test_numbers_that_the_api_server_would_not_take_refuse_the_pod_on_every_node(
    stage: Stage, limits: dict[str, str], words: str
) -> None:
    answer = ask(stage, "/v1/filter", filter_args(limits, GOOD))
    assert answer.status == 200
    result = json.loads(answer.text)
    assert result["NodeNames"] == []
    assert words in result["FailedAndUnresolvableNodes"][GOOD]
    assert "write a whole number" in result["FailedAndUnresolvableNodes"][GOOD]


def test_unknown_nodes_are_refused_by_name(stage: Stage) -> None:
    answer = ask(stage, "/v1/filter", filter_args(ONE, "ghost", "", "../x", "g" * 100_000))
    result = json.loads(answer.text)
    assert (answer.status, result["NodeNames"]) == (200, [])
    assert "does not know this node" in result["FailedAndUnresolvableNodes"]["ghost"]
    assert ask(stage, "/v1/prioritize", filter_args(ONE, "ghost")).text == '[{"Host":"ghost","Score":0}]'


def test_bind_of_what_does_not_exist_or_does_not_fit_is_an_error_and_binds_nothing(stage: Stage) -> None:
    pod = gpu_pod("by-hand", memory_mib=50_000)
    pod["spec"]["schedulerName"] = "nobody"
    uid = stage.cluster.api.post(PODS, pod)["metadata"]["uid"]
    said = {
        ("by-hand", uid, "ghost"): "there is no node ghost",
        ("by-hand", "another-uid", GOOD): "by-hand with uid another-uid",
        ("nobody", "no-uid", GOOD): "default/nobody cannot be read",
        ("by-hand", uid, "node-0001"): "GpuNodeInventory",
        ("by-hand", uid, GOOD): "memory",
    }
    for (name, pod_uid, node), words in said.items():
        args = {"PodName": name, "PodNamespace": "default", "PodUID": pod_uid, "Node": node}
        answer = ask(stage, "/v1/bind", json.dumps(args).encode())
        assert answer.status == 200
        assert words in answer.error, answer
    assert stage.node_of("by-hand") == ""


def test_nobody_is_answered_without_a_certificate_of_the_right_authority(stage: Stage, tmp_path: Path) -> None:
    folder = stage.operators.client_files()
    nobody = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        ask(stage, "/v1/filter", filter_args(ONE, GOOD), context=nobody)
    now = datetime.now(UTC)
    foreign = issue_client(create_authority(now), now)
    for name, content in (
        ("ca.crt", (folder / "ca.crt").read_bytes()),
        ("tls.crt", foreign.certificate),
        ("tls.key", foreign.key),
    ):
        (tmp_path / name).write_bytes(content)
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        ask(stage, "/v1/filter", filter_args(ONE, GOOD), context=client_context(tmp_path))
    assert ask(stage, "/v1/filter", filter_args(ONE, GOOD)).status == 200
