"""Searches cards for all containers of a pod on one node: greedy first, then exact backtracking in bounds.

Enters: a NodeView with an open gate, the request. Leaves: Found (cards per container in spec order, and the
loads with the pod on them) or NotFound with what blocked. Containers of one phase share a card's room; those
of different phases never live together (architecture.md 3).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from vgpu.core.charge import phases
from vgpu.core.fit import EMPTY, Bases, Load, bases_of, blocked, passing_first, unselected
from vgpu.core.reasons import Reason
from vgpu.core.request import CardPolicy, ContainerRequest, PodRequest
from vgpu.core.score import Policies, card_key, card_sets, chain_for, connections
from vgpu.core.views import CardView, NodeView

MANY = 3
"""Up to so many containers the search itself says more exactly what is missing, and is cheap."""
_PAIRLESS = frozenset({CardPolicy.BINPACK, CardPolicy.SPREAD, CardPolicy.MUTEX})


@dataclass(frozen=True, slots=True)
class Found:
    """Cards per container in spec order; `after`: everything on each chosen card (by uuid) with the pod."""

    groups: tuple[tuple[CardView, ...], ...]
    after: Mapping[str, Load]


@dataclass(frozen=True, slots=True)
class NotFound:
    """`container` found too few cards; `reasons` has what blocked each of the others. `together`: it would
    have found enough without the pod's other containers."""

    container: ContainerRequest
    reasons: tuple[Reason, ...]
    together: bool = False
    out_of_steps: bool = False


@dataclass(slots=True)
class _Slot:
    """One card during the search: what others have of it, and the pod's own load in each phase."""

    card: CardView
    bases: Bases
    own: list[Load]
    kind: int = 0
    """Cards of one kind are interchangeable as far as fitting goes."""

    def with_own(self, phase: int) -> Load:
        """Everything on the card now, with the pod's containers of this phase."""
        return _plus(self.bases.now, self.own[phase])

    def fullest(self, phase: int) -> Load:
        """The same as it is now or with all that is held for others, whichever is more: cards that will be full
        are filled first, or the rest is left in pieces where pods of several cards find no room."""
        now = self.with_own(phase)
        if self.bases.later is None:
            return now
        later = _plus(self.bases.later, self.own[phase])
        return Load(
            max(now.slots, later.slots),
            max(now.memory_mib, later.memory_mib),
            max(now.cores, later.cores),
            now.exclusive or later.exclusive,
        )


def _plus(load: Load, own: Load) -> Load:
    if own is EMPTY:
        return load
    return Load(
        load.slots + own.slots,
        load.memory_mib + own.memory_mib,
        load.cores + own.cores,
        load.exclusive or own.exclusive,
    )


def search_cards(view: NodeView, request: PodRequest, owner_uid: str, policies: Policies) -> Found | NotFound:
    """Distinct cards for each container so that every phase of the pod fits on every card."""
    search = _Search(view, request, owner_uid, policies)
    several = len(request.containers) > 1
    short = search.short_in_sum() if len(request.containers) > MANY else None
    if short is not None:
        return NotFound(request.containers[search.order[0]], (short,), together=True)
    for index in range(len(request.containers)) if several else ():
        alone = search.candidates(index)
        if isinstance(alone, NotFound):
            return alone
    if search.descend(0):
        return search.found()
    return replace(search.stuck, together=several, out_of_steps=search.steps_left <= 0)


def effort_of(request: PodRequest) -> int:
    """What evaluating one node costs beside a pod of one container; users choose it, so callers count it."""
    pairs = 32 if request.selection.numa_bind or not _PAIRLESS.issuperset(request.card_policies) else 1
    return len(request.containers) ** 3 * pairs


class _Search:
    """The state of one search. Containers are tried hardest first; the result is in spec order."""

    def __init__(self, view: NodeView, request: PodRequest, owner_uid: str, policies: Policies) -> None:
        self.request = request
        self.chain = chain_for(request, policies)
        self.phases = phases(request.containers)
        self.phases_of = [
            [p for p, members in enumerate(self.phases) if i in members] for i in range(len(request.containers))
        ]
        self.slots: list[_Slot] = []
        self.out: list[Reason] = []
        self._sort_cards(view, owner_uid)
        self.order = sorted(range(len(request.containers)), key=self._hardest_first)
        looks = sum(len(self.slots) * len(phases) for phases in self.phases_of)
        self.steps_left = max(policies.search_steps, 3 * looks)  # a first try without a step back always ends
        self.chosen: dict[int, tuple[_Slot, ...]] = {}
        self.stuck = NotFound(request.containers[0], ())
        self._stuck_level = -1
        self._seen: set[tuple[int, tuple[object, ...]]] = set()

    def candidates(self, index: int) -> list[_Slot] | NotFound:
        """The cards that can take this container beside what the pod has placed so far."""
        container = self.request.containers[index]
        fitting: list[_Slot] = []
        reasons = list(self.out)
        for slot in self.slots:
            reason = self._blocked(slot, index)
            if reason is None:
                fitting.append(slot)
            else:
                reasons.append(reason)
        if len(fitting) < container.number:
            return NotFound(container, passing_first(reasons, container.number - len(fitting)))
        if self.request.selection.numa_bind and not any(
            len(group) >= container.number for group in _numa_groups(fitting)
        ):
            return NotFound(container, (Reason.NUMA_SELECTION,))
        return fitting

    def descend(self, level: int) -> bool:
        """Place the containers from `level` on; False when no way is left or the steps are used up."""
        if level == len(self.order):
            return True
        index = self.order[level]
        self.steps_left -= len(self.slots) * len(self.phases_of[index])
        candidates = self.candidates(index)
        if isinstance(candidates, NotFound):
            if level > self._stuck_level:
                self._stuck_level, self.stuck = level, candidates
            return False
        candidates.sort(key=lambda slot: self._key(slot, index))
        tried: set[tuple[object, ...]] = set()
        for cards in self._card_sets(candidates, self.request.containers[index].number):
            if not self._is_new(cards, tried):
                continue
            if self.steps_left <= 0:
                return False
            self.steps_left -= 1
            before = [list(slot.own) for slot in cards]
            self._take(index, cards)
            if self._unseen(level) and self.descend(level + 1):
                return True
            for slot, own in zip(cards, before, strict=True):
                slot.own = own
        return False

    def short_in_sum(self) -> Reason | None:
        """What all usable cards together have too little of for some phase; None when the sums suffice."""
        free_slots = sum(max(0, slot.card.fact.slots - slot.bases.now.slots) for slot in self.slots)
        free_mib = sum(max(0, slot.card.fact.memory_mib - slot.bases.now.memory_mib) for slot in self.slots)
        free_cores = sum(max(0, slot.card.fact.cores - slot.bases.now.cores) for slot in self.slots)
        least_mib = min((slot.card.fact.memory_mib for slot in self.slots), default=0)
        for members in self.phases:
            wants = [self.request.containers[index] for index in members]
            if sum(c.number for c in wants) > free_slots:
                return Reason.INSUFFICIENT_SLOTS
            if sum(c.number * c.card.memory_on(least_mib) for c in wants) > free_mib:
                return Reason.INSUFFICIENT_MEMORY
            if sum(c.number * c.card.cores for c in wants) > free_cores:
                return Reason.INSUFFICIENT_CORES
        return None

    def found(self) -> Found:
        """The result, after descend said True."""
        groups = tuple(
            tuple(slot.card for slot in self.chosen[index]) for index in range(len(self.request.containers))
        )
        touched = {slot.card.fact.uuid: slot for cards in self.chosen.values() for slot in cards}
        return Found(groups, {uuid: self._after(slot) for uuid, slot in touched.items()})

    def _sort_cards(self, view: NodeView, owner_uid: str) -> None:
        reserved = [r for r in view.reservations if r.uid != owner_uid]
        for card in view.cards:
            reason = unselected(card, self.request.selection)
            if reason is None and self.chain.idle_only and card.holders:
                reason = Reason.CARD_NOT_EMPTY
            if reason is not None:
                self.out.append(reason)
                continue
            on_card = [r for r in reserved if r.uuid == card.fact.uuid] if reserved else ()
            self.slots.append(_Slot(card, bases_of(card, on_card), [EMPTY] * len(self.phases)))
        # Connections matter to a single card only (leave the linked ones together), pairs to several.
        single = self.chain.paired and any(container.number == 1 for container in self.request.containers)
        judged = self.slots if single else []
        self.connections = {slot.card.fact.uuid: connections(slot.card, view.cards) for slot in judged}
        if len(self.request.containers) > 1:
            self._name_kinds()

    def _name_kinds(self) -> None:
        kinds: dict[tuple[object, ...], int] = {}
        for slot in self.slots:
            fact = slot.card.fact
            numa = fact.numa_node if self.request.selection.numa_bind else None
            key = (fact.memory_mib, fact.slots, fact.cores, slot.bases, numa)
            slot.kind = kinds.setdefault(key, len(kinds))

    def _hardest_first(self, index: int) -> tuple[int, ...]:
        container = self.request.containers[index]
        want = container.card
        size = (want.memory_mib or 0, want.memory_percent or 0, want.cores)
        return (0 if want.alone else 1, -container.number, *(-amount for amount in size), index)

    def _blocked(self, slot: _Slot, index: int) -> Reason | None:
        want = self.request.containers[index].card
        for phase in self.phases_of[index]:
            reason = blocked(slot.card.fact, slot.bases, slot.own[phase], want)
            if reason is not None:
                return reason
        return None

    def _key(self, slot: _Slot, index: int) -> tuple[int | str, ...]:
        number = self.request.containers[index].number
        linked = self.connections.get(slot.card.fact.uuid, 0) if number == 1 else 0
        load = slot.fullest(self.phases_of[index][-1])
        return card_key(self.chain, slot.card, load, self.request.containers[index].card, linked)

    def _card_sets(self, candidates: Sequence[_Slot], number: int) -> Iterator[tuple[_Slot, ...]]:
        groups = _numa_groups(candidates) if self.request.selection.numa_bind else [list(candidates)]
        for group in groups:
            if number == 1 or number == len(group) or not self.chain.paired:
                yield from combinations(group, number)
                continue
            for picked in card_sets(self.chain, [slot.card for slot in group], number):
                yield tuple(group[position] for position in picked)

    def _is_new(self, cards: tuple[_Slot, ...], tried: set[tuple[object, ...]]) -> bool:
        """False for a set that only swaps interchangeable cards of one tried before at this level."""
        if len(self.order) == 1:
            return True
        key = tuple(sorted((slot.kind, *slot.own) for slot in cards))
        if key in tried:
            return False
        tried.add(key)
        return True

    def _take(self, index: int, cards: tuple[_Slot, ...]) -> None:
        want = self.request.containers[index].card
        self.chosen[index] = cards
        for slot in cards:
            memory_mib = want.memory_on(slot.card.fact.memory_mib)
            slot.own = list(slot.own)
            for phase in self.phases_of[index]:
                slot.own[phase] = slot.own[phase].with_holder(memory_mib, want.cores, alone=want.alone)

    def _unseen(self, level: int) -> bool:
        """False when the same state, up to interchangeable cards, was already reached at this level."""
        if len(self.order) == 1:
            return True
        state = (level, tuple(sorted((slot.kind, *slot.own) for slot in self.slots)))
        if state in self._seen:
            return False
        self._seen.add(state)
        return True

    def _after(self, slot: _Slot) -> Load:
        if len(self.phases) == 1:
            return slot.with_own(0)
        loads = [slot.with_own(phase) for phase in range(len(self.phases))]
        return Load(
            max(load.slots for load in loads),
            max(load.memory_mib for load in loads),
            max(load.cores for load in loads),
            any(load.exclusive for load in loads),
        )


def _numa_groups(slots: Sequence[_Slot]) -> list[list[_Slot]]:
    groups: dict[int | None, list[_Slot]] = defaultdict(list)
    for slot in slots:
        groups[slot.card.fact.numa_node].append(slot)
    return list(groups.values())
