"""Who is owed what: the debts of all plans by plan and by creditor, and what of them was paid back.

Enters: plans as they stand, pods of creditors that came back, what owners lack. Leaves: since when a creditor is
owed something, how often it was evicted, plans whose debts are all paid. Rebuilt from the plans' objects at any
time: what is lost with the process is only who was paid since. Mutable, with one owner; no clock, no I/O.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vgpu.core.preempt.debts import creditor_of
from vgpu.core.preempt.facts import Debt, PlanFact
from vgpu.core.preempt.plan import key_of
from vgpu.core.preempt.plan_step import OVER

REMEMBERED = 10_000
"""Creditors whose number of evictions is remembered after they were paid; the oldest goes first."""


@dataclass(slots=True)
class _Entry:
    """One debt of one plan, NS/NAME. `paid` pods of it are back."""

    plan: str
    debt: Debt
    since_seconds: int
    paid: int = 0

    @property
    def left(self) -> int:
        return max(0, self.debt.pods - self.paid)


class DebtBook:
    """See the module. A creditor is an owner's uid, or NS/NAME of a bare pod (core.preempt.debts)."""

    def __init__(self) -> None:
        self._plans: dict[str, PlanFact] = {}
        self._entries: dict[str, dict[str, _Entry]] = {}
        self._of_creditor: dict[str, dict[str, _Entry]] = {}
        self._evictions: OrderedDict[str, set[str]] = OrderedDict()
        self._touched: set[str] = set()
        self._since: dict[str, int | None] = {}

    def put(self, plan: PlanFact) -> frozenset[str]:
        """A plan stands like this. Gives the creditors whose debt is new or larger."""
        key = key_of(plan)
        before = self._plans.get(key)
        if before is not None and before.uid != plan.uid:
            self.drop(key)
        self._plans[key] = plan
        self._touched.add(key)
        self._since.clear()
        grown = {creditor_of(debt) for debt in plan.debts if self._note(key, plan, debt)}
        return frozenset(grown)

    def drop(self, key: str) -> None:
        """A plan's object (NS/NAME) is gone, and nothing is owed for it any more."""
        self._plans.pop(key, None)
        self._since.clear()
        for creditor in self._entries.pop(key, {}):
            of_creditor = self._of_creditor[creditor]
            del of_creditor[key]
            if not of_creditor:
                del self._of_creditor[creditor]

    def plan(self, key: str) -> PlanFact | None:
        """The plan of this NS/NAME."""
        return self._plans.get(key)

    def plans(self) -> list[PlanFact]:
        """Every plan that is known."""
        return list(self._plans.values())

    def owes(self, creditor: str) -> bool:
        """True while pods of this creditor are owed."""
        return any(entry.left for entry in self._of_creditor.get(creditor, {}).values())

    def owed_pods(self, creditor: str) -> int:
        """How many pods it lacks."""
        return sum(entry.left for entry in self._of_creditor.get(creditor, {}).values())

    def owed_since(self, creditor: str) -> int | None:
        """When the plan was made of its oldest open debt; None: nothing is owed to it."""
        if creditor not in self._since:  # asked for each pod that waits, and some are owed for hundreds of plans
            entries = self._of_creditor.get(creditor, {}).values()
            self._since[creditor] = min((entry.since_seconds for entry in entries if entry.left), default=None)
        return self._since[creditor]

    def creditors(self) -> list[str]:
        """Everybody to whom something is owed."""
        return [creditor for creditor in self._of_creditor if self.owes(creditor)]

    def open(self) -> list[tuple[str, Debt]]:
        """Everybody to whom something is owed, with what is left of each debt."""
        entries = ((who, entry) for who, of_plan in self._of_creditor.items() for entry in of_plan.values())
        return [(who, replace(entry.debt, pods=entry.left)) for who, entry in entries if entry.left]

    def open_by_plan(self) -> list[tuple[str, Debt]]:
        """Every plan (NS/NAME) that owes something, with what is left of each of its debts."""
        entries = (entry for of_plan in self._entries.values() for entry in of_plan.values())
        return [(entry.plan, replace(entry.debt, pods=entry.left)) for entry in entries if entry.left]

    def debt(self, creditor: str) -> Debt | None:
        """Its oldest open debt."""
        oldest = next(iter(self._oldest_first(creditor)), None)
        return None if oldest is None else oldest.debt

    def evictions(self, creditor: str) -> int:
        """By how many plans pods of it were evicted, as far as this process knows."""
        return len(self._evictions.get(creditor, ()))

    def pay(self, creditor: str, pods: int = 1) -> None:
        """So many pods of the creditor are back: the oldest debts are paid first."""
        for entry in self._oldest_first(creditor):
            part = min(pods, entry.left)
            self._pay(entry, part)
            pods -= part

    def paid_since(self, creditor: str, moments: Iterable[int]) -> None:
        """Pods of the creditor have run since these moments (epoch seconds): each pays one that was owed before.

        For a process that did not see them come back; what it knows to be paid already is counted with them.
        """
        entries = sorted(self._of_creditor.get(creditor, {}).values(), key=lambda entry: entry.since_seconds)
        found = [0] * len(entries)
        for moment in sorted(moments):
            for at, entry in enumerate(entries):
                if entry.since_seconds <= moment and found[at] < entry.debt.pods:
                    found[at] += 1
                    break
        for entry, count in zip(entries, found, strict=True):
            self._pay(entry, max(0, count - entry.paid))

    def limit(self, creditor: str, missing_pods: int) -> None:
        """The owner lacks no more than so many pods: what is owed beyond is forgiven, the newest first."""
        over = self.owed_pods(creditor) - missing_pods
        for entry in reversed(self._oldest_first(creditor)):
            part = min(max(0, over), entry.left)
            self._pay(entry, part)
            over -= part

    def settle(self, creditor: str) -> None:
        """Nothing is owed to it any more."""
        self.limit(creditor, 0)

    def take_paid(self) -> list[str]:
        """Plans (NS/NAME) that are over and owe nothing, of those that changed since the last call."""
        touched, self._touched = self._touched, set()
        return [key for key in sorted(touched) if self._is_over(key) and self.is_paid(key)]

    def touch_all(self) -> None:
        """Whoever asks next has not heard of any plan yet."""
        self._touched |= self._plans.keys()

    def is_paid(self, key: str) -> bool:
        """True when the plan (NS/NAME) owes nothing, or is not known."""
        return not any(entry.left for entry in self._entries.get(key, {}).values())

    def _is_over(self, key: str) -> bool:
        plan = self._plans.get(key)
        return plan is not None and plan.phase in OVER

    def _pay(self, entry: _Entry, pods: int) -> None:
        entry.paid += pods
        self._since.clear()
        self._touched.add(entry.plan)

    def _note(self, key: str, plan: PlanFact, debt: Debt) -> bool:
        creditor = creditor_of(debt)
        entries = self._entries.setdefault(key, {})
        entry = entries.get(creditor)
        if entry is not None:
            grown = debt.pods > entry.debt.pods
            entry.debt = debt
            return grown
        entries[creditor] = _Entry(key, debt, plan.created_seconds)
        self._of_creditor.setdefault(creditor, {})[key] = entries[creditor]
        self._count(creditor, plan.uid)
        return True

    def _count(self, creditor: str, plan_uid: str) -> None:
        seen = self._evictions.setdefault(creditor, set())
        self._evictions.move_to_end(creditor)
        seen.add(plan_uid)
        while len(self._evictions) > REMEMBERED:
            self._evictions.popitem(last=False)

    def _oldest_first(self, creditor: str) -> list[_Entry]:
        entries = self._of_creditor.get(creditor, {}).values()
        return sorted((entry for entry in entries if entry.left), key=lambda entry: entry.since_seconds)
