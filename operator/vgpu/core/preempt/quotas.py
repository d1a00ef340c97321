"""What queues allow of a whole set of victims, in the words of the search.

Enters: queues and their usage, what the preemptor adds. Leaves: allowances (no other queue may lose what it is
guaranteed) and needs (the preemptor's own queue must give free what it would use beyond its capability). Whether a
single victim may go is decided elsewhere.
"""

from collections.abc import Iterable

from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.eligible import Standing
from vgpu.core.preempt.facts import Amounts, Limits, QueueFact, Workload
from vgpu.core.preempt.problem import Allowance, Need
from vgpu.core.preempt.victims import guarantee_keys
from vgpu.core.reasons import Reason

_EVERY = Amounts(1, 1, 1)


def guarantees(standing: Standing, own_queue: str) -> tuple[Allowance, ...]:
    """Per other queue and stated dimension: how much it may lose at most (S61)."""
    found = []
    for name, queue in sorted(standing.queues.items()):
        if name == own_queue:
            continue
        staying = standing.usage_of(name).staying
        for (key, _), have, least in zip(
            guarantee_keys(name, _EVERY), _dimensions(staying), _limits(queue.guarantee), strict=True
        ):
            if least is not None:
                found.append(Allowance(key, have - least))
    return tuple(found)


def has_capability(queue: QueueFact) -> bool:
    """Whether anything bounds what the queue uses."""
    return any(most is not None for most in _limits(queue.capability))


def capability_needs(
    standing: Standing,
    own_queue: str,
    added: Amounts,
    victims: Iterable[Workload],
    going: Iterable[Workload] = (),
) -> tuple[Need, ...]:
    """Per dimension in which the own queue would use more than its capability: what its victims must give (S63),
    beside what those of it give who are `going` for others.

    Nothing where it stays within it without evictions.
    """
    queue = standing.queues.get(own_queue)
    if queue is None:
        return ()
    usage = standing.usage_of(own_queue)
    go_anyway = {one.uid: one.amounts for one in going}
    used = _dimensions(usage.staying + usage.promised - sum_of(go_anyway.values()))
    own = [victim for victim in victims if victim.queue == own_queue and victim.uid not in go_anyway]
    needs = []
    for place, (name, most) in enumerate(zip(_NAMES, _limits(queue.capability), strict=True)):
        more = _dimensions(added)[place]
        if most is None or not more or used[place] + more <= most:
            continue
        freed = tuple((victim.uid, _dimensions(victim.amounts)[place]) for victim in own)
        what, left = f"{name} within the capability of queue {own_queue}", most - used[place]
        needs.append(Need(what, more, left, freed, Reason.QUEUE_CAPABILITY, thousandths=name == _CARDS))
    return tuple(needs)


_CARDS = "cards"
_NAMES = (_CARDS, "MiB", "cores")


def _dimensions(amounts: Amounts) -> tuple[int, int, int]:
    return (amounts.cards_thousandths, amounts.memory_mib, amounts.cores)


def _limits(limits: Limits) -> tuple[int | None, int | None, int | None]:
    return (limits.cards_thousandths, limits.memory_mib, limits.cores)
