"""What the planner works with.

Enters: the parts of preemption. Leaves: one value that names them. May not live here: what is done with them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vgpu.controller.fence import Fence
from vgpu.controller.preempt.deciding import Deciding
from vgpu.controller.preempt.evictions import Evictions
from vgpu.controller.preempt.lessons import Lessons
from vgpu.controller.preempt.plan_book import PlanBook
from vgpu.controller.preempt.plan_objects import PlanObjects
from vgpu.controller.preempt.plan_worlds import PlanWorlds
from vgpu.controller.preempt.queue_drains import QueueDrains
from vgpu.controller.preempt.rounds import Rounds
from vgpu.controller.preempt.told import Told
from vgpu.controller.preempt.wall import Wall
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.preempt.roster import Roster


@dataclass(frozen=True, slots=True)
class PlannerParts:
    """What it works with."""

    ledger: Ledger
    roster: Roster
    policies: Policies
    fence: Fence
    book: PlanBook
    objects: PlanObjects
    evictions: Evictions
    worlds: PlanWorlds
    rounds: Rounds
    deciding: Deciding
    lessons: Lessons
    drains: QueueDrains
    told: Told
    wall: Wall
    poke: Callable[[], None]
