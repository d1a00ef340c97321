"""The status of a GpuNodeInventory: what is used of each card and by whom, with the strings that kubectl prints.

Amounts enter, JSON values leave. Working the amounts out is the operator's business, not this file's.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from vgpu.api.conditions import Condition
from vgpu.api.model import LIST_MAP_BY_TYPE, LIST_MAP_BY_UUID, ApiModel, CardUuid, Count, Flag, Name, Text, Uid

MAX_SHOWN_HOLDERS = 10_000
MAX_SHOWN_CARDS = 1024


class HolderStateName(StrEnum):
    """Why a pod counts on a card: the glossary has the words."""

    RUNNING = "running"
    TERMINATING = "terminating"
    LEGACY = "legacy"
    ORPHAN = "orphan"
    BOOKED = "booked"
    LINGERING = "lingering"


class HolderStatus(ApiModel):
    """What one pod holds of one card."""

    namespace: Name = Field(description="the pod's namespace")
    name: Name = Field(description="the pod's name")
    uid: Uid = Field(description="the pod's uid")
    slots: Count = Field(description="slots that it takes of the card; a whole-card holder takes one as well")
    memory_mib: Count = Field(description="MiB")
    cores: Count = Field(description="percent of the card's compute")
    state: HolderStateName = Field(description="why the pod counts on the card")


class GpuStatus(ApiModel):
    """The use of one card."""

    uuid: CardUuid = Field(description="UUID of the card")
    used_slots: Count = Field(description="slots held")
    used_memory_mib: Count = Field(description="MiB held")
    used_cores: Count = Field(description="percent of the card's compute held")
    holders: Annotated[tuple[HolderStatus, ...], Field(max_length=MAX_SHOWN_HOLDERS)] = Field(
        (), description="the pods that count on the card", json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    orphaned: Flag = Field(False, description="pods hold the card and the inventory no longer lists it")


class Totals(ApiModel):
    """Sums over the cards: capacity is that of the healthy shared cards, use is that of all."""

    cards: Count = Field(description="cards listed")
    healthy_cards: Count = Field(description="cards that take new work")
    slots: Count = Field(description="holders that the cards take at most, and no more than kubelet offers")
    used_slots: Count = Field(description="slots held")
    memory_mib: Count = Field(description="MiB that pods may use")
    used_memory_mib: Count = Field(description="MiB held")
    cores: Count = Field(description="percent of one card's compute, summed up")
    used_cores: Count = Field(description="percent of one card's compute held, summed up")


class Summary(ApiModel):
    """The totals as kubectl prints them."""

    cards: Text = Field("", description="healthy/all")
    slots: Text = Field("", description="used/total")
    memory_mib: Text = Field("", description="used/total in MiB")
    cores: Text = Field("", description="used/total in percent of a card")

    @classmethod
    def of(cls, totals: Totals) -> "Summary":
        """The printed form of `totals`."""
        return cls(
            cards=f"{totals.healthy_cards}/{totals.cards}",
            slots=f"{totals.used_slots}/{totals.slots}",
            memory_mib=f"{totals.used_memory_mib}/{totals.memory_mib}",
            cores=f"{totals.used_cores}/{totals.cores}",
        )


class InventoryStatus(ApiModel):
    """Written by the operator alone, only when it differs."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        (), description="Ready: does the node take new pods, and why not", json_schema_extra=LIST_MAP_BY_TYPE
    )
    totals: Totals | None = None
    summary: Summary | None = None
    gpus: Annotated[tuple[GpuStatus, ...], Field(max_length=MAX_SHOWN_CARDS)] = Field(
        (), description="the use of each card", json_schema_extra=LIST_MAP_BY_UUID
    )
