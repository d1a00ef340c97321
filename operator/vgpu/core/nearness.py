"""How near a refusing node is to taking a pod, and words for the nearest one.

Enters: refusals, node views, a request. Leaves: an order of reasons, the closest node in words. May not live
here: fit rules (they are asked, never repeated).
"""

from collections import Counter
from collections.abc import Collection, Iterable
from enum import IntEnum

from vgpu.core.fit import LASTING, unselected
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import PodRequest, Selection
from vgpu.core.views import CardView, NodeView


class Nearness(IntEnum):
    """OPEN: the node could take the pod at another time; CLOSED: when it opens; NEVER: only if the pod were
    another; UNMEANT: a node for other pods."""

    OPEN = 0
    CLOSED = 1
    NEVER = 2
    UNMEANT = 3


_CLOSED = frozenset(
    {
        Reason.NODE_GONE,
        Reason.READ_ERROR,
        Reason.ISOLATION_ERROR,
        Reason.NO_ALLOCATABLE,
        Reason.AGENT_DOWN,
        Reason.TOO_MANY_UNADMITTED,
        Reason.ADMISSION_REFUSED,
        Reason.UNKNOWN_HOLDER,
        Reason.INVENTORY_INVALID,
    }
)
_NEVER = LASTING | {
    Reason.INVALID_REQUEST,
    Reason.MORE_CARDS_THAN_NODE,
    Reason.ONLY_INIT_CONTAINERS,
    Reason.MULTI_CONTAINER_DEFERRED,
}
_UNMEANT = frozenset({Reason.NO_INVENTORY, Reason.SLOT_RESOURCE_MISMATCH})


def nearness(reason: Reason) -> Nearness:
    """What the reason alone tells; a closed node may turn out to be none for this pod: see may_ever_take."""
    if reason in _UNMEANT:
        return Nearness.UNMEANT
    if reason in _NEVER:
        return Nearness.NEVER
    return Nearness.CLOSED if reason in _CLOSED else Nearness.OPEN


def may_ever_take(view: NodeView, request: PodRequest) -> bool:
    """Whether a closed node would be one for this pod once it opens: its resource, enough cards, the selected
    ones among them."""
    if view.inventory is None or view.inventory.slot_resource != request.slot_resource:
        return False
    most = max(container.number for container in request.containers)
    if len(view.cards) < most:
        return False
    return len(_selected(view, request.selection)) >= most


def closest_words(refusing: Iterable[tuple[NodeView, CardView | None, Refusal]]) -> str:
    """Words for the nearest node, of equally near ones the one whose freest card has most left; "" for none.

    Each row is a node, its freest_card and its refusal; nodes that can never take the pod are to be left out.
    """
    rows = ((nearness(refusal.reason), card, view, refusal) for view, card, refusal in refusing if card)
    best = min(rows, key=lambda row: (row[0], *_most_free_first(row[1]), row[2].name), default=None)
    if best is None:
        return ""
    _, card, view, refusal = best
    slots = min(view.free_slots, sum(c.free_slots for c in view.cards))
    return (
        f"best node {view.name}: {slots} of {view.effective_slots} slots free, its freest card "
        f"{_card_words(card, view)}: {refusal.message}"
    )


def never_words(refused: Collection[Refusal]) -> str:
    """What most of the nodes that can never take the pod say, those meant for such pods first; "" for none."""
    lasting = [refusal for refusal in refused if nearness(refusal.reason) >= Nearness.NEVER]
    counts = Counter(refusal.reason for refusal in lasting)
    first = min(lasting, key=lambda r: (nearness(r.reason), -counts[r.reason], r.reason.value), default=None)
    return first.message if first else ""


def freest_card(view: NodeView, selection: Selection | None = None) -> CardView | None:
    """The card with most memory and cores left among those selected, healthy ones first; None without any."""
    cards = view.cards if selection is None else _selected(view, selection)
    return min(cards, key=lambda card: (*_most_free_first(card), card.fact.index), default=None)


def whole_holder(card: CardView) -> str:
    """NS/POD of the pod that is alone on the card, "" when there is none."""
    return next((f"{h.namespace}/{h.name}" for h in card.holders if h.exclusive), "")


def _selected(view: NodeView, selection: Selection) -> list[CardView]:
    return [card for card in view.cards if unselected(card, selection) not in LASTING]


def _card_words(card: CardView, view: NodeView) -> str:
    holder = whole_holder(card)
    if holder:
        leaving = any(h.exclusive and h.leaving for h in card.holders)
        return f"is held whole by {holder}" + (", which is leaving" if leaving else "")
    held = any(reservation.uuid == card.fact.uuid for reservation in view.reservations)
    free = f"has {card.free_memory_mib} of {card.fact.memory_mib} MiB and {card.free_cores} cores free"
    return f"{free}, held for another pod" if held else free


def _most_free_first(card: CardView) -> tuple[bool, int, int]:
    return (not card.fact.healthy, -card.free_memory_mib, -card.free_cores)
