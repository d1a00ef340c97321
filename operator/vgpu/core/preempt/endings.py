"""Why a plan ends: the rules of its life in the order in which they are asked; the first that speaks ends it.

Enters: a Situation. Leaves: an End, or None. The list reads as the specification (preemption.md 4.7).
"""

from collections.abc import Callable, Sequence

from vgpu.core.preempt.facts import OwnerKind, Victim
from vgpu.core.preempt.plan import End, OwnerState, PlanEnd
from vgpu.core.preempt.situation import Situation

MOST_REFUSALS = 3
"""So often an eviction is refused for a budget before the plan is made anew without that pod."""
UNITS_FIRST = frozenset(
    {
        PlanEnd.ROOM_ELSEWHERE,
        PlanEnd.VICTIM_CHANGED,
        PlanEnd.DISRUPTION_BUDGET,
        PlanEnd.EVICTION_REFUSED,
        PlanEnd.EVICTION_FAILED,
        PlanEnd.VICTIM_STUCK,
    }
)
"""Ends that wait until a gang of which a part has gone is gone whole: the rest of it is of no use to anybody."""
MOST_NOMINATIONS = 3
"""So often an owner is sent to its free cards without coming before they are given to others."""


def _owner_bound(state: Situation) -> End | None:
    if state.owners(OwnerState.WAITING, OwnerState.BOOKED) or state.empty.lacks or state.empty.lost:
        return None
    if state.world.gang is None and state.owners(OwnerState.GONE):
        return None
    return End(PlanEnd.OWNER_BOUND, f"{state.plan.owner_name} is bound")


def _owner_gone(state: Situation) -> End | None:
    """A gang's seats wait for those who replace its members. Where those are whole who take none of them, one is
    lost that had been bound, or the gang needs more than have seats, it is no longer what was decided on."""
    gang = state.world.gang
    if gang is None and not state.owners(OwnerState.GONE):
        return None
    empty = state.empty
    others = gang is not None and gang.whole and bool((empty.kept and not state.takers) or empty.short)
    if gang is not None and not others and not empty.lost:
        return None
    if state.owners(OwnerState.WAITING, OwnerState.BOOKED):
        return End(PlanEnd.OWNER_CHANGED, f"{_what_changed(state)}; it is decided on anew", replan=True)
    text = f"{state.plan.owner_name} does not wait any more: what was not evicted yet stays"
    return End(PlanEnd.OWNER_GONE, text)


def _what_changed(state: Situation) -> str:
    """Why the plan is not what its owner needs, though pods of it wait."""
    name = state.plan.owner_name
    if state.plan.owner_kind is not OwnerKind.GANG:
        return f"some of the pods that {name} stands for are gone"
    if state.world.gang is None:
        return f"gang {name} is none any more: its PodGroup was deleted"
    if state.empty.lost:
        return f"a member of gang {name} that had been bound is gone"
    if state.empty.short:
        return f"gang {name} needs more pods at once than cards are held for"
    return f"enough members of gang {name} wait, and they ask for other cards than the ones that are held"


def _taken_over(state: Situation) -> End | None:
    by = state.world.taken_over_by
    if not by:
        return None
    return End(PlanEnd.TAKEN_OVER, f"{by} ranks higher and takes the cards", replan=True)


def _room_elsewhere(state: Situation) -> End | None:
    waiting = {pod.uid for pod in state.owners(OwnerState.WAITING)}
    if not waiting or {uid for uid, _ in state.world.elsewhere} != waiting or state.sent or state.cards_free:
        return None
    if state.empty.lacks:
        return None  # that the others fit there is no room for the gang
    nodes = ", ".join(sorted({placement.node for _, placement in state.world.elsewhere}))
    return End(PlanEnd.ROOM_ELSEWHERE, f"room without evictions on {nodes}")


def _other_filters(state: Situation) -> End | None:
    lost = [pod for pod in state.owners(OwnerState.WAITING) if pod.obstacle]
    if not lost:
        return None
    nodes = {card.node for card in state.plan.reservations for pod in lost if card.reservation.uid == pod.uid}
    text = f"{', '.join(sorted(nodes))} refuses the pod for other reasons than cards: {lost[0].obstacle}"
    return End(PlanEnd.LOST_OTHER, text, replan=True, avoid_nodes=frozenset(nodes))


def _node_gone(state: Situation) -> End | None:
    """Whoever was asked to go there has gone with it: there is nothing to wait for until holdTimeout."""
    gone = state.gone_nodes
    if not gone:
        return None
    text = f"there is no Node {', '.join(sorted(gone))} any more, and its cards went with it"
    return End(PlanEnd.NODE_CLOSED, text, replan=True)


def _node_closed(state: Situation) -> End | None:
    closed = state.closed_nodes
    if not closed or state.begun:
        return None
    text = f"{', '.join(sorted(closed))} takes no assignments; nobody was evicted there"
    return End(PlanEnd.NODE_CLOSED, text, replan=True, avoid_nodes=closed)


def _cards_lost(state: Situation) -> End | None:
    if state.needed is not None or (state.closed_nodes and state.begun):
        return None  # a node that closed while its victims leave may open again before the hold ends
    return End(PlanEnd.CARDS_LOST, "the planned cards would not be free without the victims either", replan=True)


def _victim_changed(state: Situation) -> End | None:
    """What is left of a gang claims less, and may have become entitled by that alone: it is of no use any more."""
    if state.empty.lacks:
        return None  # nobody goes meanwhile, and a gang that is not whole has no rights to look at
    follow, victims = {victim.uid for victim in state.half_gone}, state.world.victims
    needed = [victim.uid for victim in state.needed or () if victim.uid not in follow]
    objections = {uid: victims[uid].objection for uid in needed if victims[uid].objection}
    if not objections:
        return None
    text = f"a victim may not be evicted any more: {next(iter(objections.values()))}"
    return End(PlanEnd.VICTIM_CHANGED, text, replan=True, avoid_victims=frozenset(objections))


def _budget(state: Situation) -> End | None:
    refused = [v for v in state.needed or () if state.world.victims[v.uid].refusals >= MOST_REFUSALS]
    if not refused:
        return None
    said = next((why for v in refused if (why := state.world.victims[v.uid].failure)), "")
    if said:
        return _not_evicted(PlanEnd.EVICTION_REFUSED, state, refused)
    return End(
        PlanEnd.DISRUPTION_BUDGET,
        f"the disruption budget does not let {_named(refused)} go",
        replan=True,
        avoid_victims=frozenset(victim.uid for victim in refused),
    )


def _eviction_fails(state: Situation) -> End | None:
    """Whether it is carried out after all nobody knows; others go, as for one that never ends."""
    limit, known = state.world.limits.stuck_timeout_seconds, state.world.victims
    since = {v: known[v.uid].fails_since for v in state.needed or ()}
    failing = [v for v, one in since.items() if one is not None and state.now_seconds >= one + limit]
    return _not_evicted(PlanEnd.EVICTION_FAILED, state, failing) if failing else None


def _not_evicted(reason: PlanEnd, state: Situation, victims: Sequence[Victim]) -> End:
    said = next((why for v in victims if (why := state.world.victims[v.uid].failure)), "")
    return End(
        reason,
        f"the API server does not evict {_named(victims)}: {said}",
        replan=True,
        avoid_victims=frozenset(victim.uid for victim in victims),
    )


def _named(victims: Sequence[Victim]) -> str:
    return ", ".join(victim.pod for victim in victims)


def _stuck(state: Situation) -> End | None:
    """A gang keeps its hold until holdTimeout: its other members' cards are free or will be. Where nobody went for
    it, and none of it is bound, nothing is lost by another look."""
    stuck = state.stuck
    kept = state.gang and (state.plan.victims or state.owners(OwnerState.BOUND, OwnerState.BOOKED))
    if not stuck or kept or state.cards_free:
        return None
    who = "a victim" if any(one.uid in stuck for one in state.plan.victims) else "a pod that was leaving"
    text = f"{who} has not ended in time; its card stays occupied until its pod is gone"
    return End(PlanEnd.VICTIM_STUCK, text, replan=True, stuck=stuck)


def _not_whole_in_time(state: Situation) -> End | None:
    """Whoever of it is bound already is for others to judge: nobody may be missing it."""
    clocks = state.clocks
    since = min((one for one in (clocks.empty_seconds, clocks.drained_seconds) if one is not None), default=None)
    if not state.empty.lacks or state.takers or since is None:
        return None
    if state.now_seconds < since + state.world.limits.hold_timeout_seconds:
        return None
    lacks = state.empty.lacks
    text = f"nobody came in time for {lacks} pods that {state.plan.owner_name} lacks; what was held is free"
    return End(PlanEnd.HOLD_EXPIRED, text, stuck=state.stuck)


def _hold_expired(state: Situation) -> End | None:
    since = state.clocks.drained_seconds
    if state.owners(OwnerState.BOOKED) or state.empty.lacks:
        return None  # the outcome is not known yet
    if since is None or state.now_seconds < since + state.world.limits.hold_timeout_seconds:
        return None
    bound = frozenset(pod.uid for pod in state.owners(OwnerState.BOUND))
    return End(
        PlanEnd.HOLD_EXPIRED,
        "the owner was not bound in time; what was held for it is free for others",
        avoid_nodes=_in_vain(state) if state.progress.nominations else frozenset(),
        stuck=state.stuck,
        release=bound,
    )


def _bind_failed(state: Situation) -> End | None:
    """Asked after the last nomination has had its answer."""
    if state.progress.nominations < MOST_NOMINATIONS or state.sent or not state.cards_free or state.empty.lacks:
        return None
    bound = frozenset(pod.uid for pod in state.owners(OwnerState.BOUND))
    if bound:
        return None  # partly bound: the rest keeps its cards until the hold ends
    text = f"sent to its free cards {MOST_NOMINATIONS} times, and not bound"
    return End(PlanEnd.BIND_FAILED, text, avoid_nodes=_in_vain(state))


def _in_vain(state: Situation) -> frozenset[str]:
    """Nodes whose cards are held for those who did not come: going for others there would be in vain again."""
    waiting = {pod.uid for pod in state.owners(OwnerState.WAITING)}
    return frozenset(card.node for card in state.plan.reservations if card.reservation.uid in waiting)


ENDINGS: tuple[Callable[[Situation], End | None], ...] = (
    _owner_bound,
    _owner_gone,
    _taken_over,
    _room_elsewhere,
    _other_filters,
    _node_gone,
    _node_closed,
    _cards_lost,
    _victim_changed,
    _budget,
    _eviction_fails,
    _stuck,
    _not_whole_in_time,
    _hold_expired,
    _bind_failed,
)
