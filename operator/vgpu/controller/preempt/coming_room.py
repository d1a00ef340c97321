"""Room that comes by itself: who was told to wait for it, and which pods hang so that it may never come.

Enters: decisions by which nobody need be evicted. Leaves: the world that the next decision looks at, who is not
counted on any more. In memory alone: nothing is held and nothing written for what comes anyway. May not live here:
decisions, when to ask.
"""

from collections.abc import Iterable, Mapping, Sequence

from vgpu.controller.preempt.plan_book import PlanBook
from vgpu.controller.preempt.plan_worlds import waits
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.claims import Claims
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import QueueFact
from vgpu.core.preempt.hanging import grace_ends, hanging, next_to_hang
from vgpu.core.preempt.roster import Roster

UNKNOWN_QUEUE = QueueFact("")


class ComingRoom:
    """See the module."""

    def __init__(self, ledger: Ledger, roster: Roster, book: PlanBook) -> None:
        self._ledger = ledger
        self._roster = roster
        self._book = book
        self._claims = Claims()
        self._leaving: tuple[int, list[str]] = (-1, [])

    def begin_anew(self) -> None:
        """Everybody who waits is decided on anew, the first in rank first."""
        self._claims.clear()

    def claim(self, plan: Plan) -> None:
        """Its pods wait for these cards. Who ranks lower and waited for them does so no longer."""
        self._claims.drop(plan.claimants)
        self._claims.put(plan.reservations)

    def give(self, uids: Iterable[str]) -> None:
        """These pods wait for no such room: they have a plan, or others took it."""
        self._claims.drop(uids)

    def over(self, world: DecisionWorld) -> DecisionWorld:
        """The world with what is claimed."""
        planned = self._book.planned_for()
        return self._claims.over(world, lambda uid: uid not in planned and self._only_waits(uid))

    def hanging(self, uids: Iterable[str], now_seconds: int) -> frozenset[str]:
        """Pods on their way out that these waiting pods do not count on any more."""
        uids_leaving = self._uids_leaving()
        if not uids_leaving:
            return frozenset()
        return hanging(self._grace_ends(uids_leaving), self._timeout(uids), now_seconds)

    def hangs_at(self, plan: Plan, now_seconds: int) -> int | None:
        """When a pod begins to hang whose leaving these pods wait for, or None."""
        views = {card.node: self._ledger.view(card.node) for card in plan.reservations}
        found = [(views[card.node], card.reservation.uuid) for card in plan.reservations]
        cards = [card for view, uuid in found if view is not None and (card := view.card(uuid)) is not None]
        leaving = {holder.uid for card in cards for holder in card.holders if holder.leaving}
        uids = [uid for uid, _ in plan.seats]
        return next_to_hang(self._grace_ends(leaving), self._timeout(uids), now_seconds)

    def _only_waits(self, uid: str) -> bool:
        ledger = self._ledger
        return waits(ledger, uid) and ledger.booking(uid) is None and ledger.nomination(uid) is None

    def _uids_leaving(self) -> Sequence[str]:
        revision = self._roster.revision
        if self._leaving[0] != revision:
            workloads = self._roster.workloads.values()
            self._leaving = revision, [one.uid for one in workloads if one.running and one.terminating]
        return self._leaving[1]

    def _grace_ends(self, uids: Iterable[str]) -> Mapping[str, int]:
        return grace_ends(map(self._ledger.pod, uids))

    def _timeout(self, uids: Iterable[str]) -> int:
        workloads, queues = self._roster.workloads, self._roster.queues
        names = {workloads[uid].queue for uid in uids if uid in workloads}
        known = next((queue for name in sorted(names) if (queue := queues.get(name)) is not None), UNKNOWN_QUEUE)
        return known.stuck_timeout_seconds
