"""PodGroups of one source into the roster, and whether there are any to be known of.

Enters: facts and deletions, whether the kind is served and was listed. Leaves: calls of the roster, and word to
those who act on it. May not live here: decoding, what a group means.
"""

from collections.abc import Callable

from vgpu.controller.sinks import Quarantine
from vgpu.core.preempt.pod_groups import GroupKind
from vgpu.core.preempt.roster import Roster
from vgpu.core.terms import GroupFact, GroupName, GroupSource
from vgpu.kube.objects import Key

Told = Callable[[], None]


class GroupSink(Quarantine):
    """PodGroups of one source."""

    kind = "PodGroup"

    def __init__(self, source: GroupSource, roster: Roster, told: Told) -> None:
        super().__init__()
        self._source = source
        self._roster = roster
        self._told_of = told
        self._keys: set[str] = set()

    def put(self, item: GroupFact) -> None:
        """A group is there, like this."""
        self._keys.add(item.name.key)
        if self._roster.group(item.name.key) != item:
            self._roster.put_group(item)
            self._told_of()

    def drop(self, key: Key) -> None:
        """A group is gone."""
        self.readable(key)
        name = GroupName(self._source, key.namespace, key.name).key
        self._keys.discard(name)
        self._roster.drop_group(name)
        self._told_of()

    def synced(self) -> None:
        """Every group has been seen."""
        self._stand(GroupKind.READ)

    def served(self, served: bool) -> None:
        """The kind is about to be listed, or is not served."""
        self._stand(GroupKind.UNREAD if served else GroupKind.ABSENT)

    def _stand(self, kind: GroupKind) -> None:
        if self._roster.gangs.kind(self._source) is not kind:
            self._roster.gangs.put_kind(self._source, kind)
            self._told_of()

    def forget(self) -> None:
        """The kind is not served any more: there are no groups."""
        for name in self._keys:
            self._roster.drop_group(name)
        self._keys.clear()
        self._told_of()
