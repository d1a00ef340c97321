"""Which pods belong together, and how many of them must run: from PodGroups, else from what the pods say.

Enters: GroupFacts, the groups that pods name. Leaves: a Gang per group, its members, its priority. A PodGroup's
word counts before the pods' own labels; of those the largest minimum counts. Pods of a group that need no cards (a
launcher), or that have succeeded, do their part: so many fewer of the others must run. May not live here: who
starts.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from vgpu.core.facts import Phase, PodFact
from vgpu.core.preempt.facts import Gang
from vgpu.core.preempt.pod_groups import GroupKind, PodGroupIs
from vgpu.core.preempt.uid_index import UidIndex
from vgpu.core.terms import GroupFact, GroupName, GroupSource

LEAST = 1
"""The minimum of a group of which nobody has said that it needs more."""


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """What a group means for its members. `gang` None: they have nothing to do with each other."""

    gang: Gang | None
    priority: int | None = None


ALONE = GroupTerms(None)


@dataclass(slots=True)
class _Entry:
    name: GroupName
    minimums: dict[str, int] = field(default_factory=dict)
    terms: GroupTerms = ALONE


class GangBook:
    """Mutable, with one owner. Every put and drop answers the members for whom the group's meaning changed;
    `changed` is told of those for whom a kind's coming and going changed it."""

    def __init__(self, changed: Callable[[Iterable[str]], None] = lambda uids: None) -> None:
        self._changed = changed
        self._kinds: dict[GroupSource, GroupKind] = {GroupSource.LABEL: GroupKind.ABSENT}
        self._facts: dict[str, GroupFact] = {}
        self._entries: dict[str, _Entry] = {}
        self._members = UidIndex()
        self._classes: dict[str, int] = {}
        self._others = UidIndex()
        self._dissolved: set[str] = set()
        self.others_changed: Callable[[], None] = lambda: None
        """Called when such a pod came or went: no change of a pod with cards shows it."""

    def put_member(self, uid: str, group: GroupName | None, minimum: int | None) -> Collection[str]:
        """The pod is of this group, of none with None."""
        key = "" if group is None else group.key
        changed = self._leave(uid) if self._members.key(uid) not in ("", key) else ()
        self._members.put(uid, key)
        if group is None:
            return changed
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(group)
        if entry.minimums.get(uid) != minimum:
            entry.minimums.pop(uid, None)
            if minimum is not None:
                entry.minimums[uid] = minimum
        return (*changed, *self._settle(entry))

    def drop_member(self, uid: str) -> Collection[str]:
        """The pod is gone."""
        return self.put_member(uid, None, None)

    def put_other(self, fact: PodFact) -> Collection[str]:
        """A pod is there that may do its part without cards."""
        group = fact.terms.group if fact.terms is not None else None
        return self._put_other(fact.uid, group.key if group is not None and _needs_no_cards(fact) else "")

    def drop_other(self, uid: str) -> Collection[str]:
        """That pod is gone."""
        return self._put_other(uid, "")

    def put_group(self, fact: GroupFact) -> Collection[str]:
        """A PodGroup is there, like this."""
        self._facts[fact.name.key] = fact
        self._dissolved.discard(fact.name.key)
        return self._settle_key(fact.name.key)

    def drop_group(self, key: str) -> Collection[str]:
        """A PodGroup is gone."""
        if self._facts.pop(key, None) is not None and key in self._entries:
            self._dissolved.add(key)
        return self._settle_key(key)

    def put_kind(self, source: GroupSource, kind: GroupKind) -> None:
        """The PodGroups of this source stand like this."""
        if self._kinds.get(source) is not kind:
            self._kinds[source] = kind
            entries = [entry for entry in self._entries.values() if entry.name.source is source]
            self._changed([uid for entry in entries for uid in self._settle(entry)])

    def kind(self, source: GroupSource) -> GroupKind:
        """How the PodGroups of this source stand; as long as nobody has told, they are unread."""
        return self._kinds.get(source, GroupKind.UNREAD)

    def put_class(self, name: str, priority: int | None) -> Collection[str]:
        """A PriorityClass has this value, None = it is gone."""
        if self._classes.get(name) == priority:
            return ()
        if priority is None:
            del self._classes[name]
        else:
            self._classes[name] = priority
        keys = [fact.name.key for fact in self._facts.values() if fact.priority_class == name]
        return [uid for key in keys for uid in self._settle_key(key)]

    def terms(self, uid: str) -> GroupTerms:
        """What its group means for this pod."""
        entry = self._entries.get(self._members.key(uid))
        return ALONE if entry is None else entry.terms

    def would_mean(self, group: GroupName, minimum: int | None) -> GroupTerms:
        """What this group would mean for one pod more, which says this minimum; nothing is changed."""
        known = self._entries.get(group.key)
        said = dict(known.minimums) if known is not None else {}
        return self._terms_of(_Entry(group, said if minimum is None else {**said, "": minimum}))

    def members(self, key: str) -> Collection[str]:
        """Uids of the group's pods that are there."""
        return self._members.of(key)

    def fact(self, key: str) -> GroupFact | None:
        """The group's PodGroup, if one was seen."""
        return self._facts.get(key)

    def is_known(self, key: str) -> bool:
        """False for a group whose PodGroup has not been seen yet: after a start its pods may come before it."""
        entry = self._entries.get(key)
        labelled = entry is not None and entry.name.source is GroupSource.LABEL
        return labelled or key in self._facts or key in self._dissolved

    def is_dissolved(self, key: str) -> bool:
        """True for a group with pods whose PodGroup was seen to go."""
        return key in self._dissolved

    def _put_other(self, uid: str, key: str) -> Collection[str]:
        before = self._others.key(uid)
        if before == key:
            return ()
        self._others.put(uid, key)
        changed = [*self._settle_key(before), *self._settle_key(key)]
        self.others_changed()
        return changed

    def _leave(self, uid: str) -> Collection[str]:
        key = self._members.key(uid)
        entry = self._entries[key]
        entry.minimums.pop(uid, None)
        self._members.drop(uid)
        if not self._members.of(key):
            del self._entries[key]
            self._dissolved.discard(key)
            return ()
        return self._settle(entry)

    def _settle_key(self, key: str) -> Collection[str]:
        entry = self._entries.get(key)
        return () if entry is None else self._settle(entry)

    def _settle(self, entry: _Entry) -> Collection[str]:
        terms = self._terms_of(entry)
        if terms == entry.terms:
            return ()
        entry.terms = terms
        return tuple(self._members.of(entry.name.key))

    def _terms_of(self, entry: _Entry) -> GroupTerms:
        key = entry.name.key
        fact = self._facts.get(key)
        said = max(entry.minimums.values(), default=LEAST)
        others = len(self._others.of(key))
        if fact is None:
            group = self._without_fact(entry)
            # Of a gang that may have a minimum nobody goes singly.
            return GroupTerms(Gang(key, max(LEAST, said - others), group is PodGroupIs.UNREAD, group))
        priority = fact.priority if fact.priority is not None else self._classes.get(fact.priority_class)
        if fact.minimum is None and entry.name.source is GroupSource.KUBERNETES and not fact.disruption_all:
            return GroupTerms(None, priority)
        minimum = fact.minimum if fact.minimum is not None else said
        return GroupTerms(Gang(key, max(LEAST, minimum - others), fact.disruption_all), priority)

    def _without_fact(self, entry: _Entry) -> PodGroupIs:
        """How the group's PodGroup stands, which is not known. Where its pods say themselves how many must run,
        and where the kind is not served, so that nobody could create it, nothing waits for it."""
        kind = self.kind(entry.name.source)
        if entry.minimums or kind is GroupKind.ABSENT:
            return PodGroupIs.NO_MATTER
        return PodGroupIs.MISSING if kind is GroupKind.READ else PodGroupIs.UNREAD


def _needs_no_cards(pod: PodFact) -> bool:
    """True for a member without GPUs, and for one that has succeeded."""
    if pod.terminating or pod.phase is Phase.FAILED:
        return False
    return pod.ended or not (pod.wants_gpus or pod.assignment is not None)
