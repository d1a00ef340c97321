"""What each living plan holds, with its owner's rank: worked out once for each state of things.

Enters: the ledger, the roster, plans. Leaves: holds with ranks. Nothing is changed here.
"""

from vgpu.controller.preempt.plan_book import PlanBook, Plans, plans_of
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.roster import Roster


class RankedPlans:
    """See the module."""

    def __init__(self, ledger: Ledger, roster: Roster, book: PlanBook) -> None:
        self._ledger, self._roster, self._book = ledger, roster, book
        self._known: tuple[object, frozenset[str], Plans] | None = None

    def now(self) -> Plans:
        """As everything stands."""
        ledger, roster, book, known = self._ledger, self._roster, self._book, self._known
        entitled, state = roster.standing().entitled, (ledger.version, roster.revision, book.version)
        if known is None or known[0] != state or known[1] is not entitled:
            found = plans_of(ledger.plans, book.holds, roster.workloads, entitled)
            known = self._known = state, entitled, found
        return known[2]
