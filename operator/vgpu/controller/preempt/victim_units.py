"""Victims of a plan that go together or not at all, since their gang would run with too few otherwise.

Enters: a plan, the roster. Leaves: units by victim; why a unit is not whole any more; whom budgets may keep. May
not live here: who may be evicted, who has left already.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from vgpu.core.preempt.facts import Gang, PlanFact
from vgpu.core.preempt.roster import Roster


@dataclass(frozen=True, slots=True)
class VictimUnits:
    """By uid of a victim: `unit` names those with whom it goes; `short` tells why it may not go so: others of its
    gang would be left, too few. Who runs now may not have run when it was decided."""

    unit: dict[str, str] = field(default_factory=dict)
    short: dict[str, str] = field(default_factory=dict)


def units_of(plan: PlanFact, roster: Roster) -> VictimUnits:
    """Who went together when it was decided does so whatever the gang is by now."""
    of_gang: defaultdict[Gang, set[str]] = defaultdict(set)
    for victim in plan.victims:
        gang = roster.gang_of(victim.uid)
        if gang is not None and (gang.minimum > 1 or gang.disruption_all):
            of_gang[gang].add(victim.uid)
    found = VictimUnits()
    for gang, going in of_gang.items():
        staying = sum(_stays(roster, uid) for uid in roster.members(gang.key) if uid not in going)
        if gang.disruption_all or staying < gang.minimum:
            found.unit.update(dict.fromkeys(going, gang.key))
            text = f"{staying} more of gang {gang.key} run by now, and it goes whole or not at all"
            found.short.update(dict.fromkeys(going if staying else (), text))
    found.unit.update({victim.uid: victim.unit for victim in plan.victims if victim.unit})
    return found


def over_budget(plan: PlanFact, roster: Roster, accepted: Collection[str]) -> frozenset[str]:
    """Victims of the plan that are to go, and more of them than a disruption budget of theirs lets go now."""
    going = {victim.uid for victim in plan.victims if _stays(roster, victim.uid)}
    if len(plan.victims) < 2 or not going:
        return frozenset()
    covered = ((budget.allowed, budget.uids & going) for budget in roster.disruptions(accepted))
    return frozenset(uid for allowed, uids in covered if len(uids) > allowed for uid in uids)


def _stays(roster: Roster, uid: str) -> bool:
    workload = roster.workloads.get(uid)
    return workload is not None and workload.running and not workload.terminating
