"""Why those who may go one by one do not make room: which budgets, gangs and guarantees keep them together.

Enters: a question about one node, units, allowances. Leaves: a Refusal that names them. May not live here: what
each of them allows.
"""

from collections import Counter
from collections.abc import Iterable

from vgpu.core.preempt.problem import Allowance, NodeProblem, Unit
from vgpu.core.reasons import Reason, Refusal

NAMED = 3


def not_together(problem: NodeProblem) -> Refusal:
    """There were room if all went who may; names the first few allowances that this would exceed."""
    drawn: Counter[str] = Counter()
    for unit in problem.units:
        drawn.update(dict(unit.uses))
    over = [one.key for one in problem.allowances if one.penalty is None and drawn[one.key] > one.allowed]
    more = f" and {len(over) - NAMED} more" if len(over) > NAMED else ""
    who = ", ".join(allowance_words(key) for key in over[:NAMED]) + more or "budgets, gangs and guarantees"
    return Refusal(Reason.EVICTION_LIMITS, f"there is room only if more pods go together than allowed by {who}")


def stopped_by(unit: Unit, allowances: Iterable[Allowance]) -> Allowance | None:
    """What does not let even this unit alone go now, or None."""
    uses = dict(unit.uses)
    return next(
        (one for one in allowances if one.penalty is None and uses.get(one.key, 0) > max(0, one.allowed)), None
    )


def allowance_words(key: str) -> str:
    """The allowance of this key; a disruption budget's key is its NS/NAME alone."""
    return key if " " in key else f"disruption budget {key}"
