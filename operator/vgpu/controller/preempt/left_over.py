"""Keeps what was freed for the owner of a plan that is over, until that owner is decided on anew.

A plan that is taken over, or that came to nothing, has freed cards by evictions. Its owner waits still, and is
decided on anew: at once for a pod, for a gang after a look whether all of it fits somewhere. Meanwhile these cards
are not for whoever is asked about first: he would start there and be evicted again.

Enters: what plans held when they ended, decisions. Leaves: holds in the ledger that count like those of plans, at
the owner's rank; whoever ranks higher may take them. In memory alone: nothing is written. A new leader knows of
none, and decides on everybody anew. May not live here: what is left, decisions.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace

from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys
from vgpu.controller.preempt.plan_book import LOWEST
from vgpu.controller.preempt.plan_worlds import waits
from vgpu.controller.preempt.relevance import left_for
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.claims import NO_PLAN
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.leftover import left_of
from vgpu.core.preempt.plan import End
from vgpu.core.preempt.rank import rank_of
from vgpu.core.preempt.reservations import PlanHold, without_plans
from vgpu.core.preempt.roster import Roster

LEFT_SECONDS = 10.0
"""So long it is held at most, as cards are for a pod that was sent: a decision takes moments."""
LEFT_OF = "left of "
"""What names of these holds begin with; plans are NS/NAME."""


class LeftOver:
    """See the module. `poke`: the ledger was changed here."""

    def __init__(self, ledger: Ledger, roster: Roster, poke: Callable[[], None]) -> None:
        self._ledger = ledger
        self._roster = roster
        self._poke = poke
        self._ends: DueKeys[str] = DueKeys()

    def keep(self, hold: PlanHold | None, end: End) -> None:
        """A plan that held this is over. Who takes it over says what he needs next: give_room()."""
        if hold is None or not end.replan:
            return
        self._drop(self._of(hold.uids))
        left = left_of(replace(hold, plan=f"{LEFT_OF}{hold.plan}"), self._ledger.view, end.avoid_nodes)
        if left.cards:
            self._ledger.plans.put(left)
            self._ends.add(left.plan, asyncio.get_running_loop().time() + LEFT_SECONDS)

    def give_room(self) -> None:
        """Others hold cards now, who come first: what they need is kept no longer."""
        for hold in self._ledger.plans.left():
            still = left_of(hold, self._ledger.view)
            if not still.cards:
                self._drop([hold])
            elif still != hold:
                self._ledger.plans.put(still)

    def decided(self, uids: Collection[str]) -> None:
        """What becomes of these pods is known: a plan holds what they need, or they need it not, or not now."""
        self._drop(self._of(uids))

    def look(self) -> None:
        """Who is on his way, has other cards held, or waits no more, needs it no more."""
        self._drop([hold for hold in self._ledger.plans.left() if not self._waits(hold)])

    def clear(self) -> None:
        """This process begins to lead: everybody is decided on."""
        self._drop(self._ledger.plans.left())

    async def expire(self) -> None:
        """Give up what has been held for too long. Runs until cancelled."""
        while True:
            name = await self._ends.next()
            with one_object("preemption: left over", name):
                self._ledger.plans.drop(name)
                self._poke()

    # What a decision asks.

    def holds_for(self, uids: Collection[str]) -> bool:
        """Whether anything is kept for one of these pods."""
        return bool(self._of(uids))

    def over(self, world: DecisionWorld) -> DecisionWorld:
        """The world in which those who rank higher may take what is kept, as they may take what is claimed."""
        left, known, entitled = self._ledger.plans.left(), world.workloads, world.standing.entitled
        if not left:
            return world
        ranks = ([rank_of(known[uid], entitled) for uid in hold.uids if uid in known] for hold in left)
        claims = [
            (replace(hold, plan=NO_PLAN), max(of, default=LOWEST)) for hold, of in zip(left, ranks, strict=True)
        ]
        return replace(world, claims=(*world.claims, *claims))

    def seen_by(self, uids: Collection[str], world: DecisionWorld) -> DecisionWorld:
        """The world as it is for these pods: any of them may sit where something is kept for another of them."""
        mine = self._of(uids)
        nodes = {node for hold in mine for node in hold.nodes if node in world.views}
        if not nodes:
            return world
        free = {node: without_plans(world.views[node], mine) for node in nodes}
        return replace(world, views={**world.views, **free})

    def _of(self, uids: Collection[str]) -> list[PlanHold]:
        return left_for(self._ledger, uids)

    def _waits(self, hold: PlanHold) -> bool:
        ledger, uids = self._ledger, hold.uids
        if any(ledger.nomination(uid) is not None or ledger.booking(uid) is not None for uid in uids):
            return False
        held = any(not uids.isdisjoint(other.uids) for other in ledger.plans.all())
        return not held and any(waits(ledger, uid) for uid in uids)

    def _drop(self, holds: Collection[PlanHold]) -> None:
        for hold in holds:
            self._ends.discard(hold.plan)
            self._ledger.plans.drop(hold.plan)
        if holds:
            self._poke()
