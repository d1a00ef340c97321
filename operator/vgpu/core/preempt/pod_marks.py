"""What only our own process knows of pods, or reads in other objects than theirs."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class PodMarks:
    """Mutable, with one owner. `evicted`: uids whose eviction was accepted. `inactive`: why a waiting pod could
    not be scheduled now whatever were free. `evictions`: how often a pod, or the pods of an owner, were evicted
    for others; all by uid."""

    evicted: set[str] = field(default_factory=set)
    inactive: dict[str, str] = field(default_factory=dict)
    evictions: dict[str, int] = field(default_factory=dict)

    def set_inactive(self, uid: str, why: str) -> None:
        """Note why, or forget it with ""."""
        if why:
            self.inactive[uid] = why
        else:
            self.inactive.pop(uid, None)

    def set_evictions(self, uid: str, count: int) -> None:
        """Note the count, or forget it with 0."""
        if count:
            self.evictions[uid] = count
        else:
            self.evictions.pop(uid, None)

    def evictions_of(self, uid: str, owner_uid: str) -> int:
        """How often this pod, or those of its owner, were evicted."""
        return max(self.evictions.get(uid, 0), self.evictions.get(owner_uid, 0))

    def drop(self, uid: str) -> None:
        """The pod is gone; what its owner has been through stays."""
        self.evicted.discard(uid)
        self.inactive.pop(uid, None)
        self.evictions.pop(uid, None)
