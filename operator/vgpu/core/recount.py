"""Recounts one node: `holds = f(inventory, pods)`, as a function of this node's facts alone.

Enters: NodeFacts (everything the ledger knows of one node). Leaves: a NodeView. No state, no history: equal
facts give equal views, which is what makes a view kept from events equal one built from a list (I5).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from vgpu.core.charge import card_charges
from vgpu.core.facts import CardFact, Identity, InventoryFact, NodeFact, PodFact
from vgpu.core.gate import GateFacts, GateLimits, allocatable_slots, node_closed
from vgpu.core.hold import Hold, hold_of_lingering
from vgpu.core.placement import Placement
from vgpu.core.reasons import Refusal
from vgpu.core.views import (
    Awaiting,
    CardView,
    Holder,
    HolderState,
    Lingerer,
    NodeView,
    Orphan,
    Reservation,
    Unassigned,
    core_capacity,
)

INDEX_PREFIX = "index:"
"""A legacy assignment names a card by NVML index in this form."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All that is known of one node. `pods` are live and bound here, `assigned` what those hold that have an
    assignment; `booked` are not shown bound yet. `evicted`: uids whose eviction was accepted; `displaced`: uids
    whose place a plan is to take."""

    name: str
    node: NodeFact | None
    inventory: InventoryFact | None
    pods: tuple[PodFact, ...]
    assigned: tuple[Hold, ...]
    booked: tuple[Hold, ...]
    reservations: tuple[Reservation, ...]
    agents_ready: tuple[bool, ...]
    refused_in_a_row: int
    limits: GateLimits
    evicted: frozenset[str] = frozenset()
    displaced: frozenset[str] = frozenset()


def recount(facts: NodeFacts, generation: int) -> NodeView:
    """The node's view; `generation` is the ledger version that it stands for."""
    booked_uids = {hold.uid for hold in facts.booked}
    assigned = [hold for hold in facts.assigned if hold.uid not in booked_uids]
    holds = sorted([*assigned, *facts.booked], key=lambda hold: hold.uid)
    if facts.evicted or facts.displaced:
        holds = [_as_leaving(hold, facts) for hold in holds]
    lingering = _lingering(facts, booked_uids)
    holds += lingering
    unassigned = _unassigned(facts, booked_uids)
    awaiting = _awaiting(facts, holds, booked_uids)
    by_uuid, leaving_slots, used_slots = _charge_cards(holds, facts.inventory)
    used_slots += sum(entry.slots for entry in unassigned)
    listed = _listed_cards(facts.inventory)
    cards = tuple(_card_view(fact, by_uuid.pop(uuid, [])) for uuid, fact in listed.items())
    orphans = tuple(_orphan(uuid, holder) for uuid in sorted(by_uuid) for holder in by_uuid[uuid])
    return NodeView(
        name=facts.name,
        node=facts.node,
        inventory=facts.inventory,
        cards=cards,
        orphans=orphans,
        reservations=facts.reservations,
        closed=_gate(facts, awaiting, unassigned),
        used_slots=used_slots,
        effective_slots=_effective_slots(facts, cards, orphans),
        leaving_slots=leaving_slots,
        awaiting=awaiting,
        unassigned=unassigned,
        lingering=tuple(_lingerer(hold, cards, facts.pods) for hold in lingering),
        generation=generation,
    )


def _as_leaving(hold: Hold, facts: NodeFacts) -> Hold:
    """The hold with its marks: an accepted eviction is a deletion that no event has shown yet."""
    state = HolderState.TERMINATING if hold.uid in facts.evicted else hold.state
    evicting = hold.uid in facts.displaced
    if state is hold.state and not evicting:
        return hold
    holders = tuple((named, replace(h, state=state, evicting=evicting)) for named, h in hold.holders)
    return replace(hold, state=state, holders=holders)


def reservations_of(held: Iterable[tuple[str, Placement]]) -> tuple[Reservation, ...]:
    """What these (uid, placement), which are not bound yet, hold in *later*, per card."""
    return tuple(
        Reservation(uid, uuid, c.slots, c.memory_mib, c.cores, c.exclusive, c.coreless)
        for uid, placement in held
        for uuid, c in card_charges(placement.containers).items()
    )


def _lingering(facts: NodeFacts, booked_uids: set[str]) -> list[Hold]:
    """What the agent says of pods that are gone from the API. One that is known here counts by itself, never
    twice (I3): its deletion, or the agent's word that it is back, is only on its way."""
    told = facts.inventory.lingering if facts.inventory else ()
    known = booked_uids.union(pod.uid for pod in facts.pods)
    return [hold_of_lingering(pod) for pod in told if pod.uid not in known]


def _lingerer(hold: Hold, cards: Iterable[CardView], pods: Iterable[PodFact]) -> Lingerer:
    """Kept waiting is who is bound to a card of it that has no room for both, and has not run yet."""
    uuids = tuple(uuid for uuid, _ in hold.holders)
    crowded = {h.uid for card in cards if card.overbooked and card.fact.uuid in uuids for h in card.holders}
    waiting = {f"{pod.namespace}/{pod.name}" for pod in pods if pod.uid in crowded and not pod.ever_ran}
    return Lingerer(hold.uid, hold.pod, uuids, tuple(sorted(waiting)))


def _charge_cards(
    holds: Iterable[Hold], inventory: InventoryFact | None
) -> tuple[dict[str, list[Holder]], int, int]:
    """Holders by card uuid, slots of leaving pods, slots of all pods."""
    by_index = {card.index: card.uuid for card in inventory.cards} if inventory else {}
    by_uuid: dict[str, list[Holder]] = defaultdict(list)
    leaving = used = 0
    for hold in holds:
        used += hold.slots
        leaving += hold.slots if hold.state.leaving else 0
        for named, holder in hold.holders:
            by_uuid[_resolve(named, by_index)].append(holder)
    return by_uuid, leaving, used


def _resolve(named: str, by_index: Mapping[int, str]) -> str:
    if not named.startswith(INDEX_PREFIX):
        return named
    digits = named.removeprefix(INDEX_PREFIX)
    return by_index.get(int(digits), named) if digits.isdecimal() else named


def _orphan(uuid: str, holder: Holder) -> Orphan:
    return Orphan(uuid, holder if holder.leaving else replace(holder, state=HolderState.ORPHAN))


def _listed_cards(inventory: InventoryFact | None) -> dict[str, CardFact]:
    return {card.uuid: card for card in inventory.cards} if inventory else {}


def _card_view(fact: CardFact, holders: list[Holder]) -> CardView:
    if not holders:
        return CardView(fact)
    slots = sum(holder.slots for holder in holders)
    # An exclusive holder without a stated amount (old formats) has the card's memory whole.
    memory_mib = sum(h.memory_mib or (fact.memory_mib if h.exclusive else 0) for h in holders)
    cores = sum(holder.cores for holder in holders)
    exclusive = any(holder.exclusive for holder in holders)
    overbooked = (
        slots > fact.slots
        or memory_mib > fact.memory_mib
        or cores > core_capacity(fact)
        or (exclusive and len(holders) > 1)
        or any(holder.crowded for holder in holders)
    )
    return CardView(fact, tuple(holders), slots, memory_mib, cores, exclusive, overbooked)


def _unassigned(facts: NodeFacts, booked_uids: set[str]) -> tuple[Unassigned, ...]:
    exact = facts.inventory is None or facts.inventory.identity is Identity.EXACT
    found = [
        _unassigned_pod(pod, facts, exact=exact)
        for pod in facts.pods
        if pod.wants_gpus and pod.assignment is None and pod.uid not in booked_uids
    ]
    return tuple(sorted(found, key=lambda entry: entry.uid))


def _unassigned_pod(pod: PodFact, facts: NodeFacts, *, exact: bool) -> Unassigned:
    path = f"{pod.namespace}/{pod.name}"
    if _got_nothing(pod, facts):
        return Unassigned(pod.uid, path, slots=0, blocks=False)
    blocks = pod.ever_ran or pod.daemonset_or_mirror or not exact or _served_by_others(pod)
    return Unassigned(pod.uid, path, pod.request.slots if pod.request else 0, blocks)


def _got_nothing(pod: PodFact, facts: NodeFacts) -> bool:
    """It asks for slots that no plugin ever offered on this node. kubelet lets such a pod run, with no card: it
    leaves out of its admission what its node does not list. A plugin that went leaves 0 there, not nothing. Who
    carries an assignment, even an unreadable one, was given something by somebody."""
    if pod.request is None or pod.assignment_problem or facts.node is None or facts.inventory is None:
        return False
    asked = pod.request.slot_resource
    return asked != facts.inventory.slot_resource and asked not in dict(facts.node.slots_allocatable)


def _served_by_others(pod: PodFact) -> bool:
    """It asks for nothing of ours: no PreStart of our plugin holds its containers back until it has cards."""
    return pod.request is None and pod.refusal is None


def _awaiting(facts: NodeFacts, holds: Iterable[Hold], booked_uids: set[str]) -> tuple[Awaiting, ...]:
    found = [Awaiting(hold.uid, hold.pod, hold.card_counts) for hold in holds if not hold.admitted]
    for pod in facts.pods:
        if pod.wants_gpus and not pod.admitted and pod.assignment is None and pod.uid not in booked_uids:
            counts = frozenset(c.number for c in pod.request.containers) if pod.request else frozenset()
            found.append(Awaiting(pod.uid, f"{pod.namespace}/{pod.name}", counts))
    return tuple(sorted(found, key=lambda entry: entry.uid))


def _gate(facts: NodeFacts, awaiting: tuple[Awaiting, ...], unassigned: tuple[Unassigned, ...]) -> Refusal | None:
    return node_closed(
        GateFacts(
            node=facts.node,
            inventory=facts.inventory,
            agent_ready=any(facts.agents_ready) if facts.agents_ready else None,
            unadmitted=len(awaiting),
            refused_in_a_row=facts.refused_in_a_row,
            unknown_holders=tuple(entry.pod for entry in unassigned if entry.blocks),
            limits=facts.limits,
        )
    )


def _effective_slots(facts: NodeFacts, cards: tuple[CardView, ...], orphans: tuple[Orphan, ...]) -> int:
    """The lower of inventory and allocatable.

    Slots that are held on cards which take nothing (lost, unhealthy) are used and not offered; without adding
    them on the inventory's side they would be taken from the healthy cards' slots a second time.
    """
    if facts.inventory is None:
        return 0
    offered = sum(card.fact.slots for card in cards if card.usable)
    held_elsewhere = sum(card.used_slots for card in cards if not card.usable)
    held_elsewhere += sum(orphan.holder.slots for orphan in orphans)
    return min(offered + held_elsewhere, allocatable_slots(facts.node, facts.inventory.slot_resource))
