"""What evictions cost: a vector compared from the left and added up, kept as one whole number.

Enters: what a unit of eviction takes away. Leaves: its cost as an integer whose order is the order of the
vectors and whose sum is their sum (preemption.md 4.4), so that a search adds and compares plain numbers. Who may
be evicted at all is not decided here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

_FIELD_BITS = 64
_LARGEST = 2**44
"""The most that one unit may state in one field: a million of them still add up within a field."""
_FIELD = (1 << _FIELD_BITS) - 1


@dataclass(frozen=True, slots=True)
class Cost:
    """Read from the left: the first difference decides.

    `pods_by_class`: pods per priority, in the order of the scale's classes. `broken`: workloads that stop as a
    whole. `lost_work`: thousandths of a card x seconds since the last checkpoint or the start. `freed`:
    thousandths of cards given free: less is closer to what is needed. `age_seconds`: since the start, so later
    starts go first. `tie` stands for the uids.
    """

    violations: int = 0
    pods_by_class: tuple[int, ...] = ()
    broken: int = 0
    pods: int = 0
    lost_work: int = 0
    freed: int = 0
    age_seconds: int = 0
    tie: int = 0


@dataclass(frozen=True, slots=True)
class CostScale:
    """Which priorities there are, highest first: costs of one scale can be added and compared."""

    classes: tuple[int, ...]

    @classmethod
    def of(cls, priorities: Iterable[int]) -> "CostScale":
        """The scale for these priorities."""
        return cls(tuple(sorted(set(priorities), reverse=True)))

    def pack(self, cost: Cost) -> int:
        """The cost as a number. A field beyond 2**44 counts as 2**44."""
        fields = (cost.violations, *cost.pods_by_class, *_low_fields(cost))
        assert len(cost.pods_by_class) == len(self.classes)
        total = 0
        for field in fields:
            total = (total << _FIELD_BITS) | min(max(0, field), _LARGEST)
        return total

    def unpack(self, total: int) -> Cost:
        """The vector of a number, or of a sum of numbers."""
        count = len(self.classes)
        fields = [(total >> (_FIELD_BITS * place)) & _FIELD for place in range(count + 6, -1, -1)]
        return Cost(fields[0], tuple(fields[1 : count + 1]), *fields[count + 1 :])

    def one_of(self, priority: int, count: int = 1) -> tuple[int, ...]:
        """`pods_by_class` of `count` pods of one priority, which is one of the scale's."""
        return tuple(count if known == priority else 0 for known in self.classes)

    @property
    def violation(self) -> int:
        """The cost of one pod evicted beyond what its disruption budget allows."""
        return self.pack(Cost(1, (0,) * len(self.classes)))


def low_part(lost_work: int, freed: int, age_seconds: int, tie: int) -> int:
    """What these fields, the last of the vector, come to in a number: packing thousands of pods costs time."""
    if max(lost_work, freed, age_seconds, tie) > _LARGEST:
        lost_work, freed = min(lost_work, _LARGEST), min(freed, _LARGEST)
        age_seconds, tie = min(age_seconds, _LARGEST), min(tie, _LARGEST)
    return lost_work << 3 * _FIELD_BITS | freed << 2 * _FIELD_BITS | age_seconds << _FIELD_BITS | tie


def tie_of(uid: str) -> int:
    """A number below 2**40 that stands for the uid: equal candidates are told apart alike on every run."""
    return int.from_bytes(blake2b(uid.encode(), digest_size=5).digest(), "big")


def _low_fields(cost: Cost) -> tuple[int, ...]:
    return (cost.broken, cost.pods, cost.lost_work, cost.freed, cost.age_seconds, cost.tie)
