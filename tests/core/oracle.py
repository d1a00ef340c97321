"""What a card must show, counted anew and naively: shares no code with the ledger's charges and recount."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vgpu.core.facts import AssignedContainer, CardFact, InventoryFact, Phase, PodFact
from vgpu.core.request import ContainerKind


@dataclass
class Use:
    """What one pod takes of one card."""

    slots: int = 0
    memory_mib: int = 0
    cores: int = 0
    alone: bool = False
    crowded: bool = False


@dataclass
class CardUse:
    """Per pod uid what it takes of this card."""

    pods: dict[str, Use] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        return sum(use.slots for use in self.pods.values())

    @property
    def memory_mib(self) -> int:
        return sum(use.memory_mib for use in self.pods.values())

    @property
    def cores(self) -> int:
        return sum(use.cores for use in self.pods.values())

    @property
    def shared_though_alone(self) -> bool:
        alone = any(use.alone for use in self.pods.values())
        return (alone and len(self.pods) > 1) or any(use.crowded for use in self.pods.values())

    def over(self, card: CardFact) -> bool:
        """True when the card has more on it than it can carry, an exclusive holder in company included."""
        return (
            self.slots > card.slots
            or self.memory_mib > card.memory_mib
            or self.cores > 100
            or self.shared_though_alone
        )


def may_hold(pod: PodFact) -> bool:
    """I3: bound, with an assignment, and not over; terminating counts."""
    if not pod.node or pod.assignment is None:
        return False
    over = pod.phase in (Phase.SUCCEEDED, Phase.FAILED)
    return pod.container_running or not over


def uses_of(containers: tuple[AssignedContainer, ...]) -> dict[str, Use]:
    """Per card name in the assignment: the worst of every moment in the pod's life."""
    moments = [[c for c in containers if c.kind is not ContainerKind.INIT]]
    for position, container in enumerate(containers):
        if container.kind is ContainerKind.INIT:
            before = [c for c in containers[:position] if c.kind is ContainerKind.SIDECAR]
            moments.append([*before, container])
    result: dict[str, Use] = {}
    for moment in moments:
        for name in {card.uuid for c in moment for card in c.cards}:
            on_card = [card for c in moment for card in c.cards if card.uuid == name]
            alone = any(card.whole or card.cores >= 100 for card in on_card)
            use = result.setdefault(name, Use())
            use.slots = max(use.slots, len(on_card))
            use.memory_mib = max(use.memory_mib, sum(card.memory_mib for card in on_card))
            use.cores = max(use.cores, sum(card.cores for card in on_card))
            use.alone = use.alone or alone
            use.crowded = use.crowded or (alone and len(on_card) > 1)
    return result


def count_cards(
    inventory: InventoryFact | None, holders: Iterable[tuple[str, tuple[AssignedContainer, ...]]]
) -> tuple[dict[str, CardUse], dict[str, CardUse]]:
    """(use of the inventory's cards, use of cards it does not list), by uuid, from (uid, containers)."""
    cards = {card.uuid: card for card in inventory.cards} if inventory else {}
    names: Mapping[str, str] = {f"index:{card.index}": card.uuid for card in cards.values()}
    listed: dict[str, CardUse] = {uuid: CardUse() for uuid in cards}
    orphans: dict[str, CardUse] = {}
    for uid, containers in holders:
        for name, use in uses_of(containers).items():
            uuid = names.get(name, name)
            where = listed if uuid in listed else orphans
            where.setdefault(uuid, CardUse()).pods[uid] = use
    return listed, orphans
