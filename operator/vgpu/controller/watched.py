"""What every replica watches beside queues and plans: nodes, pods, inventories.

Enters: decoders and sinks. Leaves: a reflector for each kind. May not live here: what an object means.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from vgpu import names
from vgpu.controller.sinks import InventorySink, NodeSink, PodSink, with_status
from vgpu.controller.status import StatusPublisher
from vgpu.controller.translate import Translator
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.roster import Roster
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Decoded
from vgpu.kube.reflector import Reflector, ReflectorSpec, Sink
from vgpu.settings import OperatorSettings

FactT = TypeVar("FactT")
PATHS = {
    "nodes": "/api/v1/nodes",
    # All pods: one that fails or ends must be seen to do so (a refused admission counts against its node, a
    # container may outlive its pod's phase), and a field selector would hide just that. Only pods that have to do
    # with GPUs are kept.
    "pods": "/api/v1/pods",
    "inventories": f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}",
}


@dataclass(frozen=True, slots=True)
class WatchParts:
    """What the watches feed. `poke`: the ledger was changed; `in_step`: it agrees with a whole list of pods."""

    client: ApiClient
    settings: OperatorSettings
    ledger: Ledger
    roster: Roster
    translator: Translator
    status: StatusPublisher
    poke: Callable[[], None]
    in_step: Callable[[], None]


def ledger_reflectors(parts: WatchParts) -> dict[str, Reflector[Any]]:
    """A reflector for each kind, by its name."""
    ledger, poke, translator = parts.ledger, parts.poke, parts.translator
    inventories = InventorySink(ledger, poke, parts.status, parts.roster)
    pods = PodSink(ledger, poke, parts.in_step, parts.roster)
    return {
        "nodes": _reflector(parts, "nodes", translator.decode_node, NodeSink(ledger, poke)),
        "pods": _reflector(parts, "pods", translator.decode_pod, pods),
        "inventories": _reflector(parts, "inventories", with_status(translator.decode_inventory), inventories),
    }


def _reflector(
    parts: WatchParts, kind: str, decode: Callable[[bytes], Decoded[FactT]], sink: Sink[FactT]
) -> Reflector[FactT]:
    settings = parts.settings
    spec = ReflectorSpec(
        PATHS[kind], page_size=settings.list_page_size, silence_seconds=settings.watch_silence_seconds
    )
    return Reflector(parts.client, spec, decode, sink)
