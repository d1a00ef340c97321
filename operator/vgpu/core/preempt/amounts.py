"""What a pod is charged of its queue: of the cards that it holds, or of the smallest that it could use.

Enters: requests, charges, card facts. Leaves: Amounts in thousandths of cards, MiB and core percent. A holder
alone on its card is charged the whole card, its real memory and 100 cores (preemption.md 4.1). Slots are capacity,
never quota. May not live here: queues.
"""

from collections.abc import Iterable, Mapping

from vgpu.core.charge import Charge, phases
from vgpu.core.facts import CardFact, CardMode
from vgpu.core.fit import unselected
from vgpu.core.preempt.facts import NOTHING, Amounts
from vgpu.core.reasons import Reason
from vgpu.core.request import CardRequest, ContainerRequest, PodRequest, Selection
from vgpu.core.views import CardView, core_capacity
from vgpu.units import CORES_PER_CARD, share_thousandths

WHOLE_CARD_THOUSANDTHS = 1000


def claim_of(request: PodRequest, cards: Iterable[CardFact]) -> Amounts | None:
    """What the pod would be charged on the smallest of `cards` that can take it, or None: no card can, ever.

    One card of each kind is enough unless the pod names UUIDs. Neither health nor free room counts, so the claim
    stays what it is while the pod waits, runs and waits again.
    """
    smallest_first = sorted(cards, key=lambda card: (card.memory_mib, card.uuid))
    each: list[Amounts] = []
    for container in request.containers:
        card = next((c for c in smallest_first if could_take(c, container.card, request.selection)), None)
        if card is None:
            return None
        each.append(_container_amounts(container, card))
    total = NOTHING
    for phase in phases(request.containers):
        total = _largest(total, sum_of(each[i] for i in phase))
    return total


def held_amounts(charges: Mapping[str, Charge], cards: Mapping[str, CardFact]) -> Amounts:
    """What a pod is charged for the cards that it holds; both by UUID.

    A card that no inventory lists has no known size: it counts as a whole one.
    """
    return sum_of(_card_amounts(charge, cards.get(uuid)) for uuid, charge in charges.items())


def sum_of(amounts: Iterable[Amounts]) -> Amounts:
    """All of them together."""
    return sum(amounts, NOTHING)


def _container_amounts(container: ContainerRequest, card: CardFact) -> Amounts:
    want = container.card
    charge = Charge(1, want.memory_on(card.memory_mib), want.cores, want.alone)
    one = _card_amounts(charge, card)
    return Amounts(
        one.cards_thousandths * container.number, one.memory_mib * container.number, one.cores * container.number
    )


def _card_amounts(charge: Charge, card: CardFact | None) -> Amounts:
    if card is None:
        return Amounts(WHOLE_CARD_THOUSANDTHS, charge.memory_mib, charge.cores)
    if charge.exclusive:
        return Amounts(WHOLE_CARD_THOUSANDTHS, card.memory_mib, CORES_PER_CARD)
    share = share_thousandths(charge.memory_mib, card.memory_mib, charge.cores, alone=False)
    return Amounts(share, charge.memory_mib, charge.cores)


def could_take(card: CardFact, want: CardRequest, selection: Selection) -> bool:
    """True unless the card is out of the question whatever becomes free on it."""
    if card.mode is not CardMode.SHARED or unselected(CardView(card), selection) not in (
        None,
        Reason.CARDS_UNHEALTHY,
    ):
        return False
    return want.memory_on(card.memory_mib) <= card.memory_mib and want.cores <= core_capacity(card)


def _largest(one: Amounts, other: Amounts) -> Amounts:
    return Amounts(
        max(one.cards_thousandths, other.cards_thousandths),
        max(one.memory_mib, other.memory_mib),
        max(one.cores, other.cores),
    )
