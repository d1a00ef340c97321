"""How an evicted bare pod is created again: its manifest, without what admission, kubelet and we ourselves added.

Enters: a pod's JSON as it is before its eviction. Leaves: its record, JSON text; later the body of the pod to
create and how the pod would look to us. Pure. May not live here: when a pod is created again.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from vgpu import names
from vgpu.errors import MalformedObject

MOST_BYTES = 128 * 1024
"""Of one record: all annotations of an object together may have 256 KiB."""
TOKEN_VOLUME = "kube-api-access-"
_ANY = TypeAdapter(dict[str, Any])
_USERS_METADATA = ("name", "namespace", "labels", "annotations")
_KEPT_METADATA = (*_USERS_METADATA, "creationTimestamp")
"""It keeps its age until it is created: by that it is served."""
_DROPPED_SPEC = ("nodeName", "serviceAccount", "ephemeralContainers", "schedulingGates")
_GIVEN_BY_CLASS = ("priority", "preemptionPolicy")
"""Admission sets these by the pod's class, and refuses a pod that states others than the class does by then."""
_ASSIGNMENTS = frozenset(
    {
        names.VOLCANO_NODE,
        names.VOLCANO_TIME,
        names.VOLCANO_IDS,
        names.VOLCANO_TO_ALLOCATE,
        names.VOLCANO_BIND_TIME,
        names.VOLCANO_BIND_PHASE,
        names.HAMI_NODE,
        names.HAMI_TIME,
        names.HAMI_ALLOCATED,
        names.HAMI_TO_ALLOCATE,
        names.HAMI_BIND_TIME,
        names.HAMI_BIND_PHASE,
        names.HAMI_MIG_ALLOCATIONS,
        names.VOLCANO_DP_INDEX,
        names.VOLCANO_DP_ASSIGNED,
    }
)


def record_of(raw: bytes) -> str:
    """The record of this pod. Raises MalformedObject when it is none, or too large to be kept."""
    pod = _read(raw)
    metadata = {key: value for key, value in pod["metadata"].items() if key in _KEPT_METADATA and value}
    if "annotations" in metadata:
        metadata["annotations"] = _users_own(metadata["annotations"])
    record = to_json({"metadata": metadata, "spec": _sanitised(pod["spec"])}).decode()
    if len(record.encode()) > MOST_BYTES:
        raise MalformedObject(f"pod {metadata.get('name')}: its manifest is too large to be kept in its record")
    return record


def body_of(record: str) -> dict[str, Any]:
    """The pod to create. Raises MalformedObject."""
    pod = _read(record)
    metadata = {key: value for key, value in pod["metadata"].items() if key in _USERS_METADATA}
    spec = {key: value for key, value in pod["spec"].items() if key not in _GIVEN_BY_CLASS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def waiting_pod(record: str, uid: str) -> bytes:
    """The JSON of the pod as it would wait for room, were it there. Raises MalformedObject."""
    pod = _read(record)
    condition = {"type": names.SCHEDULED_CONDITION, "status": "False", "reason": "Unschedulable", "message": ""}
    status = {"phase": "Pending", "conditions": [condition]}
    metadata = {**pod["metadata"], "uid": uid}
    return to_json({"metadata": metadata, "spec": pod["spec"], "status": status})


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        pod = _ANY.validate_json(text)
    except ValidationError as error:
        raise MalformedObject(f"record of a pod: {error.errors()[0]['msg']}") from error
    if not all(isinstance(pod.get(part), dict) for part in ("metadata", "spec")):
        raise MalformedObject("record of a pod: metadata or spec is missing")
    return pod


def _users_own(annotations: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in annotations.items()
        if not key.startswith(names.OWN_PREFIX) and key not in _ASSIGNMENTS
    }


def _sanitised(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in spec.items() if key not in _DROPPED_SPEC}
    tokens = {volume["name"] for volume in kept.get("volumes") or () if _is_default_token(volume)}
    if "volumes" in kept:
        kept["volumes"] = [volume for volume in kept["volumes"] if volume["name"] not in tokens]
    for part in ("containers", "initContainers"):
        if kept.get(part):
            kept[part] = [_without_mounts(container, tokens) for container in kept[part]]
    return kept


def _is_default_token(volume: Mapping[str, Any]) -> bool:
    return str(volume.get("name", "")).startswith(TOKEN_VOLUME) and "projected" in volume


def _without_mounts(container: Mapping[str, Any], volumes: set[str]) -> dict[str, Any]:
    kept = dict(container)
    if kept.get("volumeMounts"):
        mounts = kept["volumeMounts"]
        kept["volumeMounts"] = [mount for mount in mounts if mount["name"] not in volumes]
    return kept
