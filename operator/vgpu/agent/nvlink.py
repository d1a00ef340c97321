"""Which cards reach each other by NVLink, from what each card states of its links. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vgpu.agent.source import CardSample


def peers_of(cards: Sequence[CardSample], links: Mapping[str, Sequence[str]]) -> tuple[CardSample, ...]:
    """The cards with their peers. `links`: bus id -> the far ends of its active links, "" for a switch.

    All cards at a switch reach each other.
    """
    at_switch = {card.uuid for card in cards if "" in links.get(card.pci_bus_id, ())}
    by_bus_id = {comparable_bus_id(card.pci_bus_id): card.uuid for card in cards}
    found = []
    for card in cards:
        ends = {by_bus_id.get(comparable_bus_id(end), "") for end in links.get(card.pci_bus_id, ())}
        peers = (ends | at_switch if card.uuid in at_switch else ends) - {"", card.uuid}
        found.append(replace(card, links=frozenset(peers)))
    return tuple(found)


def comparable_bus_id(bus_id: str) -> str:
    """NVML writes domains with 4 or 8 digits and letters in either case."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
