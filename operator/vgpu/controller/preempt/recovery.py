"""What was evicted comes back: keeps debts from the eviction until the pods are back, and then clears up.

Enters: evictions that were accepted, plans as they change and end, waiting pods as they come and go. Leaves: debts
for the plans' status, the order of offers for the nominator, deletions of plans that owe nothing any more. A debt
is paid by pods of its owner that are bound again; where none of them waits, the owner is read once, later at known
moments. May not live here: who is evicted, who goes where, the other writes about plans.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from vgpu.controller.clock import Clock
from vgpu.controller.fence import Fence
from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys
from vgpu.controller.preempt.bare_pods import BareParts, BarePods
from vgpu.controller.preempt.debt_book import DebtBook
from vgpu.controller.preempt.debt_offers import DebtOffers, OfferParts
from vgpu.controller.preempt.owners import Reader, Wanted, ask_owner, path_of
from vgpu.core.changes import Changes
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.debts import BARE_POD, creditor, creditor_of, debts_of, is_owed, merged, running_since
from vgpu.core.preempt.facts import Debt, PlanFact, QueueFact, Workload
from vgpu.core.preempt.plan import End, key_of
from vgpu.core.preempt.plan_step import OVER
from vgpu.core.preempt.rank import rank_of
from vgpu.core.preempt.roster import Roster
from vgpu.core.preempt.uid_index import UidIndex
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.kube.objects import Decoded, Key

LOG = logging.getLogger(__name__)
PLAN = "plan "
"""Before NS/NAME of a plan whose object may go; other keys are creditors to look at."""
REPEAT_SECONDS = 5
"""After a request that failed for reasons that pass."""
MOST_DOUBLINGS = 13
"""The time between two looks at one owner doubles up to about a day."""
LOOKS_WITHOUT_READING = 5
"""So often one looks for pods of an owner of unknown kind before nothing is owed to it any more."""


class RecoveryWriter(Protocol):
    """The writes of recovery; the operator's writer. Each raises ApiRefused, ApiUnavailable, OutcomeUnknown and
    NotLeading."""

    async def delete_preemption(self, plan: Key) -> None:
        """Delete exactly this plan's object."""

    async def create_pod(self, namespace: str, body: dict[str, Any]) -> bytes:
        """Create the pod."""


@dataclass(frozen=True, slots=True)
class RecoveryParts:
    """What recovery works with. `bare_pods`: the setting recreate_bare_pods."""

    ledger: Ledger
    roster: Roster
    reader: Reader
    writer: RecoveryWriter
    decode_pod: Callable[[bytes], Decoded[PodFact]]
    fence: Fence
    clock: Clock
    bare_pods: bool = False


class Recovery:
    """See the module. `offers` is for the nominator, `book` who is owed what, `bare` how bare pods come back."""

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts
        self.book = DebtBook()
        self._waiting = UidIndex()
        ledger, book = parts.ledger, self.book
        self.bare = BarePods(
            BareParts(
                ledger, parts.roster, book, parts.reader, parts.writer, parts.decode_pod, enabled=parts.bare_pods
            )
        )
        now = parts.clock.monotonic
        self.offers = DebtOffers(OfferParts(ledger, parts.roster, book, self._waiting, self.bare, now))
        self._debts: dict[str, tuple[Debt, ...]] = {}
        self._counted: dict[str, set[str]] = {}
        self._looks: dict[str, int] = {}
        self._due: DueKeys[str] = DueKeys()

    def plan_changed(self, key: str, plan: PlanFact | None) -> None:
        """The plan NS/NAME stands like this; None = its object is gone."""
        known = self.book.plan(key)
        if plan is None or (known is not None and known.uid != plan.uid):
            self._drop_plan(key)
        if plan is not None:
            self.bare.put(plan)
            self._fold(replace(plan, debts=self.debts(plan)))

    def evicted(self, plan: PlanFact, victim: Workload) -> None:
        """The API accepted this victim's eviction. To be told before the roster counts it as leaving; a repeat of
        what is known changes nothing."""
        counted = self._counted.setdefault(plan.uid, set(plan.evictions_sent))
        if victim.uid in counted:
            return
        counted.add(victim.uid)
        queue = self._parts.roster.queues.get(victim.queue)
        if not is_owed(victim, queue) or (victim.bare and not self.bare.has_record(victim.uid)):
            return
        rank = rank_of(victim, self._parts.roster.standing().entitled)
        self._owe(plan, debts_of([victim], {victim.uid: rank}, self._parts.clock.unix_seconds()))

    def debts(self, plan: PlanFact) -> tuple[Debt, ...]:
        """What the plan owes, for each write of its status."""
        return self._debts.get(plan.uid, plan.debts)

    def plan_ended(self, plan: PlanFact, end: End) -> tuple[Debt, ...]:
        """The plan is over. Gives the debts for its last status; () = its object may be deleted at once."""
        debts = self.debts(plan)
        self._fold(replace(plan, phase=end.phase, debts=debts))
        key = key_of(plan)
        if not self.book.is_paid(key):
            return debts
        self._drop_plan(key)
        self._due.discard(PLAN + key)
        return ()

    def changed(self, changes: Changes) -> None:
        """Pods began or ceased to wait."""
        for uid in changes.pods:
            with one_object("recovery", uid):
                self._see(uid)
        self._clear_up()

    def start_over(self) -> None:
        """This process begins to lead: what was paid is worked out from the pods that run."""
        self._debts.clear()
        self._counted.clear()
        self._looks.clear()
        self._due.clear()
        for pod in self._parts.ledger.pending():
            self._see(pod.uid)
        moments = self._running_since()
        for whose in self.book.creditors():
            self.book.paid_since(whose, moments.get(whose, ()))
        for plan in self.book.plans():
            with one_object("recovery", key_of(plan)):
                self._find_lost(plan)
        for whose in self.book.creditors():
            self._look_later(whose)
        self.book.touch_all()
        self._clear_up()

    async def run(self) -> None:
        """Look at owners and delete what is paid. Runs until cancelled."""
        while True:
            key = await self._due.next()
            with one_object("recovery", key):
                if not self._parts.fence.leading:
                    continue
                if key.startswith(PLAN):
                    await self._delete(key.removeprefix(PLAN))
                else:
                    await self._look(key)
                    self._clear_up()

    def _owe(self, plan: PlanFact, more: Iterable[Debt]) -> None:
        self._debts[plan.uid] = merged(self.debts(plan), more)
        known = self.book.plan(key_of(plan)) or plan
        self._fold(replace(known, debts=self._debts[plan.uid]))

    def _fold(self, plan: PlanFact) -> None:
        for whose in self.book.put(plan):
            self._looks.pop(whose, None)
            self._boost(whose)
            self._look_later(whose)
        self._clear_up()

    def _boost(self, whose: str) -> None:
        count = self.book.evictions(whose) if self.book.owes(whose) else 0
        debt = self.book.debt(whose)
        if debt is not None and debt.kind == BARE_POD:
            for uid in self._waiting.of(whose):
                self._parts.roster.set_evictions(uid, count)
        else:
            self._parts.roster.set_evictions(whose, count)

    def _see(self, uid: str) -> None:
        pod, known = self._parts.ledger.pod(uid), self._waiting.key(uid)
        if pod is not None and not (pod.node or pod.ended or pod.terminating):
            if not known:
                self._waits(pod)
            return
        self._waiting.drop(uid)
        self.offers.forget(uid)
        whose = known or (_creditor_of(pod) if pod is not None else "")  # what is bound at once never waited
        if not self.book.owes(whose):
            return
        if pod is not None and pod.node and not pod.ended:
            self.book.pay(whose)
        elif known and self.bare.was_created(whose):
            self.book.settle(whose)  # somebody deleted the pod that we had created again
        self._look_later(whose)

    def _waits(self, pod: PodFact) -> None:
        whose = _creditor_of(pod)
        self._waiting.put(pod.uid, whose)
        self._looks.pop(whose, None)
        if self.book.owes(whose):
            self._boost(whose)

    def _clear_up(self) -> None:
        """After every change of a debt or of who waits."""
        self.offers.changed()
        for key in self.book.take_paid():
            self._look_in(0, PLAN + key)

    def _look_later(self, whose: str) -> None:
        """Where pods of it wait, their events tell; otherwise a controller has a moment to create them."""
        debt = self.book.debt(whose)
        if debt is None or self._waiting.of(whose):
            return
        looks = self._looks.get(whose, 0)
        queue = self._parts.roster.queues.get(debt.queue) or QueueFact(debt.queue)
        self._look_in(max(1, queue.backoff_base_seconds) << min(looks, MOST_DOUBLINGS), whose)

    def _look_in(self, seconds: float, key: str) -> None:
        self._due.add(key, asyncio.get_running_loop().time() + seconds)

    async def _look(self, whose: str) -> None:
        debt = self.book.debt(whose)
        if debt is None or self._waiting.of(whose):
            return
        looks = self._looks[whose] = self._looks.get(whose, 0) + 1
        wanted = await self._wanted(debt, looks)
        if wanted is not None:
            missing = max(0, wanted.pods - len(self._running_since().get(whose, ())))
            self.book.limit(whose, missing)
            if not self.book.owes(whose):
                why = wanted.why if not wanted.pods else "all its pods are back"
                LOG.info("debt settled %s=%s/%s: %s", debt.kind, debt.namespace, debt.name, why)
        self._look_later(whose)

    async def _wanted(self, debt: Debt, looks: int) -> Wanted | None:
        """What the owner wants; None = nobody knows yet."""
        if debt.kind == BARE_POD:
            gone = looks > 1 and not self.bare.is_absent(debt.uid) and self._parts.ledger.pod(debt.uid) is None
            return Wanted(0, "its name is in use, or it cannot be created again") if gone else None
        if path_of(debt) is None:
            return Wanted(0, "no pod of it came") if looks >= LOOKS_WITHOUT_READING else None
        return await ask_owner(self._parts.reader, debt)

    async def _delete(self, key: str) -> None:
        plan = self.book.plan(key)
        if plan is None or plan.phase not in OVER or not self.book.is_paid(key):
            return
        try:
            await self._parts.writer.delete_preemption(Key(plan.namespace, plan.name, plan.uid))
        except ApiRefused as refusal:
            if refusal.status not in (404, 409):
                LOG.warning("plan not deleted plan=%s: %s", key, refusal)
                return
        except (ApiUnavailable, OutcomeUnknown):
            self._look_in(REPEAT_SECONDS, PLAN + key)
            return
        except NotLeading:
            return
        self._drop_plan(key)

    def _drop_plan(self, key: str) -> None:
        plan = self.book.plan(key)
        if plan is None:
            return
        self.book.drop(key)
        self.bare.drop(plan)
        self._debts.pop(plan.uid, None)
        self._counted.pop(plan.uid, None)
        for debt in plan.debts:
            self._boost(creditor_of(debt))
        self._clear_up()

    def _running_since(self) -> Mapping[str, list[int]]:
        return running_since(self._parts.roster.workloads.values(), self._parts.clock.unix_seconds())

    def _find_lost(self, plan: PlanFact) -> None:
        """Recorded victims that left before anybody wrote down that they were evicted: they are owed. A pod too
        many can be deleted; one that is forgotten is lost."""
        known = {debt.uid for debt in plan.debts}
        for uid, _ in plan.records:
            pod, debt = self._parts.ledger.pod(uid), self.bare.debt(uid)
            if debt is not None and uid not in known and (pod is None or pod.terminating):
                self._counted.setdefault(plan.uid, set(plan.evictions_sent)).add(uid)
                self._owe(plan, [debt])


def _creditor_of(pod: PodFact) -> str:
    return creditor(pod.namespace, pod.name, pod.terms.owner.uid if pod.terms is not None else pod.owner_uid)
