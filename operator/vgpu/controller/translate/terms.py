"""What a GPU pod says of itself -> PodTerms. A value that cannot be read counts as not said, and is named.

Volcano's words mean what Volcano's scheduler makes of them: `preemptable` is a Go boolean, an annotation before a
label; `cooldown-time` is a Go duration, a label before an annotation.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

from vgpu import names
from vgpu.api.model import LONGEST_NAME, LONGEST_UID, MAX_TEXT
from vgpu.controller.translate.partial import Metadata, OwnerReference, PodSpec, PodStatus
from vgpu.core.terms import GroupName, GroupSource, OwnerRef, PodTerms
from vgpu.errors import MalformedObject

PREEMPT_NEVER = "Never"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_PART = re.compile(r"([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {"h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_LONGEST_TEXT = 64
_LONGEST_SECONDS = 2**62 // 10**9
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")
_MOST_MEMBERS = 100_000
_IN_NO_NAME = re.compile(r"[/%\x00-\x20\x7f]")
_KEYS = frozenset(
    {
        names.POLICY_GANG_MIN,
        names.POLICY_CHECKPOINT,
        names.POLICY_EVICT_BARE,
        names.VOLCANO_PREEMPTABLE,
        names.VOLCANO_COOLDOWN,
    }
)
_NOTHING: Mapping[str, str] = {}

ValueT = TypeVar("ValueT")


def pod_terms(metadata: Metadata, spec: PodSpec, status: PodStatus) -> PodTerms:
    """The terms of one pod that has to do with GPUs, or is of a group."""
    said = _Said(metadata)
    group = group_of(metadata, spec)
    return PodTerms(
        owner=_owner(metadata.owner_references or ()),
        group=group,
        group_minimum=said.read(group_minimum, None, (names.POLICY_GANG_MIN,)) if group is not None else None,
        preempt_never=spec.preemption_policy == PREEMPT_NEVER,
        created_seconds=_api_moment(metadata.creation_timestamp) or 0,
        started_seconds=_api_moment(status.start_time),
        deletion_seconds=_api_moment(metadata.deletion_timestamp),
        checkpoint_seconds=said.read(moment_seconds, None, (names.POLICY_CHECKPOINT,)),
        preemptable=said.read(go_boolean, True, (names.VOLCANO_PREEMPTABLE,)),
        cooldown_seconds=said.read(go_duration_seconds, 0, (names.VOLCANO_COOLDOWN,), labels_first=True),
        evict_opt_in=said.read(go_boolean, False, (names.POLICY_EVICT_BARE,)),
        labels=_shared(frozenset((metadata.labels or _NOTHING).items())),
        gates=frozenset(gate.name for gate in spec.scheduling_gates or ()),
        problems=tuple(said.problems),
    )


def go_boolean(text: str) -> bool:
    """What Go's strconv.ParseBool reads. Raises MalformedObject."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise MalformedObject("must be true or false")


@lru_cache(maxsize=1024)
def go_duration_seconds(text: str) -> int:
    """A Go duration such as 10m, 1h30m or 1.5h in whole seconds, rounded up. Raises MalformedObject."""
    bare = text.removeprefix("+")
    if bare == "0":
        return 0
    parts = list(_PART.finditer(bare)) if len(text) <= _LONGEST_TEXT else []
    if not parts or "".join(part.group() for part in parts) != bare:
        raise MalformedObject("must be a duration such as 90s, 10m or 1h30m")
    nanoseconds = sum(
        Fraction(part[1]) * _NANOSECONDS[part[2].replace("µ", "u").replace("μ", "u")] for part in parts
    )
    seconds = -(-nanoseconds // 10**9)
    if seconds > _LONGEST_SECONDS:
        raise MalformedObject(f"must be at most {_LONGEST_SECONDS} s")
    return int(seconds)


@lru_cache(maxsize=16_384)
def moment_seconds(text: str) -> int:
    """An RFC 3339 moment in seconds since 1970, rounded down. Raises MalformedObject."""
    try:
        if _MOMENT.fullmatch(text):
            return int(datetime.fromisoformat(text).timestamp() // 1)
    except (ValueError, OverflowError):
        pass  # no such day, or no such hour
    raise MalformedObject("must be a moment as RFC 3339 writes it, such as 2026-01-31T12:00:00Z")


def group_minimum(text: str) -> int:
    """How many members of a gang must run. Raises MalformedObject."""
    if text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_MEMBERS)):
        count = int(text)
        if 1 <= count <= _MOST_MEMBERS:
            return count
    raise MalformedObject(f"must be a whole number from 1 to {_MOST_MEMBERS}")


class _Said:
    """Reads labels and annotations, and notes what cannot be read."""

    def __init__(self, metadata: Metadata) -> None:
        self._labels, self._annotations = metadata.labels or _NOTHING, metadata.annotations or _NOTHING
        self._silent = _KEYS.isdisjoint(self._labels) and _KEYS.isdisjoint(self._annotations)
        self.problems: list[str] = []

    def read(
        self, parse: Callable[[str], ValueT], absent: ValueT, keys: Iterable[str], *, labels_first: bool = False
    ) -> ValueT:
        """The first of the keys that is there, as annotation or label. Nearly every pod says nothing at all."""
        if self._silent:
            return absent
        both = (("annotation", self._annotations), ("label", self._labels))
        for key in keys:
            for where, values in reversed(both) if labels_first else both:
                if key in values:
                    try:
                        return parse(values[key])
                    except MalformedObject as error:
                        shown = values[key][:_LONGEST_TEXT]
                        self.problems.append(f"its {where} {key} {error}, not {shown!r}: it counts as not said")
                        return absent
        return absent


def group_of(metadata: Metadata, spec: PodSpec) -> GroupName | None:
    """The group that a pod names, by our own label before Kubernetes' field before Volcano's annotation."""
    labels, annotations = metadata.labels or _NOTHING, metadata.annotations or _NOTHING
    own = labels.get(names.POLICY_GANG)
    if own:
        return GroupName(GroupSource.LABEL, metadata.namespace, own)
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return GroupName(GroupSource.KUBERNETES, metadata.namespace, spec.scheduling_group.pod_group_name)
    for source in (annotations, labels):
        for key in names.VOLCANO_GROUP_KEYS:
            if source.get(key):
                return GroupName(GroupSource.VOLCANO, metadata.namespace, source[key])
    return None


@lru_cache(maxsize=4096)
def _shared(labels: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Pods of one job have equal labels: one value serves them all."""
    return labels


def _owner(owners: Iterable[OwnerReference]) -> OwnerRef:
    for owner in owners:
        if owner.controller:
            known = OwnerRef(owner.uid, owner.kind, owner.name, owner.api_version)
            return known if _may_exist(known) else OwnerRef()
    return OwnerRef()


def _may_exist(owner: OwnerRef) -> bool:
    """Who makes a pod writes its references, and the API server takes any text in them. What no object can be
    called brings nothing back, and is nothing that a plan's debts could say or that can be read."""
    named = owner.name not in (".", "..") and _IN_NO_NAME.search(owner.name) is None
    sizes = ((owner.uid, LONGEST_UID), (owner.kind, LONGEST_NAME), (owner.name, LONGEST_NAME))
    return named and all(0 < len(text) <= most for text, most in sizes) and len(owner.api_version) <= MAX_TEXT


def _api_moment(text: str | None) -> int | None:
    """The API server writes what it says in one form only; anything else is not known."""
    try:
        return None if text is None else moment_seconds(text)
    except MalformedObject:
        return None
