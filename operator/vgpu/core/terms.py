"""What a GPU pod says of itself beside what it asks for: whose it is, with whom it runs, when it may be evicted.

Values only, made by translate. Moments are whole seconds since 1970, as the API states them: policies rest on
them, safety never does. May not live here: queues, cards, who evicts whom.
"""

from dataclasses import dataclass
from enum import StrEnum


class GroupSource(StrEnum):
    """Who says that pods belong together: our own label, Volcano's PodGroup, or Kubernetes' own."""

    LABEL = "label"
    VOLCANO = "volcano"
    KUBERNETES = "kubernetes"


WHOSE = {
    GroupSource.LABEL: "",
    GroupSource.VOLCANO: " (Volcano PodGroup)",
    GroupSource.KUBERNETES: " (PodGroup)",
}
"""What follows a group's name where people read it; neither a label nor a PodGroup can end like that itself."""


@dataclass(frozen=True, slots=True, order=True)
class GroupName:
    """Which group of pods."""

    source: GroupSource
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """NS/NAME as people write it, of a PodGroup with whose it is: names it among all groups."""
        return f"{self.namespace}/{self.name}{WHOSE[self.source]}"


@dataclass(frozen=True, slots=True)
class GroupFact:
    """One PodGroup. `minimum` None: its pods need not start together. `disruption_all`: it is evicted whole or
    not at all. `priority` None: that of its pods counts; `priority_class` names a class whose value is looked up.
    """

    name: GroupName
    minimum: int | None = None
    disruption_all: bool = False
    priority: int | None = None
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The controller of a pod: whose work is lost, and who brings it back. `uid` "" = none (a bare pod)."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    api_version: str = ""


NO_OWNER = OwnerRef()


@dataclass(frozen=True, slots=True)
class PodTerms:
    """See the module. `group_minimum` is what the pod's own label says; `gates` are its scheduling gates by name.

    `deletion_seconds`: metadata.deletionTimestamp, when its grace period ends. `problems`: what the pod says and
    cannot be read, in words: it counts as not said.
    """

    owner: OwnerRef = NO_OWNER
    group: GroupName | None = None
    group_minimum: int | None = None
    preempt_never: bool = False
    created_seconds: int = 0
    started_seconds: int | None = None
    deletion_seconds: int | None = None
    checkpoint_seconds: int | None = None
    preemptable: bool = True
    cooldown_seconds: int = 0
    evict_opt_in: bool = False
    labels: frozenset[tuple[str, str]] = frozenset()
    gates: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
