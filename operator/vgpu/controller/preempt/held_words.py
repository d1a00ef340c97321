"""For whom cards are held, by what and until when: what a pod that waits beside them is told.

Enters: uids for which something is held; plans, nominations, queues. Leaves: words. Nothing is changed here.
"""

from vgpu.controller.preempt.plan_book import PlanBook
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.facts import OwnerKind, PlanFact, QueueFact
from vgpu.core.preempt.reservations import LEFT_OVER
from vgpu.core.preempt.roster import Roster
from vgpu.core.preempt.words import duration_words


class HeldWords:
    """See the module."""

    def __init__(self, ledger: Ledger, roster: Roster, book: PlanBook) -> None:
        self._ledger, self._roster, self._book = ledger, roster, book

    def of(self, uid: str) -> str:
        """For whom: NS/POD or its gang, by which plan, until when."""
        pod = self._ledger.pod(uid)
        name = "a pod that is yet to come" if pod is None else f"{pod.namespace}/{pod.name}"
        plans = self._ledger.plans
        holds = [hold for hold in (*plans.all(), *plans.left()) if uid in hold.uids]
        if self._ledger.nomination(uid) is not None or not holds:
            return f"{name}, which is about to start there"
        hold = max(holds, key=lambda one: one.age)
        if hold.generation == LEFT_OVER:
            return f"{name}, which is decided on anew"
        plan = self._book.living(hold.plan)
        if plan is None:
            return f"{name} by {hold.plan or 'a plan that is being made'} until it is bound"
        whose = f"{name} of gang {plan.owner_name}" if plan.owner_kind is OwnerKind.GANG else name
        return f"{whose} by plan {hold.plan} until it is bound, {self._at_most(plan)}"

    def _at_most(self, plan: PlanFact) -> str:
        """How long at most, by the queue of its owner."""
        workloads = self._roster.workloads
        queues = [workloads[uid].queue for uid in plan.owner_uids if uid in workloads]
        queue = self._roster.queues.get(queues[0] if queues else "") or QueueFact("")
        return f"at most {duration_words(queue.hold_timeout_seconds)} after those who leave are gone"
