"""May one more container live on this card? The rules of architecture.md 3 and preemption.md 4.6, per card.

Enters: a card's view, what is reserved on it for others, and what the pod being placed already takes of it.
Leaves: None (fits) or the Reason that blocks. Which cards are chosen is placement's business; nothing here
knows nodes or pods by name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpu.core.facts import CardFact
from vgpu.core.reasons import Reason
from vgpu.core.request import CardRequest, Selection
from vgpu.core.views import CardView, Reservation, core_capacity
from vgpu.units import CORES_PER_CARD


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """What is on a card at one moment: slots, MiB, cores; whether a holder is alone, whether one has no cores."""

    slots: int = 0
    memory_mib: int = 0
    cores: int = 0
    exclusive: bool = False
    coreless: bool = False

    def with_holder(self, memory_mib: int, cores: int, *, alone: bool) -> "Load":
        """This load and one more holder."""
        return Load(
            self.slots + 1,
            self.memory_mib + memory_mib,
            self.cores + cores,
            self.exclusive or alone,
            self.coreless or (cores == 0 and not alone),
        )


EMPTY = Load()


@dataclass(frozen=True, slots=True)
class Bases:
    """What others have of a card: `now` (all holders) and `later` (without those leaving, with what is
    reserved for others; None when nothing is reserved, as then *now* is the stricter of the two)."""

    now: Load
    later: Load | None = None


def bases_of(card: CardView, others: Iterable[Reservation] = ()) -> Bases:
    """Both sides of the test for this card; `others` are reservations on it that belong to other pods."""
    now = Load(card.used_slots, card.used_memory_mib, card.used_cores, card.exclusive)
    reserved = list(others)
    if not reserved:
        return Bases(now)
    staying = [holder for holder in card.holders if not holder.leaving]
    later = Load(
        sum(h.slots for h in staying) + sum(r.slots for r in reserved),
        sum(_held_mib(card.fact, h.memory_mib, alone=h.exclusive) for h in staying)
        + sum(_held_mib(card.fact, r.memory_mib, alone=r.exclusive) for r in reserved),
        sum(h.cores for h in staying) + sum(r.cores for r in reserved),
        any(h.exclusive for h in staying) or any(r.exclusive for r in reserved),
        # A reserved owner without cores must still find cores unbooked when it comes.
        any(r.coreless for r in reserved),
    )
    return Bases(now, later)


def blocked(card: CardFact, bases: Bases, own: Load, want: CardRequest) -> Reason | None:
    """Why one more container with `want` cannot live on the card beside `own` (this pod's other containers
    of the same phase), or None. HELD_FOR_ANOTHER: it fits now, and would take what is held for another pod."""
    reason = _over(card, bases.now, own, want)
    if reason is None and bases.later is not None and _over(card, bases.later, own, want) is not None:
        return Reason.HELD_FOR_ANOTHER
    return reason


def unselected(card: CardView, selection: Selection) -> Reason | None:
    """Why the card is out of the question for this selection, whatever is free on it, or None.

    Types are case-insensitive substrings of the model, UUIDs exact; a deny wins over an allow. Cards that are
    not shared take nothing.
    """
    fact = card.fact
    if not _mode_and_identity_match(fact, selection):
        return Reason.CARD_SELECTION
    model = fact.model.lower()
    if selection.use_types and not any(t.lower() in model for t in selection.use_types):
        return Reason.CARD_SELECTION
    if any(t.lower() in model for t in selection.nouse_types):
        return Reason.CARD_SELECTION
    if not card.usable:
        return Reason.CARDS_UNHEALTHY if not fact.healthy else Reason.NOT_ENOUGH_CARDS
    if selection.numa_bind and fact.numa_node is None:
        return Reason.NUMA_SELECTION
    return None


LASTING = frozenset({Reason.CARD_SELECTION, Reason.NOT_ENOUGH_CARDS})
"""Why a card never takes a pod, whatever becomes free on it."""


def passing_first(reasons: Sequence[Reason], missing: int) -> tuple[Reason, ...]:
    """Of what blocks cards, what is nearest to passing, if the cards it blocks would be the `missing` ones: what
    is free and held for another pod, then what may pass; otherwise all."""
    held = tuple(reason for reason in reasons if reason is Reason.HELD_FOR_ANOTHER)
    if 0 < missing <= len(held):
        return held
    passing = tuple(reason for reason in reasons if reason not in LASTING)
    return passing if len(passing) >= missing else tuple(reasons)


def commonest(reasons: Sequence[Reason]) -> Reason:
    """The reason that blocks most cards; ties go to the one that a person can act on first."""
    return max(_ORDER, key=lambda reason: (reasons.count(reason), -_ORDER.index(reason)))


def _mode_and_identity_match(fact: CardFact, selection: Selection) -> bool:
    if selection.mode and selection.mode != fact.mode.value:
        return False
    if fact.uuid in selection.nouse_uuids:
        return False
    return not selection.use_uuids or fact.uuid in selection.use_uuids


def _over(card: CardFact, base: Load, own: Load, want: CardRequest) -> Reason | None:
    if base.exclusive or own.exclusive:
        return Reason.EXCLUSIVE_HOLDER
    occupied = base.slots + own.slots
    if want.alone and occupied:
        return Reason.CARD_NOT_EMPTY
    if occupied + 1 > card.slots:
        return Reason.INSUFFICIENT_SLOTS
    if base.memory_mib + own.memory_mib + want.memory_on(card.memory_mib) > card.memory_mib:
        return Reason.INSUFFICIENT_MEMORY
    coreless = want.cores == 0 or base.coreless or own.coreless
    if not _cores_fit(card, base.cores + own.cores + want.cores, coreless=coreless and not want.alone):
        return Reason.INSUFFICIENT_CORES
    return None


def _cores_fit(card: CardFact, cores: int, *, coreless: bool) -> bool:
    """`coreless`: a holder without cores is among them, and would starve beside 100 booked ones."""
    return cores <= core_capacity(card) and not (coreless and cores >= CORES_PER_CARD)


def _held_mib(card: CardFact, memory_mib: int, *, alone: bool) -> int:
    return memory_mib or (card.memory_mib if alone else 0)


_ORDER = (
    Reason.INSUFFICIENT_MEMORY,
    Reason.INSUFFICIENT_CORES,
    Reason.INSUFFICIENT_SLOTS,
    Reason.CARD_NOT_EMPTY,
    Reason.EXCLUSIVE_HOLDER,
    Reason.HELD_FOR_ANOTHER,
    Reason.CARDS_UNHEALTHY,
    Reason.CARD_SELECTION,
    Reason.NUMA_SELECTION,
    Reason.NOT_ENOUGH_CARDS,
)
