"""Objects of which we use one thing: a Namespace's queue, a PriorityClass's value, whether a kind is defined."""

from dataclasses import dataclass

from pydantic import ValidationError

from vgpu import names
from vgpu.api.model import first_fault
from vgpu.controller.translate.partial import Condition, Metadata, Partial
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key

ESTABLISHED = "Established"


@dataclass(frozen=True, slots=True)
class NamespaceFact:
    """Just what we use of a Namespace. `queue` "" = it names none."""

    name: str
    queue: str = ""


@dataclass(frozen=True, slots=True)
class ClassFact:
    """Just what we use of a PriorityClass."""

    name: str
    priority: int


@dataclass(frozen=True, slots=True)
class DefinitionFact:
    """Just what we use of a CustomResourceDefinition."""

    name: str
    established: bool


class _AnyObject(Partial):
    metadata: Metadata


class _DefinitionStatus(Partial):
    conditions: list[Condition] | None = None


class _Definition(Partial):
    metadata: Metadata
    status: _DefinitionStatus | None = None


class _PriorityClass(Partial):
    metadata: Metadata
    value: int = 0


def decode_namespace(raw: bytes) -> Decoded[NamespaceFact]:
    """One Namespace. Raises MalformedObject."""
    try:
        metadata = _AnyObject.model_validate_json(raw).metadata
    except ValidationError as error:
        raise MalformedObject(f"Namespace: {first_fault(error)}") from error
    fact = NamespaceFact(metadata.name, (metadata.labels or {}).get(names.POLICY_QUEUE, ""))
    return Decoded(Key("", metadata.name, metadata.uid), metadata.resource_version, fact)


def decode_definition(raw: bytes) -> Decoded[DefinitionFact]:
    """One CustomResourceDefinition. Raises MalformedObject."""
    try:
        model = _Definition.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(f"CustomResourceDefinition: {first_fault(error)}") from error
    metadata, conditions = model.metadata, (model.status.conditions if model.status is not None else None) or ()
    established = any(c.type == ESTABLISHED and c.status == "True" for c in conditions)
    fact = DefinitionFact(metadata.name, established and metadata.deletion_timestamp is None)
    return Decoded(Key("", metadata.name, metadata.uid), metadata.resource_version, fact)


def decode_class(raw: bytes) -> Decoded[ClassFact]:
    """One PriorityClass. Raises MalformedObject."""
    try:
        model = _PriorityClass.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(f"PriorityClass: {first_fault(error)}") from error
    key = Key("", model.metadata.name, model.metadata.uid)
    return Decoded(key, model.metadata.resource_version, ClassFact(model.metadata.name, model.value))
