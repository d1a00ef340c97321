"""Why those who may go one by one do not make room: which budgets, gangs and guarantees keep them together.

Enters: a question about one node. Leaves: a Refusal that names them. May not live here: what each of them allows.
"""

from collections import Counter

from vgpu.core.preempt.problem import NodeProblem
from vgpu.core.reasons import Reason, Refusal

NAMED = 3


def not_together(problem: NodeProblem) -> Refusal:
    """There were room if all went who may; names the first few allowances that this would exceed."""
    drawn: Counter[str] = Counter()
    for unit in problem.units:
        drawn.update(dict(unit.uses))
    over = [one.key for one in problem.allowances if one.penalty is None and drawn[one.key] > one.allowed]
    more = f" and {len(over) - NAMED} more" if len(over) > NAMED else ""
    who = ", ".join(_words(key) for key in over[:NAMED]) + more or "budgets, gangs and guarantees"
    return Refusal(Reason.EVICTION_LIMITS, f"there is room only if more pods go together than allowed by {who}")


def _words(key: str) -> str:
    """A disruption budget's key is its NS/NAME alone."""
    return key if " " in key else f"disruption budget {key}"
