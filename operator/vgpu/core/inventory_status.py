"""What a node's inventory object says about its use: a NodeView in, one comparable value out.

Enters: core.views.NodeView. Leaves: InventoryStatus, in a fixed order, so that two equal views give equal
values and no write. May not live here: API field names, times (the shell adds lastTransitionTime), writes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vgpu.core.facts import InventoryFact
from vgpu.core.gate import allocatable_slots
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.views import CardView, Holder, HolderState, Lingerer, NodeView, core_capacity

READY = "Ready"
OVERBOOKED = "Overbooked"
ORPHANED_CARDS = "OrphanedCards"
SLOTS_MISMATCH = "SlotsMismatch"
PODS_LINGER = "PodsLinger"
SHOWN_NAMES = 3
"""Cards or pods that a message names before it says how many more there are."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: Ready, always; Overbooked, OrphanedCards, SlotsMismatch, PodsLinger while they are true."""

    type: str
    status: bool
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class HolderStatus:
    """One pod on one card."""

    namespace: str
    name: str
    uid: str
    slots: int
    memory_mib: int
    cores: int
    exclusive: bool
    state: HolderState


@dataclass(frozen=True, slots=True)
class CardStatus:
    """Use of one card. A card that a pod holds and the inventory no longer lists has no slots and no memory."""

    uuid: str
    used_slots: int
    used_memory_mib: int
    used_cores: int
    slots: int
    memory_mib: int
    cores: int
    overbooked: bool
    holders: tuple[HolderStatus, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the node's cards; capacity is that of healthy shared cards, use is that of all cards."""

    cards: int
    healthy_cards: int
    slots: int
    used_slots: int
    memory_mib: int
    used_memory_mib: int
    cores: int
    used_cores: int


@dataclass(frozen=True, slots=True)
class InventoryStatus:
    """Everything the operator writes into one inventory's status."""

    conditions: tuple[Condition, ...]
    totals: Totals
    cards: tuple[CardStatus, ...]


def inventory_status(view: NodeView) -> InventoryStatus:
    """The status that `view` calls for. Bookings not yet seen bound are left out: they may still fail."""
    cards = [_card_status(card) for card in sorted(view.cards, key=lambda c: (c.fact.index, c.fact.uuid))]
    orphans: dict[str, list[Holder]] = {}
    for orphan in view.orphans:
        orphans.setdefault(orphan.uuid, []).append(orphan.holder)
    cards += [_orphan_status(uuid, orphans[uuid]) for uuid in sorted(orphans)]
    return InventoryStatus(_conditions(view), _totals(view, cards), tuple(cards))


def _card_status(card: CardView) -> CardStatus:
    fact = card.fact
    held = _shown(card.holders)
    return CardStatus(
        fact.uuid, *_used(held), fact.slots, fact.memory_mib, core_capacity(fact), card.overbooked, held
    )


def _orphan_status(uuid: str, holders: Iterable[Holder]) -> CardStatus:
    held = _shown(holders)
    return CardStatus(uuid, *_used(held), slots=0, memory_mib=0, cores=0, overbooked=False, holders=held)


def _shown(holders: Iterable[Holder]) -> tuple[HolderStatus, ...]:
    shown = (_holder_status(holder) for holder in holders if holder.state is not HolderState.BOOKED)
    return tuple(sorted(shown, key=lambda h: (h.namespace, h.name, h.uid)))


def _used(held: Iterable[HolderStatus]) -> tuple[int, int, int]:
    """Slots, MiB and cores."""
    rows = list(held)
    return sum(h.slots for h in rows), sum(h.memory_mib for h in rows), sum(h.cores for h in rows)


def _holder_status(holder: Holder) -> HolderStatus:
    return HolderStatus(
        namespace=holder.namespace,
        name=holder.name,
        uid=holder.uid,
        slots=holder.slots,
        memory_mib=holder.memory_mib,
        cores=holder.cores,
        exclusive=holder.exclusive,
        state=holder.state,
    )


def _totals(view: NodeView, cards: Iterable[CardStatus]) -> Totals:
    facts = [card.fact for card in view.cards]
    usable = [card.fact for card in view.cards if card.usable]
    held = list(cards)
    return Totals(
        cards=len(facts),
        healthy_cards=sum(fact.healthy for fact in facts),
        slots=view.effective_slots,
        used_slots=sum(card.used_slots for card in held),
        memory_mib=sum(fact.memory_mib for fact in usable),
        used_memory_mib=sum(card.used_memory_mib for card in held),
        cores=sum(core_capacity(fact) for fact in usable),
        used_cores=sum(card.used_cores for card in held),
    )


def _conditions(view: NodeView) -> tuple[Condition, ...]:
    conditions = [_ready(view)]
    overbooked = [f"{card.fact.uuid} (held by {_pods(card.holders)})" for card in view.cards if card.overbooked]
    if overbooked:
        message = f"more is held than the card has: {_some(overbooked)}; nothing new is placed there"
        conditions.append(Condition(OVERBOOKED, True, Reason.OVERBOOKED, message))
    if view.orphans:
        by_card = {uuid: [o.holder for o in view.orphans if o.uuid == uuid] for uuid in _orphaned(view)}
        words = _some(f"{uuid} (held by {_pods(holders)})" for uuid, holders in by_card.items())
        message = f"pods hold cards that the node no longer lists: {words}"
        conditions.append(Condition(ORPHANED_CARDS, True, Reason.ORPHANED_CARDS, message))
    mismatch = _slots_mismatch(view)
    if mismatch:
        conditions.append(Condition(SLOTS_MISMATCH, True, Reason.SLOTS_MISMATCH, mismatch))
    if view.lingering:
        conditions.append(Condition(PODS_LINGER, True, Reason.PODS_LINGER, _linger_words(view.lingering)))
    return tuple(conditions)


def _linger_words(lingering: Iterable[Lingerer]) -> str:
    """Both sides are named: who is still there, and who cannot start because of it (R08)."""
    ordered = sorted(lingering, key=lambda entry: (entry.pod, entry.uid))
    gone = _some(f"{entry.pod} (uid {entry.uid}, on {_some(entry.uuids)})" for entry in ordered)
    waiting = sorted({pod for entry in ordered for pod in entry.kept_waiting})
    message = f"deleted from the API server, and still with processes on this node: {gone}; their cards stay taken"
    if waiting:
        message += f"; bound to these cards and waiting until they end: {_some(waiting)}"
    return f"{message}; if they stay, look at kubelet and the container runtime of the node, or end them by hand"


def _orphaned(view: NodeView) -> list[str]:
    return sorted({orphan.uuid for orphan in view.orphans})


def _slots_mismatch(view: NodeView) -> str:
    """What kubelet offers beside what the cards have; "" while they agree, or while the node is closed for it.

    A card that falls ill leaves kubelet's number seconds later: only more than all cards have counts as too much.
    """
    inventory = view.inventory
    if inventory is None or inventory.problem or inventory.read_error:
        return ""
    offered = allocatable_slots(view.node, inventory.slot_resource)
    usable = sum(card.fact.slots for card in view.cards if card.usable)
    most = sum(card.fact.slots for card in view.cards)
    if offered == 0 or usable <= offered <= most:
        return ""
    cause = (
        "another device plugin registers the same resource, or its slots per card are others than the agent's"
        if offered > most
        else "the device plugin offers fewer, or its list was cut off on the way to kubelet"
    )
    return (
        f"kubelet offers {offered} of {inventory.slot_resource}, the healthy cards have {usable} slots: {cause}; "
        "the lower number counts"
    )


def _ready(view: NodeView) -> Condition:
    facts = [card.fact for card in view.cards]
    sick = [card for card in view.cards if not card.fact.healthy]
    if view.closed is not None:
        return Condition(READY, False, view.closed.reason, _closed_words(view.closed, view.inventory))
    if facts and len(sick) == len(facts):
        message = f"none of {len(facts)} cards is healthy: {_sick_words(sick)}"
        return Condition(READY, False, Reason.CARDS_UNHEALTHY, message)
    if sick:
        message = f"{len(facts) - len(sick)} of {len(facts)} cards are healthy; not: {_sick_words(sick)}"
        return Condition(READY, True, Reason.READY, message)
    return Condition(READY, True, Reason.READY, f"all {len(facts)} cards are healthy")


def _closed_words(closed: Refusal, inventory: InventoryFact | None) -> str:
    """The gate's text is the same on all nodes; here, on the node's own object, it is said what is wrong."""
    if inventory is not None and closed.reason is Reason.INVENTORY_INVALID:
        return f"this object cannot be read: {inventory.problem}; the cards are those last read"
    if inventory is not None and closed.reason is Reason.READ_ERROR:
        return f"the agent could not read the cards: {inventory.read_error}"
    if inventory is not None and closed.reason is Reason.ISOLATION_ERROR:
        return f"containers could not be held to their share of a card: {inventory.isolation_error}"
    return closed.message


def _sick_words(cards: Iterable[CardView]) -> str:
    ordered = sorted(cards, key=lambda card: (card.fact.index, card.fact.uuid))
    return _some(f"{card.fact.uuid} ({_sickness(card)})" for card in ordered)


def _sickness(card: CardView) -> str:
    reason = card.fact.health_reason or "no reason given"
    pods = _pods(card.holders)
    return f"{reason}; held by {pods}" if pods else reason


def _pods(holders: Iterable[Holder]) -> str:
    """NS/POD of the holders that are seen bound, by name."""
    seen = {f"{h.namespace}/{h.name}" for h in holders if h.state is not HolderState.BOOKED}
    return _some(sorted(seen))


def _some(words: Iterable[str]) -> str:
    """The first few words, and how many more there are."""
    listed = list(words)
    rest = len(listed) - SHOWN_NAMES
    shown = ", ".join(listed[:SHOWN_NAMES])
    return f"{shown} and {rest} more" if rest > 0 else shown
