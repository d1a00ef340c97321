"""Where a plan stands: what all rules about its life look at.

Enter: a PlanFact, its PlanWorld, Progress, now, and which victims are still needed. Leave: what follows from them.
Nothing here decides what is done.
"""

from dataclasses import dataclass, replace

from vgpu.core.preempt.facts import PlanFact, Victim
from vgpu.core.preempt.needed import needed_victims, still_held
from vgpu.core.preempt.plan import OwnerPod, OwnerState, PlanWorld, Progress, VictimState
from vgpu.core.preempt.room import fits_now


@dataclass(frozen=True, slots=True)
class Situation:
    """What every rule looks at. `needed`: unsent victims that must go, None = no hope even without all of them."""

    plan: PlanFact
    world: PlanWorld
    progress: Progress
    now_seconds: int
    needed: tuple[Victim, ...] | None

    def owners(self, *states: OwnerState) -> list[OwnerPod]:
        """The owner's pods with cards in the plan that stand so."""
        named = dict.fromkeys(card.reservation.uid for card in self.plan.reservations)
        found = [self.world.owners.get(uid, OwnerPod(uid, OwnerState.GONE)) for uid in named]
        return [pod for pod in found if pod.state in states]

    @property
    def leaving(self) -> list[VictimState]:
        """Victims that were asked to go and are still there."""
        victims = self.world.victims
        known = [victims[victim.uid] for victim in self.plan.victims if victim.uid in victims]
        return [state for state in known if state.leaving and not state.gone]

    @property
    def stuck(self) -> frozenset[str]:
        """Victims that are still there long after their grace has ended."""
        limit = self.world.limits.stuck_timeout_seconds
        return frozenset(
            state.uid
            for state in self.leaving
            if state.grace_ends_seconds is not None and self.now_seconds >= state.grace_ends_seconds + limit
        )

    @property
    def begun(self) -> bool:
        """True when a victim was asked to go, by this process or one before it."""
        return bool(self.plan.evictions_sent) or bool(self.leaving)

    @property
    def closed_nodes(self) -> frozenset[str]:
        """Planned nodes that take nothing new, or are not known."""
        views = {node: self.world.views.get(node) for node in still_held(self.plan, self.world)}
        return frozenset(node for node, view in views.items() if view is None or view.closed is not None)

    @property
    def cards_free(self) -> bool:
        """True when all that is still held is free now, on nodes that take pods."""
        if self.needed is None or self.needed or self.closed_nodes:
            return False
        held = still_held(self.plan, self.world)
        views = {node: self.world.views.get(node) for node in held}
        return all(view is not None and fits_now(view, held[node]) for node, view in views.items())

    @property
    def sent(self) -> bool:
        """True while a pod of the owner was sent to a node, or its Binding is on its way."""
        return any(pod.nominated or pod.state is OwnerState.BOOKED for pod in self.owners(*OwnerState))

    @property
    def drained(self) -> Progress:
        """Progress with the moment since when nothing is waited for but the owner itself."""
        if self.needed or any(victim.uid not in self.stuck for victim in self.leaving):
            return replace(self.progress, drained_seconds=None)
        known = self.progress.drained_seconds
        return self.progress if known is not None else replace(self.progress, drained_seconds=self.now_seconds)

    @property
    def gang(self) -> bool:
        """True when the plan holds cards for several pods."""
        return len({card.reservation.uid for card in self.plan.reservations}) > 1


def situation_of(plan: PlanFact, world: PlanWorld, progress: Progress, now_seconds: int) -> Situation:
    """The situation, with the victims worked out that are still needed."""
    needed = needed_victims(plan, world)
    return Situation(plan, world, progress, now_seconds, None if needed is None else tuple(needed))
