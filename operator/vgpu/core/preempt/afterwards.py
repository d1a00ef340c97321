"""The world once an answer is carried out as far as the planner goes before it decides on the next pod.

Enters: a DecisionWorld, a Preview that was worked out in it. Leaves: another DecisionWorld: cards are held for the
pods, their victims are leaving, plans that were taken over are over. What is given is not changed.
"""

from collections.abc import Collection
from dataclasses import replace

from vgpu.core.facts import Scheduling
from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.eligible import Standing, standing_of
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.preview import Preview
from vgpu.core.preempt.problem import with_going, with_reservation, without_reservations


def after(world: DecisionWorld, answer: Preview) -> DecisionWorld:
    """See the module. An answer that seats nobody changes nothing."""
    if not answer.seats:
        return world
    going = frozenset(one.pod.uid for one in answer.goes)
    losing = frozenset(uid for hold, _ in world.plans if hold.plan in answer.takes for uid in hold.uids)
    workloads = {
        **world.workloads,
        **{uid: replace(world.workloads[uid], terminating=True) for uid in going},
    }
    views = {name: with_going(without_reservations(view, losing), going) for name, view in world.views.items()}
    uses = dict(world.uses)
    for uid, seat in answer.seats:
        views[seat.node] = with_reservation(views[seat.node], uid, seat)
        uses[seat.node] = uses.get(seat.node, NodeUse()).plus((world.scheduling.get(uid, Scheduling()),))
    return replace(
        world,
        views=views,
        workloads=workloads,
        standing=_standing(world, workloads, frozenset(uid for uid, _ in answer.seats), losing),
        plans=tuple(entry for entry in world.plans if entry[0].plan not in answer.takes),
        uses=uses,
        disruptions=tuple(
            replace(one, allowed=max(0, one.allowed - len(one.uids & going))) for one in world.disruptions
        ),
    )


def _standing(
    world: DecisionWorld, workloads: dict[str, Workload], coming: Collection[str], losing: Collection[str]
) -> Standing:
    """Cards are promised to those who come, and not any more to those who lost them."""
    queues, before = world.standing.queues, world.standing
    standing = standing_of(queues, workloads.values())

    def promised(uids: Collection[str], queue: str) -> list[Workload]:
        return [workloads[uid] for uid in uids if uid in workloads and workloads[uid].queue == queue]

    usage = {
        name: replace(
            one,
            promised=before.usage_of(name).promised
            + sum_of(pod.claim for pod in promised(coming, name))
            - sum_of(pod.claim for pod in promised(losing, name)),
        )
        for name, one in standing.usage.items()
    }
    return replace(standing, usage=usage)
