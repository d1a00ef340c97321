"""PodGroup JSON, Volcano's and Kubernetes' own -> GroupFact.

A group that cannot be read as a whole raises MalformedObject; what it says beyond what we use is skipped.
"""

from typing import Any

from pydantic import ValidationError

from vgpu.api.model import first_fault
from vgpu.controller.translate.partial import Metadata, Partial
from vgpu.core.terms import GroupFact, GroupName, GroupSource
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key

WHOLE_GROUP = "PodGroup"
"""disruptionMode of the first versions; later ones have an object with `all` or `single`."""
WHOLE = "all"


class _VolcanoSpec(Partial):
    min_member: int | None = None
    priority_class_name: str = ""


class _VolcanoGroup(Partial):
    metadata: Metadata
    spec: _VolcanoSpec | None = None


class _GangPolicy(Partial):
    min_count: int = 1


class _SchedulingPolicy(Partial):
    gang: _GangPolicy | None = None


class _GroupSpec(Partial):
    scheduling_policy: _SchedulingPolicy | None = None
    disruption_mode: str | dict[str, Any] | None = None
    priority: int | None = None


class _Group(Partial):
    metadata: Metadata
    spec: _GroupSpec | None = None


def decode_volcano_group(raw: bytes) -> Decoded[GroupFact]:
    """One PodGroup of scheduling.volcano.sh. Raises MalformedObject."""
    try:
        model = _VolcanoGroup.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(f"PodGroup: {first_fault(error)}") from error
    spec = model.spec or _VolcanoSpec()
    minimum = spec.min_member if spec.min_member is not None and spec.min_member > 0 else None
    fact = GroupFact(_name(GroupSource.VOLCANO, model.metadata), minimum, priority_class=spec.priority_class_name)
    return _decoded(model.metadata, fact)


def decode_kubernetes_group(raw: bytes) -> Decoded[GroupFact]:
    """One PodGroup of scheduling.k8s.io, v1alpha2 to v1beta1. Raises MalformedObject."""
    try:
        model = _Group.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(f"PodGroup: {first_fault(error)}") from error
    spec = model.spec or _GroupSpec()
    gang = spec.scheduling_policy.gang if spec.scheduling_policy is not None else None
    mode = spec.disruption_mode
    whole = mode == WHOLE_GROUP if isinstance(mode, str) else mode is not None and WHOLE in mode
    fact = GroupFact(
        _name(GroupSource.KUBERNETES, model.metadata),
        max(1, gang.min_count) if gang is not None else None,
        disruption_all=whole,
        priority=spec.priority,
    )
    return _decoded(model.metadata, fact)


def _name(source: GroupSource, metadata: Metadata) -> GroupName:
    return GroupName(source, metadata.namespace, metadata.name)


def _decoded(metadata: Metadata, fact: GroupFact) -> Decoded[GroupFact]:
    return Decoded(Key(metadata.namespace, metadata.name, metadata.uid), metadata.resource_version, fact)
