"""Whether a change matters to a plan, and whether an answer that took its time still holds.

Enters: plans, answers, the ledger as it stands. Leaves: yes or no. Nothing is changed here.
"""

from collections.abc import Collection, Sequence

from vgpu.controller.preempt.plan_worlds import waits
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.facts import NodeReservation, PlanFact
from vgpu.core.preempt.plan import key_of
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.reservations import PlanHold, PlanHolds
from vgpu.core.preempt.takeover import fits
from vgpu.core.views import Holder, Reservation


def concerns(plan: PlanFact, changes: Changes, holds: PlanHolds) -> bool:
    """True when a pod of its owner, or a node that it holds cards or has victims on, changed. While a seat of its
    gang is empty every pod may be who takes it, or the last one of the gang."""
    if not changes.pods.isdisjoint(plan.owner_uids):
        return True
    hold = holds.get(key_of(plan)) if changes.pods else None
    if hold is not None and holds.empty(hold):
        return True
    nodes = {card.node for card in plan.reservations} | {victim.node for victim in plan.victims}
    return not changes.nodes.isdisjoint(nodes)


def cost_somebody(ledger: Ledger, uids: Collection[str], answer: Plan) -> bool:
    """True when somebody goes for this room, or did, or might have to: it is held by a plan."""
    left = left_for(ledger, (*uids, *answer.claimants))
    kept = {(card.node, card.reservation.uuid) for hold in left for card in hold.cards}
    on_left = any((card.node, card.reservation.uuid) in kept for card in answer.reservations)
    costs = answer.victims or answer.takes or on_left or waits_for_evicted(ledger, answer)
    return bool(costs) or comes_in_pieces(ledger, answer)


def comes_in_pieces(ledger: Ledger, answer: Plan) -> bool:
    """True when this room becomes free in several steps. By turns each piece would go to whoever is content with
    it, and somebody would have to go for these pods in the end. Room that comes at once needs no hold."""
    leaving: list[tuple[Reservation, list[Holder]]] = []
    for held in answer.reservations:
        view = ledger.view(held.node)
        card = None if view is None else view.card(held.reservation.uuid)
        leaving.append((held.reservation, [one for one in card.holders if one.leaving] if card else []))
    who = {one.uid for _, holders in leaving for one in holders}
    return len(who) > 1 or (bool(who) and not all(_gives_all(held, holders) for held, holders in leaving))


def _gives_all(held: Reservation, leaving: Sequence[Holder]) -> bool:
    """True when nothing that is free on the card already is needed beside what these hold."""
    memory_mib, cores = sum(one.memory_mib for one in leaving), sum(one.cores for one in leaving)
    return any(one.exclusive for one in leaving) or (held.memory_mib <= memory_mib and held.cores <= cores)


def left_for(ledger: Ledger, uids: Collection[str]) -> list[PlanHold]:
    """What is left of plans for these pods that are over."""
    return [hold for hold in ledger.plans.left() if not hold.uids.isdisjoint(uids)]


def waits_for_evicted(ledger: Ledger, plan: Plan) -> bool:
    """True when somebody leaves its cards who was evicted by us, or is to be for another plan: they are held, so
    that nobody else need go."""
    return any(_evicted_on(ledger, card) for card in plan.reservations)


def _evicted_on(ledger: Ledger, held: NodeReservation) -> bool:
    evicted, view = ledger.plans.evicted(held.node), ledger.view(held.node)
    card = None if view is None else view.card(held.reservation.uuid)
    return card is not None and any(holder.uid in evicted or holder.evicting for holder in card.holders)


def still_holds(ledger: Ledger, planned: Collection[str], uids: tuple[str, ...], answer: Plan | No) -> bool:
    """False when, since the question was asked, a pod ceased to wait or is `planned` for (another replica
    may have led), or the room for the plan went to others. Who may not go any more is seen before evictions."""
    if not all(waits(ledger, uid) and uid not in planned for uid in uids):
        return False
    if isinstance(answer, No):
        return True
    hold = PlanHold("", 0, answer.reservations, frozenset((one.uid, one.node) for one in answer.victims))
    taken = [other for key in answer.takes if (other := ledger.plans.get(key)) is not None]
    taken += left_for(ledger, (*uids, *answer.claimants))
    others = [other for other in ledger.plans.all() if other.plan not in answer.takes]
    going = frozenset(uid for other in others for uid, _ in other.victims)
    return fits(hold, taken, ledger.view, going)
