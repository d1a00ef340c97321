"""Reasons for a "no": unchanged in events, conditions, metrics, extender answers and /explain."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why something is refused, closed or reported. PascalCase, stable: people alert on them."""

    # The pod's own request cannot be read or met anywhere; refused by name.
    INVALID_REQUEST = "InvalidRequest"
    NUMBER_MISSING = "NumberMissing"
    UNSUPPORTED_SELECTION = "UnsupportedSelection"
    ONLY_INIT_CONTAINERS = "OnlyInitContainers"
    MORE_CARDS_THAN_NODE = "MoreCardsThanNode"

    # A node does not take this pod now.
    SLOT_RESOURCE_MISMATCH = "SlotResourceMismatch"
    INSUFFICIENT_SLOTS = "InsufficientSlots"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    INSUFFICIENT_CORES = "InsufficientCores"
    CARD_NOT_EMPTY = "CardNotEmpty"
    EXCLUSIVE_HOLDER = "ExclusiveHolder"
    CARD_SELECTION = "CardSelection"
    NUMA_SELECTION = "NumaSelection"
    CARDS_UNHEALTHY = "CardsUnhealthy"
    NOT_ENOUGH_CARDS = "NotEnoughCards"
    HELD_FOR_ANOTHER = "HeldForAnother"
    SEARCH_BUDGET = "SearchBudget"
    MULTI_CONTAINER_DEFERRED = "MultiContainerDeferred"
    WAITS_FOR_ADMISSION = "WaitsForAdmission"

    # A node takes nothing at all (the node gate, architecture.md 4).
    NODE_GONE = "NodeGone"
    NO_INVENTORY = "NoInventory"
    READ_ERROR = "ReadError"
    ISOLATION_ERROR = "IsolationError"
    NO_ALLOCATABLE = "NoAllocatable"
    AGENT_DOWN = "AgentDown"
    TOO_MANY_UNADMITTED = "TooManyUnadmitted"
    ADMISSION_REFUSED = "AdmissionRefused"
    UNKNOWN_HOLDER = "UnknownHolder"
    INVENTORY_INVALID = "InventoryInvalid"

    # The pod starts with others of its gang, or not yet (preemption.md 4.5).
    GANG_INCOMPLETE = "GangIncomplete"
    GANG_WAITS = "GangWaits"
    GANG_PARTIAL = "GangPartial"
    POD_GROUP_NOT_FOUND = "PodGroupNotFound"
    GANG_SURPLUS = "GangSurplus"

    # Only kube-scheduler's own filters refuse the pod.
    OTHER_FILTERS = "OtherFilters"

    # Its queue lets nothing start, wherever it fits (so do QueueStopped and QueueCapability).
    QUEUE_NOT_FOUND = "QueueNotFound"

    # Nobody may be evicted for this pod, or not this one (preemption.md 4.2).
    NO_LOWER_RANK = "NoLowerRank"
    NO_ROOM_FOR_GANG = "NoRoomForGang"
    VICTIM_ENTITLED = "VictimEntitled"
    QUEUE_CAPABILITY = "QueueCapability"
    QUEUE_GUARANTEE = "QueueGuarantee"
    EVICTION_LIMITS = "EvictionLimits"
    QUEUE_NOT_RECLAIMABLE = "QueueNotReclaimable"
    QUEUE_POLICY = "QueuePolicy"
    QUEUE_STOPPED = "QueueStopped"
    PRIORITY_THRESHOLD = "PriorityThreshold"
    PREEMPTION_NEVER = "PreemptionNever"
    NEVER_A_VICTIM = "NeverAVictim"
    PROTECTED = "Protected"
    WAIT_BEFORE = "WaitBefore"
    NOT_ACTIVE = "NotActive"
    SWAP_FROZEN = "SwapFrozen"
    PLAN_NOT_WRITTEN = "PlanNotWritten"

    # Reported, not a refusal.
    READY = "Ready"
    OVERBOOKED = "Overbooked"
    ORPHANED_CARDS = "OrphanedCards"
    SLOTS_MISMATCH = "SlotsMismatch"
    PODS_LINGER = "PodsLinger"
    BOUND_WITHOUT_ASSIGNMENT = "BoundWithoutAssignment"
    ASSIGNMENT_IGNORED = "AssignmentIgnored"

    # What the condition of a queue says.
    ACTIVE = "Active"
    HELD = "Held"
    DRAINING = "Draining"
    OVER_CAPABILITY = "OverCapability"
    QUEUE_UNREADABLE = "QueueUnreadable"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A "no" with its reason and a message that a person can act on (what was wanted, what there was)."""

    reason: Reason
    message: str
