"""The JSON of kube-scheduler's extender calls (facts: kube-scheduler/extender/v1). Bytes in, models out, and back.

Go's structs have no JSON tags, so names are capitalised; other spellings are taken too. May not live here: HTTP,
decisions.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel, to_pascal
from pydantic_core import to_json

from vgpu.api.model import first_fault
from vgpu.controller.translate.partial import PodModel
from vgpu.core.filtering import FilterAnswer
from vgpu.errors import MalformedObject

MAX_BODY_BYTES = 16 * 2**20
"""5,000 names are 0.2 MB. Callers that send whole Node objects reach this; nodeCacheCapable: true avoids it."""
MAX_FAULT_CHARACTERS = 500

ModelT = TypeVar("ModelT", bound=BaseModel)
_DNS_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
# These go into paths of API requests.
ObjectName = Annotated[str, Field(pattern=_DNS_NAME, max_length=253)]
PodUid = Annotated[str, Field(min_length=1, max_length=128)]


def _spellings(field: str) -> AliasChoices:
    pascal = to_pascal(field)
    return AliasChoices(pascal, to_camel(field), pascal.lower(), field)


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", alias_generator=AliasGenerator(validation_alias=_spellings))


class NodeItems(BaseModel):
    """A NodeList; the items are given back as they came."""

    items: list[dict[str, Any]] | None = None


class ExtenderArgs(_Wire):
    """filter and prioritize: a pod, and names (nodeCacheCapable) or whole nodes."""

    pod: PodModel
    node_names: list[str] | None = None
    nodes: NodeItems | None = None

    def node_items(self) -> dict[str, dict[str, Any]]:
        """Whole nodes by name; those without a name are left out. Empty for callers that send names."""
        items = (self.nodes.items if self.nodes else None) or ()
        named = ((_node_name(item), item) for item in items)
        return {name: item for name, item in named if name}


class BindArgs(_Wire):
    """bind: which pod to which node."""

    model_config = ConfigDict(frozen=True)

    pod_name: ObjectName
    pod_namespace: ObjectName
    pod_uid: Annotated[PodUid, Field(validation_alias=AliasChoices("PodUID", "podUID", "poduid", "podUid"))]
    node: ObjectName


class VictimUid(BaseModel):
    uid: PodUid = Field(validation_alias=AliasChoices("UID", "uid"))


class MetaVictims(BaseModel):
    """Victims by uid, as a nodeCacheCapable caller sends them."""

    pods: list[VictimUid] | None = Field(None, validation_alias=AliasChoices("Pods", "pods"))
    pdb_violations: int = Field(0, validation_alias=AliasChoices("NumPDBViolations", "numPDBViolations"))


class Victims(BaseModel):
    """Victims as whole pods."""

    pods: list[PodModel] | None = Field(None, validation_alias=AliasChoices("Pods", "pods"))
    pdb_violations: int = Field(0, validation_alias=AliasChoices("NumPDBViolations", "numPDBViolations"))


class PreemptArgs(_Wire):
    """preempt: a pod, and the victims that in-tree preemption proposes per node."""

    pod: PodModel
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None
    node_name_to_victims: dict[str, Victims] | None = None

    def victim_uids(self) -> dict[str, list[str]]:
        """Uids per node, whichever form was sent."""
        if self.node_name_to_meta_victims is not None:
            return {n: [p.uid for p in v.pods or ()] for n, v in self.node_name_to_meta_victims.items()}
        return {n: [p.metadata.uid for p in v.pods or ()] for n, v in (self.node_name_to_victims or {}).items()}

    def pdb_violations(self, node: str) -> int:
        """What the caller counted for `node`."""
        sent: Mapping[str, MetaVictims | Victims] = (
            self.node_name_to_meta_victims or self.node_name_to_victims or {}
        )
        return sent[node].pdb_violations if node in sent else 0


def read(model: type[ModelT], body: bytes) -> ModelT:
    """Parse a request. Raises MalformedObject with the first wrong field, at most 500 characters."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise MalformedObject(f"{model.__name__}: {first_fault(error)}"[:MAX_FAULT_CHARACTERS]) from error


def filter_result(answer: FilterAnswer, items: Mapping[str, Any] | None) -> bytes:
    """ExtenderFilterResult; with `items` (whole nodes by name) it is answered in kind."""
    nodes = None if items is None else {"items": [items[name] for name in answer.nodes]}
    return to_json(
        {
            "Nodes": nodes,
            "NodeNames": answer.nodes if items is None else None,
            "FailedNodes": answer.failed,
            "FailedAndUnresolvableNodes": answer.unresolvable,
            "Error": "",
        }
    )


def priorities(scores: Mapping[str, int]) -> bytes:
    """HostPriorityList."""
    return to_json([{"Host": host, "Score": score} for host, score in scores.items()])


def preempt_result(kept: Mapping[str, list[str]], args: PreemptArgs) -> bytes:
    """ExtenderPreemptionResult; an empty map says that no node is a candidate."""
    victims = {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": args.pdb_violations(node)}
        for node, uids in kept.items()
    }
    return to_json({"NodeNameToMetaVictims": victims})


def error_result(message: str) -> bytes:
    """ExtenderBindingResult, and the error of any other verb; "" = success."""
    return to_json({"Error": message})


def _node_name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
