"""PodDisruptionBudget JSON -> BudgetFact."""

from typing import Any

from pydantic import ValidationError

from vgpu.api.model import first_fault
from vgpu.controller.translate.partial import Expression, Metadata, Partial
from vgpu.core.preempt.budget_book import IN, BudgetFact, LabelRule
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key


class _Selector(Partial):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class _Spec(Partial):
    selector: _Selector | None = None


class _Status(Partial):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class _Budget(Partial):
    metadata: Metadata
    spec: _Spec | None = None
    status: _Status | None = None


def decode_budget(raw: bytes) -> Decoded[BudgetFact]:
    """One PodDisruptionBudget of policy/v1; one without a status allows nothing yet. Raises MalformedObject."""
    try:
        model = _Budget.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(f"PodDisruptionBudget: {first_fault(error)}") from error
    metadata, status = model.metadata, model.status or _Status()
    selector = model.spec.selector if model.spec is not None else None
    fact = BudgetFact(
        metadata.namespace,
        metadata.name,
        max(0, status.disruptions_allowed),
        None if selector is None else _rules(selector),
        frozenset(status.disrupted_pods or ()),
    )
    return Decoded(Key(metadata.namespace, metadata.name, metadata.uid), metadata.resource_version, fact)


def _rules(selector: _Selector) -> tuple[LabelRule, ...]:
    exact = (LabelRule(key, IN, frozenset({value})) for key, value in (selector.match_labels or {}).items())
    said = (LabelRule(e.key, e.operator, frozenset(e.values or ())) for e in selector.match_expressions or ())
    return (*exact, *said)
