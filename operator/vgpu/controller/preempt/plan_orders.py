"""The evictions that a plan orders, each with what is asked before it is carried out.

Enter: a plan, its victims, how it ended. Leave: orders. May not live here: which victims are to go, calls.
"""

from collections.abc import Callable
from functools import partial

from vgpu.controller.preempt.evictions import Order
from vgpu.controller.preempt.keeper_parts import KeeperParts
from vgpu.controller.preempt.plan_words import PlanWords
from vgpu.controller.preempt.told import GANG_BROKEN, event_about
from vgpu.controller.preempt.validation import Validation
from vgpu.core.preempt.facts import PlanFact, Victim
from vgpu.core.preempt.plan import End, key_of
from vgpu.kube.objects import Key

RELEASE = "/release"


class PlanOrders:
    """See the module. `living`: the plan of this name and uid, unless it is over."""

    def __init__(
        self,
        parts: KeeperParts,
        words: PlanWords,
        living: Callable[[str, str], PlanFact | None],
        valid: Validation,
    ) -> None:
        self._parts = parts
        self._words = words
        self._living = living
        self._valid = valid

    def of(self, plan: PlanFact, victim: Victim) -> Order:
        """Evict this victim for the plan."""
        pod = Key(victim.namespace, victim.name, victim.uid)
        stands = self._parts.roster.workloads.get(victim.uid)

        async def tell() -> None:
            event = self._words.victim_event(plan, victim.uid)
            if event is not None:
                await self._parts.told.now(event)

        name = key_of(plan)
        still, over = partial(self._must_go, name, plan.uid, pod.uid), partial(self._is_over, name, plan.uid)
        return Order(name, pod, victim.node, plan.rule, still, tell, over, stands, plan.uid)

    def release(self, plan: PlanFact, end: End) -> None:
        """Evict those of the owner's pods that run in vain."""
        for uid in sorted(end.release):
            pod = self._parts.ledger.pod(uid)
            if pod is not None and pod.node:
                key, message = (
                    Key(pod.namespace, pod.name, uid),
                    f"evicted: its gang could not start: {end.message}",
                )
                event = event_about(key, GANG_BROKEN, message, about=key_of(plan), warning=True)
                tell = partial(self._parts.told.now, event)
                still = partial(self._runs, uid)
                name = f"{key_of(plan)}{RELEASE}"
                self._parts.evictions.ask(Order(name, key, pod.node, end.reason.value, still, tell))

    def _is_over(self, name: str, plan_uid: str) -> bool:
        return self._living(name, plan_uid) is None

    def _must_go(self, name: str, plan_uid: str, uid: str) -> bool:
        """Whether the plan wants this victim evicted as things stand now."""
        plan = self._living(name, plan_uid)
        return plan is not None and self._valid.wants(plan, uid)

    def _runs(self, uid: str) -> bool:
        pod = self._parts.ledger.pod(uid)
        return pod is not None and bool(pod.node) and not pod.terminating and not pod.ended
