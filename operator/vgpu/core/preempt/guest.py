"""The world as it would be with more pods that wait: what a question about pods that do not exist rests on.

Enters: a DecisionWorld, the pods' facts, their queue, what their group means. Leaves: another DecisionWorld,
worked out from nothing where the pods make a difference. What is given is not changed.
"""

from dataclasses import dataclass, replace

from vgpu.core.facts import PodFact
from vgpu.core.preempt.card_kinds import CardKinds
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.eligible import standing_of
from vgpu.core.preempt.gang_book import ALONE, GroupTerms
from vgpu.core.preempt.workload_of import Around, workload_of


@dataclass(frozen=True, slots=True)
class Guests:
    """Equal pods that do not exist: one by one with its own uid, in `queue`, of a group that means `group`."""

    pods: tuple[PodFact, ...]
    queue: str
    group: GroupTerms = ALONE


def with_guest(world: DecisionWorld, pod: PodFact, queue: str) -> DecisionWorld:
    """The world with one pod, which waits for itself alone: pods of its gang are not there either."""
    return with_guests(world, Guests((pod,), queue))


def with_guests(world: DecisionWorld, guests: Guests) -> DecisionWorld:
    """The world with all of them."""
    around = _around(world, guests)
    coming = {pod.uid: workload_of(pod, around) for pod in guests.pods}
    workloads = {**world.workloads, **coming}
    standing, before = standing_of(world.standing.queues, workloads.values()), world.standing
    usage = {name: replace(one, promised=before.usage_of(name).promised) for name, one in standing.usage.items()}
    scheduling = {**world.scheduling, **{pod.uid: pod.scheduling for pod in guests.pods}}
    return replace(world, workloads=workloads, standing=replace(standing, usage=usage), scheduling=scheduling)


def _around(world: DecisionWorld, guests: Guests) -> Around:
    cards, request = _card_kinds(world), guests.pods[0].request
    claim = cards.claim(request) if request is not None else None
    queue = world.standing.queues.get(guests.queue)
    inactive = cards.too_large(request)
    return Around(guests.queue, queue, claim, {}, group=guests.group, inactive=inactive)


def _card_kinds(world: DecisionWorld) -> CardKinds:
    cards = CardKinds()
    for name, view in world.views.items():
        cards.put(name, view.inventory.cards if view.inventory is not None else ())
    return cards
