"""The ground of all API models: camelCase names on the wire, integers that are integers, errors with a path.

JSON text enters, frozen models leave, and the other way round. Readers skip fields that they do not know, so
that a newer writer does not blind an older reader; what we write is checked when the model is made.
No rule of any one kind may live here.
"""

import re
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic.alias_generators import to_camel

from vgpu.errors import MalformedObject
from vgpu.units import MAX_COUNT

MAX_MEMORY_MIB = 2**31 - 1
MAX_CARDS = 64
MAX_TEXT = 1024
LONGEST_NAME = 253
LONGEST_UID = 128
LIST_MAP_BY_UUID: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uuid"]}

LIST_MAP_BY_TYPE: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}

ModelT = TypeVar("ModelT", bound=BaseModel)
Integer = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, le=MAX_COUNT)]
"""Wide enough for sums: each amount of a card is bounded where it is read, what all pods hold together is not."""
MemoryMib = Annotated[int, Strict(), Field(ge=0, le=MAX_MEMORY_MIB)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Uid = Annotated[str, Field(min_length=1, max_length=LONGEST_UID)]
CARD_UUID = r"^[A-Za-z0-9._/-]+$"
"""NVML's `GPU-...`, `MIG-...` and the older `MIG-GPU-.../1/2`. In texts and variables that list cards, commas,
colons and spaces part one card from the next."""
CARD_UUID_MESSAGE = "a card's UUID has only letters, digits, dots, underscores, slashes and dashes"


def _like_a_uuid(text: str) -> str:
    if not re.fullmatch(CARD_UUID, text):
        raise ValueError(CARD_UUID_MESSAGE)
    return text


CardUuid = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_like_a_uuid)]


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """CEL rules for a schema: (expression, message that the API server gives) each."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


def wire_name(field_name: str) -> str:
    """`used_memory_mib` is `usedMemoryMiB` on the wire."""
    return to_camel(field_name).replace("Mib", "MiB")


class ApiModel(BaseModel):
    """A part of one of our objects. Made in Python by field name, read from JSON by wire name."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        ser_json_inf_nan="null",
    )

    def dump(self) -> dict[str, Any]:
        """The object as JSON values with wire names; what equals its default is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


class Metadata(ApiModel):
    """The part of an object's metadata that we read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""


def read_json(model: type[ModelT], text: str | bytes, what: str) -> ModelT:
    """Read `text` as `model`. Raises MalformedObject: what was read, the first wrong field, what was expected."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise MalformedObject(f"{what}: {first_fault(error)}") from error


def first_fault(error: ValidationError) -> str:
    """`containers[0].cards[1].memoryMiB: Input should be ...`: the first fault alone."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    path = ""
    for part in faults[0]["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{path.lstrip('.') or 'document'}: {faults[0]['msg']}"
