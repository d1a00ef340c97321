"""What would happen to several pods one after another, to those who would lose their cards to them, and to members
of a gang for whom nobody goes.

Enters: what a preview enters. Leaves: one Preview of all of it. Each decision is made in the world that the one
before it leaves, as the planner would; nothing is changed and nothing is remembered.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vgpu.core.preempt.afterwards import after
from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid, DecisionWorld
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.obstacles import seats_now
from vgpu.core.preempt.preview import Outcome, Preview, preview, queues_after
from vgpu.core.preempt.rank import Service
from vgpu.core.reasons import Refusal

MOST_LOSERS = 8


def preview_all(
    world: DecisionWorld, pods: Sequence[Workload], now_seconds: int, avoid: Avoid = NOTHING_LEARNT
) -> Preview:
    """One decision for all these, and what becomes of those whose plans it takes over."""
    found = preview(world, pods, now_seconds, avoid)
    return replace(found, anew=_anew(world, found, now_seconds)) if found.takes else found


def preview_each(
    world: DecisionWorld, pods: Sequence[Workload], now_seconds: int, avoid: Avoid = NOTHING_LEARNT
) -> Preview:
    """A decision for each pod by itself, in the order of service; the first that finds no room speaks for the
    others, which are equal to it."""
    ordered = in_order(world, pods)
    if len(ordered) == 1:
        return preview_all(world, ordered, now_seconds, avoid)
    found: list[Preview] = []
    now = world
    for pod in ordered:
        answer = preview_all(now, (pod,), now_seconds, avoid)
        found.append(answer)
        if answer.outcome is Outcome.NO:
            break
        for one in (answer, *answer.anew):
            now = after(now, one)
    return _merged(world, ordered, found)


def preview_idle(world: DecisionWorld, pods: Sequence[Workload], otherwise: Refusal) -> Preview:
    """Pods for which nobody is ever evicted: they take what is free, and wait with this refusal otherwise."""
    ordered = in_order(world, pods)
    entitled = frozenset(pod.uid for pod in ordered) & world.standing.entitled
    seats = seats_now(world, ordered)
    waits = len(ordered) - len(seats)
    return Preview(
        tuple(ordered),
        Outcome.FITS_NOW if seats else Outcome.NO,
        seats,
        queues=queues_after(world, ordered[: len(seats)], ()) if seats else (),
        refusal=otherwise if waits else None,
        entitled=entitled,
        waits=waits,
        alone=True,
    )


def refused(world: DecisionWorld, pods: Sequence[Workload], refusal: Refusal) -> Preview:
    """Pods that would not start whatever room there is."""
    entitled = frozenset(pod.uid for pod in pods) & world.standing.entitled
    return Preview(tuple(pods), Outcome.NO, refusal=refusal, entitled=entitled, waits=len(pods))


def in_order(world: DecisionWorld, pods: Iterable[Workload]) -> list[Workload]:
    """The order in which they are decided on."""
    classes = {one.priority for one in world.workloads.values()}
    return sorted(pods, key=Service(world.standing.queues, world.standing.entitled, classes).key)


def _anew(world: DecisionWorld, answer: Preview, now_seconds: int) -> tuple[Preview, ...]:
    """Those who lose are decided on at once, and may take over others in turn."""
    found: list[Preview] = []
    plans = {hold.plan: hold for hold, _ in world.plans}
    now, losing = after(world, answer), list(answer.takes)
    while losing and len(found) < MOST_LOSERS:
        hold = plans.get(losing.pop(0))
        known = (now.workloads.get(uid) for uid in sorted(hold.uids)) if hold is not None else ()
        pods = [pod for pod in known if pod is not None and pod.request is not None and not pod.running]
        if pods:
            found.append(preview(now, pods, now_seconds))
            now = after(now, found[-1])
            losing += found[-1].takes
    return tuple(found)


def _merged(world: DecisionWorld, pods: Sequence[Workload], found: Sequence[Preview]) -> Preview:
    """One answer out of those given one after another; `found` may end with a "no"."""
    served = [one for one in found if one.seats]
    last, first = found[-1], found[0]
    goes = tuple(going for one in served for going in one.goes)
    gone = {one.pod.uid for one in goes}
    stays = {one.pod.uid: one for answer in served for one in answer.stays if one.pod.uid not in gone}
    seated = [pod for one in served for pod in one.pods]
    cost, classes = _sum([one for one in served if one.goes])
    return replace(
        last,
        pods=tuple(pods),
        outcome=_outcome(served),
        seats=tuple(seat for one in served for seat in one.seats),
        goes=goes,
        stays=tuple(stays.values()),
        spared=first.spared,
        rule=", ".join(sorted({rule for one in served if one.goes for rule in one.rule.split(", ")})),
        exact=all(one.exact for one in served),
        cost=cost,
        classes=classes,
        takes=tuple(dict.fromkeys(plan for one in served for plan in one.takes)),
        queues=queues_after(world, seated, [one.pod for one in goes]),
        may_go=first.may_go,
        limits=first.limits,
        entitled=frozenset(pod.uid for pod in pods) & world.standing.entitled,
        waits=len(pods) - len(served),
        alone=True,
        anew=tuple(one for answer in served for one in answer.anew),
    )


def _outcome(served: Sequence[Preview]) -> Outcome:
    """Of the worst of those who start."""
    outcomes = {one.outcome for one in served}
    order = (Outcome.PLAN, Outcome.AS_PODS_LEAVE, Outcome.FITS_NOW)
    return next((outcome for outcome in order if outcome in outcomes), Outcome.NO)


def _sum(answers: Sequence[Preview]) -> tuple[Cost | None, tuple[int, ...]]:
    """All costs together, in a scale of all their classes; ages and ties say nothing of a sum."""
    costs = [(one.cost, one.classes) for one in answers if one.cost is not None]
    if not costs:
        return None, ()
    classes = tuple(sorted({value for _, known in costs for value in known}, reverse=True))
    of_class: Counter[int] = Counter()
    for cost, known in costs:
        of_class.update(dict(zip(known, cost.pods_by_class, strict=True)))
    total = Cost(
        sum(cost.violations for cost, _ in costs),
        tuple(of_class[value] for value in classes),
        sum(cost.broken for cost, _ in costs),
        sum(cost.pods for cost, _ in costs),
        sum(cost.lost_work for cost, _ in costs),
        sum(cost.freed for cost, _ in costs),
    )
    return total, classes
