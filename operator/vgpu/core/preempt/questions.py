"""What the search is asked for pods with one request: a problem per node that would take them.

Enters: a DecisionWorld, the pods, the Pool of those who could go for them. Leaves: NodeProblems, or a Refusal
where no node would take the pods whoever left it. Each node is seen as it stands for these pods: nothing is held
for plans that they may take over, those who are stuck stay, and who goes for another plan goes anyway: what he
leaves beyond that plan's needs is room for these pods.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from vgpu.core.facts import Scheduling
from vgpu.core.intree import obstacle
from vgpu.core.preempt.asked import Asked, Seen
from vgpu.core.preempt.cluster_search import NAMED_NODES
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.pool import Pool
from vgpu.core.preempt.problem import Need, NodeProblem, Unit, with_going, without_reservations
from vgpu.core.preempt.quotas import capability_needs, has_capability
from vgpu.core.preempt.reservations import with_stuck
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView

_NOTHING = Scheduling()


class Questions:
    """Asks for pods that want to start together: `preemptors`, all with requests."""

    def __init__(
        self, world: DecisionWorld, preemptors: Sequence[Workload], pool: Pool, asked: Asked | None = None
    ) -> None:
        """`asked`: in the decisions before this one with the same pool."""
        self.world, self.preemptors, self.pool = world, preemptors, pool
        self.lower, others = world.plans_around(preemptors)
        self._asked = asked or Asked()
        self._given_up = frozenset(uid for hold in self.lower for uid in hold.uids)
        self.going = world.still_to_go(others)
        self.own_going = self._own_going()
        self._victims = self._asked.apart.of(pool.victims, self.going)

    def problems(self, request: PodRequest) -> list[NodeProblem] | Refusal:
        """One problem per node that kube-scheduler's own filters would not refuse whatever goes (S28)."""
        world, pool = self.world, self.pool
        alike = [pod for pod in self.preemptors if pod.request == request]
        asking = tuple(world.scheduling.get(pod.uid, _NOTHING) for pod in alike)
        quota = capability_needs(world.standing, alike[0].queue, alike[0].claim, pool.own, self.own_going)
        given = (asking, quota, self._victims.allowances, world.policies, self._given_up, pool.avoid)
        shelf, owner_uid = self._asked.shelf(request, given), alike[0].uid
        look = _Look(shelf.request, owner_uid, _Beyond.of(asking), set(asking), quota)
        problems: list[NodeProblem] = []
        closed: dict[str, str] = {}
        for name, view in sorted(world.views.items()):
            units, use = self._victims.on(name), world.uses.get(name)
            known = shelf.nodes.get(name)
            if known is None or not known.holds(view, units, use, owner_uid):
                known = shelf.nodes[name] = Seen(view, units, use, self._answer(view, units, look), _named(view))
            if isinstance(known.answer, str):
                closed[name] = known.answer
            else:
                problems.append(known.answer)
        if closed and not problems:
            said = "; ".join(f"{node}: {why}" for node, why in list(closed.items())[:NAMED_NODES])
            return Refusal(Reason.OTHER_FILTERS, f"no node would take the pod whoever left it: {said}")
        return problems

    def _own_going(self) -> list[Workload]:
        """Those of the pods' queue who go for others, where anything bounds what it uses."""
        name, world = self.preemptors[0].queue, self.world
        queue = world.standing.queues.get(name)
        if queue is None or not has_capability(queue):
            return []
        return [one for uid, _ in self.going if (one := world.workloads[uid]).queue == name]

    def _answer(self, whole: NodeView, units: tuple[Unit, ...], look: "_Look") -> NodeProblem | str:
        """The problem on this node, or what keeps the pods off it."""
        closed = self._closed(whole, look.asking)
        if closed:
            return closed
        view, beyond = self._as_it_stands(whole), look.beyond
        lacking = () if self._enough(view, beyond) else tuple(self._beyond_cards(view, units, beyond))
        needs = (*look.quota, *lacking)
        allowances, policies = self._victims.allowances, self.world.policies
        return NodeProblem(view, look.request, look.owner_uid, policies, units, allowances, needs)

    def _as_it_stands(self, view: NodeView) -> NodeView:
        """The same object where nothing differs, so that a search can tell that nothing changed."""
        seen = without_reservations(view, self._given_up) if self._given_up else view
        if view.name in self._asked.apart.going_on:
            seen = with_going(seen, self._asked.apart.going_on[view.name])
        return with_stuck(seen, self.pool.avoid.stuck) if self.pool.avoid.stuck else seen

    def _closed(self, view: NodeView, asking: Iterable[Scheduling]) -> str:
        """What keeps one of the pods off the node whoever leaves, or ""."""
        if view.name in self.pool.avoid.nodes:
            return "an earlier plan for the pod came to nothing there"
        if view.node is None:
            return "the Node object does not exist"
        return next((said for pod in asking if (said := obstacle(view.node, pod))), "")

    def _enough(self, view: NodeView, beyond: "_Beyond") -> bool:
        """True when the node has enough beyond cards beside all who are there, or nobody can tell."""
        node, used = view.node, self.world.uses.get(view.name)
        return (
            node is None
            or used is None
            or (
                used.cpu_millicores + beyond.cpu_millicores * beyond.count <= node.cpu_millicores
                and used.memory_mib + beyond.memory_mib * beyond.count <= node.memory_mib
                and used.pods + beyond.count <= node.pods
            )
        )

    def _beyond_cards(self, view: NodeView, units: Sequence[Unit], beyond: "_Beyond") -> Iterable[Need]:
        """CPU, memory and pods, where the node has too little of them once those are gone who leave already."""
        node, used = view.node, self.world.uses.get(view.name)
        if node is None or used is None:
            return
        known = self.world.scheduling
        left = used.plus((known.get(uid, _NOTHING) for uid in _leaving(view)), -1)
        here = {uid: known.get(uid, _NOTHING) for unit in units for uid in unit.here}
        for what, wanted, free, freed in (
            (
                "CPU millicores",
                beyond.cpu_millicores,
                node.cpu_millicores - left.cpu_millicores,
                {uid: pod.cpu_millicores for uid, pod in here.items()},
            ),
            (
                "MiB of memory",
                beyond.memory_mib,
                node.memory_mib - left.memory_mib,
                {uid: pod.memory_mib for uid, pod in here.items()},
            ),
            ("pods", 1, node.pods - left.pods, dict.fromkeys(here, 1)),
        ):
            if wanted and free < wanted * beyond.count:
                yield Need(what, wanted, free, tuple(sorted(freed.items())))


@dataclass(frozen=True, slots=True)
class _Look:
    """What all nodes are asked alike."""

    request: PodRequest
    owner_uid: str
    beyond: "_Beyond"
    asking: Collection[Scheduling]
    quota: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class _Beyond:
    """What each of so many pods asks for beyond cards, at most."""

    cpu_millicores: int
    memory_mib: int
    count: int

    @classmethod
    def of(cls, asking: Sequence[Scheduling]) -> "_Beyond":
        """For these pods."""
        return cls(max(pod.cpu_millicores for pod in asking), max(pod.memory_mib for pod in asking), len(asking))


def _named(view: NodeView) -> frozenset[str]:
    return frozenset([r.uid for r in view.reservations] + [u.uid for u in view.unassigned])


def _leaving(view: NodeView) -> set[str]:
    on_cards = {holder.uid for card in view.cards for holder in card.holders if holder.leaving}
    return on_cards | {orphan.holder.uid for orphan in view.orphans if orphan.holder.leaving}
