"""An evicted bare pod is created again as its user wrote it."""

import json

import pytest

from tests.controller.kubernetes_json import encode
from tests.controller.preempt.recovery_world import bare_json
from vgpu import names
from vgpu.controller.preempt.records import MOST_BYTES, body_of, record_of, waiting_pod
from vgpu.controller.translate import Translator
from vgpu.core.nomination import waits_for_us
from vgpu.errors import MalformedObject
from vgpu.settings import OperatorSettings


def test_what_others_added_is_left_out() -> None:
    body = body_of(record_of(encode(bare_json())))
    assert body["metadata"] == {
        "name": "bare",
        "namespace": "team",
        "labels": {"mine": "kept"},
        "annotations": {names.POLICY_EVICT_BARE: "true"},
    }
    assert "status" not in body
    spec = body["spec"]
    assert not {"nodeName", "serviceAccount", "priority", "preemptionPolicy"} & spec.keys()
    assert [volume["name"] for volume in spec["volumes"]] == ["data"]
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == ["data"]


def test_what_the_user_wrote_is_kept() -> None:
    body = body_of(record_of(encode(bare_json())))
    assert (body["apiVersion"], body["kind"]) == ("v1", "Pod")
    spec = body["spec"]
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("me", "low")
    assert spec["containers"][0]["resources"] == bare_json()["spec"]["containers"][0]["resources"]


def test_until_it_is_created_it_counts_as_a_pod_that_waits() -> None:
    decode = Translator(OperatorSettings(), lambda node: None).decode_pod
    pod = decode(waiting_pod(record_of(encode(bare_json())), "uid-bare")).fact
    assert waits_for_us(pod, names.SCHEDULER_NAME)
    assert (pod.uid, pod.priority, pod.assignment, pod.node) == ("uid-bare", 10, None, "")
    assert pod.created == bare_json()["metadata"]["creationTimestamp"], "it is as old as it was"


@pytest.mark.parametrize("text", ["", "[]", '{"metadata": {}}', '{"metadata": 1, "spec": {}}'])
def test_a_record_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(MalformedObject, match="record of a pod"):
        body_of(text)


def test_a_manifest_that_no_annotation_could_hold_is_refused() -> None:
    pod = bare_json()
    pod["metadata"]["annotations"]["mine"] = "x" * MOST_BYTES
    with pytest.raises(MalformedObject, match="too large"):
        record_of(encode(pod))
    assert json.loads(record_of(encode(bare_json())))
