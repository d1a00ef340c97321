"""Whether the PodGroup that pods name is there, and what they are told where it is not.

Enters: how a kind of PodGroup stands, what was seen of one. Leaves: whether its pods may start, in words what they
wait for. May not live here: watches, how many must start together.
"""

from enum import StrEnum

from vgpu.core.reasons import Reason, Refusal
from vgpu.core.terms import GroupName, GroupSource

API_OF = {GroupSource.VOLCANO: "scheduling.volcano.sh", GroupSource.KUBERNETES: "scheduling.k8s.io"}


class GroupKind(StrEnum):
    """How the PodGroups of one source stand."""

    UNREAD = "unread"
    """Nobody knows yet whether there are any: just after a start, or while they are being listed."""
    READ = "read"
    ABSENT = "absent"
    """The cluster serves no such kind."""


class PodGroupIs(StrEnum):
    """How one PodGroup stands."""

    NO_MATTER = "no matter"
    """It is there, or all that counts is known without it."""
    UNREAD = "unread"
    MISSING = "missing"


def refusal_without(name: GroupName, group: PodGroupIs) -> Refusal | None:
    """Why pods that name this PodGroup do not start, or None."""
    if group is PodGroupIs.NO_MATTER:
        return None
    kind = f"PodGroup {name.name} ({API_OF.get(name.source, name.source)})"
    if group is PodGroupIs.UNREAD:
        return Refusal(Reason.GANG_WAITS, f"{kind} of namespace {name.namespace} has not been read yet")
    text = f"there is no {kind} in namespace {name.namespace}; create it, or make the pod anew without its name"
    return Refusal(Reason.POD_GROUP_NOT_FOUND, text)


def note_without_kind(name: GroupName) -> str:
    """What is said of a pod that names a PodGroup of a kind that the cluster does not have."""
    kind = f"PodGroup {name.name} ({API_OF.get(name.source, name.source)})"
    return f"it names the {kind}, and this cluster serves no such kind: it starts by itself"
