"""Would kube-scheduler's own filters let this pod onto this node, as far as a NodeFact tells?

Enters: what the pod states (Scheduling), the node's fact. Leaves: "" or the first obstacle in words. Checked
before a nomination only: kube-scheduler stays the judge, and sees volumes, pod affinity and what other pods use.
"""

from collections.abc import Callable, Iterable, Mapping

from vgpu.core.facts import LabelRequirement, NodeFact, Scheduling, Taint, Toleration

FIELD_NAME = "metadata.name"
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def obstacle(node: NodeFact, pod: Scheduling) -> str:
    """What keeps the pod off the node, or ""."""
    taint = _untolerated(node, pod.tolerations)
    if taint is not None:
        return f"the taint {taint.key} is not tolerated"
    if pod.node_selector - node.labels - {(FIELD_NAME, node.name)}:
        return "its labels do not match the node selector"
    if pod.required_terms:
        labels = {**dict(node.labels), FIELD_NAME: node.name}
        if not any(_term_matches(term, labels) for term in pod.required_terms):
            return "it does not match the required node affinity"
    if pod.cpu_millicores > node.cpu_millicores or pod.memory_mib > node.memory_mib or node.pods < 1:
        return "its allocatable CPU, memory or pods are less than the pod asks for"
    return ""


def _untolerated(node: NodeFact, tolerations: Iterable[Toleration]) -> Taint | None:
    taints = [taint for taint in node.taints if taint.effect in _HARD_EFFECTS]
    if node.unschedulable:
        taints.append(_UNSCHEDULABLE)
    tolerations = tuple(tolerations)
    return next((taint for taint in taints if not any(_tolerates(t, taint) for t in tolerations)), None)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator == "Equal" and toleration.value == taint.value


def _term_matches(term: tuple[LabelRequirement, ...], labels: Mapping[str, str]) -> bool:
    """An empty term matches no node (Kubernetes API: NodeSelectorTerm)."""
    return bool(term) and all(_requirement_matches(requirement, labels) for requirement in term)


def _requirement_matches(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    matches = _OPERATORS.get(requirement.operator)
    return matches is not None and matches(labels.get(requirement.key), requirement.values)


def _compares(value: str | None, values: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    if value is None or len(values) != 1:
        return False
    try:
        return holds(int(value), int(values[0]))
    except ValueError:
        return False


_OPERATORS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, values: value is not None,
    "DoesNotExist": lambda value, values: value is None,
    "Gt": lambda value, values: _compares(value, values, lambda a, b: a > b),
    "Lt": lambda value, values: _compares(value, values, lambda a, b: a < b),
}
