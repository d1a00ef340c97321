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
    """Unsent victims without which the owner does not fit *later*; None when it fits not even without all of them.

    They are spared from the end of the list: a plan names its cheapest victims first; who may have been evicted is
    spared last. That others' plans are to
    free room gives hope, and spares nobody: two plans would wait for each other's victims.
    """
    waiting = unsent(plan, world)
    going = frozenset(victim.uid for victim in waiting)
    if not _fits(plan, world, going, hoping=True):
        return None
    units = reversed(_units(waiting, world))
    for unit in sorted(units, key=lambda unit: any(world.victims[uid].unsure for uid in unit)):
        if any(has_left(world.victims.get(uid)) for uid in _whole_unit(plan, world, unit)):
            continue
        if _fits(plan, world, going - unit):
            going -= unit
    return [victim for victim in waiting if victim.uid in going]


def _fits(plan: PlanFact, world: PlanWorld, going: Set[str], *, hoping: bool = False) -> bool:
    held = still_held(plan, world)
    own = {one.uid for of_node in held.values() for one in of_node}

    def counts(holder: Holder) -> bool:
        # What an owner has booked is what is held for it, not something in its way.
        if holder.uid in own or holder.uid in going:
            return False
        return not (_leaves(holder, world) or (hoping and holder.evicting))

    given_up = empty_in(plan, world).given_up
    views = {node: world.views.get(node) for node in held}
    return all(
        view is not None and fits_later(without_reservations(view, given_up), held[node], counts)
        for node, view in views.items()
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


def _whole_unit(plan: PlanFact, world: PlanWorld, part: frozenset[str]) -> list[str]:
    names = {world.victims[uid].unit for uid in part} - {""}
    return [v.uid for v in plan.victims if v.uid in world.victims and world.victims[v.uid].unit in names]


def _undecided(state: VictimState | None) -> bool:
    return state is not None and not (state.gone or state.leaving)


def has_left(state: VictimState | None) -> bool:
    """True for a victim that is gone or was asked to go."""
    return state is not None and (state.gone or state.leaving)
