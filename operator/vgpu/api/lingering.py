"""Pods that the API server shows no more and that still have a process on their node, with what they take.

JSON enters and leaves: as part of an inventory's spec, and between the processes of one agent. Which pods these
are is found out on the node; what follows for others is the operator's business.
"""

from typing import Annotated, Any

from pydantic import Field, Strict

from vgpu.api.model import LIST_MAP_BY_UUID, MAX_CARDS, ApiModel, CardUuid, Flag, Integer, MemoryMib, Name, Uid
from vgpu.core.facts import LingeringCard as CardFact
from vgpu.core.facts import LingeringPod as PodFact
from vgpu.units import CORES_PER_CARD

MAX_LINGERING = 256
MAX_SLOTS = 10_000
LIST_MAP_BY_UID: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]}


class LingeringCard(ApiModel):
    """What such a pod takes of one card, its containers merged."""

    uuid: CardUuid = Field(description="UUID of the card")
    slots: Annotated[Integer, Field(ge=1, le=MAX_SLOTS)] = Field(description="slots that it takes of the card")
    memory_mib: MemoryMib = Field(description="MiB")
    cores: Annotated[int, Strict(), Field(ge=0, le=CORES_PER_CARD)] = Field(
        description="percent of the card's compute"
    )
    whole: Flag = Field(False, description="nobody else may be on the card")


class LingeringPod(ApiModel):
    """A pod that was deleted by force, and of which a process is left."""

    namespace: Name = Field(description="the pod's namespace")
    name: Name = Field(description="the pod's name")
    uid: Uid = Field(description="the pod's uid")
    cards: Annotated[tuple[LingeringCard, ...], Field(min_length=1, max_length=MAX_CARDS)] = Field(
        description="the cards that it was let start with", json_schema_extra=LIST_MAP_BY_UUID
    )

    @property
    def path(self) -> str:
        """NS/POD, as people write it."""
        return f"{self.namespace}/{self.name}"

    def fact(self) -> PodFact:
        """The same as a fact; cards in the order of their UUIDs."""
        cards = sorted(self.cards, key=lambda card: card.uuid)
        return PodFact(
            uid=self.uid,
            namespace=self.namespace,
            name=self.name,
            cards=tuple(CardFact(c.uuid, c.slots, c.memory_mib, c.cores, c.whole) for c in cards),
        )


Lingering = tuple[LingeringPod, ...]
"""All of one node, in the order of their uids."""
