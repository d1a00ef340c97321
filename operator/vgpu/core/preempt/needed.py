"""Which victims of a plan must still go: as few as possible once others have left, ended, or made room.

Enter: the plan, its world. Leaves: the needed ones in the plan's order. A gang that is evicted whole is spared
whole, and only while none of it is leaving. Nothing here evicts.
"""

from collections.abc import Iterable, Set

from vgpu.core.preempt.facts import PlanFact, Victim
from vgpu.core.preempt.gang_seats import NONE_EMPTY, EmptySeats, empty_seats
from vgpu.core.preempt.plan import OwnerPod, OwnerState, PlanWorld, VictimState
from vgpu.core.preempt.problem import without_reservations
from vgpu.core.preempt.room import fits_later
from vgpu.core.views import Holder, Reservation

UNBOUND = frozenset({OwnerState.WAITING, OwnerState.BOOKED})


def unsent(plan: PlanFact, world: PlanWorld) -> list[Victim]:
    """Victims that are still there and were not asked to go."""
    return [victim for victim in plan.victims if _undecided(world.victims.get(victim.uid))]


def owner_pods(plan: PlanFact, world: PlanWorld) -> list[OwnerPod]:
    """Everybody for whom the plan holds cards, in its order."""
    uids = dict.fromkeys(card.reservation.uid for card in plan.reservations)
    return [world.owners.get(uid, OwnerPod(uid, OwnerState.GONE)) for uid in uids]


def empty_in(plan: PlanFact, world: PlanWorld) -> EmptySeats:
    """The seats of the plan's gang whose pods are gone; none where the plan is for a pod."""
    if world.gang is None:
        return NONE_EMPTY
    pods = owner_pods(plan, world)
    gone = [pod.uid for pod in pods if pod.state is OwnerState.GONE]
    held = {one.uid for view in world.views.values() for one in view.reservations} if gone else set[str]()
    return empty_seats(gone, held, sum(pod.state in UNBOUND for pod in pods), world.gang)


def still_held(plan: PlanFact, world: PlanWorld) -> dict[str, list[Reservation]]:
    """By node: what the plan holds for those of its owner's pods that are not bound yet, or are yet to come."""
    uids = {pod.uid for pod in owner_pods(plan, world) if pod.state in UNBOUND} | {*empty_in(plan, world).kept}
    held: dict[str, list[Reservation]] = {}
    for card in plan.reservations:
        if card.reservation.uid in uids:
            held.setdefault(card.node, []).append(card.reservation)
    return held


def needed_victims(plan: PlanFact, world: PlanWorld) -> list[Victim] | None:
    """Unsent victims without which the owner does not fit *later* or may not start in its queue; None when it fits
    not even without all of them.

    They are spared from the end of the list: a plan names its cheapest victims first; who may have been evicted is
    spared last. That others' plans are to free room gives hope, and spares nobody: two plans would wait for each
    other's victims.
    """
    waiting = unsent(plan, world)
    going, fits = {victim.uid for victim in waiting}, _Fits(plan, world)
    if not fits(going):
        return waiting if fits(going, hoping=True) else None
    queue = world.queue if world.queue is not None and world.queue.lets(going) else None
    begun, where = _begun_units(plan, world), {victim.uid: victim.node for victim in waiting}
    units = reversed(_units(waiting, world))
    for unit in sorted(units, key=lambda unit: any(world.victims[uid].unsure for uid in unit)):
        if not begun.isdisjoint(world.victims[uid].unit for uid in unit):
            continue
        going -= unit
        if not (fits(going, {where[uid] for uid in unit}) and (queue is None or queue.lets(going))):
            going |= unit
    return [victim for victim in waiting if victim.uid in going]


class _Fits:
    """Whether all that is held fits once these are gone. The nodes have nothing to do with one another: where
    nobody else stays, none need be asked again."""

    def __init__(self, plan: PlanFact, world: PlanWorld) -> None:
        self._world = world
        self._held = still_held(plan, world)
        self._own = {one.uid for of_node in self._held.values() for one in of_node}
        self._given_up = empty_in(plan, world).given_up

    def __call__(self, going: Set[str], among: Iterable[str] | None = None, *, hoping: bool = False) -> bool:
        """`among`: only these nodes; `hoping`: others' plans free what they are to free."""
        nodes = self._held if among is None else [node for node in among if node in self._held]
        return all(self._on(node, going, hoping=hoping) for node in nodes)

    def _on(self, node: str, going: Set[str], *, hoping: bool) -> bool:
        view = self._world.views.get(node)

        def counts(holder: Holder) -> bool:
            # What an owner has booked is what is held for it, not something in its way.
            if holder.uid in self._own or holder.uid in going:
                return False
            return not (_leaves(holder, self._world) or (hoping and holder.evicting))

        return view is not None and fits_later(
            without_reservations(view, self._given_up), self._held[node], counts
        )


def _leaves(holder: Holder, world: PlanWorld) -> bool:
    state = world.victims.get(holder.uid)
    return holder.leaving or (state is not None and state.leaving)


def _units(waiting: Iterable[Victim], world: PlanWorld) -> list[frozenset[str]]:
    found: dict[str, set[str]] = {}
    for victim in waiting:
        state = world.victims[victim.uid]
        found.setdefault(f"unit {state.unit}" if state.unit else victim.uid, set()).add(victim.uid)
    return [frozenset(uids) for uids in found.values()]


def _begun_units(plan: PlanFact, world: PlanWorld) -> set[str]:
    """Units of which somebody has left already."""
    known = (world.victims.get(victim.uid) for victim in plan.victims)
    return {state.unit for state in known if state is not None and has_left(state)} - {""}


def _undecided(state: VictimState | None) -> bool:
    return state is not None and not (state.gone or state.leaving)


def has_left(state: VictimState | None) -> bool:
    """True for a victim that is gone or was asked to go."""
    return state is not None and (state.gone or state.leaving)
