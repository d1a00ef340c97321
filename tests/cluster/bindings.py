"""Counts how often each pod's Binding succeeded, by the API server's audit log.

Enters: a cluster, a position of its log, the pods that are bound. Leaves: what is wrong, in words.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from devcluster import Cluster

CREATED, CONFLICT = 201, 409
Uids = Mapping[str, str]
"""Uid by name of pods that were created."""


def count_bindings(cluster: Cluster, since: int) -> dict[tuple[str, str], Counter[int]]:
    """How often each pod's Binding was answered with which code, by (name, uid), since a position of the log."""
    counted: dict[tuple[str, str], Counter[int]] = {}
    for event in cluster.audit_events(since).events:
        if (event.verb, event.resource, event.subresource) == ("create", "pods", "binding"):
            counted.setdefault((event.name, event.uid), Counter())[event.code] += 1
    return counted


def judge_bindings(
    counted: Mapping[tuple[str, str], Counter[int]], uids: Uids, *, swallowed: int = 0, answers: Iterable[int] = ()
) -> list[str]:
    """What is wrong with the Bindings of pods that are all bound: each needs exactly one 201."""
    found = []
    missing = []
    for name, uid in uids.items():
        codes = counted.get((name, uid), Counter())
        strange = set(codes) - {CREATED, CONFLICT, *answers}
        if codes[CREATED] == 0:
            missing.append(name)
        if codes[CREATED] > 1 or strange:
            found.append(f"{name} {uid}: its Bindings were answered {dict(codes)}")
    if len(missing) > swallowed:
        found.append(f"bound without a Binding that succeeded: {missing}")
    return found
