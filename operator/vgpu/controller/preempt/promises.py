"""Cards that are held for pods that wait count as used in their queues: by plans, and for gangs that start.

Enters: what the ledger holds in *later*, the roster. Leaves: promises, in the roster; also for the seats of a gang
in which nobody sits just now: who replaces a member must not find his queue full. May not live here: what is held,
and for how long.
"""

from collections import defaultdict

from vgpu.controller.preempt.plan_worlds import waits
from vgpu.core.charge import Charge
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.amounts import held_amounts, sum_of
from vgpu.core.preempt.facts import NOTHING, Amounts, NodeReservation
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.roster import Roster


class Promises:
    """See the module."""

    def __init__(self, ledger: Ledger, roster: Roster) -> None:
        self._ledger = ledger
        self._roster = roster

    def note(self) -> None:
        """What is held is not what it was, or whom it is held for."""
        holds = list(self._ledger.plans.all())
        to_come: defaultdict[str, Amounts] = defaultdict(lambda: NOTHING)
        for hold in holds:
            empty = self._ledger.plans.empty(hold)
            if empty:
                to_come[self._queue_of(hold)] += sum_of(self._amounts(card) for card in empty)
        to_come.pop("", None)
        uids = {uid for hold in holds for uid in hold.uids if waits(self._ledger, uid)}
        self._roster.promise(uids, to_come)

    def _queue_of(self, hold: PlanHold) -> str:
        """That of the members who are there, "" while none of those with a seat is."""
        workloads = self._roster.workloads
        first = min((uid for uid in hold.uids if uid in workloads), default="")
        return workloads[first].queue if first else ""

    def _amounts(self, card: NodeReservation) -> Amounts:
        held, view = card.reservation, self._ledger.view(card.node)
        known = view.card(held.uuid) if view is not None else None
        charge = Charge(held.slots, held.memory_mib, held.cores, held.exclusive, held.coreless)
        return held_amounts({held.uuid: charge}, {} if known is None else {held.uuid: known.fact})
