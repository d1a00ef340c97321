"""The life of a plan as one step function: given what there is now, what is to be done next (preemption.md 4.7).

Enter: a PlanFact, its PlanWorld, Progress, now. Leaves: a Step. The caller owns time and writes; it may crash
between any two actions: a step looks only at what there is, so it says the rest, and nothing twice.
"""

from collections.abc import Sequence
from dataclasses import replace

from vgpu.core.placement import Placement
from vgpu.core.preempt.endings import ENDINGS, MOST_NOMINATIONS, UNITS_FIRST
from vgpu.core.preempt.facts import OwnerKind, PlanFact, PlanPhase, Victim
from vgpu.core.preempt.held_cards import place_on_held
from vgpu.core.preempt.needed import unsent
from vgpu.core.preempt.plan import (
    Action,
    Advance,
    End,
    Evict,
    GiveUp,
    Nominate,
    OwnerPod,
    OwnerState,
    PlanEnd,
    PlanWorld,
    Progress,
    Spare,
    Step,
    Succeed,
)
from vgpu.core.preempt.situation import Situation, situation_of

OVER = frozenset({PlanPhase.BOUND, PlanPhase.CLOSED, PlanPhase.ABORTED})


def next_actions(plan: PlanFact, world: PlanWorld, progress: Progress, now_seconds: int) -> Step:
    """What is to be done for the plan now; () when it only waits."""
    if plan.phase in OVER:
        return Step((), progress)
    state = situation_of(plan, world, progress, now_seconds)
    ready = list(state.needed or ())
    for rule in ENDINGS:
        end = rule(state)
        if end is None:
            continue
        ready = _rest_of_units(state, end)
        if ready:
            break
        away = _to_other_cards(state) if end.reason is PlanEnd.ROOM_ELSEWHERE else ()
        return Step((end, *away), progress)
    return _goes_on(replace(state, progress=state.clocks), ready)


def _goes_on(state: Situation, ready: Sequence[Victim]) -> Step:
    """`ready`: who may be asked to go now."""
    stays = (*_given_up(state), *_spared(state))
    if state.takers:
        taken = (Succeed(lost, uid) for lost, uid in state.takers.items())
        return Step((*stays, *taken), _begun_anew(state), anywhere=True, short=state.empty.short > 0)
    sends = _evictions(state, ready)
    nominations = _nominations(state)
    actions: tuple[Action, ...] = (*stays, *sends, *nominations, *_phase(state, sends))
    after = replace(state.progress, nominations=state.progress.nominations + bool(nominations))
    return Step(actions, after, _wake(state), _waits_for_others(state, sends), short=state.empty.short > 0)


def spared_by(step: Step) -> frozenset[str]:
    """Victims that stay after this step: what hold_of leaves out."""
    return frozenset(uid for action in step.actions if isinstance(action, Spare) for uid in action.uids)


def given_up_by(step: Step) -> frozenset[str]:
    """Seats that the gang runs without: hold_of leaves them out, too."""
    return frozenset(uid for action in step.actions if isinstance(action, GiveUp) for uid in action.uids)


def _begun_anew(state: Situation) -> Progress:
    """The gang is another than the one that did not come: its time begins when its last seat is taken."""
    left = state.empty.lacks > len(state.takers)
    return Progress(empty_seconds=state.progress.empty_seconds if left else None)


def _given_up(state: Situation) -> tuple[Action, ...]:
    return (GiveUp(state.empty.given_up),) if state.empty.given_up else ()


def _spared(state: Situation) -> tuple[Action, ...]:
    if state.needed is None:
        return ()
    needed = {victim.uid for victim in state.needed}
    uids = frozenset(victim.uid for victim in unsent(state.plan, state.world) if victim.uid not in needed)
    return (Spare(uids),) if uids else ()


def _rest_of_units(state: Situation, end: End) -> list[Victim]:
    """Who is to go before the plan ends so. Where nobody can be asked for one who never ends, it ends."""
    blocked = end.reason is PlanEnd.VICTIM_STUCK and _room(state) == 0
    if end.reason not in UNITS_FIRST or not _may_send(state) or blocked:
        return []
    return [victim for victim in state.half_gone if victim.uid not in end.avoid_victims]


def _may_send(state: Situation) -> bool:
    return not (state.closed_nodes or state.empty.lacks)


def _room(state: Situation) -> int | None:
    """So many more may be asked to go now; None = any number."""
    limits = state.world.limits
    return None if limits.max_in_flight is None else max(0, limits.max_in_flight - limits.in_flight)


def _evictions(state: Situation, ready: Sequence[Victim]) -> tuple[Evict, ...]:
    """None while one waits to be asked again: were it refused for good, the others would have gone in vain. None
    either for a gang that is not whole. Who may be leaving already takes no further room of maxInFlight. Those
    whom a budget may keep are asked first, and alone: what they are told decides whether anybody else goes."""
    victims = state.world.victims
    if not _may_send(state):
        return ()
    if any(victims[v.uid].retry_seconds > state.now_seconds for v in ready):
        return ()
    ready = [v for v in ready if victims[v.uid].doubtful] or ready
    others = [v.uid for v in ready if not victims[v.uid].unsure]
    not_yet = {*others} - {*others[: _room(state)]}
    return tuple(Evict(victim.uid) for victim in ready if victim.uid not in not_yet)


def _nominations(state: Situation) -> tuple[Nominate, ...]:
    """All waiting pods of the owner at once, or none: half a gang on its cards helps nobody. Whom its queue stops,
    or its PodGroup, would be refused there by ourselves: its cards are held meanwhile."""
    waiting = state.owners(OwnerState.WAITING)
    if state.empty.lacks or state.sent or not state.cards_free:
        return ()
    if not waiting or any(pod.stopped for pod in waiting):
        return ()
    if state.progress.nominations >= MOST_NOMINATIONS:
        return ()
    found = [_on_held_cards(state, pod) for pod in waiting]
    placements = [placement for placement in found if placement is not None]
    if len(placements) < len(waiting):
        return ()
    return tuple(Nominate(pod.uid, p) for pod, p in zip(waiting, placements, strict=True))


def _phase(state: Situation, sends: tuple[Evict, ...]) -> tuple[Action, ...]:
    """Draining is the one phase on the way that is written: it carries who was evicted, and the debts. A plan that
    evicts nobody is there at once, unless nobody is in its way."""
    begun = bool(state.begun or sends) if state.plan.victims else not state.cards_free
    all_sent = state.needed is not None and len(sends) == len(state.needed) and begun
    return (Advance(PlanPhase.DRAINING),) if all_sent and state.plan.phase is not PlanPhase.DRAINING else ()


def _waits_for_others(state: Situation, sends: tuple[Evict, ...]) -> bool:
    """True where more than its own nodes and pods says when the plan goes on: its queue has no room, or evicts no
    more at once; a pod was sent elsewhere; a victim is spared or not asked yet; a gang has members anywhere."""
    waiting, needed = state.owners(OwnerState.WAITING, OwnerState.BOOKED), state.needed
    gang = state.plan.owner_kind is OwnerKind.GANG
    asked = needed is not None and len(sends) == len(needed) == len(unsent(state.plan, state.world))
    return not asked or gang or any(pod.stopped or pod.away for pod in waiting)


def _to_other_cards(state: Situation) -> tuple[Action, ...]:
    return tuple(Nominate(uid, placement) for uid, placement in state.world.elsewhere)


def _wake(state: Situation) -> int | None:
    victims, limits = state.world.victims, state.world.limits
    needed = [victims[v.uid] for v in state.needed or ()]
    moments = [one.retry_seconds for one in needed]
    moments += [o.fails_since + limits.stuck_timeout_seconds for o in needed if o.fails_since is not None]
    moments += state.hangs_from.values()
    if state.progress.drained_seconds is not None:
        moments.append(state.progress.drained_seconds + limits.hold_timeout_seconds)
    if state.progress.empty_seconds is not None:
        moments.append(state.progress.empty_seconds + limits.hold_timeout_seconds)
    return min((moment for moment in moments if moment > state.now_seconds), default=None)


def _on_held_cards(state: Situation, pod: OwnerPod) -> Placement | None:
    """The pod on just what is held for it of each card, or None when a rule of its node is against it now. Its
    containers on others of these cards than planned would take more, beside what is held, than was found free."""
    held = [card for card in state.plan.reservations if card.reservation.uid == pod.uid]
    view = state.world.views[held[0].node]
    if pod.request is None:
        return None
    return place_on_held(view, pod.request, [card.reservation for card in held], state.world.policies)
