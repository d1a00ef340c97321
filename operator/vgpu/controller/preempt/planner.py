"""The planner: decides whom to evict for pods that wait, and keeps every plan going. Only the leader's acts.

Enters: changes of the ledger, of queues, budgets and plans; moments that were asked for. Leaves: plans, begun in
rank order, one decision at a time; steps of plans. Nothing runs while nothing changes, and nothing is decided in a
call of the extender. May not live here: who may evict whom, what a plan does next, writes.

A plan's cards are held before its object is created, and its object is created before the first eviction: whenever
the process dies, either nobody was evicted or the plan says who was to be.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace

from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys
from vgpu.controller.preempt.bodies import PreemptionWrite
from vgpu.controller.preempt.coming_room import ComingRoom
from vgpu.controller.preempt.deciding import Question
from vgpu.controller.preempt.keeper import PlanKeeper
from vgpu.controller.preempt.left_over import LeftOver
from vgpu.controller.preempt.plan_objects import write_of
from vgpu.controller.preempt.plan_worlds import waits
from vgpu.controller.preempt.planner_parts import PlannerParts
from vgpu.controller.preempt.promises import Promises
from vgpu.controller.preempt.ranked_plans import RankedPlans
from vgpu.controller.preempt.relevance import concerns, cost_somebody, still_holds
from vgpu.controller.preempt.told import preemptor_events
from vgpu.controller.preempt.waiting import Place
from vgpu.core.ledger import Changes
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.decision_world import Avoid, DecisionWorld
from vgpu.core.preempt.eligible import queues_take
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.preempt.plan import key_of
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.swaps import Swap
from vgpu.core.reasons import Reason, Refusal
from vgpu.kube.objects import Key

__all__ = ["Planner", "PlannerParts"]

LOG = logging.getLogger(__name__)
DECIDE = ""
"""The key, beside names of plans, of everybody who is to be decided on."""
MOMENT = "a moment that was waited for"
AHEAD = -1.0
"""The time of a key that is taken before all others."""
TURN_SECONDS = 0.01


class Planner:
    """See the module. `keeper` is set once, before it runs."""

    keeper: PlanKeeper

    def __init__(self, parts: PlannerParts) -> None:
        self._parts = parts
        self.lessons = parts.lessons
        self._promises = Promises(parts.ledger, parts.roster)
        self._coming = ComingRoom(parts.ledger, parts.roster, parts.book)
        self.left = LeftOver(parts.ledger, parts.roster, parts.poke)
        self._due: DueKeys[str] = DueKeys()
        self._ranked = RankedPlans(parts.ledger, parts.roster, parts.book)

    # What happens.

    def changed(self, changes: Changes) -> None:
        """The ledger changed: plans that gain by it go on, everybody who waits is looked at again."""
        self._parts.evictions.forget_gone()
        for uid in self.lessons.known_uids():
            if not waits(self._parts.ledger, uid):
                self.lessons.forget(uid)
        self.left.look()
        if not self._parts.fence.leading:
            return
        self._promises.note()
        for plan in self._parts.book.all_living():
            if concerns(plan, changes, self._parts.ledger.plans) or self.keeper.gains_by(plan, changes):
                self.wake(key_of(plan), self.keeper.pace.until(key_of(plan)))
        self._parts.rounds.note(changes.pods)
        self.look_again()

    def look_again(self, uids: Collection[str] = ()) -> None:
        """Something else changed that a decision rests on: a queue, a budget, a gang. These pods take their place
        in the round that goes on."""
        self._parts.rounds.note(uids)
        if self._parts.fence.leading:
            self.wake(DECIDE, 0)

    def rules_changed(self) -> None:
        """Queues, budgets or groups are others than before: every plan rests on them."""
        self.lessons.forgive_victims()
        for plan in self._parts.book.all_living():
            self.wake(key_of(plan), 0)
        self.look_again()

    def plan_changed(self, key: str, plan: PlanFact | None) -> None:
        """The plan NS/NAME is there like this; None = its object is gone."""
        self._promises.note()
        self._parts.poke()
        if plan is None:
            self.look_again()
        elif self._parts.fence.leading:
            self.wake(key, 0)

    def start_over(self) -> None:
        """This process has begun to lead, and its other parts know what the API server holds: all is looked at."""
        self.left.clear()
        self._promises.note()
        for plan in self._parts.book.all_living():
            self.wake(key_of(plan), 0)
        self._parts.rounds.start_over()
        self.look_again()

    def wake(self, key: str, at: float) -> None:
        """Look at this plan, or at everybody who waits, at this time of the loop's clock."""
        self._due.add(key, at)

    def created(self, plan: PlanFact) -> None:
        """A plan's object was created: now its victims may be asked to go, before anybody else is decided on."""
        self._parts.book.adopt(plan)
        self._parts.told.not_refused(plan.owner_uids)
        workloads = self._parts.roster.workloads
        for event in preemptor_events(plan, [workloads[uid] for uid in plan.owner_uids if uid in workloads]):
            self._parts.told.soon(event)
        if self._parts.fence.leading:
            self.keeper.step(key_of(plan))

    def not_created(self, write: PreemptionWrite, why: str, again: bool) -> None:
        """A plan's object was not created: nothing is held for it, unless it is tried `again` by itself. `why`:
        the server's words, "" = nothing: whoever waits is told."""
        pods = [pod for uid in write.owner_uids if why and (pod := self._parts.ledger.pod(uid))]
        self._parts.told.not_written((Key(pod.namespace, pod.name, pod.uid) for pod in pods), why)
        if again:
            return
        if why:
            self.lessons.failed(write.owner_uids, self._parts.wall.now_seconds())
        self._parts.book.withdraw(f"{write.namespace}/{write.name}")
        self._promises.note()
        self._parts.poke()
        self.look_again()

    def still_wanted(self, write: PreemptionWrite) -> bool:
        """Whether all pods of a plan that is being created wait still."""
        return all(waits(self._parts.ledger, uid) for uid in write.owner_uids)

    # What is asked.

    def swaps(self) -> tuple[Swap, ...]:
        """Evictions of pairs that are held apart."""
        return self.keeper.swaps()

    def world(self) -> DecisionWorld:
        """Everything as a decision made now would see it."""
        parts = self._parts
        world = parts.roster.world(self._ranked.now(), self.swaps(), parts.policies, parts.evictions.accepted())
        return self.left.over(self._coming.over(world))

    def learned(self, uid: str) -> Avoid:
        """What earlier plans for this pod taught."""
        return self._avoid((uid,))

    def refusal(self, uid: str) -> Refusal | None:
        """Why nobody is evicted for this pod, as far as that was found out."""
        return self._parts.told.refusal(uid)

    # What is done.

    async def run(self) -> None:
        """Decide and step, in turns: many plans that go on keep nobody waiting for his. Runs until cancelled."""
        while True:
            key = await self._due.next()
            if not self._parts.fence.leading:
                continue
            with one_object("planner", key or "decisions"):
                if key == MOMENT:
                    self.look_again()
                elif key == DECIDE:
                    await self._decide_one()
                else:
                    self.keeper.step(key)
                    if self._parts.rounds.goes_on:
                        self.wake(DECIDE, AHEAD)

    async def _decide_one(self) -> None:
        """At most one decision; equal pods that were refused already cost none."""
        self._parts.drains.look()
        rounds, loop = self._parts.rounds, asyncio.get_running_loop()
        if await rounds.take_in():
            self._parts.deciding.forget()
            self._coming.begin_anew()
            self._parts.told.keep_only({pod.uid for pod in self._parts.ledger.pending()})
        turn_ends, decided = loop.time() + TURN_SECONDS, False
        while not decided and loop.time() < turn_ends:
            place = rounds.next()
            if place is None:
                rounds.rest()
                break
            with one_object("planner", place.pods[0].pod):
                decided = await self._decide(place)
        at = rounds.wakes_at()
        if at is not None:
            self.wake(DECIDE, at)

    async def _decide(self, place: Place) -> bool:
        """True when it took a decision."""
        parts, now_seconds = self._parts, self._parts.wall.now_seconds()
        rests_until = self.lessons.rests_until(place.uids, now_seconds)
        if rests_until is not None:
            self.look_at(rests_until)
            self.left.decided(place.uids)
            return False
        if await self._fits_now(place):
            parts.told.not_refused(place.uids)
            self.left.decided(place.uids)
            return False
        self._coming.give(place.uids)
        world = self.left.seen_by(place.uids, self.world())
        question = Question(world, place.pods, self._avoid(place.uids), now_seconds, parts.roster.revision)
        known = None if self.left.holds_for(place.uids) else parts.deciding.known_no(question)
        answer = await parts.deciding.answer_aside(question) if known is None else known
        planned = parts.book.planned_for()
        if known is None and not (parts.fence.leading and still_holds(parts.ledger, planned, place.uids, answer)):
            self.look_again()
            return True
        if isinstance(answer, No):
            self._refuse(place, answer)
        elif cost_somebody(parts.ledger, place.uids, answer):
            self._begin(place, answer)
        else:
            self._claim(place, answer, now_seconds)
        self.left.decided(place.uids)
        return known is None

    async def _fits_now(self, place: Place) -> bool:
        """Cards, and what their queues let them use."""
        if queues_take(self._parts.roster.standing(), place.pods) is not None:
            return False
        pods = [self._parts.ledger.pod(uid) for uid in place.uids]
        return await self._parts.worlds.fits_now([pod for pod in pods if pod is not None])

    def _refuse(self, place: Place, answer: No) -> None:
        quiet = answer.reason is Reason.NO_LOWER_RANK and self._nobody_runs()
        for pod in place.pods:
            self._parts.told.refused(Key(pod.namespace, pod.name, pod.uid), answer.refusal, quiet=quiet)
        if answer.until_seconds is not None:
            self.look_at(answer.until_seconds)
        lapses = self.lessons.wakes_at(place.uids, self._parts.wall.now_seconds())
        if lapses is not None:
            self.look_at(lapses)

    def _claim(self, place: Place, answer: Plan, now_seconds: int) -> None:
        """Room comes by itself, for these pods and not for those after them; looked at again if it does not."""
        self._parts.told.not_refused(place.uids)
        self._coming.claim(answer)
        self._once_more(answer.claimants)
        hangs_at = self._coming.hangs_at(answer, now_seconds)
        if hangs_at is not None:
            self.look_at(hangs_at)

    def _once_more(self, uids: Collection[str]) -> None:
        """These pods take their place in the round again."""
        if uids:
            self._parts.rounds.put_back(uids)
            self.wake(DECIDE, 0)

    def _nobody_runs(self) -> bool:
        return not any(workload.running for workload in self._parts.roster.workloads.values())

    def _begin(self, place: Place, plan: Plan) -> None:
        """Hold the cards, end the plans that are taken over, create the plan's object."""
        write = write_of(place.pods, plan, self._parts.book.next_generation)
        name = f"{write.namespace}/{write.name}"
        victims = frozenset((victim.uid, victim.node) for victim in plan.victims)
        self.keeper.take_over(plan.takes, name)
        self._coming.give((*place.uids, *plan.claimants))
        self._once_more(plan.claimants)
        self._parts.book.begin(PlanHold(name, write.generation, plan.reservations, victims))
        self.left.give_room()
        self._promises.note()
        self._parts.objects.create(write, plan.takes)
        self._parts.told.not_refused(place.uids)
        self._parts.rounds.planned = True
        words = f"victims={len(plan.victims)} rule={plan.rule} exact={plan.exact} takes={','.join(plan.takes)}"
        LOG.info("plan begun plan=%s owner=%s %s", name, write.owner_name, words)
        self._parts.poke()

    def look_at(self, moment_seconds: int) -> None:
        """A moment is a change like any other: what was refused before it may be granted after it. The earliest
        counts; who still waits then names the next."""
        self.wake(MOMENT, self._parts.wall.loop_time(moment_seconds))

    def _avoid(self, uids: tuple[str, ...]) -> Avoid:
        ledger, now_seconds = self._parts.ledger, self._parts.wall.now_seconds()
        avoid = self.lessons.avoid(uids, now_seconds, lambda uid: ledger.pod(uid) is not None)
        hanging = self._coming.hanging(uids, now_seconds)
        return replace(avoid, stuck=avoid.stuck | hanging) if hanging else avoid
