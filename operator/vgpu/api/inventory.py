"""GpuNodeInventory: what cards a node has (spec, its agent writes) and who holds them (status, operator writes).

JSON enters and leaves; the bounds and CEL rules beside the fields are what the API server enforces too.
Readers are tolerant where safety allows it: an absent or unknown health reads as Unhealthy, never as Healthy.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from vgpu import names
from vgpu.api.inventory_status import InventoryStatus
from vgpu.api.lingering import LIST_MAP_BY_UID, MAX_LINGERING, LingeringPod
from vgpu.api.model import (
    CARD_UUID,
    CARD_UUID_MESSAGE,
    LIST_MAP_BY_UUID,
    MAX_CARDS,
    MAX_MEMORY_MIB,
    ApiModel,
    CardUuid,
    Integer,
    Metadata,
    Text,
    read_json,
    rules,
)
from vgpu.core.facts import CardMode, Identity, Plugin

SmallNumber = Annotated[Integer, Field(ge=0, le=4096)]


class Health(StrEnum):
    """Whether new work may be put on a card."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class InventoryGpu(ApiModel):
    """One physical card."""

    uuid: CardUuid = Field(
        description="UUID as NVML gives it; the card's only identity",
        json_schema_extra=rules((f"self.matches('{CARD_UUID}')", CARD_UUID_MESSAGE)),
    )
    index: SmallNumber = Field(description="NVML index at the last reading; never an identity")
    model: Text = Field(description="product name, such as NVIDIA A100-SXM4-80GB")
    memory_mib: Annotated[Integer, Field(ge=1, le=MAX_MEMORY_MIB)] = Field(
        description="MiB that pods may use, the node's reserve already taken off"
    )
    cores: Literal[100] = Field(description="always 100: one core is one percent of the card's compute")
    slots: Annotated[Integer, Field(ge=1, le=10_000)] = Field(description="holders that the card takes at most")
    mode: CardMode = Field(description="shared cards take pods; mig cards are listed and take nothing")
    health: Health = Field(description="only a Healthy card takes new work")
    health_reason: Text = Field(
        "", description="why the card is not healthy, such as Xid 79: the card has fallen off the bus"
    )
    xid: Annotated[Integer, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="number of the Xid that healthReason tells of"
    )
    minor: SmallNumber | None = Field(None, description="minor number of the device file")
    pci_bus_id: Text = Field("", description="such as 00000000:3B:00.0")
    numa_node: SmallNumber | None = Field(None, description="NUMA node of the card's bus")
    nvlink_peers: Annotated[tuple[CardUuid, ...], Field(max_length=MAX_CARDS)] = Field(
        (), description="UUIDs of the cards that this one has NVLink to"
    )

    @model_validator(mode="before")
    @classmethod
    def _absent_health_is_unhealthy(cls, value: Any) -> Any:
        if isinstance(value, dict) and "health" not in value:
            return {**value, "health": Health.UNHEALTHY}
        return value

    @field_validator("health", mode="before")
    @classmethod
    def _unknown_health_is_unhealthy(cls, value: Any) -> Any:
        return value if value == Health.HEALTHY else Health.UNHEALTHY


class InventorySpec(ApiModel):
    """What the node's agent read. Written whole, and only when the content differs."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-map-type": "atomic",
            **rules(
                (
                    "self.slotResource.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",
                    "slotResource must be a resource name with a domain, such as volcano.sh/vgpu-number",
                ),
                (
                    "self.plugin == 'vgpu' || self.identity == 'deferred'",
                    "identity must be deferred where the plugin is hami or volcano: only ours can tell pods apart",
                ),
                (
                    "self.gpus.all(a, self.gpus.exists_one(b, b.index == a.index))",
                    "two cards have the same index",
                ),
            ),
        }
    )

    slot_resource: Annotated[str, Field(min_length=3, max_length=253)] = Field(
        description="the one resource name of slots that this node advertises"
    )
    identity: Identity = Field(
        description="exact: each Allocate is matched to its pod; deferred: one pod at a time"
    )
    plugin: Plugin = Field(description="whose device plugin serves this node's kubelet")
    gpus: Annotated[tuple[InventoryGpu, ...], Field(max_length=MAX_CARDS)] = Field(
        description="the cards of the node", json_schema_extra=LIST_MAP_BY_UUID
    )
    driver_version: Text = Field("", description="version of the NVIDIA driver on the node, such as 550.54.15")
    cuda_version: Text = Field("", description="newest CUDA version that the driver serves, such as 12.4")
    boot_id: Text = Field("", description="the kernel's boot id when the cards were read: another one is a reboot")
    read_error: Text = Field("", description="set while the cards cannot be read: nothing new is assigned")
    isolation_error: Text = Field(
        "", description="set while containers could not be held to their share: nothing new is assigned"
    )
    lingering: Annotated[tuple[LingeringPod, ...], Field(max_length=MAX_LINGERING)] = Field(
        (),
        description="pods that were deleted by force and still have a process on the node: they keep their cards",
        json_schema_extra=LIST_MAP_BY_UID,
    )

    @field_validator("gpus")
    @classmethod
    def _cards_are_distinct(cls, gpus: tuple[InventoryGpu, ...]) -> tuple[InventoryGpu, ...]:
        for field in ("uuid", "index"):
            if len({getattr(gpu, field) for gpu in gpus}) != len(gpus):
                raise ValueError(f"two cards have the same {field}")
        return gpus

    def canonical(self) -> dict[str, Any]:
        """JSON values that are equal exactly when the content is: sorted by UUID and uid, no defaults."""
        document = self.dump()
        for gpu in document["gpus"]:
            if "nvlinkPeers" in gpu:
                gpu["nvlinkPeers"] = sorted(set(gpu["nvlinkPeers"]))
        document["gpus"].sort(key=lambda gpu: gpu["uuid"])
        for pod in document.get("lingering", ()):
            pod["cards"].sort(key=lambda card: card["uuid"])
        document.get("lingering", []).sort(key=lambda pod: pod["uid"])
        return document


class GpuNodeInventory(ApiModel):
    """The cards of one node, and who holds them. Named after the node."""

    api_version: str = names.API_VERSION
    kind: str = names.INVENTORY_KIND
    metadata: Metadata = Metadata()
    spec: InventorySpec
    status: InventoryStatus | None = None

    def canonical(self) -> dict[str, Any]:
        """The spec's canonical content: what an agent compares before it writes."""
        return self.spec.canonical()


def parse_inventory(text: str | bytes) -> GpuNodeInventory:
    """Read one object as the API server sends it. Raises MalformedObject that names the first wrong field."""
    return read_json(GpuNodeInventory, text, names.INVENTORY_KIND)
