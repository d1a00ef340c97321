"""What people ask of preemption: why nobody is evicted, what would happen, how it stands. Answers only.

Enters: plans, debts, what the planner found out. Leaves: words for /explain, the question behind /what-if, what
/debts answers, numbers for a scrape of the metrics. Nothing is changed here.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vgpu.controller.preempt.debt_book import DebtBook
from vgpu.controller.preempt.held_words import HeldWords
from vgpu.controller.preempt.plan_book import PlanBook
from vgpu.controller.preempt.planner import Planner
from vgpu.controller.preempt.told import Told
from vgpu.controller.preempt_metrics import PreemptionState
from vgpu.controller.what_if import Gangs, WhatIf, WhatIfParts
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.plan import key_of
from vgpu.core.preempt.roster import Roster
from vgpu.kube.objects import Decoded


@dataclass(frozen=True, slots=True)
class PeopleParts:
    """What is asked. `leading`: whether this replica decides."""

    ledger: Ledger
    roster: Roster
    book: PlanBook
    debts: DebtBook
    told: Told
    planner: Planner
    gangs: Gangs
    decode_pod: Callable[[bytes], Decoded[PodFact]]
    now_seconds: Callable[[], int]
    scheduler_name: str
    leading: Callable[[], bool]


class ForPeople:
    """See the module."""

    def __init__(self, parts: PeopleParts) -> None:
        self._parts = parts
        self.held_for = HeldWords(parts.ledger, parts.roster, parts.book).of

    def planner_says(self, pod: PodFact) -> str:
        """What the planner has found out about a pod that waits, for /explain; "" = nothing."""
        for plan in self._parts.book.all_living():
            if pod.uid in plan.owner_uids:
                return f"plan {key_of(plan)} holds cards for it ({plan.phase})"
        refusal = self._parts.told.refusal(pod.uid)
        return "" if refusal is None else f"nobody is evicted for it ({refusal.reason}): {refusal.message}"

    def state(self) -> PreemptionState:
        """How preemption stands."""
        debts = self._parts.debts
        creditors = [creditor for creditor in debts.creditors() if debts.owes(creditor)]
        return PreemptionState(
            plans=Counter(plan.phase.value for plan in self._parts.book.all()),
            waiting=Counter(refusal.reason.value for refusal in self._parts.told.refusals()),
            debts=len(creditors),
            debt_pods=sum(debts.owed_pods(creditor) for creditor in creditors),
        )

    def owed(self) -> dict[str, Any]:
        """What must still come back, plan by plan; what plans wait for now, and how many were asked to go for
        them. As JSON values.

        Plans' objects tell what was lost, and what was the case when that was written.
        """
        debts = [
            {"plan": plan, "uid": debt.uid, "namespace": debt.namespace, "name": debt.name, "pods": debt.pods}
            for plan, debt in self._parts.debts.open_by_plan()
        ]
        leading, keeper = self._parts.leading(), self._parts.planner.keeper
        living = {key_of(plan): plan for plan in self._parts.book.all_living()} if leading else {}
        waits = {name: keeper.waits_for(plan) for name, plan in living.items()}
        asked = {name: keeper.asked(plan) for name, plan in living.items()}
        return {"leading": leading, "debts": debts, "waits": waits, "asked": asked}

    def what_if(self) -> WhatIf:
        """Answers what would happen, as the planner would decide."""
        parts = self._parts
        return WhatIf(
            WhatIfParts(
                ledger=parts.ledger,
                queue_of=parts.roster.queue_of,
                world=parts.planner.world,
                gangs=parts.gangs,
                groups=parts.roster.gangs,
                learned=parts.planner.learned,
                decode=parts.decode_pod,
                now_seconds=parts.now_seconds,
                scheduler_name=parts.scheduler_name,
                leading=parts.leading,
            )
        )
