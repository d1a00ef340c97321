"""Who asked the API server what, counted from its audit log.

Enters: audit records. Leaves: counts and rows for a table. May not live here: what is claimed about them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from devcluster.audit import AuditEvent
from vgpu import names

ACCOUNT = f"system:serviceaccount:{names.NAMESPACE}:"
OPERATOR = f"{ACCOUNT}{names.OPERATOR_ACCOUNT}"
AGENT = f"{ACCOUNT}{names.AGENT_ACCOUNT}"
OURS = frozenset({OPERATOR, AGENT})
READS = frozenset({"get", "list", "watch"})
HEADER = ("USER", "USER AGENT", "VERB", "RESOURCE", "SUBRESOURCE", "CODE", "COUNT")


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    """One kind of request."""

    user: str
    user_agent: str
    verb: str
    resource: str
    subresource: str
    code: int

    @property
    def ours(self) -> bool:
        """Is it the operator's or an agent's?"""
        return self.user in OURS

    @property
    def routine(self) -> bool:
        """Is it what a quiet cluster may cost: a watch begun anew, or the Lease?"""
        return self.verb == "watch" or (self.resource == "leases" and self.verb in ("get", "update"))


def count(events: Iterable[AuditEvent]) -> Counter[Asked]:
    """Requests by kind. A watch is logged when it begins and when it ends and counts once, at its begin."""
    counted: Counter[Asked] = Counter()
    for event in events:
        if event.verb == "watch" and event.stage != "ResponseStarted":
            continue
        agent = event.user_agent.partition(" ")[0]
        counted[Asked(event.user, agent, event.verb, event.resource, event.subresource, event.code)] += 1
    return counted


def rows(counted: Counter[Asked]) -> list[tuple[str, ...]]:
    """The counts as a table, ours first."""
    ordered = sorted(counted.items(), key=lambda item: (not item[0].ours, item[0]))
    return [
        (
            asked.user.removeprefix("system:serviceaccount:"),
            asked.user_agent,
            asked.verb,
            asked.resource or "-",
            asked.subresource or "-",
            str(asked.code),
            str(number),
        )
        for asked, number in ordered
    ]


def in_words(counted: Counter[Asked]) -> str:
    """The counts in one line; "none" when there are none."""
    by_verb: Counter[str] = Counter()
    for asked, number in counted.items():
        by_verb["/".join(filter(None, (f"{asked.verb} {asked.resource}", asked.subresource)))] += number
    return ", ".join(f"{number} x {what}" for what, number in sorted(by_verb.items())) or "none"
