"""Where a plan stands: what all rules about its life look at.

Enter: a PlanFact, its PlanWorld, Progress, now; which victims are still needed, which seats are empty. Leave: what
follows from them. Nothing here decides what is done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from vgpu.core.preempt.facts import PlanFact, Victim
from vgpu.core.preempt.gang_seats import NONE_EMPTY, EmptySeats, takers
from vgpu.core.preempt.hanging import hangs_from
from vgpu.core.preempt.needed import empty_in, has_left, needed_victims, owner_pods, still_held
from vgpu.core.preempt.plan import OwnerPod, OwnerState, PlanWorld, Progress, VictimState
from vgpu.core.preempt.room import fits_now
from vgpu.core.views import Reservation


@dataclass(frozen=True)
class Situation:
    """What every rule looks at, each worked out once. `needed`: unsent victims that must go, None = no hope even
    without all of them. `empty`: seats of a gang whose pods are gone; `takers`: who takes which of them."""

    plan: PlanFact
    world: PlanWorld
    progress: Progress
    now_seconds: int
    needed: tuple[Victim, ...] | None
    empty: EmptySeats = NONE_EMPTY
    takers: Mapping[str, str] = field(default_factory=dict)

    def owners(self, *states: OwnerState) -> list[OwnerPod]:
        """The owner's pods with cards in the plan that stand so."""
        return [pod for pod in owner_pods(self.plan, self.world) if pod.state in states]

    @cached_property
    def leaving(self) -> list[VictimState]:
        """Victims that were asked to go and are still there."""
        victims = self.world.victims
        known = [victims[victim.uid] for victim in self.plan.victims if victim.uid in victims]
        return [state for state in known if state.leaving and not state.gone]

    @cached_property
    def held(self) -> dict[str, list[Reservation]]:
        """By node: what is held for those who are not bound yet, or are yet to come."""
        return still_held(self.plan, self.world)

    @cached_property
    def others_leaving(self) -> dict[str, str]:
        """By uid NS/NAME of the pods that leave the cards which are still held, and are no victims."""
        victims = {victim.uid for victim in self.plan.victims}
        cards = {(node, one.uuid) for node, of_node in self.held.items() for one in of_node}
        return {
            holder.uid: f"{holder.namespace}/{holder.name}"
            for node, view in self.world.views.items()
            for card in view.cards
            if (node, card.fact.uuid) in cards
            for holder in card.holders
            if holder.leaving and holder.uid not in victims
        }

    @cached_property
    def hangs_from(self) -> dict[str, int]:
        """From when on each of those who leave is stuck: it is still there long after its grace has ended."""
        known = self.world.leaving_until
        ends = {uid: known[uid] for uid in self.others_leaving if uid in known}
        ends |= {one.uid: end for one in self.leaving if (end := one.grace_ends_seconds) is not None}
        return {uid: hangs_from(end, self.world.limits.stuck_timeout_seconds) for uid, end in ends.items()}

    @cached_property
    def stuck(self) -> frozenset[str]:
        """Those that are stuck now."""
        return frozenset(uid for uid, moment in self.hangs_from.items() if self.now_seconds >= moment)

    @cached_property
    def half_gone(self) -> tuple[Victim, ...]:
        """Needed victims that go only together with others, of whom one has left already: these follow."""
        known = self.world.victims
        left = {known[v.uid].unit for v in self.plan.victims if v.uid in known and has_left(known[v.uid])} - {""}
        return tuple(victim for victim in self.needed or () if known[victim.uid].unit in left)

    @cached_property
    def begun(self) -> bool:
        """True when a victim was asked to go, by this process or one before it."""
        asked = any(victim.unsure for victim in self.world.victims.values())
        return bool(self.plan.evictions_sent) or bool(self.leaving) or asked

    @cached_property
    def closed_nodes(self) -> frozenset[str]:
        """Planned nodes that take nothing new, or are not known."""
        views = {node: self.world.views.get(node) for node in self.held}
        return frozenset(node for node, view in views.items() if view is None or view.closed is not None)

    @cached_property
    def gone_nodes(self) -> frozenset[str]:
        """Those of the closed ones whose Node does not exist: nobody knows of one that would open again."""
        views = {node: self.world.views.get(node) for node in self.closed_nodes}
        return frozenset(node for node, view in views.items() if view is None or view.node is None)

    @cached_property
    def cards_free(self) -> bool:
        """True when all that is still held is free now, on nodes that take pods."""
        if self.needed is None or self.needed or self.closed_nodes:
            return False
        views = {node: self.world.views.get(node) for node in self.held}
        return all(view is not None and fits_now(view, self.held[node]) for node, view in views.items())

    @cached_property
    def sent(self) -> bool:
        """True while a pod of the owner was sent to a node, or its Binding is on its way."""
        return any(pod.nominated or pod.state is OwnerState.BOOKED for pod in self.owners(*OwnerState))

    @cached_property
    def clocks(self) -> Progress:
        """Progress with the moments since when nothing is waited for but the owner itself, and since when a seat
        is empty or one is lacking."""
        known = self.progress
        leaving = {*self.hangs_from, *(victim.uid for victim in self.leaving)}
        waits = bool(self.needed) or not leaving <= self.stuck
        drained = None if waits else self._since(known.drained_seconds)
        empty = self._since(known.empty_seconds) if self.empty.lacks else None
        return replace(known, drained_seconds=drained, empty_seconds=empty)

    def _since(self, known: int | None) -> int:
        return self.now_seconds if known is None else known

    @cached_property
    def gang(self) -> bool:
        """True when the plan holds cards for several pods."""
        return len({card.reservation.uid for card in self.plan.reservations}) > 1


def situation_of(plan: PlanFact, world: PlanWorld, progress: Progress, now_seconds: int) -> Situation:
    """The situation, with the victims worked out that are still needed."""
    needed, empty = needed_victims(plan, world), empty_in(plan, world)
    spare = world.gang.spare if world.gang is not None else ()
    taken = takers(plan.reservations, empty.kept, spare, world.views.get) if empty.kept else {}
    known = None if needed is None else tuple(needed)
    return Situation(plan, world, progress, now_seconds, known, empty, taken)
