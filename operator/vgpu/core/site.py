"""What the ledger keeps per node beside the node's own objects: the pods on it, bookings, nominations, refusals.

Mutable, owned by the ledger alone. Methods answer whether something changed that a recount of the node would
see. Which site a pod belongs to is the ledger's business.
"""

from dataclasses import dataclass, field

from vgpu.core import hold
from vgpu.core.facts import Phase, PodFact
from vgpu.core.hold import Hold


@dataclass(slots=True)
class Site:
    """One node's pods by uid (live GPU pods bound here), agent pods, and the row of refused admissions."""

    pods: dict[str, PodFact] = field(default_factory=dict)
    agents: dict[str, bool] = field(default_factory=dict)
    booked: set[str] = field(default_factory=set)
    nominated: set[str] = field(default_factory=set)
    refused_in_a_row: int = 0
    refused_uids: set[str] = field(default_factory=set)
    holds: dict[str, Hold] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """True when no pod, booking or nomination names this node."""
        return not (self.pods or self.agents or self.booked or self.nominated)

    def fold(self, fact: PodFact, before: PodFact | None) -> bool:
        """put_pod and count_admission; True when the node must be recounted."""
        row = self.count_admission(fact, before)
        return self.put_pod(fact) or row

    def put_pod(self, fact: PodFact) -> bool:
        """Fold a pod bound here; ended pods hold nothing. True when the node must be recounted."""
        before = self.pods.get(fact.uid)
        changed = self._put_agent(fact)
        self.holds.pop(fact.uid, None)
        if not is_live_gpu_pod(fact):
            return self.pods.pop(fact.uid, None) is not None or changed
        self.pods[fact.uid] = fact
        return changed or before is None or _seen_by_recount(before) != _seen_by_recount(fact)

    def drop_pod(self, uid: str) -> bool:
        """Forget a pod. True when the node must be recounted."""
        self.refused_uids.discard(uid)
        self.holds.pop(uid, None)
        agent = self.agents.pop(uid, None) is not None
        if agent:
            self.clear_refusals()
        return self.pods.pop(uid, None) is not None or agent

    def assigned(self) -> tuple[Hold, ...]:
        """What the pods with an assignment hold, worked out once for each of their facts."""
        for uid, pod in self.pods.items():
            if pod.assignment is not None and uid not in self.holds:
                self.holds[uid] = hold.hold_of(pod)
        return tuple(self.holds.values())

    def count_admission(self, fact: PodFact, before: PodFact | None) -> bool:
        """Keep the row of UnexpectedAdmissionErrors; True when it changed.

        Only a change that was seen counts, once per uid: failed pods that lie around when the operator starts
        say nothing about the node of today. Nor does a pod that kubelet had admitted before: a new kubelet asks
        again for the pods that it finds, and fails those whose plugin has not registered with it yet.
        """
        if fact.unexpected_admission:
            if before is None or before.admitted or fact.uid in self.refused_uids:
                return False
            self.refused_uids.add(fact.uid)
            self.refused_in_a_row += 1
            return True
        newly = fact.admitted and (before is None or not before.admitted)
        if not newly or not fact.wants_gpus or fact.phase is Phase.FAILED:
            return False
        return self.clear_refusals()

    def clear_refusals(self) -> bool:
        """End the row; True when there was one."""
        had = self.refused_in_a_row > 0
        self.refused_in_a_row = 0
        return had

    def _put_agent(self, fact: PodFact) -> bool:
        if fact.agent_pod_ready is None or self.agents.get(fact.uid) == fact.agent_pod_ready:
            return False
        self.agents[fact.uid] = fact.agent_pod_ready
        self.clear_refusals()
        return True


def is_live_gpu_pod(fact: PodFact) -> bool:
    """True when the pod asks for or holds cards and is not over."""
    return (fact.wants_gpus or fact.assignment is not None) and not fact.ended


def _seen_by_recount(fact: PodFact) -> tuple[object, ...]:
    """What a view is made of, and what is told about pods when their node's view changes."""
    return (
        fact.assignment,
        fact.assignment_problem,
        fact.request,
        fact.wants_gpus,
        fact.terminating,
        fact.admitted,
        fact.ever_ran,
        fact.daemonset_or_mirror,
        fact.namespace,
        fact.name,
    )
