"""The extender's JSON: what kube-scheduler sends is read, in any spelling; what is no request is named."""

import json
from typing import Any

import pytest

from tests.controller.kubernetes_json import encode, pod_json
from vgpu.controller import wire
from vgpu.core.filtering import FilterAnswer
from vgpu.errors import MalformedObject

BIND = {"PodName": "p1", "PodNamespace": "team", "PodUID": "u", "Node": "n1"}


def test_names_are_read_as_kube_scheduler_sends_them() -> None:
    args = wire.read(wire.ExtenderArgs, encode({"Pod": pod_json(), "Nodes": None, "NodeNames": ["n1", "n2"]}))
    assert args.node_names == ["n1", "n2"]
    assert args.pod.metadata.uid == "uid-p1"
    assert args.node_items() == {}


@pytest.mark.parametrize("names", ["NodeNames", "nodeNames", "nodenames", "node_names"])
def test_other_spellings_are_read(names: str) -> None:
    assert wire.read(wire.ExtenderArgs, encode({"pod": pod_json(), names: ["n1"]})).node_names == ["n1"]


def test_whole_nodes_are_read_by_name_and_nameless_ones_are_left_out() -> None:
    items: list[Any] = [{"metadata": {"name": "n1"}, "spec": {}}, {"metadata": {}}, {}]
    args = wire.read(wire.ExtenderArgs, encode({"Pod": pod_json(), "Nodes": {"items": items}}))
    assert args.node_names is None
    assert args.node_items() == {"n1": items[0]}


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"", "Invalid JSON"),
        (b"{", "Invalid JSON"),
        (b"[]", "object"),
        (b"\xff\xfe", "JSON"),
        (b'{"NodeNames": []}', "Pod"),
        (encode({"Pod": {}, "NodeNames": []}), "metadata"),
        (encode({"Pod": {"metadata": {}}}), "name"),
        (encode({"Pod": pod_json(), "NodeNames": "n1"}), "NodeNames"),
        (encode({"Pod": pod_json(), "NodeNames": ["n1", {}]}), "NodeNames[1]"),
        (b"[" * 100_000, "JSON"),
    ],
    ids=["empty", "cut", "list", "no text", "no pod", "empty pod", "nameless", "text", "objects", "deep"],
)
def test_what_is_no_request_is_named(body: bytes, want: str) -> None:
    with pytest.raises(MalformedObject) as raised:
        wire.read(wire.ExtenderArgs, body)
    assert want in str(raised.value)
    assert len(str(raised.value)) <= wire.MAX_FAULT_CHARACTERS


def test_a_bind_request_is_read() -> None:
    args = wire.read(wire.BindArgs, encode(BIND))
    assert (args.pod_name, args.pod_namespace, args.pod_uid, args.node) == ("p1", "team", "u", "n1")


@pytest.mark.parametrize(
    "change",
    [
        {"PodName": "../../secrets/x"},
        {"PodName": ""},
        {"PodNamespace": "a/b"},
        {"PodNamespace": "x" * 300},
        {"Node": "n1?dry=1"},
        {"Node": None},
        {"PodUID": ""},
        {"PodName": "p1\n"},
    ],
    ids=str,
)
def test_names_that_would_change_the_api_path_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedObject):
        wire.read(wire.BindArgs, encode({**BIND, **change}))


def test_victims_are_read_in_both_forms() -> None:
    meta = {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 2}, "n2": {"Pods": None}}
    args = wire.read(wire.PreemptArgs, encode({"Pod": pod_json(), "NodeNameToMetaVictims": meta}))
    assert args.victim_uids() == {"n1": ["a"], "n2": []}
    assert (args.pdb_violations("n1"), args.pdb_violations("ghost")) == (2, 0)
    whole = {"n1": {"Pods": [pod_json("victim")], "NumPDBViolations": 1}}
    args = wire.read(wire.PreemptArgs, encode({"Pod": pod_json(), "NodeNameToVictims": whole}))
    assert args.victim_uids() == {"n1": ["uid-victim"]}
    assert args.pdb_violations("n1") == 1
    assert wire.read(wire.PreemptArgs, encode({"Pod": pod_json()})).victim_uids() == {}


def test_answers_have_gos_field_names() -> None:
    answer = FilterAnswer(["n1"], {"n2": "waits"}, {"n3": "full"})
    assert json.loads(wire.filter_result(answer, None)) == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": {"n2": "waits"},
        "FailedAndUnresolvableNodes": {"n3": "full"},
        "Error": "",
    }
    in_kind = json.loads(wire.filter_result(answer, {"n1": {"metadata": {"name": "n1"}}}))
    assert in_kind["NodeNames"] is None
    assert in_kind["Nodes"]["items"] == [{"metadata": {"name": "n1"}}]
    assert json.loads(wire.priorities({"n1": 7})) == [{"Host": "n1", "Score": 7}]
    assert json.loads(wire.error_result("no")) == {"Error": "no"}
