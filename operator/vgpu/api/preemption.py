"""GpuPreemption: one plan that makes room for an owner, and the debts that outlive it (architecture.md 3).

JSON enters and leaves. The spec is created in one write before the first eviction and never changes.
"""

from typing import Annotated

from pydantic import ConfigDict, Field

from vgpu import names
from vgpu.api.conditions import Condition
from vgpu.api.model import (
    LIST_MAP_BY_TYPE,
    ApiModel,
    CardUuid,
    Count,
    Flag,
    Integer,
    Metadata,
    Name,
    Text,
    Uid,
    read_json,
    rules,
)
from vgpu.core.preempt.facts import OwnerKind
from vgpu.core.preempt.facts import PlanPhase as Phase

ENDED = "Ended"
"""Type of the condition that says why a plan is over."""
PARTIAL = "Partial"
"""Type of the condition that says that too few of the plan's gang are bound: they run in vain."""

OwnerName = Annotated[str, Field(min_length=1, max_length=512)]
Uids = Annotated[tuple[Uid, ...], Field(min_length=1, max_length=4096)]


class Owner(ApiModel):
    """For whom room is made; `uids` are its pods."""

    kind: OwnerKind
    name: OwnerName = Field(description="name of the pod; of a gang NS/NAME, and whose PodGroup it is")
    uids: Uids = Field(description="uids of its pods", json_schema_extra={"x-kubernetes-list-type": "atomic"})


class CardReservation(ApiModel):
    """What is held of one card for the pod `uid` while that pod exists unbound."""

    uid: Uid = Field(description="uid of the pod that the card is held for")
    node: Name = Field(description="node of the card")
    card: CardUuid = Field(description="UUID of the card")
    slots: Annotated[Integer, Field(ge=1, le=10_000)] = Field(description="slots held")
    memory_mib: Count = Field(description="MiB held")
    cores: Count = Field(description="percent of the card's compute held")
    exclusive: Flag = Field(False, description="the pod will be alone on the card")
    coreless: Flag = Field(
        False, description="the pod asks for no cores: it fits on no card whose cores are all booked"
    )


class Victim(ApiModel):
    """A pod that is evicted for the plan, meant by its uid."""

    uid: Uid = Field(description="uid of the pod; another pod of the same name is not meant")
    namespace: Name = Field(description="the pod's namespace")
    name: Name = Field(description="the pod's name")
    node: Name = Field(description="the node that it runs on")
    unit: Text = Field("", description="goes together with all victims that name the same unit")


class PreemptionSpec(ApiModel):
    """The plan."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-map-type": "atomic",
            **rules(("self == oldSelf", "a plan never changes: delete it and make another")),
        }
    )

    owner: Owner
    reservations: Annotated[tuple[CardReservation, ...], Field(min_length=1, max_length=4096)] = Field(
        description="what is held for the owner's pods", json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    victims: Annotated[tuple[Victim, ...], Field(max_length=4096)] = Field(
        (),
        description="the pods that are evicted",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
    )
    rule: Annotated[str, Field(min_length=1, max_length=1024)] = Field(
        description="by which right the victims are evicted"
    )
    exact: Flag = Field(description="the set of victims is proven to be the least one")
    generation: Count = Field(0, description="of several plans for one owner the one with the highest counts")
    victim_names: Text = Field("", description="the victims, for people to read")
    node_names: Text = Field("", description="the nodes where cards are held, for people to read")


class Debt(ApiModel):
    """What must come back: a workload that lost pods to this plan."""

    uid: Uid = Field(description="uid of the workload")
    kind: Name = Field(description="kind of the workload")
    namespace: Name = Field(description="its namespace")
    name: Name = Field(description="its name")
    queue: Text = Field("", description="its queue")
    rank: Text = Field("", description="its place in the queue when it lost its pods")
    pods: Annotated[Integer, Field(ge=1, le=2**31 - 1)] = Field(description="pods that it lost")
    lost_seconds: Count = Field(0, description="seconds that the lost pods had run, summed up")
    api_version: Text = Field("", description="API version of its kind")


class Successor(ApiModel):
    """A pod that has the cards of one that is gone: the plan's spec still names that one."""

    lost: Uid = Field(description="uid of the pod that is gone, as the spec names it")
    uid: Uid = Field(description="uid of the pod of its gang that replaces it: the cards are held for this one")


class PreemptionStatus(ApiModel):
    """Written by the operator alone."""

    phase: Phase = Phase.PLANNED
    waits_for: Text = Field(
        "", description="what it waited for when this was written, for people to read; kubectl vgpu plans: for now"
    )
    evictions_sent: Annotated[tuple[Uid, ...], Field(max_length=4096)] = Field(
        (), description="uids of victims asked to go", json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    debts: Annotated[tuple[Debt, ...], Field(max_length=4096)] = Field(
        (),
        description="workloads that lost pods to this plan and must come back",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
    )
    successors: Annotated[tuple[Successor, ...], Field(max_length=4096)] = Field(
        (),
        description="pods that replaced members of the gang before it ran",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["lost"]},
    )
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        (), description="what holds of the plan now", json_schema_extra=LIST_MAP_BY_TYPE
    )


class PreemptionMetadata(Metadata):
    """With the annotations: one of ours says how evicted bare pods are created again."""

    annotations: dict[str, str] | None = None


class GpuPreemption(ApiModel):
    """One plan that makes room for an owner: who waits for whom."""

    api_version: str = names.API_VERSION
    kind: str = names.PREEMPTION_KIND
    metadata: PreemptionMetadata = PreemptionMetadata()
    spec: PreemptionSpec
    status: PreemptionStatus | None = None


def parse_preemption(text: str | bytes) -> GpuPreemption:
    """Read one object as the API server sends it. Raises MalformedObject that names the first wrong field."""
    return read_json(GpuPreemption, text, names.PREEMPTION_KIND)
