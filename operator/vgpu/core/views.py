"""The ledger's answer about one node: its cards, who holds them, and whether it takes anything new.

Values only, made by recounting a node; nothing here decides. Amounts are integers: slots, MiB, cores
(percent of one card).
"""

from dataclasses import dataclass, field
from enum import StrEnum

from vgpu.core.facts import CardFact, CardMode, InventoryFact, NodeFact
from vgpu.core.reasons import Refusal
from vgpu.units import CORES_PER_CARD


class HolderState(StrEnum):
    """How sure and how lasting a hold is. TERMINATING holders are leaving, and count until they are gone."""

    RUNNING = "running"
    TERMINATING = "terminating"
    LEGACY = "legacy"
    ORPHAN = "orphan"
    BOOKED = "booked"
    LINGERING = "lingering"
    """Gone from the API server, and not from the node: it counts as one that is being deleted does."""

    @property
    def leaving(self) -> bool:
        """True when the pod is being deleted, or was."""
        return self is HolderState.TERMINATING or self is HolderState.LINGERING


@dataclass(frozen=True, slots=True)
class Holder:
    """What one pod takes of one card: its containers' amounts already merged, so one holder per pod and card."""

    uid: str
    namespace: str
    name: str
    slots: int
    memory_mib: int
    cores: int
    exclusive: bool
    state: HolderState
    crowded: bool = False
    evicting: bool = False
    """A plan is to take its place. It counts in *later* all the same until it is leaving: plans may change."""

    @property
    def leaving(self) -> bool:
        """True when the pod is being deleted: it counts now, and no longer in *later*."""
        return self.state.leaving


@dataclass(frozen=True, slots=True)
class Orphan:
    """A holder of a card that the node's inventory does not list (or that has no inventory at present)."""

    uuid: str
    holder: Holder


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is held on one card for a pod that is not bound yet. Counts in *later* only, for everyone else."""

    uid: str
    uuid: str
    slots: int
    memory_mib: int
    cores: int
    exclusive: bool
    coreless: bool = False


@dataclass(frozen=True, slots=True)
class Awaiting:
    """A pod bound or booked here that kubelet has not admitted yet.

    `card_counts` are the card numbers of its containers; empty = not known.
    """

    uid: str
    pod: str
    card_counts: frozenset[int]


@dataclass(frozen=True, slots=True)
class Unassigned:
    """A live GPU pod bound here without a readable assignment. `blocks`: nobody can tell what it holds."""

    uid: str
    pod: str
    slots: int
    blocks: bool


@dataclass(frozen=True, slots=True)
class Lingerer:
    """A lingering pod that counts here, its cards, and the pods (NS/POD) that its processes keep from starting."""

    uid: str
    pod: str
    uuids: tuple[str, ...]
    kept_waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CardView:
    """One card of the inventory with its holders. `overbooked`: outside facts exceed it; it takes nothing."""

    fact: CardFact
    holders: tuple[Holder, ...] = ()
    used_slots: int = 0
    used_memory_mib: int = 0
    used_cores: int = 0
    exclusive: bool = False
    overbooked: bool = False

    @property
    def usable(self) -> bool:
        """True when the card may take assignments at all: healthy and shared."""
        return self.fact.healthy and self.fact.mode is CardMode.SHARED

    @property
    def free_slots(self) -> int:
        """Slots still free, 0 when a holder is alone on the card."""
        return 0 if self.exclusive else max(0, self.fact.slots - self.used_slots)

    @property
    def free_memory_mib(self) -> int:
        """MiB still free, 0 when a holder is alone on the card."""
        return 0 if self.exclusive else max(0, self.fact.memory_mib - self.used_memory_mib)

    @property
    def free_cores(self) -> int:
        """Core percent still free, 0 when a holder is alone on the card."""
        return 0 if self.exclusive else max(0, core_capacity(self.fact) - self.used_cores)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as decisions see it. `closed` is the node gate's answer: None = it takes new assignments.

    `effective_slots` is the lower of what the inventory and kubelet's allocatable offer. `generation` is the
    ledger version of the last change that can alter a verdict here; it is no part of equality.
    """

    name: str
    node: NodeFact | None = None
    inventory: InventoryFact | None = None
    cards: tuple[CardView, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    closed: Refusal | None = None
    used_slots: int = 0
    effective_slots: int = 0
    leaving_slots: int = 0
    awaiting: tuple[Awaiting, ...] = ()
    unassigned: tuple[Unassigned, ...] = ()
    lingering: tuple[Lingerer, ...] = ()
    generation: int = field(default=0, compare=False)

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """NS/POD of the pods that are bound or booked here and not admitted yet."""
        return tuple(entry.pod for entry in self.awaiting)

    @property
    def free_slots(self) -> int:
        """Slots that the node can still give out."""
        return max(0, self.effective_slots - self.used_slots)

    def card(self, uuid: str) -> CardView | None:
        """The card of this UUID, or None."""
        return next((card for card in self.cards if card.fact.uuid == uuid), None)


def core_capacity(card: CardFact) -> int:
    """Cores that may be booked on the card: never more than 100, whatever the inventory states (I1)."""
    return min(card.cores, CORES_PER_CARD)


def frees_capacity(before: NodeView | None, after: NodeView | None) -> bool:
    """True when something may fit on the node now that did not fit before."""
    if after is None or after.closed is not None:
        return False
    if before is None or before.closed is not None:
        return True
    if after.free_slots > before.free_slots or _facts_differ(before, after):
        return True
    if set(before.awaiting) - set(after.awaiting) or set(before.reservations) - set(after.reservations):
        return True
    if after.reservations and after.leaving_slots > before.leaving_slots:
        return True
    return any(_card_frees(old, new) for old, new in zip(before.cards, after.cards, strict=True))


def _facts_differ(before: NodeView, after: NodeView) -> bool:
    return [c.fact for c in before.cards] != [c.fact for c in after.cards] or before.inventory != after.inventory


def _card_frees(before: CardView, after: CardView) -> bool:
    if before.overbooked and not after.overbooked:
        return True
    return (
        after.free_slots > before.free_slots
        or after.free_memory_mib > before.free_memory_mib
        or after.free_cores > before.free_cores
        or (bool(before.holders) and not after.holders)
    )
