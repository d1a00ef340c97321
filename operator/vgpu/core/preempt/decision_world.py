"""All that one decision on a preemptor looks at, as values: nodes, workloads, queues, plans, what was learnt.

Enters: what the caller gathered at one moment. Leaves: the same, and which plans stand above and below a
preemptor. Nothing is decided here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vgpu.core.facts import Scheduling
from vgpu.core.placement import Policies
from vgpu.core.preempt.eligible import Standing, right_over
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.protection import Right
from vgpu.core.preempt.rank import Rank, is_older, rank_of
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.swaps import Swap
from vgpu.core.preempt.victims import DisruptionFact
from vgpu.core.views import NodeView


@dataclass(frozen=True, slots=True)
class DecisionWorld:
    """Everything as it stands. `workloads`: all GPU pods by uid, terminating from the accepted eviction on;
    `standing` holds no promise to the preemptor itself.

    `views`: nodes with what all plans and claims hold; `plans`: what each living plan holds, with its owner's
    rank; `claims`: the same of those who wait for room that comes by itself. `uses`: what all pods ask for beyond
    cards, by node; `scheduling`: the same of each GPU pod, by uid.
    """

    views: Mapping[str, NodeView]
    workloads: Mapping[str, Workload]
    standing: Standing
    plans: tuple[tuple[PlanHold, Rank], ...] = ()
    uses: Mapping[str, NodeUse] = field(default_factory=dict)
    scheduling: Mapping[str, Scheduling] = field(default_factory=dict)
    disruptions: tuple[DisruptionFact, ...] = ()
    swaps: tuple[Swap, ...] = ()
    policies: Policies = field(default_factory=Policies)
    claims: tuple[tuple[PlanHold, Rank], ...] = ()

    def plans_around(self, preemptors: Sequence[Workload]) -> tuple[list[PlanHold], list[PlanHold]]:
        """The plans and claims of others: those that these pods may take over, the weakest first, as they are of
        lower rank than each of them, and each of them would have the right to evict their owners; and the rest."""
        mine = min(rank_of(pod, self.standing.entitled) for pod in preemptors)
        own = {pod.uid for pod in preemptors}
        lower: list[tuple[PlanHold, Rank]] = []
        rest: list[PlanHold] = []
        rights = _Rights(self.standing, preemptors)
        for hold, rank in (*self.plans, *self.claims):
            if not own.isdisjoint(hold.uids):
                continue
            if (rank.entitled, rank.priority) < (mine.entitled, mine.priority) and self._may_take(rights, hold):
                lower.append((hold, rank))
            else:
                rest.append(hold)
        lower.sort(key=lambda entry: entry[1])
        return [hold for hold, _ in lower], rest

    def _may_take(self, rights: "_Rights", hold: PlanHold) -> bool:
        owners = [owner for uid in hold.uids if (owner := self.workloads.get(uid)) is not None]
        if not owners and hold.kept:
            return False  # a gang of which only others are there just now: nobody knows its rank
        return all(rights.over(owner) for owner in owners)

    def spoken_for(self, preemptors: Sequence[Workload]) -> frozenset[tuple[str, str]]:
        """(uid, node) of those who stay so far, but are to go for plans that may not be taken over (I10)."""
        return self.still_to_go(self.plans_around(preemptors)[1])

    def still_to_go(self, plans: Iterable[PlanHold]) -> frozenset[tuple[str, str]]:
        """(uid, node) of those who are to go for these plans and stay so far."""
        known = self.workloads
        return frozenset(
            [
                victim
                for hold in plans
                for victim in hold.victims
                if (workload := known.get(victim[0])) is not None and not workload.terminating
            ]
        )


class _Rights:
    """Whether each of these pods could evict another if that one ran: without the right to what runs there is none
    to what is held, or a queue that others may not take from would lose by making room in itself."""

    def __init__(self, standing: Standing, preemptors: Sequence[Workload]) -> None:
        self._standing, self._preemptors = standing, preemptors
        self._known: dict[tuple[object, ...], bool] = {}

    def over(self, owner: Workload) -> bool:
        """Equal owners are judged once."""
        entitled = owner.uid in self._standing.entitled
        ages = tuple(is_older(pod, owner) for pod in self._preemptors)
        kind = (owner.queue, owner.priority, entitled, ages)
        if kind not in self._known:
            verdicts = (right_over(self._standing, pod, owner) for pod in self._preemptors)
            self._known[kind] = all(isinstance(verdict, Right) for verdict in verdicts)
        return self._known[kind]


@dataclass(frozen=True, slots=True)
class Avoid:
    """What an earlier plan for the same preemptor taught: its End's fields of these names."""

    victims: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()


NOTHING_LEARNT = Avoid()
