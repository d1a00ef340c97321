"""Which slot ids kubelet is told of, and which it should take first. Pure.

The node's cards enter, counts and ids leave. An id names a place, never a card: which cards a pod gets stands in
its assignment. Ids are numbered from 0, so that the same cards give the same ids after every restart.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from vgpu.agent.identity.port import CardsNow
from vgpu.core.facts import CardMode

MAX_SLOTS = 16_384
"""Ids told at most. kubelet drops an answer above 4 MiB without a word; so many ids take less than 0.5 MiB."""
PREFIX = "slot-"


@dataclass(frozen=True, slots=True)
class Slots:
    """How many ids there are, and how many of them, from 0 on, may be given to pods."""

    total: int = 0
    healthy: int = 0
    left_out: int = 0
    """What the cards have above MAX_SLOTS."""

    @property
    def ids(self) -> list[str]:
        """All ids in order. The last total - healthy ones are unhealthy."""
        return [f"{PREFIX}{number}" for number in range(self.total)]


def slots_of(cards: CardsNow) -> Slots:
    """The slots of all cards that pods may share; those of unhealthy ones count in `total` alone."""
    shared = [card for card in cards.cards if card.mode is CardMode.SHARED]
    have = sum(card.slots for card in shared)
    total = min(MAX_SLOTS, have)
    healthy = min(total, sum(card.slots for card in shared if card.healthy))
    return Slots(total, healthy, have - total)


def without_health(slots: Slots) -> Slots:
    """The same ids while nobody knows how the cards are: none may be given away."""
    return replace(slots, healthy=0)


def preferred(
    available: Iterable[str], must_include: Sequence[str], size: int, recent: Collection[str] = ()
) -> list[str]:
    """`size` ids: those that must be in it, then the lowest that were not given out just now.

    Low ids are the last to become unhealthy. `recent` ones may be in use although kubelet calls them available: it
    forgets the slots of a pod whose Allocate is under way when somebody lists PodResources meanwhile
    (pkg/kubelet/cm/devicemanager/manager.go, UpdateAllocatedDevices).
    """
    others = sorted(set(available) - set(must_include), key=lambda slot: (slot in recent, _number(slot)))
    return [*must_include, *others][: max(size, len(must_include))]


def _number(slot_id: str) -> tuple[int, str]:
    digits = slot_id.removeprefix(PREFIX)
    return (int(digits) if digits.isdecimal() else MAX_SLOTS, slot_id)
