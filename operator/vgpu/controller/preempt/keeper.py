"""Carries plans out: what core.preempt.plan_step says is done, one plan at a time, and what follows from its end.

Enters: names of plans to look at, what became of evictions. Leaves: holds, evictions, nominations, words for the
plans' objects, moments to look again. Between any two of its writes the process may die: all that is decided
stands in the plan's object before the first eviction, and the rest is read from what there is. May not live here:
the rules of a plan's life, requests.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vgpu.controller.preempt.evictions import Order
from vgpu.controller.preempt.keeper_parts import KeeperParts
from vgpu.controller.preempt.plan_orders import PlanOrders
from vgpu.controller.preempt.plan_words import PlanWords
from vgpu.controller.preempt.plan_worlds import owner_uids
from vgpu.controller.preempt.precedence import Acts, Precedence
from vgpu.controller.preempt.step_pace import StepPace
from vgpu.controller.preempt.swap_log import SwapLog
from vgpu.controller.preempt.told import (
    VICTIMS_DRAINING,
    ended_event,
)
from vgpu.controller.preempt.validation import Validation
from vgpu.core.changes import Changes
from vgpu.core.preempt.facts import PlanFact, Workload
from vgpu.core.preempt.plan import (
    Action,
    Advance,
    End,
    Evict,
    Nominate,
    PlanEnd,
    PlanWorld,
    Progress,
    Step,
    Succeed,
    key_of,
)
from vgpu.core.preempt.plan_step import given_up_by, next_actions, spared_by
from vgpu.core.preempt.swaps import Swap
from vgpu.core.preempt.words import names_words, waits_message

LOG = logging.getLogger(__name__)
QUIET_ENDS = frozenset({PlanEnd.OWNER_BOUND, PlanEnd.OWNER_GONE})
"""Ends that the owner need not be told."""


class PlanKeeper:
    """See the module."""

    def __init__(self, parts: KeeperParts) -> None:
        self._parts = parts
        self._last: dict[str, Step] = {}
        self._taken_over: dict[str, str] = {}
        self._evicted: dict[str, set[str]] = {}
        self._uids: dict[str, str] = {}
        self._swaps = SwapLog()
        self.pace = StepPace()
        self._words = PlanWords(parts)
        self._valid = Validation(parts, self._look)
        self._orders = PlanOrders(parts, self._words, self._living, self._valid)
        self._precedence = Precedence(parts, Acts(self.step, self.take_over, self._end))

    def swaps(self) -> tuple[Swap, ...]:
        """Evictions of pairs that are held apart, as far as this process made them."""
        return self._swaps.apart(self._parts.wall.now_seconds())

    def taken_over_by(self, plan: str) -> str:
        """NS/NAME of the plan that takes this one's cards, or ""."""
        return self._taken_over.get(plan, "")

    def gains_by(self, plan: PlanFact, changes: Changes) -> bool:
        """Whether what was freed on nodes of which the plan holds nothing may let it go on, or take its owner; or
        pods of which it holds nothing may be those that its gang lacks."""
        last = self._last.get(key_of(plan))
        if changes.pods and last is not None and last.short:
            return True
        return bool(changes.freed) and (last is None or last.anywhere or self._parts.worlds.may_fit(plan))

    def start_over(self) -> None:
        """This process begins to lead: only what the API server holds counts. Who was evicted by another process
        and is still there leaves for its plan; whether that process told him nobody knows."""
        for kept in (self._last, self._taken_over, self._evicted, self._uids):
            kept.clear()
        for plan in self._parts.book.all():
            for victim in plan.victims:
                pod = self._parts.ledger.pod(victim.uid)
                if pod is not None and pod.terminating and pod.node:
                    self._parts.ledger.plans.mark_evicted(victim.uid, pod.node)
                    event = self._words.victim_event(plan, victim.uid)
                    if event is not None:
                        self._parts.told.soon(event)

    def step(self, name: str) -> None:
        """Do for this plan what is to be done now."""
        began = self.pace.now()
        self._step(name)
        self.pace.note(name, self.pace.now() - began if name in self._last else 0)

    def _step(self, name: str) -> None:
        plan = self._parts.book.living(name)
        if plan is None:
            self._forget(name)
            return
        self._forget_former(plan)
        self._note_leaving(plan)
        state, (world, step) = self._valid.state(plan), self._look(plan)
        if self._precedence.gives_way(plan, step):
            return
        end = next((action for action in step.actions if isinstance(action, End)), None)
        if end is not None:
            self._end(plan, end, step.actions)
            return
        self._last[name] = step
        self._valid.note(plan, state, world, step)
        self._parts.book.spare(name, spared_by(step), given_up_by(step))
        goes = {action.uid for action in step.actions if isinstance(action, Evict)}
        self._parts.evictions.only(name, goes)
        for victim in (victim for victim in plan.victims if victim.uid in goes):
            self._parts.evictions.ask(self._orders.of(plan, victim))
        for action in step.actions:
            self._carry_out(plan, action)
        self._succeed(name, {one.lost: one.uid for one in step.actions if isinstance(one, Succeed)})
        if step.wake_seconds is not None:
            self._parts.wake(name, self._parts.wall.loop_time(step.wake_seconds))

    def take_over(self, plans: Iterable[str], by: str) -> None:
        """End these plans of lower rank: the plan `by` takes their cards."""
        for name in plans:
            plan = self._parts.book.living(name)
            if plan is not None:
                self._forget_former(plan)
                self._taken_over[name] = by
                self.step(name)

    def accepted(self, order: Order) -> None:
        """The API accepted the eviction: its pod is leaving, before any event shows it."""
        uid, parts = order.pod.uid, self._parts
        victim, plan = parts.roster.workloads.get(uid, order.victim), self._living(*order.by)
        valid = plan is not None and self._valid.holds(plan)
        if victim is not None:
            parts.metrics.evicted(victim, order.rule, parts.wall.now_seconds())
        if plan is not None:
            self._evicted.setdefault(order.orderer, set()).add(uid)
            if victim is not None:
                parts.recovery.evicted(plan, victim)
                self._note_swap(plan, victim)
        parts.ledger.plans.mark_evicted(uid, order.node)
        parts.roster.mark_evicted(uid)
        if plan is not None and valid:
            self._valid.leaves(plan, uid)
        parts.poke()

    def partly(self, gang: str, why: str) -> None:
        """Too few of this gang are bound, with what is told of it, or "" = that is not so: its plan says it."""
        self._parts.objects.note_partial(gang, why)
        for plan in self._parts.book.all_living():
            if plan.owner_name == gang and self._parts.objects.denies_partial(plan):
                self._parts.objects.say(plan, self.waits_for(plan))

    def waits_for(self, plan: PlanFact) -> str:
        """What this plan waits for now, in words."""
        last = self._last.get(key_of(plan))
        return self._words.waits_for(plan, Progress() if last is None else last.progress)

    def asked(self, plan: PlanFact) -> int:
        """How many of its victims were asked to go, whatever its object says yet."""
        return len(self._evictions_sent(plan))

    def settled(self, order: Order) -> None:
        """An order is done: look at every plan that its pod is a victim of."""
        asked = self._parts.evictions.get(order.pod.uid)
        if asked is None or not asked.accepted:
            self._valid.void(order.orderer)
        for plan in self._parts.book.all_living():
            if any(victim.uid == order.pod.uid for victim in plan.victims):
                self._parts.wake(key_of(plan), 0)

    def _look(self, plan: PlanFact) -> tuple[PlanWorld, Step]:
        last = self._last.get(key_of(plan))
        progress, world = Progress() if last is None else last.progress, self._parts.worlds.of(plan)
        return world, next_actions(plan, world, progress, self._parts.wall.now_seconds())

    def _carry_out(self, plan: PlanFact, action: Action) -> None:
        if isinstance(action, Nominate):
            self._parts.sender.send(action.uid, action.placement)
            self._parts.poke()
        elif isinstance(action, Advance):
            self._advance(plan, action)

    def _succeed(self, name: str, taken: Mapping[str, str]) -> None:
        """Whoever goes on with the plan reads in its object who sits where: written once for all who come at once,
        as of a large gang hundreds may."""
        for lost, uid in taken.items():
            LOG.info("seat taken plan=%s by=%s in place of=%s", name, uid, lost)
            self._parts.sender.drop(lost)
        plan = self._parts.book.succeed(name, taken) if taken else None
        if plan is not None:
            self._parts.objects.say(plan, self.waits_for(plan))
            self._words.tell_seats(plan, frozenset(taken.values()))

    def _living(self, name: str, plan_uid: str) -> PlanFact | None:
        """Just this plan, unless it is over: another may have its name by now."""
        plan = self._parts.book.living(name)
        return plan if plan is not None and plan.uid == plan_uid else None

    def _advance(self, plan: PlanFact, action: Advance) -> None:
        """Written once, when it is known of every eviction whether it was accepted."""
        if any(self._parts.evictions.under_way(victim.uid) for victim in plan.victims):
            return
        sent = self._evictions_sent(plan)
        debts = self._parts.recovery.debts(plan)
        self._parts.book.reached(key_of(plan), action.phase, sent, debts)
        reached = replace(plan, phase=action.phase, evictions_sent=sent, debts=debts)
        leaving, name = self._awaited(reached), key_of(plan)
        if not plan.victims:
            self._words.tell_held(plan)
        self._parts.objects.say(reached, f"{names_words(leaving)} to end" if leaving else self.waits_for(reached))
        if leaving:
            self._words.tell_owner(plan, VICTIMS_DRAINING, f"{waits_message(leaving)}; plan {name}")

    def _end(self, plan: PlanFact, end: End, actions: Sequence[Action]) -> None:
        name, parts = key_of(plan), self._parts
        sent = self._evictions_sent(plan)
        ended = replace(plan, phase=end.phase, evictions_sent=sent, debts=parts.recovery.plan_ended(plan, end))
        LOG.info("plan ended plan=%s reason=%s evicted=%d: %s", name, end.reason, len(sent), end.message)
        parts.evictions.only(name, ())
        for uid in owner_uids(plan):
            parts.sender.drop(uid)
        hold = parts.ledger.plans.get(name)
        parts.book.end(ended)
        parts.left.keep(hold, end)
        parts.lessons.note(plan.owner_uids, end, parts.wall.now_seconds())
        if end.reason not in QUIET_ENDS:
            for pod in self._words.owner_pods(plan):
                parts.told.soon(ended_event(plan, pod, end))
        for action in actions:
            if isinstance(action, Nominate):
                parts.sender.send(action.uid, action.placement)
        self._orders.release(plan, end)
        parts.objects.finish(ended, end)
        parts.metrics.plan_ended(end.reason)
        self._forget(name)
        parts.again(plan.owner_uids)
        parts.poke()

    def _evictions_sent(self, plan: PlanFact) -> frozenset[str]:
        """Victims that were asked to go, by this process or one before it."""
        known = plan.evictions_sent | self._evicted.get(key_of(plan), set())
        return known | {victim.uid for victim in plan.victims if self._is_leaving(victim.uid)}

    def _note_leaving(self, plan: PlanFact) -> None:
        """Victims that another process evicted, or that left by themselves, are owed like our own."""
        workloads = self._parts.roster.workloads
        for victim in plan.victims:
            pod, workload = self._parts.ledger.pod(victim.uid), workloads.get(victim.uid)
            if pod is not None and pod.terminating and workload is not None:
                self._parts.recovery.evicted(plan, workload)

    def _note_swap(self, plan: PlanFact, victim: Workload) -> None:
        workloads, now_seconds = self._parts.roster.workloads, self._parts.wall.now_seconds()
        owners = [w.owner.uid or w.uid for uid in plan.owner_uids if (w := workloads.get(uid)) is not None]
        preemptor, gave_way = (*owners, plan.owner_uids[0])[0], victim.owner.uid or victim.uid
        if self._swaps.note(Swap(preemptor, gave_way, now_seconds)):
            self._parts.metrics.swap_frozen()

    def _awaited(self, plan: PlanFact) -> list[str]:
        """Victims that were asked to go and are still there, as people name them."""
        sent = plan.evictions_sent
        return [f"{v.namespace}/{v.name}" for v in plan.victims if self._is_there(v.uid) and v.uid in sent]

    def _is_there(self, uid: str) -> bool:
        pod = self._parts.ledger.pod(uid)
        return pod is not None and not pod.ended

    def _is_leaving(self, uid: str) -> bool:
        pod = self._parts.ledger.pod(uid)
        return pod is not None and (pod.terminating or self._parts.evictions.leaving(uid))

    def _forget_former(self, plan: PlanFact) -> None:
        """What was learnt about a plan says nothing about the next one of its name."""
        name = key_of(plan)
        if self._uids.get(name) != plan.uid:
            self._forget(name)
            self._uids[name] = plan.uid

    def _forget(self, name: str) -> None:
        self._valid.void(name)
        for kept in (self._last, self._taken_over, self._evicted, self._uids):
            kept.pop(name, None)
