"""Which PodDisruptionBudgets cover which GPU pods, kept as both come and go.

Enters: budgets and the labels of GPU pods. Leaves: DisruptionFacts. Selectors mean what policy/v1 says: an empty
one covers every pod of its namespace, an absent one covers none. Pods without GPUs are nobody's business here.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from vgpu.core.preempt.victims import DisruptionFact

IN, NOT_IN, EXISTS, DOES_NOT_EXIST = "In", "NotIn", "Exists", "DoesNotExist"


@dataclass(frozen=True, slots=True)
class LabelRule:
    """One requirement of a label selector. One whose operator nobody knows matches everything: a pod that may be
    covered counts as covered."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True when these labels meet the requirement."""
        if self.operator == IN:
            return labels.get(self.key) in self.values
        if self.operator == NOT_IN:
            return labels.get(self.key) not in self.values
        if self.operator == EXISTS:
            return self.key in labels
        return self.operator != DOES_NOT_EXIST or self.key not in labels


@dataclass(frozen=True, slots=True)
class BudgetFact:
    """One PodDisruptionBudget. `rules` None: it covers no pod. `disrupted`: names of pods whose eviction its
    status counts already although they may still be there."""

    namespace: str
    name: str
    allowed: int
    rules: tuple[LabelRule, ...] | None = None
    disrupted: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """NS/NAME."""
        return f"{self.namespace}/{self.name}"

    def covers(self, labels: Mapping[str, str]) -> bool:
        """True for a pod of its namespace with these labels."""
        return self.rules is not None and all(rule.matches(labels) for rule in self.rules)


@dataclass(frozen=True, slots=True)
class _Pod:
    namespace: str
    name: str
    labels: frozenset[tuple[str, str]]


class BudgetBook:
    """Mutable, with one owner."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, BudgetFact]] = {}
        self._pods: dict[str, dict[str, _Pod]] = {}
        self._namespace_of: dict[str, str] = {}
        self._covered: dict[str, set[str]] = {}

    def put_budget(self, fact: BudgetFact) -> bool:
        """A budget is there, like this. False when that is nothing new."""
        before = self._budgets.get(fact.namespace, {}).get(fact.key)
        if before == fact:
            return False
        self._budgets.setdefault(fact.namespace, {})[fact.key] = fact
        if before is None or before.rules != fact.rules:
            pods = self._pods.get(fact.namespace, {})
            self._covered[fact.key] = {uid for uid, pod in pods.items() if fact.covers(dict(pod.labels))}
        return True

    def drop_budget(self, key: str) -> None:
        """A budget (NS/NAME) is gone."""
        namespace = key.partition("/")[0]
        known = self._budgets.get(namespace, {})
        if known.pop(key, None) is not None:
            del self._covered[key]
        if not known:
            self._budgets.pop(namespace, None)

    def put_pod(self, uid: str, namespace: str, name: str, labels: frozenset[tuple[str, str]]) -> None:
        """A GPU pod is there with these labels."""
        if self._namespace_of.get(uid, namespace) != namespace:
            self.drop_pod(uid)
        pod = _Pod(namespace, name, labels)
        pods = self._pods.setdefault(namespace, {})
        if pods.get(uid) == pod:
            return
        pods[uid] = pod
        self._namespace_of[uid] = namespace
        budgets = self._budgets.get(namespace)
        named = dict(labels) if budgets else {}
        for key, budget in (budgets or {}).items():
            (self._covered[key].add if budget.covers(named) else self._covered[key].discard)(uid)

    def drop_pod(self, uid: str) -> None:
        """A GPU pod is gone."""
        namespace = self._namespace_of.pop(uid, "")
        pods = self._pods.get(namespace, {})
        pods.pop(uid, None)
        if not pods:
            self._pods.pop(namespace, None)
        for key in self._budgets.get(namespace, {}):
            self._covered[key].discard(uid)

    def facts(self, accepted: Collection[str] = ()) -> Iterator[DisruptionFact]:
        """Every budget that covers a GPU pod, in the order of their keys. `accepted`: uids whose eviction was
        accepted and that no event shows leaving: what a budget does not count of them yet is taken off."""
        taken = frozenset(accepted)
        covering = [b for of_namespace in self._budgets.values() for b in of_namespace.values()]
        for budget in sorted(covering, key=lambda budget: budget.key):
            uids = self._covered[budget.key]
            if not uids:
                continue
            pods = self._pods[budget.namespace]
            uncounted = sum(pods[uid].name not in budget.disrupted for uid in uids & taken)
            yield DisruptionFact(budget.key, max(0, budget.allowed - uncounted), frozenset(uids))
