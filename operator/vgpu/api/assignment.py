"""The annotation vgpu.dev/assignment: which cards a pod's containers hold (architecture.md 3, Pods).

Its text enters, a checked model leaves, and the other way round. Whether the assignment belongs to the pod
that carries it, and the kind of each container, is decided where the pod is known.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, Strict, ValidationError, field_validator

from vgpu import names
from vgpu.api.model import MAX_MEMORY_MIB, ApiModel, CardUuid, Flag, Name, Uid, first_fault, read_json
from vgpu.core.facts import AssignedContainer
from vgpu.errors import MalformedObject
from vgpu.units import CORES_PER_CARD

ASSIGNMENT_LIMIT_BYTES = 256 * 1024
"""What the API server allows for all annotations of one object."""


class AssignedCardModel(ApiModel):
    """One card of one container. `whole`: nobody else may be on the card."""

    uuid: CardUuid
    memory_mib: Annotated[int, Strict(), Field(ge=1, le=MAX_MEMORY_MIB)]
    cores: Annotated[int, Strict(), Field(ge=0, le=CORES_PER_CARD)]
    whole: Flag


class AssignedContainerModel(ApiModel):
    """One container with its distinct cards."""

    name: Name
    cards: Annotated[tuple[AssignedCardModel, ...], Field(min_length=1)]

    @field_validator("cards")
    @classmethod
    def _cards_are_distinct(cls, cards: tuple[AssignedCardModel, ...]) -> tuple[AssignedCardModel, ...]:
        _no_repeats([card.uuid for card in cards], "card")
        return cards


class AssignmentModel(ApiModel):
    """The whole annotation: init containers first, spec order, only containers with cards."""

    v: Literal[1]
    pod_uid: Uid
    node: Name
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    containers: Annotated[tuple[AssignedContainerModel, ...], Field(min_length=1)]

    @field_validator("containers")
    @classmethod
    def _names_are_distinct(
        cls, containers: tuple[AssignedContainerModel, ...]
    ) -> tuple[AssignedContainerModel, ...]:
        _no_repeats([container.name for container in containers], "container")
        return containers

    def encode(self) -> str:
        """The one canonical text. Raises MalformedObject when it is longer than an object may carry."""
        text = json.dumps(self.model_dump(mode="json", by_alias=True), separators=(",", ":"))
        _check_size(text)
        return text


def parse_assignment(text: str) -> AssignmentModel:
    """Read the annotation's text. Raises MalformedObject that names the first wrong field."""
    _check_size(text)
    return read_json(AssignmentModel, text, names.ASSIGNMENT_ANNOTATION)


def assignment_of(
    *, pod_uid: str, node: str, nonce: str, containers: Sequence[AssignedContainer]
) -> AssignmentModel:
    """The assignment of a placement. Raises MalformedObject if it breaks the annotation's own rules."""
    rows = [
        {
            "name": container.name,
            "cards": [
                {"uuid": c.uuid, "memoryMiB": c.memory_mib, "cores": c.cores, "whole": c.whole}
                for c in container.cards
            ],
        }
        for container in containers
    ]
    document = {"v": 1, "podUid": pod_uid, "node": node, "nonce": nonce, "containers": rows}
    try:
        return AssignmentModel.model_validate(document)
    except ValidationError as error:
        raise MalformedObject(f"{names.ASSIGNMENT_ANNOTATION}: {first_fault(error)}") from error


def _no_repeats(values: Sequence[str], noun: str) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"the {noun} {value} is named twice")
        seen.add(value)


def _check_size(text: str) -> None:
    size = len(text.encode(errors="surrogatepass"))
    if size > ASSIGNMENT_LIMIT_BYTES:
        raise MalformedObject(
            f"{names.ASSIGNMENT_ANNOTATION}: {size} bytes, at most {ASSIGNMENT_LIMIT_BYTES} fit into an object"
        )
