"""The agent's own inventory as its watch shows it: bytes of one object enter, a SeenInventory leaves.

Only what a comparison needs is read. An object whose spec cannot be read is still seen: its `spec` is None, so
that it counts as different from anything wanted and is healed.
"""

from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from vgpu.api.inventory import InventorySpec
from vgpu.api.model import ApiModel, read_json
from vgpu.kube.objects import Decoded, Key


@dataclass(frozen=True, slots=True)
class SeenInventory:
    """What the API server holds. `owner_uid` is the uid of the Node that owns it, "" without such an owner."""

    name: str
    uid: str
    owner_uid: str
    spec: InventorySpec | None


class _Owner(ApiModel):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Metadata(ApiModel):
    name: str
    uid: str
    resource_version: str = ""
    owner_references: tuple[_Owner, ...] = ()


class _Envelope(ApiModel):
    metadata: _Metadata


class _Body(BaseModel):
    spec: InventorySpec


class _NodeMetadata(ApiModel):
    uid: str
    labels: dict[str, str] = Field(default_factory=dict)


class NodeHead(ApiModel):
    """What the agent reads of its Node."""

    metadata: _NodeMetadata


def decode_seen(raw: bytes) -> Decoded[SeenInventory]:
    """Read one inventory. Raises MalformedObject when not even its name and uid can be read."""
    metadata = read_json(_Envelope, raw, "GpuNodeInventory").metadata
    try:
        spec = _Body.model_validate_json(raw).spec
    except ValidationError:
        spec = None
    owners = [owner for owner in metadata.owner_references if owner.kind == "Node"]
    owner_uid = next((owner.uid for owner in owners if owner.name == metadata.name), "")
    seen = SeenInventory(metadata.name, metadata.uid, owner_uid, spec)
    return Decoded(Key("", metadata.name, metadata.uid), metadata.resource_version, seen)
