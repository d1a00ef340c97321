"""Random lives of plans whose victims go only together, become entitled by that, and whose evictions fail."""

from dataclasses import replace

import pytest

from tests.core.preempt.plan_soak import Soak, dealt_to
from vgpu.core.preempt import plan_step
from vgpu.core.preempt.endings import UNITS_FIRST
from vgpu.core.preempt.facts import PlanFact, Victim
from vgpu.core.preempt.plan import Evict, Step, key_of
from vgpu.core.views import NodeView

SEEDS = 60
STEPS = 150
ENTITLED = "it is within what its queue deserves"


class UnitSoak(Soak):
    """See the module."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.finished = 0
        real = self.cluster.step

        def step(plan: PlanFact, *, most: int = 1000) -> Step:
            plan = self.cluster.plans[key_of(plan)]
            begun, against = self._begun(plan), dict(self.cluster.objections)
            done = real(plan, most=most)
            self._judge(plan, done, begun, against)
            return done

        self.cluster.step = step  # type: ignore[method-assign]

    def run(self, steps: int) -> int:
        operations = [*dealt_to(self), *[self.entitles] * 3, self.refuses, self.answers_not, self.fails]
        for _ in range(steps):
            self.random.choice(operations)()
            self.check()
        self.cluster.objections.clear()
        self.cluster.unsure.clear()
        self.cluster.fails_since.clear()
        self.come_to_rest()
        return self.bound

    def entitles(self) -> None:
        """The rest of what is half gone has become entitled."""
        for plan in self.cluster.plans.values():
            begun = self._begun(plan)
            self.cluster.objections |= {victim.uid: ENTITLED for victim in plan.victims if victim.unit in begun}

    def refuses(self) -> None:
        for victim in self._victims()[:1]:
            self.cluster.objections[victim.uid] = ENTITLED

    def answers_not(self) -> None:
        for victim in self._victims()[:1]:
            self.cluster.unsure.add(victim.uid)

    def fails(self) -> None:
        for uid in sorted(self.cluster.unsure):
            self.cluster.fails_since.setdefault(uid, self.cluster.now_seconds)

    def _plan(self, owners: list[str], views: dict[str, NodeView]) -> PlanFact | None:
        plan = super()._plan(owners, views)
        if plan is None:
            return None
        units = [self.random.choice(("", "one", "other")) for _ in plan.victims]
        victims = tuple(replace(victim, unit=unit) for victim, unit in zip(plan.victims, units, strict=True))
        self.cluster.plans[key_of(plan)] = plan = replace(plan, victims=victims)
        return plan

    def _judge(self, plan: PlanFact, step: Step, begun: set[str], against: dict[str, str]) -> None:
        units = {victim.uid: victim.unit for victim in plan.victims}
        for action in step.actions:
            if isinstance(action, Evict) and action.uid in against:
                assert units[action.uid] in begun, f"{action.uid} may not go"
                self.finished += 1
        end = self.cluster.ends.get(key_of(plan))
        if end is not None and end.reason in UNITS_FIRST:
            torn = [victim for victim in plan.victims if victim.unit in begun and self._stays(victim)]
            assert not [v.uid for v in torn if v.uid not in end.avoid_victims], f"{end.reason} leaves {torn}"

    def _begun(self, plan: PlanFact) -> set[str]:
        return {victim.unit for victim in plan.victims if not self._stays(victim)} - {""}

    def _stays(self, victim: Victim) -> bool:
        pod = self.cluster.pods.get(victim.uid)
        return pod is not None and not pod.terminating

    def _victims(self) -> list[Victim]:
        found = [v for plan in self.cluster.plans.values() for v in plan.victims if self._stays(v)]
        self.random.shuffle(found)
        return found


def test_what_goes_together_is_never_left_torn() -> None:
    soaks = [UnitSoak(seed) for seed in range(SEEDS)]
    assert sum(soak.run(STEPS) for soak in soaks) > SEEDS
    assert sum(soak.finished for soak in soaks) > 5


def run_all() -> None:
    for seed in range(SEEDS):
        UnitSoak(seed).run(STEPS)


def test_it_is_left_torn_when_the_rule_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_step, "UNITS_FIRST", frozenset())
    with pytest.raises(AssertionError, match="leaves"):
        run_all()
