"""The rank of a workload: what it is compared by, and in which order room is offered (preemption.md 4.2, 4.8).

Enters: workloads, who is entitled, how often each was evicted, the classes in use. Leaves: ranks, which compare,
and keys to sort by. A rank holds class values only. The boost for those who were evicted orders the offers and
stays below the next class: it gives nobody a right to evict.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from vgpu.core.preempt.facts import QueueFact, Workload

LARGEST_BOOST = 1000
"""Where no higher class bounds it."""


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """Higher is stronger: entitled before not entitled, then the class value."""

    entitled: bool
    priority: int


def rank_of(workload: Workload, entitled: Collection[str]) -> Rank:
    """The workload's rank; `entitled` are the uids of the entitled ones."""
    return Rank(workload.uid in entitled, workload.priority)


def is_older(one: Workload, other: Workload) -> bool:
    """True when `one` was there first; ties go to the lower uid."""
    return (one.created_seconds, one.uid) < (other.created_seconds, other.uid)


def seniority(workload: Workload) -> tuple[int, int, str]:
    """Place in the walk, smallest first: highest class, then oldest, then uid."""
    return (-workload.priority, workload.created_seconds, workload.uid)


def core_members(members: Iterable[Workload], minimum: int) -> tuple[list[Workload], list[Workload]]:
    """The members without whom a gang cannot run, and the surplus: the oldest count, whoever runs now."""
    oldest_first = sorted(members, key=lambda member: (member.created_seconds, member.uid))
    return oldest_first[:minimum], oldest_first[minimum:]


def effective_priority(workload: Workload, classes: Collection[int]) -> int:
    """Class value and one step for each eviction, always below the next of the `classes` in use (S77)."""
    higher = [value for value in classes if value > workload.priority]
    most = min(higher) - workload.priority - 1 if higher else LARGEST_BOOST
    return workload.priority + min(workload.evictions, most, LARGEST_BOOST)


@dataclass(frozen=True, slots=True)
class Service:
    """The order in which waiting workloads are served."""

    queues: Mapping[str, QueueFact]
    entitled: Collection[str]
    classes: Collection[int]

    def key(self, workload: Workload) -> tuple[bool, int, int, int, str]:
        """Sorts waiting workloads, the first to be served first: entitled, queue, effective priority, age."""
        queue = self.queues.get(workload.queue)
        return (
            workload.uid not in self.entitled,
            -queue.priority if queue is not None else 0,
            -effective_priority(workload, self.classes),
            workload.created_seconds,
            workload.uid,
        )
