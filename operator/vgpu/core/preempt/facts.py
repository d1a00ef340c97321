"""Facts that preemption decides on: queues, workloads, gangs and plans, as small frozen values.

translate makes them; nothing here computes more than a sum. Durations and moments are whole seconds on one
clock of the caller's choice. Cards and nodes are core.facts and core.views.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from vgpu.core.preempt.pod_groups import PodGroupIs
from vgpu.core.request import PodRequest
from vgpu.core.terms import NO_OWNER, OwnerRef
from vgpu.core.views import Reservation


@dataclass(frozen=True, slots=True, order=True)
class Amounts:
    """So much of each quota dimension. A share of a card is what the larger of its memory and core parts is."""

    cards_thousandths: int = 0
    memory_mib: int = 0
    cores: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            self.cards_thousandths + other.cards_thousandths,
            self.memory_mib + other.memory_mib,
            self.cores + other.cores,
        )

    def __sub__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            self.cards_thousandths - other.cards_thousandths,
            self.memory_mib - other.memory_mib,
            self.cores - other.cores,
        )


NOTHING = Amounts()


@dataclass(frozen=True, slots=True)
class Limits:
    """A queue's guarantee, deserved or capability; a dimension that is None is not stated."""

    cards_thousandths: int | None = None
    memory_mib: int | None = None
    cores: int | None = None


UNSTATED = Limits()


class WithinQueue(StrEnum):
    """Whom a pod of the same queue may evict."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"


class ReclaimAcrossQueues(StrEnum):
    """Whom the queue may evict of others to get back what it is entitled to."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"


class BorrowPolicy(StrEnum):
    """Whether the queue may evict others for what it is not entitled to."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


class DisruptionBudget(StrEnum):
    """What a PodDisruptionBudget means for us."""

    RESPECT = "Respect"
    BEST_EFFORT = "BestEffort"


class PreemptedAction(StrEnum):
    """What becomes of an evicted workload."""

    REQUEUE = "Requeue"
    FAIL = "Fail"


class StopPolicy(StrEnum):
    """Hold admits nothing new; HoldAndDrain also evicts what runs."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


@dataclass(frozen=True, slots=True)
class QueueFact:
    """One GpuQueue; every default is the one of preemption.md 4.1."""

    name: str
    priority: int = 0
    guarantee: Limits = UNSTATED
    deserved: Limits = UNSTATED
    capability: Limits = UNSTATED
    reclaimable: bool = True
    within_queue: WithinQueue = WithinQueue.LOWER_PRIORITY
    reclaim_across_queues: ReclaimAcrossQueues = ReclaimAcrossQueues.ANY
    borrow_across_queues: BorrowPolicy = BorrowPolicy.NEVER
    borrow_max_priority: int | None = None
    """maxPriorityThreshold: only victims of at most this priority; None = no threshold."""
    min_runtime_preempt_seconds: int = 0
    min_runtime_reclaim_seconds: int = 0
    wait_before_seconds: int = 0
    disruption_budget: DisruptionBudget = DisruptionBudget.RESPECT
    max_in_flight: int | None = None
    stuck_timeout_seconds: int = 60
    hold_timeout_seconds: int = 300
    on_preempted: PreemptedAction = PreemptedAction.REQUEUE
    backoff_base_seconds: int = 10
    backoff_max_seconds: int = 300
    stop_policy: StopPolicy = StopPolicy.NONE


@dataclass(frozen=True, slots=True)
class Gang:
    """A group of pods that runs as a whole: never fewer than `minimum` of them by our hand.

    `key` names it among all gangs, and is what people read. `disruption_all`: it is evicted whole or not at all.
    `pod_group`: whether the PodGroup is there that says so.
    """

    key: str
    minimum: int
    disruption_all: bool = False
    pod_group: PodGroupIs = PodGroupIs.NO_MATTER

    @property
    def together(self) -> bool:
        """False where each of its pods starts by itself."""
        return self.minimum > 1 or not self.known

    @property
    def known(self) -> bool:
        """False while none of it may start: what its pods name is not there."""
        return self.pod_group is PodGroupIs.NO_MATTER


@dataclass(frozen=True, slots=True)
class Workload:
    """One GPU pod as preemption sees it.

    `priority` is the class value (a PodGroup's wins over the pod's). `claim` is what the pod is charged on the
    smallest card that it could use: it never changes in the pod's life, and entitlement rests on it. `amounts`
    is what it is charged now: of the cards that it holds, or the claim while it waits. `active`: it runs, or it
    waits and could be scheduled (not unsatisfiable, not held by a gate other than the gang's, not in failed-bind
    backoff, its queue not stopped).
    """

    uid: str
    namespace: str
    name: str
    queue: str
    priority: int
    amounts: Amounts
    claim: Amounts
    created_seconds: int
    request: PodRequest | None = None
    owner: OwnerRef = NO_OWNER
    gang: Gang | None = None
    node: str | None = None
    running: bool = False
    """It holds cards: bound or booked, and not ended."""
    terminating: bool = False
    active: bool = True
    inactive_why: str = ""
    """Why it is not active, and what to do."""
    nowhere_why: str = ""
    """It waits, and why no node would take it whoever left; "" = one would."""
    preempt_never: bool = False
    """preemptionPolicy Never: it may wait and may not evict."""
    started_seconds: int | None = None
    checkpoint_seconds: int | None = None
    """When it last wrote a checkpoint, as it says itself."""
    evictions: int = 0
    """How often it was evicted for others."""
    preemptable: bool = True
    """False when its owner says so (volcano.sh/preemptable)."""
    cooldown_seconds: int = 0
    """volcano.sh/cooldown-time: safe for so long after its start."""
    evict_opt_in: bool = False
    """A bare pod whose owner allows its eviction and re-creation."""
    daemonset_or_mirror: bool = False
    legacy: bool = False
    """Its cards were assigned by another system, or nobody can tell which they are."""

    @property
    def bare(self) -> bool:
        """True when no controller would bring it back."""
        return not self.owner.uid

    @property
    def pod(self) -> str:
        """NS/POD, as people write it."""
        return f"{self.namespace}/{self.name}"


class OwnerKind(StrEnum):
    """Whom the plan is for."""

    POD = "Pod"
    GANG = "Gang"


class PlanPhase(StrEnum):
    """Life of a plan."""

    PLANNED = "Planned"
    EVICTING = "Evicting"
    DRAINING = "Draining"
    BOUND = "Bound"
    CLOSED = "Closed"
    ABORTED = "Aborted"


@dataclass(frozen=True, slots=True, order=True)
class Victim:
    """A pod that is evicted for a plan, meant by its uid. `unit`: what its plan's object says it goes together
    with (a gang that is evicted whole), "" = it alone."""

    uid: str
    namespace: str
    name: str
    node: str
    unit: str = ""

    @property
    def pod(self) -> str:
        """NS/POD, as people write it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NodeReservation:
    """What a plan holds on one card of `node` for one pod of its owner."""

    node: str
    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Debt:
    """A workload that lost pods to a plan and must come back."""

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str = ""
    rank: str = ""
    pods: int = 1
    lost_seconds: int = 0
    api_version: str = ""


@dataclass(frozen=True, slots=True)
class PlanFact:
    """One GpuPreemption. `created_seconds` is when it was created; `generation` orders plans of one owner.

    `records`: by uid of a bare pod whose owner allows its eviction, how it is created again. `successors`: (uid in
    the spec, uid of the pod that has its seat now); all other fields name those who sit now.
    """

    uid: str
    namespace: str
    name: str
    owner_kind: OwnerKind
    owner_name: str
    owner_uids: tuple[str, ...]
    reservations: tuple[NodeReservation, ...]
    victims: tuple[Victim, ...]
    rule: str
    exact: bool
    created_seconds: int
    generation: int = 0
    phase: PlanPhase = PlanPhase.PLANNED
    evictions_sent: frozenset[str] = field(default_factory=frozenset)
    debts: tuple[Debt, ...] = ()
    records: tuple[tuple[str, str], ...] = ()
    partial: str = ""
    """What its object says of a gang of which too few are bound; "" = nothing."""
    successors: tuple[tuple[str, str], ...] = ()
