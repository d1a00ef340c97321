"""What must go from a card, and from the node as a whole, before so many containers can live there.

Enters: a NodeProblem. Leaves: rows, each of which says how much of one dimension has to be given free and what
every unit would give. The same rules as core.fit, turned from "does it fit" into "how much is missing"
(preemption.md 4.4, steps 1 and 2). Which units are taken is not decided here.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpu.core.charge import phases
from vgpu.core.facts import CardFact
from vgpu.core.fit import unselected
from vgpu.core.gate import allocatable_slots
from vgpu.core.preempt.problem import NodeProblem, Unit, held_mib, offered_slots
from vgpu.core.request import CardRequest, ContainerKind
from vgpu.core.score import chain_for
from vgpu.core.views import CardView, Holder, Reservation, core_capacity
from vgpu.units import CORES_PER_CARD

NODE = -1
"""The place of rows that concern the node as a whole."""

Loads = tuple[int, ...]
"""How many copies of each container live on one card."""


@dataclass(frozen=True, slots=True)
class Row:
    """`need` of one dimension has to go from `place` (a card's position, or NODE); `gains`: (unit, amount)."""

    place: int
    need: int
    gains: tuple[tuple[int, int], ...]


Rows = tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """What holders that stay may have of a card."""

    slots: int
    memory_mib: int
    cores: int

    def tighter(self, other: "Room") -> "Room":
        """The lower of the two in everything."""
        return Room(
            min(self.slots, other.slots), min(self.memory_mib, other.memory_mib), min(self.cores, other.cores)
        )


EMPTY = Room(0, 2**62, 2**62)
"""Everyone else has to go: nobody holds less than a slot."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """What is held for others on one card. `alone`: one of them wants it alone; `coreless`: one without cores."""

    slots: int = 0
    memory_mib: int = 0
    cores: int = 0
    alone: bool = False
    coreless: bool = False


UNRESERVED = Reserved()


@dataclass(frozen=True, slots=True)
class _Card:
    """One card that the pod may use: what stays on it if nothing is evicted, and what each unit gives free."""

    view: CardView
    slots: int
    memory_mib: int
    cores: int
    gains: Mapping[int, list[int]]
    """Per unit: slots, MiB, cores."""
    must_go: Rows
    """One row for each holder that is alone on the card."""
    pinned: bool
    """A holder that is alone on the card belongs to no unit."""
    reserved: Reserved


class Demand:
    """The rows of one NodeProblem. `cards`: the cards that the pod may use at all, by position."""

    def __init__(self, problem: NodeProblem) -> None:
        self.problem = problem
        self.containers = problem.request.containers
        self.phases = phases(self.containers)
        self.idle_only = chain_for(problem.request, problem.policies).idle_only
        self.units_of = units_by_uid(problem.units)
        self._most: dict[tuple[int, int], Row] = {}
        self._reserved = reserved_by_card(problem) if problem.view.reservations else {}
        usable = [card for card in problem.view.cards if unselected(card, problem.request.selection) is None]
        self.cards = [self._card(place, card) for place, card in enumerate(usable)]

    @property
    def interchangeable(self) -> bool:
        """True when copies of the pod can be counted instead of told apart: they have one phase, and no card of
        theirs has to lie on the NUMA node of another."""
        one_phase = all(container.kind is not ContainerKind.INIT for container in self.containers)
        return one_phase and not self.problem.request.selection.numa_bind

    def rows(self, place: int, loads: Loads) -> Rows | None:
        """What must go from this card so that it can take the containers; None = nothing helps."""
        if not any(loads):
            return ()
        card = self.cards[place]
        room = self._room(card, loads)
        if room is None or card.pinned:
            return None
        short = (card.slots - room.slots, card.memory_mib - room.memory_mib, card.cores - room.cores)
        rows = list(card.must_go)
        for dimension, need in enumerate(short):
            if need <= 0:
                continue
            most = self._most_of(place, dimension)
            if need > most.need:
                return None
            rows.append(Row(place, need, most.gains))
        return tuple(rows)

    def _most_of(self, place: int, dimension: int) -> Row:
        """The row that asks for all that the units can give of this dimension."""
        key = (place, dimension)
        if key not in self._most:
            gains = self.cards[place].gains
            self._most[key] = _most(place, [(unit, amounts[dimension]) for unit, amounts in gains.items()])
        return self._most[key]

    def _card(self, place: int, view: CardView) -> _Card:
        staying = [0, 0, 0]
        gains: dict[int, list[int]] = {}
        must_go: list[Row] = []
        pinned = False
        for holder in view.holders:
            if holder.leaving:
                continue
            units = self.units_of.get(holder.uid, ())
            mib = held_mib(view, holder)
            for sums in (staying, *(gains.setdefault(unit, [0, 0, 0]) for unit in units)):
                sums[0] += holder.slots
                sums[1] += mib
                sums[2] += holder.cores
            if holder.exclusive:
                pinned = pinned or not units
                must_go.append(Row(place, 1, tuple((unit, 1) for unit in units)))
        reserved = self._reserved.get(view.fact.uuid, UNRESERVED)
        return _Card(view, staying[0], staying[1], staying[2], gains, tuple(must_go), pinned, reserved)

    def _room(self, card: _Card, loads: Loads) -> Room | None:
        """The least room over the pod's phases: they meet the same holders, one after the other."""
        room: Room | None = None
        for members in self.phases:
            wants = [(self.containers[index].card, loads[index]) for index in members if loads[index]]
            if not wants:
                continue
            beside = room_beside(card.view.fact, card.reserved, wants)
            if beside is None:
                return None
            room = beside if room is None else room.tighter(beside)
        if room is not None and self.idle_only:
            room = EMPTY
        return room

    def node_rows(self, copies: int) -> Rows | None:
        """What must go from the node as a whole for so many pods; None = no eviction makes it suffice."""
        if self.problem.view.inventory is None:
            return None
        rows = []
        for need, gives in node_shortages(self.problem, copies, self.units_of):
            row = _row(NODE, need, gives.items())
            if row is None:
                return None
            rows.append(row)
        return tuple(rows)


def units_by_uid(units: Iterable[Unit]) -> dict[str, tuple[int, ...]]:
    """Positions of the units that each pod on the node belongs to."""
    found: dict[str, tuple[int, ...]] = {}
    for index, unit in enumerate(units):
        for uid in unit.here:
            found[uid] = (*found[uid], index) if uid in found else (index,)
    return found


def node_shortages(
    problem: NodeProblem, copies: int, units_of: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[int, Mapping[int, int]]]:
    """(shortage, what each unit gives) per amount of the whole node that is too little for so many pods.

    Without an inventory nobody can tell: the caller has asked.
    """
    view = problem.view
    assert view.inventory is not None
    own = sum(entry.slots for entry in view.unassigned if entry.uid == problem.owner_uid)
    reserved = sum(r.slots for r in view.reservations if r.uid != problem.owner_uid)
    wanted = view.used_slots - view.leaving_slots - own + reserved + problem.request.slots * copies
    short = wanted - allocatable_slots(view.node, view.inventory.slot_resource)
    if short > 0:
        yield short, {index: unit.slots_here for index, unit in enumerate(problem.units)}
    elsewhere = [holder for card in view.cards if not card.usable for holder in card.holders]
    elsewhere += [orphan.holder for orphan in view.orphans]
    short = wanted - offered_slots(view.cards) - sum(holder.slots for holder in elsewhere if not holder.leaving)
    if short > 0:
        lost = _slots_of_units(elsewhere, units_of)
        yield short, {index: unit.slots_here - lost.get(index, 0) for index, unit in enumerate(problem.units)}
    for need in problem.needs:
        short = need.missing(copies)
        if short > 0:
            freed = dict(need.freed)
            yield short, {i: sum(freed.get(uid, 0) for uid in unit.uids) for i, unit in enumerate(problem.units)}


def _slots_of_units(holders: Iterable[Holder], units_of: Mapping[str, tuple[int, ...]]) -> Mapping[int, int]:
    slots: dict[int, int] = defaultdict(int)
    for holder in holders:
        for unit in () if holder.leaving else units_of.get(holder.uid, ()):
            slots[unit] += holder.slots
    return slots


def room_beside(fact: CardFact, reserved: Reserved, wants: Sequence[tuple[CardRequest, int]]) -> Room | None:
    """What others may have of the card beside these containers (request, copies); None = they never fit."""
    if reserved.alone:
        return None
    copies = sum(count for _, count in wants)
    capacity = core_capacity(fact)
    cores = reserved.cores + sum(want.cores * count for want, count in wants)
    memory_mib = reserved.memory_mib + sum(want.memory_on(fact.memory_mib) * count for want, count in wants)
    if any(want.alone for want, _ in wants):
        alone = copies == 1 and not reserved.slots
        fits = alone and fact.slots and memory_mib <= fact.memory_mib and cores <= capacity
        return EMPTY if fits else None
    if reserved.coreless or any(want.cores == 0 for want, _ in wants):
        capacity = min(capacity, CORES_PER_CARD - 1)
    room = Room(fact.slots - reserved.slots - copies, fact.memory_mib - memory_mib, capacity - cores)
    return room if min(room.slots, room.memory_mib, room.cores) >= 0 else None


def reserved_by_card(problem: NodeProblem) -> dict[str, Reserved]:
    """What is held for others on each card, by UUID; cards on which nothing is are left out."""
    held: dict[str, list[Reservation]] = defaultdict(list)
    for reservation in problem.view.reservations:
        if reservation.uid != problem.owner_uid:
            held[reservation.uuid].append(reservation)
    return {c.fact.uuid: _reserved(c, held[c.fact.uuid]) for c in problem.view.cards if c.fact.uuid in held}


def _reserved(card: CardView, held: Sequence[Reservation]) -> Reserved:
    return Reserved(
        sum(r.slots for r in held),
        sum(held_mib(card, r) for r in held),
        sum(r.cores for r in held),
        any(r.exclusive for r in held),
        any(r.coreless for r in held),
    )


def _row(place: int, need: int, gains: Iterable[tuple[int, int]]) -> Row | None:
    """The row, or None when all units together do not give what is needed."""
    most = _most(place, gains)
    return Row(place, need, most.gains) if most.need >= need else None


def _most(place: int, gains: Iterable[tuple[int, int]]) -> Row:
    giving = tuple((unit, gain) for unit, gain in gains if gain > 0)
    return Row(place, sum([gain for _, gain in giving]), giving)
