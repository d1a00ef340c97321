"""Whether a victim must still go, asked before each eviction call, and looked at once for all victims of a plan.

Enter: what a look at a plan said, what became of its evictions. Leaves: yes or no, as things stand now. That a
victim of the plan leaves changes nothing for its other victims, but for what their queue is entitled to: that is
asked again of each. Anything else that changes makes the look void. May not live here: the rules.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from vgpu.controller.preempt.keeper_parts import KeeperParts
from vgpu.core.preempt.facts import PlanFact, Workload
from vgpu.core.preempt.plan import Evict, PlanWorld, Step, key_of


@dataclass(frozen=True, slots=True)
class _Look:
    """What was `wanted` of a plan when all stood so. `alone`: victims that go by themselves; `owners`: for whom,
    one of each kind."""

    state: Hashable
    plan: PlanFact
    wanted: frozenset[str]
    alone: frozenset[str]
    owners: Sequence[Workload]


class Validation:
    """See the module. `look` looks at a plan."""

    def __init__(self, parts: KeeperParts, look: Callable[[PlanFact], tuple[PlanWorld, Step]]) -> None:
        self._parts = parts
        self._worlds = parts.worlds
        self._look = look
        self._looks: dict[str, _Look] = {}

    def state(self, plan: PlanFact) -> Hashable:
        """Equal while nothing has changed that a look rests on, but for what becomes of its evictions."""
        parts = self._parts
        versions = (parts.ledger.version, parts.roster.revision, parts.book.version, parts.wall.now_seconds())
        nodes = sorted({card.node for card in plan.reservations})
        return (*versions, *parts.roster.queues.values(), *map(parts.roster.uses.get, nodes))

    def wants(self, plan: PlanFact, uid: str) -> bool:
        """True when this victim must go as things stand now."""
        seen = self._looks.get(key_of(plan))
        if seen is None or seen.plan is not plan or seen.state != self.state(plan):
            seen = self.note(plan, self.state(plan), *self._look(plan))
        return uid in seen.wanted and not (uid in seen.alone and self._worlds.objection(seen.owners, uid))

    def note(self, plan: PlanFact, state: Hashable, world: PlanWorld, step: Step) -> _Look:
        """The plan was looked at when all stood so."""
        wanted = frozenset(action.uid for action in step.actions if isinstance(action, Evict))
        alone = frozenset(uid for uid in wanted if not world.victims[uid].unit)
        seen = _Look(state, plan, wanted, alone, self._worlds.unlike_owners(plan) if alone else ())
        self._looks[key_of(plan)] = seen
        return seen

    def holds(self, plan: PlanFact) -> bool:
        """True while nothing has changed since the last look."""
        seen = self._looks.get(key_of(plan))
        return seen is not None and seen.state == self.state(plan)

    def leaves(self, plan: PlanFact, uid: str) -> None:
        """This victim leaves, and nothing else has changed since the last look."""
        seen = self._looks[key_of(plan)]
        self._looks[key_of(plan)] = _Look(
            self.state(plan), plan, seen.wanted - {uid}, seen.alone - {uid}, seen.owners
        )

    def void(self, name: str) -> None:
        """Look at this plan anew."""
        self._looks.pop(name, None)
