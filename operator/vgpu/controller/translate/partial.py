"""Partial models of Kubernetes' JSON: only the fields that become facts, everything else is skipped unread.

Go writes an empty list as null where its field has no omitempty, so lists and maps may be None. Numbers are
taken where text is expected (a quantity may be 4 or "4"). May not decide anything.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Partial(BaseModel):
    """Base: camelCase names on the wire, unknown fields skipped."""

    model_config = ConfigDict(
        extra="ignore", alias_generator=to_camel, validate_by_name=True, coerce_numbers_to_str=True
    )


class OwnerReference(Partial):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Partial):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class Condition(Partial):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class TaintModel(Partial):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Partial):
    unschedulable: bool | None = None
    taints: list[TaintModel] | None = None


class NodeStatus(Partial):
    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None


class NodeModel(Partial):
    metadata: Metadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Resources(Partial):
    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class Container(Partial):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class TolerationModel(Partial):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Expression(Partial):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class SelectorTerm(Partial):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class RequiredTerms(Partial):
    node_selector_terms: list[SelectorTerm] | None = None


class NodeAffinity(Partial):
    required_during_scheduling_ignored_during_execution: RequiredTerms | None = None
    preferred_during_scheduling_ignored_during_execution: list[Any] | None = None


class PodAffinity(Partial):
    preferred_during_scheduling_ignored_during_execution: list[Any] | None = None


class Affinity(Partial):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SchedulingGate(Partial):
    name: str = ""


class SchedulingGroup(Partial):
    pod_group_name: str | None = None


class PodSpec(Partial):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[TolerationModel] | None = None
    topology_spread_constraints: list[Any] | None = None
    overhead: dict[str, str] | None = None
    resources: Resources | None = None


class ContainerState(Partial):
    running: Any = None
    terminated: Any = None


class ContainerStatus(Partial):
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    restart_count: int = 0


class PodStatus(Partial):
    phase: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class PodModel(Partial):
    metadata: Metadata
    spec: PodSpec | None = None
    status: PodStatus | None = None


class InventorySpec(Partial):
    slot_resource: str = ""
    identity: str = ""
    plugin: str = ""
    read_error: str = ""
    isolation_error: str = ""
    boot_id: str = ""
    gpus: list[Any] | None = None
    lingering: list[Any] | None = None


class InventoryModel(Partial):
    metadata: Metadata
    spec: InventorySpec
