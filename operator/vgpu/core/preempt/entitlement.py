"""Who is entitled: the walk over each queue's workloads under what the queue deserves (preemption.md 4.2).

Enters: queues and workloads. Leaves: the uids of the entitled ones. The mark depends on the set of workloads and
on their claims, never on who runs now: that is why evictions cannot go in circles. Priorities are class values
here, without any boost, for the same reason. May not live here: amounts in use.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.capped import held_back
from vgpu.core.preempt.facts import Amounts, Limits, QueueFact, StopPolicy, Workload
from vgpu.core.preempt.limits import leaves_any, names_any, reduced, within
from vgpu.core.preempt.rank import core_members, seniority


@dataclass(frozen=True, slots=True)
class _Element:
    """What is entitled as one: a pod, or the members without whom a gang cannot run (its core)."""

    uids: tuple[str, ...]
    claim: Amounts
    order: tuple[int, int, str]
    gang: str = ""
    surplus: bool = False
    """A gang's pod beyond its core: entitled only if the core is."""


def entitled_uids(queues: Mapping[str, QueueFact], workloads: Iterable[Workload]) -> frozenset[str]:
    """Uids of the workloads that their queues are entitled to. A queue that does not exist entitles nobody."""
    by_queue = _by_queue(queues, workloads)
    return frozenset(uid for name, members in by_queue.items() for uid in entitled_in(queues[name], members))


def entitled_in(queue: QueueFact, members: Iterable[Workload]) -> frozenset[str]:
    """The same for the workloads of one queue."""
    return frozenset(_walk(queue.deserved, _elements(_with_a_claim(queue, members))))


def could_start(queues: Mapping[str, QueueFact], workloads: Iterable[Workload]) -> list[Workload]:
    """Those of the waiting ones who could start if others gave them room."""
    by_queue = _by_queue(queues, workloads)
    elements = (_elements(_with_a_claim(queues[name], members)) for name, members in by_queue.items())
    able = {uid for of_queue in elements for element in of_queue for uid in element.uids}
    return [one for members in by_queue.values() for one in members if one.uid in able and not one.running]


def _by_queue(queues: Mapping[str, QueueFact], workloads: Iterable[Workload]) -> dict[str, list[Workload]]:
    found: defaultdict[str, list[Workload]] = defaultdict(list)
    for workload in workloads:
        if workload.queue in queues:
            found[workload.queue].append(workload)
    return found


def _with_a_claim(queue: QueueFact, members: Iterable[Workload]) -> list[Workload]:
    counted = [member for member in members if counts(member, queue)]
    held = held_back(queue, counted)
    return [member for member in counted if member.uid not in held] if held else counted


def counts(workload: Workload, queue: QueueFact) -> bool:
    """True for those whom the walk looks at: a pod that is being deleted has no future to be entitled to, and one
    that waits in a stopped queue, or for a node that there is not, neither."""
    if workload.running:
        return not workload.terminating
    return workload.active and not workload.nowhere_why and queue.stop_policy is StopPolicy.NONE


def may_take(claim: Amounts, left: Limits) -> bool:
    """True when the claim is within what is left, and asks for something that the queue deserves some of."""
    return names_any(claim, left) and within(claim, left)


def _walk(deserved: Limits, elements: Iterable[_Element]) -> Iterator[str]:
    """Uids of what fits in turn under what is left of `deserved`; what does not fit is skipped."""
    left = deserved
    gangs: set[str] = set()
    for element in sorted(elements, key=lambda element: element.order):
        if not leaves_any(left):
            return
        if element.surplus and element.gang not in gangs:
            continue
        if not may_take(element.claim, left):
            continue
        left = reduced(left, element.claim)
        gangs.add(element.gang)
        yield from element.uids


def _elements(members: Iterable[Workload]) -> Iterator[_Element]:
    gangs: defaultdict[str, list[Workload]] = defaultdict(list)
    for member in members:
        if member.gang is None:
            yield _Element((member.uid,), member.claim, seniority(member))
        else:
            gangs[member.gang.key].append(member)
    for key, of_gang in gangs.items():
        yield from _gang_elements(key, of_gang)


def _gang_elements(key: str, members: list[Workload]) -> Iterator[_Element]:
    """The core, and each surplus pod; nothing for a gang that neither runs nor has enough members to start."""
    minimum = max(member.gang.minimum for member in members if member.gang is not None)
    if len(members) < minimum and not any(member.running for member in members):
        return
    core, surplus = core_members(members, max(1, minimum))
    highest = max(member.priority for member in members)
    oldest = core[0]
    yield _Element(
        tuple(member.uid for member in core),
        sum_of(member.claim for member in core),
        (-highest, oldest.created_seconds, oldest.uid),
        key,
    )
    for member in surplus:
        yield _Element((member.uid,), member.claim, seniority(member), key, surplus=True)
