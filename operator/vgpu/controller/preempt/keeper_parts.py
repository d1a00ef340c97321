"""What the keeper of plans works with.

Enters: the parts of preemption. Leaves: one value that names them. May not live here: what is done with them.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from vgpu.controller.preempt.evictions import Evictions
from vgpu.controller.preempt.left_over import LeftOver
from vgpu.controller.preempt.lessons import Lessons
from vgpu.controller.preempt.plan_book import PlanBook
from vgpu.controller.preempt.plan_objects import PlanObjects
from vgpu.controller.preempt.plan_worlds import PlanWorlds
from vgpu.controller.preempt.sending import Sender
from vgpu.controller.preempt.told import Told
from vgpu.controller.preempt.waiting import Waiting
from vgpu.controller.preempt.wall import Wall
from vgpu.controller.preempt_metrics import PreemptionMetrics
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import Debt, PlanFact, Workload
from vgpu.core.preempt.plan import End
from vgpu.core.preempt.roster import Roster


class Debts(Protocol):
    """Who brings back what plans cost."""

    def evicted(self, plan: PlanFact, victim: Workload) -> None:
        """The API accepted this victim's eviction; told before the roster counts it as leaving."""

    def debts(self, plan: PlanFact) -> tuple[Debt, ...]:
        """What the plan owes so far."""

    def plan_ended(self, plan: PlanFact, end: End) -> tuple[Debt, ...]:
        """The plan is over. Gives what it owes; with () its object may go."""


@dataclass(frozen=True, slots=True)
class KeeperParts:
    """What it works with. `wake`: look at this plan again at this time of the loop's clock; `again`: these
    pods are to be decided on anew; `poke`: the ledger was changed here."""

    ledger: Ledger
    roster: Roster
    book: PlanBook
    worlds: PlanWorlds
    evictions: Evictions
    objects: PlanObjects
    sender: Sender
    told: Told
    lessons: Lessons
    left: LeftOver
    metrics: PreemptionMetrics
    wall: Wall
    recovery: Debts
    waiting: Waiting
    world: Callable[[], DecisionWorld]
    wake: Callable[[str, float], None]
    again: Callable[[Collection[str]], None]
    poke: Callable[[], None]
