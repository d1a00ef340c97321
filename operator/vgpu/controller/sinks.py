"""Where the reflectors' facts go: the ledger, and beside it what only the shell needs to know.

Enters: facts and deletions of each watched kind. Leaves: calls of the ledger, and a poke of the consumer when one
changed anything. May not live here: decoding of pods and nodes, decisions.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from vgpu.api.inventory_status import InventoryStatus
from vgpu.controller.status import StatusPublisher
from vgpu.core.facts import InventoryFact, NodeFact, PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.roster import Roster
from vgpu.kube.objects import Decoded, Key

LOG = logging.getLogger(__name__)
Poke = Callable[[], None]


class Quarantine:
    """What every sink does with an object that cannot be read: it is named once, the others go on."""

    kind = ""

    def __init__(self) -> None:
        self._told: dict[Key, str] = {}

    def malformed(self, key: Key, message: str) -> None:
        """Name the object and its fault once; what was known of it stays."""
        if self._told.get(key) != message:
            self._told[key] = message
            LOG.warning("unreadable %s %s/%s: %s", self.kind, key.namespace, key.name, message)

    def synced(self) -> None:
        """Nothing more to do: readiness looks at the reflector itself."""

    def readable(self, key: Key) -> None:
        """The object can be read again, or is gone."""
        self._told.pop(key, None)


class NodeSink(Quarantine):
    """Nodes into the ledger."""

    kind = "Node"

    def __init__(self, ledger: Ledger, poke: Poke) -> None:
        super().__init__()
        self._ledger = ledger
        self._poke = poke

    def put(self, item: NodeFact) -> None:
        """A node is there, like this."""
        if self._ledger.put_node(item):
            self._poke()

    def drop(self, key: Key) -> None:
        """A node is gone."""
        self.readable(key)
        if self._ledger.drop_node(key.name, key.uid):
            self._poke()


class PodSink(Quarantine):
    """Pods into the ledger, which keeps only those that have to do with GPUs, and then into the roster."""

    kind = "Pod"

    def __init__(
        self,
        ledger: Ledger,
        poke: Poke,
        in_step: Callable[[], None] = lambda: None,
        roster: Roster | None = None,
    ) -> None:
        super().__init__()
        self._roster = roster
        self._ledger = ledger
        self._poke = poke
        self._in_step = in_step

    def synced(self) -> None:
        """The ledger is in step with a whole list: what only we ourselves know of is not in it."""
        self._in_step()

    def put(self, item: PodFact) -> None:
        """A pod is there, like this."""
        changed = self._ledger.put_pod(item)
        if self._roster is not None:
            self._roster.put_pod(item)
        if changed:
            self._poke()

    def drop(self, key: Key) -> None:
        """A pod is gone."""
        self.readable(key)
        changed = self._ledger.drop_pod(key.uid)
        if self._roster is not None:
            self._roster.drop_pod(key.uid)
        if changed:
            self._poke()


@dataclass(frozen=True, slots=True)
class SeenInventory:
    """An inventory as our watch shows it: the fact for the ledger, and the status that stands there."""

    fact: InventoryFact
    status: InventoryStatus


class _OnlyStatus(BaseModel):
    status: InventoryStatus = InventoryStatus()


def with_status(
    decode: Callable[[bytes], Decoded[InventoryFact]],
) -> Callable[[bytes], Decoded[SeenInventory]]:
    """`decode`, and the object's status beside its fact. A status that cannot be read counts as none."""

    def decode_both(raw: bytes) -> Decoded[SeenInventory]:
        decoded = decode(raw)
        try:
            status = _OnlyStatus.model_validate_json(raw).status
        except ValidationError:
            status = InventoryStatus()
        return Decoded(decoded.key, decoded.resource_version, SeenInventory(decoded.fact, status))

    return decode_both


class InventorySink(Quarantine):
    """Inventories into the ledger, their status to the publisher."""

    kind = "GpuNodeInventory"

    def __init__(
        self, ledger: Ledger, poke: Poke, publisher: StatusPublisher, roster: Roster | None = None
    ) -> None:
        super().__init__()
        self._roster = roster
        self._ledger = ledger
        self._poke = poke
        self._publisher = publisher

    def put(self, item: SeenInventory) -> None:
        """An inventory is there, like this."""
        if self._ledger.put_inventory(item.fact):
            self._cards_changed(item.fact.node)
        self._publisher.saw(item.fact.node, item.status)

    def drop(self, key: Key) -> None:
        """An inventory is gone."""
        self.readable(key)
        self._publisher.gone(key.name)
        if self._ledger.drop_inventory(key.name):
            self._cards_changed(key.name)

    def _cards_changed(self, node: str) -> None:
        if self._roster is not None:
            self._roster.cards_changed(node)
        self._poke()
