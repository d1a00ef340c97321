"""A pod's request, and the cards that it holds, in words.

Values enter, text leaves. May not live here: reasons, verdicts.
"""

from vgpu.core.facts import AssignmentFact
from vgpu.core.request import CardRequest, ContainerRequest, PodRequest


def wanted_words(request: PodRequest) -> str:
    """The request in words, the default named: "1 card of 4096 MiB, 30 cores"."""
    if len(request.containers) == 1:
        return _container_words(request.containers[0])
    return "; ".join(f"{c.name}: {_container_words(c)}" for c in request.containers)


def held_words(assignment: AssignmentFact) -> str:
    """The cards of an assignment in words: "GPU-a (4096 MiB, 30 cores), GPU-b (whole)"."""
    several = len(assignment.containers) > 1
    return "; ".join(
        (f"{container.name}: " if several else "")
        + ", ".join(
            f"{card.uuid} ({'whole' if card.whole else f'{card.memory_mib} MiB'}"
            + (f", {card.cores} cores)" if card.cores else ")")
            for card in container.cards
        )
        for container in assignment.containers
    )


def _container_words(container: ContainerRequest) -> str:
    number, card = container.number, container.card
    cores = f", {card.cores} cores" if card.cores else ""
    if card.memory_mib is None and card.memory_percent is None:
        each = " each" if number > 1 and cores else ""
        return f"{number} whole card{plural_s(number)} (memory given: none or 0){cores}{each}"
    each = " each" if number > 1 else ""
    return f"{number} card{plural_s(number)} of {_memory_words(card)}{cores}{each}"


def _memory_words(card: CardRequest) -> str:
    if card.memory_mib is not None:
        return f"{card.memory_mib} MiB"
    return f"{card.memory_percent} % of the card's memory"


def plural_s(count: int) -> str:
    """The ending of a counted noun."""
    return "" if count == 1 else "s"
