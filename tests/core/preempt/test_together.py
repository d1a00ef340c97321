"""Whoever waits for budgets, gangs or guarantees is told which."""

import pytest

from vgpu.core.placement import Policies
from vgpu.core.preempt.problem import Allowance, NodeProblem, Unit
from vgpu.core.preempt.together import not_together
from vgpu.core.reasons import Reason
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView


@pytest.mark.parametrize(
    ("allowed", "named"),
    [
        ({"team/tune": 1}, "disruption budget team/tune"),
        ({"surplus of label/team/g": 0}, "surplus of label/team/g"),
        ({"team/tune": 2}, "budgets, gangs and guarantees"),
        ({"team/a": 0, "team/b": 0, "team/c": 0, "team/d": 0}, "disruption budget team/c and 1 more"),
    ],
)
def test_it_names_what_allows_fewer_than_would_have_to_go(allowed: dict[str, int], named: str) -> None:
    uses = tuple((key, 1) for key in allowed)
    units = tuple(Unit(uid, (uid,), frozenset({uid}), 1, 1, uses=uses) for uid in ("a", "b"))
    allowances = tuple(Allowance(key, number) for key, number in allowed.items())
    view, request = NodeView("n1", None, None), PodRequest("slots", ())
    refusal = not_together(NodeProblem(view, request, "w", Policies(), units, allowances))
    assert refusal.reason is Reason.EVICTION_LIMITS
    assert refusal.message.endswith(named)
