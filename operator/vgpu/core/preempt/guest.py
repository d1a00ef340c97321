"""The world as it would be with one pod more that waits: what a question about a pod that does not exist rests on.

Enters: a DecisionWorld, the pod's fact, its queue. Leaves: another DecisionWorld, worked out from nothing where
the pod makes a difference. What is given is not changed.
"""

from dataclasses import replace

from vgpu.core.facts import PodFact
from vgpu.core.preempt.card_kinds import CardKinds
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.eligible import standing_of
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.workload_of import Around, workload_of


def with_guest(world: DecisionWorld, pod: PodFact, queue: str) -> DecisionWorld:
    """The world with the pod, which waits for itself alone: pods of its gang are not there either."""
    guest = _workload(world, pod, queue)
    workloads = {**world.workloads, pod.uid: guest}
    standing, before = standing_of(world.standing.queues, workloads.values()), world.standing
    usage = {name: replace(one, promised=before.usage_of(name).promised) for name, one in standing.usage.items()}
    standing = replace(standing, usage=usage)
    scheduling = {**world.scheduling, pod.uid: pod.scheduling}
    return replace(world, workloads=workloads, standing=standing, scheduling=scheduling)


def _workload(world: DecisionWorld, pod: PodFact, queue: str) -> Workload:
    cards = CardKinds()
    for name, view in world.views.items():
        cards.put(name, view.inventory.cards if view.inventory is not None else ())
    claim = cards.claim(pod.request) if pod.request is not None else None
    too_large = cards.too_large(pod.request)
    return workload_of(pod, Around(queue, world.standing.queues.get(queue), claim, {}, inactive=too_large))
