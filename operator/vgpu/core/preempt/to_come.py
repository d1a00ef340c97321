"""Evicted pods that are created once there is room: their place in the order of service, as if they waited.

Enters: how the queues stand, everybody who is there, those to come. Leaves: who is entitled were they there. Only
for the order in which room is offered: they evict nobody, and take nothing from who runs. They are as old as they
were. Pure.
"""

from collections.abc import Iterable, Sequence

from vgpu.core.preempt.eligible import Standing
from vgpu.core.preempt.entitlement import entitled_uids
from vgpu.core.preempt.facts import Workload


def entitled_with(
    standing: Standing, everybody: Iterable[Workload], to_come: Sequence[Workload]
) -> frozenset[str]:
    """Uids of the entitled, were those `to_come` there as well. Other queues are as they were."""
    queues = {one.queue: standing.queues[one.queue] for one in to_come if one.queue in standing.queues}
    members = [one for one in everybody if one.queue in queues]
    elsewhere = standing.entitled - {one.uid for one in members}
    return elsewhere | entitled_uids(queues, [*members, *to_come])
