"""What each write says: typed values and their JSON. Pure; sending belongs to the writer.

Enters: names, uids, texts. Leaves: bodies as the API server takes them. Every write that meets an existing object
carries its uid or resourceVersion, so that a name that was used again is a conflict and not a mistake.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vgpu import names
from vgpu.kube.objects import Key

EVENT_MESSAGE_BYTES = 1024
LONGEST_OF_EVENT = 230
"""Characters of an object's name in the name of an Event about it."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BindingWrite:
    """Bind this pod to this node and put these annotations on it, in one atomic write."""

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]


def event_name(of: str, what: str) -> str:
    """The name of an Event about the object named so, as long as names may be and cut anywhere."""
    return f"{of[:LONGEST_OF_EVENT].rstrip('-.')}.{what}"


@dataclass(frozen=True, slots=True)
class EventWrite:
    """One Event about an object. `name` is the same for one object and reason in every process: no duplicates.

    An Event about a cluster-scoped object (`cluster_scoped`) must be in the namespace "default".
    """

    namespace: str
    name: str
    object_name: str
    object_uid: str
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Warning"
    if_absent: bool = False
    """Leave one of this name as it is: it was told before this process started."""
    api_version: str = "v1"
    kind: str = "Pod"
    cluster_scoped: bool = False


@dataclass(frozen=True, slots=True)
class SecretWrite:
    """A Secret to create; `data` is raw, not base64."""

    namespace: str
    name: str
    type: str
    data: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class SliceWrite:
    """The EndpointSlice of the leader: one address and port behind one Service."""

    namespace: str
    service: str
    address: str
    family: Literal["IPv4", "IPv6"]
    port: int

    @property
    def name(self) -> str:
        """A slice's address family cannot change, so each family has a slice of its own."""
        return f"{self.service}-{self.family.lower()}"


def binding_body(write: BindingWrite) -> Body:
    """A Binding. No resourceVersion: any status patch of the scheduler would break it; the uid is enough."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": write.name,
            "namespace": write.namespace,
            "uid": write.uid,
            "annotations": dict(write.annotations),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": write.node},
    }


def nomination_body(pod: Key, node: str | None, wake: int) -> Body:
    """A merge patch of pods/status. The counter makes it a change, and so an event, every time."""
    body: Body = {"metadata": {"uid": pod.uid, "annotations": {names.WAKE_ANNOTATION: str(wake)}}}
    if node is not None:
        body["status"] = {"nominatedNodeName": node}
    return body


def late_assignment_body(pod: Key, annotations: Mapping[str, str]) -> Body:
    """A merge patch of pods/status, which keeps annotations too; exactly this pod."""
    return {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}


def eviction_body(pod: Key) -> Body:
    """An Eviction of exactly this pod."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }


def event_body(write: EventWrite, now: str) -> Body:
    """A new core/v1 Event, seen once. `now` is RFC 3339 in UTC."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": write.name, "namespace": write.namespace},
        "involvedObject": {
            "apiVersion": write.api_version,
            "kind": write.kind,
            "namespace": "" if write.cluster_scoped else write.namespace,
            "name": write.object_name,
            "uid": write.object_uid,
        },
        "type": write.type,
        "reason": write.reason,
        "message": cut_text(write.message, EVENT_MESSAGE_BYTES),
        "source": {"component": names.OPERATOR_FIELD_MANAGER},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def event_repeat_body(write: EventWrite, now: str, count: int | None) -> Body:
    """A merge patch that renews an Event; without a count it leaves the stored one as it is."""
    body: Body = {"message": cut_text(write.message, EVENT_MESSAGE_BYTES), "lastTimestamp": now}
    if count is not None:
        body["count"] = count
    return body


def gate_removal_body(pod: Key, gate: str) -> Body:
    """A strategic merge patch that takes this one gate away; those of others stay, whoever changes them now."""
    return {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": [{"$patch": "delete", "name": gate}]}}


def deletion_body(uid: str) -> Body:
    """Options of a delete that meets exactly this object."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def queue_status_body(name: str, status: Mapping[str, Any]) -> Body:
    """The whole status of one queue, for server-side apply."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.QUEUE_KIND,
        "metadata": {"name": name},
        "status": dict(status),
    }


def inventory_status_body(node: str, status: Mapping[str, Any]) -> Body:
    """The whole status of one inventory, for server-side apply."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.INVENTORY_KIND,
        "metadata": {"name": node},
        "status": dict(status),
    }


def secret_body(write: SecretWrite) -> Body:
    """A new Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": write.name, "namespace": write.namespace},
        "type": write.type,
        "data": {key: base64.b64encode(value).decode() for key, value in write.data.items()},
    }


def slice_body(write: SliceWrite) -> Body:
    """The whole EndpointSlice, for server-side apply; the label keeps other controllers away from it."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": write.name,
            "namespace": write.namespace,
            "labels": {
                "kubernetes.io/service-name": write.service,
                "endpointslice.kubernetes.io/managed-by": names.OPERATOR_FIELD_MANAGER,
            },
        },
        "addressType": write.family,
        "endpoints": [{"addresses": [write.address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": write.port, "protocol": "TCP"}],
    }


def cut_text(text: str, limit_bytes: int) -> str:
    """The text, at most so many bytes of UTF-8, marked where it was cut."""
    raw = text.encode()
    if len(raw) <= limit_bytes:
        return text
    mark = "..."
    return raw[: limit_bytes - len(mark)].decode(errors="ignore") + mark
