"""What is read of a Pod, and what the watch shows (bad input included)."""

import json
from typing import Any

import pytest

from vgpu.agent.identity.matching import SlotContainer
from vgpu.agent.identity.pod_watch import ContainerSeen, PodDecoder, PodSeen, PodWatch
from vgpu.core.request import ContainerKind
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Key

RESOURCE = "volcano.sh/vgpu-number"


def container(name: str, number: object = None, **more: Any) -> dict[str, Any]:
    limits = {} if number is None else {RESOURCE: number}
    return {"name": name, "image": "x", "resources": {"limits": limits}, **more}


def raw_pod(status: dict[str, Any] | None = None, **spec: Any) -> bytes:
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    metadata["annotations"] = {"vgpu.dev/assignment": "text"}  # type: ignore[assignment]
    spec = {"nodeName": "n", "containers": [container("main", "2")], **spec}
    return json.dumps({"metadata": metadata, "spec": spec, "status": status or {}}).encode()


def seen(raw: bytes) -> PodSeen:
    return PodDecoder(RESOURCE)(raw).fact


def test_containers_with_slots_are_read_in_the_order_of_allocate() -> None:
    raw = raw_pod(
        initContainers=[
            container("i", 1),
            container("plain"),
            container("side", "3", restartPolicy="Always"),
        ],
        containers=[container("a", "2"), container("idle", "0"), {"name": "bare"}],
    )
    assert [one.slots for one in seen(raw).containers] == [
        SlotContainer("i", ContainerKind.INIT, 1),
        SlotContainer("side", ContainerKind.SIDECAR, 3),
        SlotContainer("a", ContainerKind.APP, 2),
    ]


def test_what_libvgpu_depends_on_is_read() -> None:
    raw = raw_pod(
        containers=[
            container("a", 1, env=[{"name": "CUDA_DISABLE_CONTROL", "value": "true"}, {"name": "X"}]),
            container("b", 1, env=[{"name": "CUDA_DISABLE_CONTROL", "valueFrom": {}}]),
        ]
    )
    assert [one.control_switch for one in seen(raw).containers] == ["true", ""]
    prioritised = container("a", 1)
    prioritised["resources"]["limits"]["nvidia.com/priority"] = 0
    [only] = seen(raw_pod(containers=[prioritised])).containers
    assert only == ContainerSeen(SlotContainer("a", ContainerKind.APP, 1), "", "0")


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, (False, False, False)),
        ({"startTime": "2026-01-01T00:00:00Z"}, (True, False, False)),
        ({"phase": "Failed", "startTime": "x"}, (True, True, False)),
        ({"containerStatuses": [{"state": {"running": {}}}]}, (False, False, True)),
        ({"initContainerStatuses": [{"state": {"terminated": {}}}]}, (False, False, True)),
        ({"containerStatuses": [{"state": {"waiting": {}}, "restartCount": 1}]}, (False, False, True)),
        ({"containerStatuses": [{"state": {"waiting": {}}, "restartCount": 0}]}, (False, False, False)),
    ],
)
def test_what_kubelet_says_of_the_pod_is_read(status: dict[str, Any], want: tuple[bool, bool, bool]) -> None:
    pod = seen(raw_pod(status))
    assert (pod.accepted, pod.ended, pod.started) == want


def test_an_amount_that_is_no_number_is_the_pods_own_problem() -> None:
    pod = seen(raw_pod(containers=[container("a", "many")]))
    assert pod.containers == ()
    assert "'many' is no quantity" in pod.problem


@pytest.mark.parametrize("raw", [b"[]", b"{}", b'{"metadata":{"name":"p"}}'])
def test_what_is_no_pod_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedObject):
        PodDecoder(RESOURCE)(raw)


def test_the_deletion_of_an_earlier_pod_does_not_drop_a_later_one_of_its_name() -> None:
    watch = PodWatch()
    watch.put(seen(raw_pod()))
    watch.drop(Key("ns", "p", "another"))
    assert watch.uids == {"u"}
    watch.drop(Key("ns", "p", "u"))
    assert watch.uids == frozenset()


def test_an_unreadable_pod_is_there_and_says_so() -> None:
    watch = PodWatch()
    watch.malformed(Key("ns", "p", "u"), "what is wrong")
    [pod] = watch.pods.values()
    assert (pod.uid, pod.problem) == ("u", "what is wrong")


def test_each_change_is_told_once() -> None:
    watch = PodWatch()
    before = watch.change
    watch.put(seen(raw_pod()))
    assert before.is_set()
    assert not watch.change.is_set()
