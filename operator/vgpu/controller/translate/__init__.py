"""Kubernetes' JSON -> facts: the only package that knows it. Bytes of one object enter, a Decoded fact leaves.

An object that is no such object at all (no JSON, no name) raises MalformedObject, which the reflector hands to
its sink; everything smaller is quarantined inside the fact. May not decide, log or write anything.
"""

from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError

from vgpu.api.model import first_fault
from vgpu.controller.translate.inventory import inventory_fact, quarantined
from vgpu.controller.translate.node import node_fact
from vgpu.controller.translate.partial import InventoryModel, Metadata, NodeModel, Partial, PodModel
from vgpu.controller.translate.pod import PodReading, pod_fact
from vgpu.core.facts import InventoryFact, NodeFact, PodFact
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key
from vgpu.settings import OperatorSettings

__all__ = ["Translator", "inventory_fact", "node_fact", "pod_fact"]

ModelT = TypeVar("ModelT", bound=Partial)


class _OnlyMetadata(Partial):
    metadata: Metadata


class Translator:
    """The decoders of the watched kinds; `previous_inventory` gives the ledger's fact of a node or None."""

    def __init__(
        self, settings: OperatorSettings, previous_inventory: Callable[[str], InventoryFact | None]
    ) -> None:
        self._reading = PodReading.of(settings)
        self._previous_inventory = previous_inventory
        self._last_asked: tuple[tuple[str, str], PodFact] | None = None

    def decode_node(self, raw: bytes) -> Decoded[NodeFact]:
        """One Node. Raises MalformedObject."""
        model = _parse(NodeModel, raw)
        return _decoded(model.metadata, node_fact(model))

    def decode_pod(self, raw: bytes) -> Decoded[PodFact]:
        """One Pod. Raises MalformedObject."""
        model = _parse(PodModel, raw)
        return _decoded(model.metadata, pod_fact(model, self._reading))

    def pod_fact(self, model: PodModel) -> PodFact:
        """The fact of a Pod that is already parsed. kube-scheduler sends one and the same to filter and then to
        prioritize: it is worked out once."""
        version = (model.metadata.uid, model.metadata.resource_version)
        if self._last_asked is None or self._last_asked[0] != version or not all(version):
            self._last_asked = (version, pod_fact(model, self._reading))
        return self._last_asked[1]

    def decode_inventory(self, raw: bytes) -> Decoded[InventoryFact]:
        """One GpuNodeInventory; a spec of the wrong shape closes its node and keeps the last cards.

        Raises MalformedObject only where not even metadata can be read.
        """
        try:
            model = InventoryModel.model_validate_json(raw)
        except ValidationError as error:
            metadata = _parse(_OnlyMetadata, raw).metadata
            previous = self._previous_inventory(metadata.name)
            return _decoded(metadata, quarantined(metadata.name, previous, first_fault(error)))
        return _decoded(model.metadata, inventory_fact(model, self._previous_inventory(model.metadata.name)))


FactT = TypeVar("FactT")


def _decoded(metadata: Metadata, fact: FactT) -> Decoded[FactT]:
    key = Key(metadata.namespace, metadata.name, metadata.uid)
    return Decoded(key, metadata.resource_version, fact)


def _parse(model: type[ModelT], raw: bytes) -> ModelT:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(f"{model.__name__}: {first_fault(error)}") from error
