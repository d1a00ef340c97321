"""Which pods hang on their way out: whoever decides anew counts their cards as occupied until they are gone.

Enters: when a pod's grace period ends (its deletionTimestamp; whole seconds of one clock), the stuckTimeout of the
queue that waits. Leaves: from when it hangs. The same for a plan's victims and for pods that leave by themselves
(preemption.md 4.6, T4).
"""

from collections.abc import Iterable, Mapping

from vgpu.core.facts import PodFact


def grace_ends(pods: Iterable[PodFact | None]) -> dict[str, int]:
    """By uid when the grace period ends of those that are on their way out."""
    known = ((pod.uid, pod.terms.deletion_seconds) for pod in pods if pod is not None and pod.terms is not None)
    return {uid: end for uid, end in known if end is not None}


def hangs_from(grace_ends_seconds: int, stuck_timeout_seconds: int) -> int:
    """From this moment on it hangs, if it is still there."""
    return grace_ends_seconds + stuck_timeout_seconds


def hanging(leaving: Mapping[str, int], stuck_timeout_seconds: int, now_seconds: int) -> frozenset[str]:
    """Those that hang now. `leaving`: by uid when the grace period ends."""
    ends = leaving.items()
    return frozenset(uid for uid, end in ends if now_seconds >= hangs_from(end, stuck_timeout_seconds))


def next_to_hang(leaving: Mapping[str, int], stuck_timeout_seconds: int, now_seconds: int) -> int | None:
    """When the next one begins to hang, or None."""
    moments = (hangs_from(end, stuck_timeout_seconds) for end in leaving.values())
    return min((moment for moment in moments if moment > now_seconds), default=None)
