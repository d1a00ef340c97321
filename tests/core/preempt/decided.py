"""A PlanCluster with queues: pods become workloads, preemptors are decided on, evicted pods come back.

What the controller will do around the core, without an API: gather a DecisionWorld, make the plan, let it go on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.core.preempt.plan_cluster import PlanCluster
from vgpu.core.facts import PodFact
from vgpu.core.placement import Policies
from vgpu.core.preempt.amounts import claim_of
from vgpu.core.preempt.decision import Plan, decide
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid, DecisionWorld
from vgpu.core.preempt.eligible import standing_of
from vgpu.core.preempt.facts import NOTHING, PlanFact, QueueFact, Workload
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.rank import Rank, Service, rank_of
from vgpu.core.preempt.recovery import Claim, claim_order, offer
from vgpu.core.request import PodRequest
from vgpu.core.terms import OwnerRef

DEFAULT = QueueFact("q")


@dataclass
class Decided:
    """See the module. `marks`: fields of a pod's workload beyond what its fact says."""

    cluster: PlanCluster
    queues: Mapping[str, QueueFact] = field(default_factory=lambda: {"q": DEFAULT})
    marks: dict[str, dict[str, Any]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    owed: dict[str, int] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def low(self, uid: str, request: PodRequest, node: str = "n1", **marks: Any) -> None:
        """A pod that runs."""
        self.marks[uid] = marks
        self.cluster.running(uid, request, node)

    def ask(self, uid: str, request: PodRequest, avoid: Avoid = NOTHING_LEARNT, **marks: Any) -> Plan | No:
        """A pod that waits, and what is decided for it."""
        self.marks[uid] = {"priority": 100, **marks}
        if uid not in self.cluster.pods:
            self.cluster.wait(uid, request)
        return self.decide([uid], avoid)

    def decide(self, uids: Sequence[str], avoid: Avoid = NOTHING_LEARNT) -> Plan | No:
        world = self.world()
        return decide(world, [world.workloads[uid] for uid in uids], self.cluster.now_seconds, avoid)

    def victims(self, uid: str, request: PodRequest, **marks: Any) -> list[str]:
        """Who would go, sorted; the answer must be a plan."""
        answer = self.ask(uid, request, **marks)
        assert isinstance(answer, Plan), answer
        return sorted(victim.uid for victim in answer.victims)

    def preempt(self, uid: str, request: PodRequest, **marks: Any) -> PlanFact:
        """Decide, evict, let the victims end and the pod be bound; controllers make the evicted pods anew."""
        answer = self.ask(uid, request, **marks)
        assert isinstance(answer, Plan), answer
        made = {one.uid: self.cluster.pods[one.uid] for one in answer.victims}
        plan = self.cluster.plan(uid, [one.uid for one in answer.victims], answer.seats)
        self.cluster.settle()
        for gone in made.keys() - self.cluster.pods.keys():
            again = f"{gone}+"
            self.marks[again] = self.marks[gone]
            self.owed[again] = self.cluster.now_seconds
            request_again = made[gone].request
            assert request_again is not None
            self.cluster.wait(again, request_again)
        return plan

    def recover(self) -> list[str]:
        """Offer what is free to all who wait; who is nominated is bound."""
        world = self.world()
        service = Service(self.queues, world.standing.entitled, [one.priority for one in world.workloads.values()])
        claims = [
            Claim((self.cluster.pods[one.uid],), 1, claim_order(service, one, self.owed.get(one.uid)))
            for one in world.workloads.values()
            if not one.running
        ]
        found = offer(claims, world.views.values(), Policies())
        for one in found:
            assert self.cluster.try_bind(one.pod.uid, one.placement.node)
        return [one.pod.uid for one in found]

    def world(self) -> DecisionWorld:
        workloads = {pod.uid: self._workload(pod) for pod in self.cluster.pods.values()}
        standing = standing_of(self.queues, workloads.values())
        ranks = {one.uid: rank_of(one, standing.entitled) for one in workloads.values()}
        plans = tuple(
            (hold, max(ranks.get(uid, Rank(entitled=False, priority=0)) for uid in hold.uids))
            for hold in self.cluster.ledger.plans.all()
        )
        views = {node: self.cluster.view(node) for node in self.cluster.nodes}
        return DecisionWorld(views, workloads, standing, plans, **self.more)

    def _workload(self, pod: PodFact) -> Workload:
        cards = [card for inventory in self.cluster.inventories.values() for card in inventory.cards]
        claim = (claim_of(pod.request, cards) if pod.request else None) or NOTHING
        given = {"queue": "q", "priority": 0, "started_seconds": 0, **self.marks.get(pod.uid, {})}
        return Workload(
            pod.uid,
            pod.namespace,
            pod.name,
            amounts=claim,
            claim=claim,
            created_seconds=0,
            request=pod.request,
            owner=given.pop("owner", OwnerRef(f"rs-{pod.uid}", "ReplicaSet", pod.uid)),
            node=pod.node or None,
            running=bool(pod.node),
            terminating=pod.terminating,
            **given,
        )
