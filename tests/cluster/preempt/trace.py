"""What a preemption was, as the API server saw it: when each of its steps came, what the operator wrote for it.

Enters: the audit log, the plans that a recorder saw. Leaves: one History for each pod that wanted in. Times are
those at which the API server received a request, in seconds since the epoch. May not live here: a cluster,
judgement.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from devcluster import AuditEvent
from tests.cluster.preempt.recorder import PlanSeen
from vgpu import names

OPERATOR = f"system:serviceaccount:{names.NAMESPACE}:{names.OPERATOR_ACCOUNT}"
SCHEDULER = f"system:serviceaccount:{names.NAMESPACE}:{names.SCHEDULER_ACCOUNT}"
ACCEPTED = frozenset({200, 201})
READS = frozenset({"get", "list", "watch"})
BEYOND_VICTIMS = 6
"""The plan, two words of its status, a nomination, the binding, the plan's deletion."""


@dataclass(slots=True)
class History:
    """Of one preemptor. `refused`: kube-scheduler said first that no node has room; `evicted`: the first eviction
    was asked for; `writes`: the operator's to the pod and its plan, and evictions of its victims, by verb and
    resource; events, inventories and queues come apart from that (preemption.md 3). A step that did not come is
    infinitely late."""

    name: str
    uid: str
    created: float = math.inf
    refused: float = math.inf
    planned: float = math.inf
    evicted: float = math.inf
    bound: float = math.inf
    victims: frozenset[str] = frozenset()
    writes: Counter[str] = field(default_factory=Counter)

    @property
    def deciding_seconds(self) -> float:
        """From the word that it waits to the first eviction asked for."""
        return self.evicted - self.refused

    @property
    def writes_allowed(self) -> int:
        """So many it may cost."""
        return len(self.victims) + BEYOND_VICTIMS


def histories(events: Iterable[AuditEvent], uids: Mapping[str, str], plans: Iterable[PlanSeen]) -> list[History]:
    """Of these preemptors (name -> uid), by what was asked of the API server meanwhile."""
    found = {uid: History(name, uid) for name, uid in uids.items()}
    whose = {("pods", name): found[uid] for name, uid in uids.items()}
    for plan in plans:
        for uid in plan.owners & found.keys():
            found[uid].victims |= {victim for _, victim in plan.victims}
            whose[names.PREEMPTION_PLURAL, plan.name] = found[uid]
            whose |= {("pods/eviction", victim): found[uid] for _, victim in plan.victims}
    for event in events:
        what = f"{event.resource}/{event.subresource}" if event.subresource == "eviction" else event.resource
        history = whose.get((what, event.name))
        if history is not None:
            _note(history, event)
    return list(found.values())


def is_write(event: AuditEvent) -> bool:
    """Whether the operator asked for a change."""
    return event.user == OPERATOR and event.verb not in READS


def _note(history: History, event: AuditEvent) -> None:
    seconds = datetime.fromisoformat(event.received_at).timestamp()
    match event.verb, event.resource, event.subresource:
        case "create", "pods", "":
            history.created = min(history.created, seconds)
        case "patch", "pods", "status" if event.user == SCHEDULER:
            history.refused = min(history.refused, seconds)
        case "create", names.PREEMPTION_PLURAL, "":
            history.planned = min(history.planned, seconds)
        case "create", "pods", "eviction":
            history.evicted = min(history.evicted, seconds)
        case "create", "pods", "binding" if event.code in ACCEPTED:
            history.bound = min(history.bound, seconds)
    if is_write(event):
        history.writes[_what(event)] += 1


def _what(event: AuditEvent) -> str:
    resource = f"{event.resource}/{event.subresource}" if event.subresource else event.resource
    return f"{event.verb} {resource}" + ("" if event.code in ACCEPTED else f" ({event.code})")
