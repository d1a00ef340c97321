"""Every plan that exists, and what each holds in the ledger: by the watch, and by what this process knows first.

Enters: plans of the watch of GpuPreemptions, plans that are being created, plans that ended here. Leaves: living
plans, ended ones that still carry debts, holds in `ledger.plans`. All replicas fold plans; only the leader tells
of creating and ending. May not live here: requests, what a plan does next.

A plan counts from before its object is created: between the decision and the watch's word nobody may take its
cards. One that ended here is over at once, whatever a late event of the watch says.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from vgpu.controller.guard import one_object
from vgpu.core.preempt.facts import Debt, OwnerKind, PlanFact, PlanPhase, Workload
from vgpu.core.preempt.gang_seats import succeeded, with_successors
from vgpu.core.preempt.plan import hold_of, key_of
from vgpu.core.preempt.plan_step import OVER
from vgpu.core.preempt.rank import Rank, rank_of
from vgpu.core.preempt.reservations import PlanHold, PlanHolds
from vgpu.kube.objects import Key

LOG = logging.getLogger(__name__)
Plans = tuple[tuple[PlanHold, Rank], ...]
NAMES_SINCE = 1_577_836_800
"""2020-01-01: generations are seconds from then on, as far as they are not counted."""
LOWEST = Rank(entitled=False, priority=-(2**31))
"""Of a plan whose owner is not known (yet)."""
_ORDER = {phase: place for place, phase in enumerate(PlanPhase)}


class PlanListener(Protocol):
    """Who acts on plans. Called in the event loop, must not block; every replica calls."""

    def plan_changed(self, key: str, plan: PlanFact | None) -> None:
        """The plan NS/NAME is there like this; None = its object is gone."""


class PlanBook:
    """See the module. `version` rises with every change of a plan or a hold."""

    def __init__(self, holds: PlanHolds, now_seconds: Callable[[], int] = lambda: NAMES_SINCE) -> None:
        self.version = 0
        self._now_seconds = now_seconds
        self._generation = 0
        self._holds = holds
        self._listeners: list[PlanListener] = []
        self._planned: tuple[int, frozenset[str]] = (-1, frozenset())
        self._seen: dict[str, PlanFact] = {}
        self._plans: dict[str, PlanFact] = {}
        self._ended_here: set[str] = set()
        self._creating: dict[str, PlanHold] = {}
        self._dropped_while_creating: set[str] = set()
        self._spared: dict[str, frozenset[str]] = {}
        self._given_up: dict[str, frozenset[str]] = {}
        self._successors: dict[str, Mapping[str, str]] = {}
        self._told: dict[Key, str] = {}

    def add(self, listener: PlanListener) -> None:
        """Tell this listener of every plan from now on."""
        self._listeners.append(listener)

    # The sink of the watch.

    def put(self, item: PlanFact) -> None:
        """A plan's object is there, like this."""
        self._told.pop(Key(item.namespace, item.name, item.uid), None)
        self._seen[key_of(item)] = item
        self._fold(item)

    def drop(self, key: Key) -> None:
        """A plan's object is gone: it holds nothing."""
        self._told.pop(key, None)
        self._ended_here.discard(key.uid)
        if self._creating:
            self._dropped_while_creating.add(key.uid)
        name = f"{key.namespace}/{key.name}"
        self._seen.pop(name, None)
        known = self._plans.get(name)
        if known is not None and known.uid == key.uid:
            self._remove(name)

    def malformed(self, key: Key, message: str) -> None:
        """This object cannot be read: it holds nothing by itself, what was known of it stays. Named once."""
        if self._told.get(key) != message:
            self._told[key] = message
            LOG.warning("unreadable GpuPreemption %s/%s: %s; delete it", key.namespace, key.name, message)

    def synced(self) -> None:
        """Nothing more to do: readiness looks at the reflector itself."""

    # What this process knows first.

    def begin(self, hold: PlanHold) -> None:
        """This plan's object is about to be created: its cards are held from now on."""
        self.version += 1
        self._creating[hold.plan] = hold
        self._holds.put(hold)

    def withdraw(self, plan: str) -> None:
        """The plan's object was not created."""
        self.version += 1
        if self._creating.pop(plan, None) is not None and self.living(plan) is None:
            self._holds.drop(plan)
        self._creation_is_over()

    def adopt(self, plan: PlanFact) -> None:
        """The plan's object was created, or found: it counts before the watch shows it."""
        self.version += 1
        self._creating.pop(key_of(plan), None)
        if plan.uid in self._dropped_while_creating:
            self._holds.drop(key_of(plan))
        else:
            self._fold(plan)
        self._creation_is_over()

    def spare(self, plan: str, uids: frozenset[str], given_up: frozenset[str] = frozenset()) -> None:
        """These victims of a living plan stay so far; the others are to go. The seats `given_up` are not held."""
        known = self.living(plan)
        if known is not None:
            self._spared[plan], self._given_up[plan] = uids, given_up
            self._holds.put(self._hold_of(known))

    def succeed(self, plan: str, taken: Mapping[str, str]) -> PlanFact | None:
        """Pods have the seats of those who are gone, by uid of these; the plan's object is about to say it."""
        known = self.living(plan)
        if known is not None:
            known = succeeded(known, taken)
            self._successors[plan] = dict(known.successors)
            self._store(known)
        return known

    def reached(
        self, plan: str, phase: PlanPhase, evictions_sent: frozenset[str], debts: tuple[Debt, ...]
    ) -> None:
        """The plan has got so far; its object is about to say it."""
        known = self.living(plan)
        if known is not None:
            self._store(replace(known, phase=phase, evictions_sent=evictions_sent, debts=debts))

    def end(self, ended: PlanFact) -> None:
        """The plan is over, with this phase and these debts; its object may still say otherwise."""
        self._ended_here.add(ended.uid)
        self._store(ended)

    def start_over(self) -> None:
        """This process begins to lead: only what the API server holds is known of plans."""
        for kept in (self._ended_here, self._spared, self._given_up, self._successors):
            kept.clear()
        for plan in self._plans.keys() - self._seen.keys():
            self._remove(plan)
        for plan in list(self._creating):
            self.withdraw(plan)
        self._plans.clear()
        for fact in self._seen.values():
            self._fold(fact)

    # What is asked.

    def living(self, plan: str) -> PlanFact | None:
        """The plan of this NS/NAME, unless it is over."""
        known = self._plans.get(plan)
        return None if known is None or known.phase in OVER else known

    def all_living(self) -> list[PlanFact]:
        """Plans that are not over, in the order in which they became known."""
        return [plan for plan in self._plans.values() if plan.phase not in OVER]

    def ended(self) -> list[PlanFact]:
        """Plans that are over and still have an object: it carries debts, or is about to be deleted."""
        return [plan for plan in self._plans.values() if plan.phase in OVER]

    def all(self) -> Iterable[PlanFact]:
        """Every plan that has an object."""
        return self._plans.values()

    def holds(self, plan: str) -> bool:
        """True for a living plan, and for one that is being created."""
        return plan in self._creating or self.living(plan) is not None

    def planned_for(self) -> frozenset[str]:
        """Uids of all pods that a living plan is for, or one that is being created."""
        if self._planned[0] != self.version:
            uids = {uid for plan in self.all_living() for uid in plan.owner_uids}
            uids |= {uid for hold in self._creating.values() for uid in hold.uids}
            self._planned = self.version, frozenset(uids)
        return self._planned[1]

    def next_generation(self, kind: OwnerKind, name: str, uids: Collection[str]) -> int:
        """Above that of every plan that is known for this owner, and of every one that this process made.

        As it follows the clock it is above those of earlier processes too: no two plans of an owner have one name.
        """
        mine = set(uids)
        known = (
            plan.generation
            for plan in self._plans.values()
            if not mine.isdisjoint(plan.owner_uids)
            or (plan.owner_kind is kind is OwnerKind.GANG and plan.owner_name == name)
        )
        self._generation = max(1 + max(known, default=0), 1 + self._generation, self._now_seconds() - NAMES_SINCE)
        return self._generation

    def _fold(self, fact: PlanFact) -> None:
        plan = key_of(fact)
        known = self._plans.get(plan)
        if known is not None and known.uid == fact.uid:
            fact = self._forward(known, fact)
        elif known is not None:
            self._forget_learnt(plan)
        if fact == known:
            return
        self._store(fact)

    def _store(self, fact: PlanFact) -> None:
        plan = key_of(fact)
        self.version += 1
        self._plans[plan] = fact
        if fact.phase in OVER:
            self._stop_holding(plan)
        else:
            self._holds.put(self._hold_of(fact))
        for listener in self._listeners:
            with one_object("plans", plan):
                listener.plan_changed(plan, fact)

    def _forward(self, known: PlanFact, fact: PlanFact) -> PlanFact:
        """A plan never goes back: an event may be older than what this process wrote."""
        if fact.uid in self._ended_here and fact.phase not in OVER:
            return known
        fact = with_successors(fact, self._successors.get(key_of(fact), dict(fact.successors)))
        if _ORDER[fact.phase] < _ORDER[known.phase]:
            return replace(fact, phase=known.phase, evictions_sent=known.evictions_sent, debts=known.debts)
        return fact

    def _remove(self, plan: str) -> None:
        self.version += 1
        del self._plans[plan]
        self._stop_holding(plan)
        for listener in self._listeners:
            with one_object("plans", plan):
                listener.plan_changed(plan, None)

    def _forget_learnt(self, plan: str) -> None:
        """What was learnt of the plan of this name; the next one of that name is another."""
        for kept in (self._spared, self._given_up, self._successors):
            kept.pop(plan, None)

    def _stop_holding(self, plan: str) -> None:
        self._forget_learnt(plan)
        if plan not in self._creating:
            self._holds.drop(plan)

    def _hold_of(self, plan: PlanFact) -> PlanHold:
        name, none = key_of(plan), frozenset[str]()
        return hold_of(plan, self._spared.get(name, none), self._given_up.get(name, none))

    def _creation_is_over(self) -> None:
        if not self._creating:
            self._dropped_while_creating.clear()


def plans_of(
    holds: PlanHolds, is_plan: Callable[[str], bool], workloads: Mapping[str, Workload], entitled: Collection[str]
) -> Plans:
    """What each living plan holds, with its owner's rank; other holds are nobody's to take over."""
    found = [hold for hold in holds.all() if is_plan(hold.plan)]
    ranks = [[rank_of(workloads[uid], entitled) for uid in hold.uids if uid in workloads] for hold in found]
    return tuple((hold, max(rank, default=LOWEST)) for hold, rank in zip(found, ranks, strict=True))
