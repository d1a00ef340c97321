"""A plan while it lives: what is known of its owner and victims now, and what may be done next.

Values only: the world that a step looks at, the actions that it answers, why a plan ends. The plan itself is a
PlanFact and never changes; what its object does not say (Progress) may be lost at any moment without harm.
Moments are whole seconds on one clock of the caller's choice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from vgpu.core.placement import Placement
from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.facts import Amounts, OwnerKind, PlanFact, PlanPhase, QueueFact
from vgpu.core.preempt.gang_seats import GangNow
from vgpu.core.preempt.queues import over_capability
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.request import PodRequest
from vgpu.core.score import Policies
from vgpu.core.views import NodeView


class OwnerState(StrEnum):
    """Where a pod of the plan's owner stands. BOOKED: its Binding is on its way."""

    WAITING = "waiting"
    BOOKED = "booked"
    BOUND = "bound"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class OwnerPod:
    """One pod that the plan holds cards for. `nominated`: it was sent to its node and has not answered yet.

    `obstacle`: what but cards keeps it off its planned node once the victims are gone, or "". `barred`: its queue
    does not let it start now; `groupless`: nor does the PodGroup that it names, which is missing or not read yet.
    `away`: it was sent to, or is booked on, a node of which the plan holds nothing.
    """

    uid: str
    state: OwnerState
    request: PodRequest | None = None
    nominated: bool = False
    obstacle: str = ""
    barred: bool = False
    groupless: bool = False
    away: bool = False

    @property
    def stopped(self) -> bool:
        """True where it could not start on free cards now."""
        return self.barred or self.groupless


@dataclass(frozen=True, slots=True)
class VictimState:
    """One victim now. `leaving`: its eviction was accepted, or it has a deletion mark; `gone`: its object is gone
    or it holds nothing any more.

    `unit`: what goes or stays together with it (a gang that is evicted whole), "" = it alone. `objection`: why it
    may not be evicted any more, or "". `refusals`: how often the API refused its eviction for a budget, the last
    time with leave to ask again at `retry_seconds`. `grace_ends_seconds`: its deletionTimestamp. `unsure`: it was
    asked to go, and nobody knows whether it does; `fails_since`: since when calls for it fail; `failure`: what the
    API server said against it, but for a budget. `doubtful`: a disruption budget lets fewer go now than the plan
    needs, this one among them.
    """

    uid: str
    gone: bool = False
    leaving: bool = False
    unit: str = ""
    objection: str = ""
    refusals: int = 0
    retry_seconds: int = 0
    grace_ends_seconds: int | None = None
    unsure: bool = False
    fails_since: int | None = None
    failure: str = ""
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Settings of the owner's queue. `in_flight`: evictions of the queue that run now."""

    stuck_timeout_seconds: int = 60
    hold_timeout_seconds: int = 300
    max_in_flight: int | None = None
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """What the owner's queue may use, and what its victims in that queue give free there. `used`: with the owner,
    without those who are leaving; `added`: what the owner adds to it."""

    queue: QueueFact
    used: Amounts
    added: Amounts
    gives: Mapping[str, Amounts] = field(default_factory=dict)

    def lets(self, going: Iterable[str]) -> bool:
        """True when the owner may start in its queue once these have gone."""
        freed = sum_of(self.gives[uid] for uid in going if uid in self.gives)
        return over_capability(self.queue, self.used - freed, self.added) is None


@dataclass(frozen=True, slots=True)
class PlanWorld:
    """All that one step looks at. Keys are uids and node names; `views` stand with the plan's own hold in them.

    `elsewhere`: placements that every waiting pod of the owner could take at once without any eviction, () = none.
    `taken_over_by`: NS/NAME of a plan of higher rank that took its cards. `policies` choose among held cards.
    `leaving_until`: of every pod that leaves one of these nodes its deletionTimestamp, as far as it has one.
    `gang`: the gang that the plan is for, None where it is for a pod, or nothing is left of its gang.
    `queue`: what the owner's queue lets it use, None where that does not matter.
    """

    owners: Mapping[str, OwnerPod]
    victims: Mapping[str, VictimState]
    views: Mapping[str, NodeView]
    limits: PlanLimits = PlanLimits()
    elsewhere: tuple[tuple[str, Placement], ...] = ()
    taken_over_by: str = ""
    policies: Policies = field(default_factory=Policies)
    leaving_until: Mapping[str, int] = field(default_factory=dict)
    gang: GangNow | None = None
    queue: QueueRoom | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a plan's object does not say. After a restart it begins anew: time-outs get longer, never wrong."""

    drained_seconds: int | None = None
    """When the last victim had left or was declared stuck."""
    nominations: int = 0
    """How often the owner was sent to its cards and did not come."""
    empty_seconds: int | None = None
    """Since when a seat of the gang is empty."""


class PlanEnd(StrEnum):
    """Why a plan ends; PascalCase and stable, as every reason."""

    OWNER_BOUND = "OwnerBound"
    OWNER_GONE = "OwnerGone"
    OWNER_CHANGED = "OwnerChanged"
    TAKEN_OVER = "TakenOver"
    ROOM_ELSEWHERE = "RoomElsewhere"
    VICTIM_CHANGED = "VictimChanged"
    DISRUPTION_BUDGET = "DisruptionBudget"
    EVICTION_REFUSED = "EvictionRefused"
    EVICTION_FAILED = "EvictionFailed"
    CARDS_LOST = "CardsLost"
    NODE_CLOSED = "NodeClosed"
    VICTIM_STUCK = "VictimStuck"
    LOST_OTHER = "LostOther"
    HOLD_EXPIRED = "HoldExpired"
    BIND_FAILED = "BindFailed"


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask the API for the eviction of this uid."""

    uid: str


@dataclass(frozen=True, slots=True)
class Spare:
    """These victims are not needed any more: they stay, unless a later step needs them again."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The gang runs without these seats, whose pods are gone: hold nothing for them."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Succeed:
    """The pod `uid` takes the seat of `lost`, which is gone. Written, so that a restart goes on with it."""

    lost: str
    uid: str


@dataclass(frozen=True, slots=True)
class Nominate:
    """Send this pod of the owner to its cards."""

    uid: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Advance:
    """The plan has reached this phase."""

    phase: PlanPhase


@dataclass(frozen=True, slots=True)
class End:
    """The plan is over: hold nothing for it, end what its owner's pods are nominated to, send no eviction more.

    `replan`: the owner is to be decided on anew, without `avoid_victims` as victims, without `avoid_nodes`, and
    with the cards of `stuck` taken as occupied for good. `release`: pods of the owner that run in vain and go.
    """

    reason: PlanEnd
    message: str
    replan: bool = False
    avoid_victims: frozenset[str] = frozenset()
    avoid_nodes: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    release: frozenset[str] = frozenset()

    @property
    def phase(self) -> PlanPhase:
        """How the plan's object ends."""
        return PlanPhase.CLOSED if self.reason is PlanEnd.OWNER_BOUND else PlanPhase.ABORTED


Action = Evict | Spare | GiveUp | Succeed | Nominate | Advance | End


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done now, and when to look again if nothing happens before (None = only on an event).

    `anywhere`: what is freed on nodes of which the plan holds nothing may let it go on, too. `short`: its gang
    needs more than have seats, whoever they will be.
    """

    actions: tuple[Action, ...]
    progress: Progress
    wake_seconds: int | None = None
    anywhere: bool = False
    short: bool = False


def key_of(plan: PlanFact) -> str:
    """NS/NAME of the plan's object."""
    return f"{plan.namespace}/{plan.name}"


def hold_of(
    plan: PlanFact, spared: frozenset[str] = frozenset(), given_up: frozenset[str] = frozenset()
) -> PlanHold:
    """What the plan holds in the ledger, without the victims that stay after all. A gang's seats are kept while a
    member is replaced, but for those that it has `given_up`."""
    victims = frozenset((v.uid, v.node) for v in plan.victims if v.uid not in spared)
    gang = plan.owner_kind is OwnerKind.GANG
    kept = frozenset(card.reservation.uid for card in plan.reservations) - given_up if gang else frozenset[str]()
    return PlanHold(key_of(plan), plan.generation, plan.reservations, victims, kept)
