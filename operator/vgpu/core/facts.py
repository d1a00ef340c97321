"""Facts: what the outside says, as small frozen values. translate makes them, the ledger folds them.

Two facts that compare equal mean that nothing happened. So a fact holds no resourceVersion, no heartbeat
time and no annotation that we do not use.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from vgpu.core.reasons import Refusal
from vgpu.core.request import ContainerKind, PodRequest
from vgpu.core.terms import PodTerms


class Identity(StrEnum):
    """How a node learns which pod an Allocate call is for (architecture.md 6)."""

    EXACT = "exact"
    DEFERRED = "deferred"


class Plugin(StrEnum):
    """Whose device plugin serves the node's kubelet."""

    VGPU = "vgpu"
    HAMI = "hami"
    VOLCANO = "volcano"


class CardMode(StrEnum):
    """How a card is cut. Only shared cards take assignments; mig cards are listed and take nothing."""

    SHARED = "shared"
    MIG = "mig"


@dataclass(frozen=True, slots=True)
class CardFact:
    """One card as its node's inventory states it. `index` and `minor` are never an identity."""

    uuid: str
    index: int
    model: str
    memory_mib: int
    cores: int
    slots: int
    healthy: bool
    health_reason: str = ""
    minor: int | None = None
    pci_bus_id: str = ""
    mode: CardMode = CardMode.SHARED
    numa_node: int | None = None
    links: frozenset[str] = frozenset()
    """UUIDs of NVLink peers as this card states them; asymmetric and missing data are possible."""


@dataclass(frozen=True, slots=True)
class LingeringCard:
    """What a lingering pod takes of one card, its containers merged. `whole`: nobody else may be on it."""

    uuid: str
    slots: int
    memory_mib: int
    cores: int
    whole: bool


@dataclass(frozen=True, slots=True)
class LingeringPod:
    """A pod that the API server shows no more while the node's agent sees a process of it: deleted by force."""

    uid: str
    namespace: str
    name: str
    cards: tuple[LingeringCard, ...]


@dataclass(frozen=True, slots=True)
class InventoryFact:
    """One GpuNodeInventory. `problem` is set when the object could not be read as a whole (quarantined):
    then `cards` are those of the last readable object and nothing new is assigned."""

    node: str
    slot_resource: str
    cards: tuple[CardFact, ...]
    identity: Identity = Identity.EXACT
    plugin: Plugin = Plugin.VGPU
    read_error: str = ""
    isolation_error: str = ""
    boot_id: str = ""
    problem: str = ""
    lingering: tuple[LingeringPod, ...] = ()
    """In the order of their uids."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeFact:
    """Just what we use of a Node. Annotations and heartbeats are not here: they cost nothing."""

    name: str
    uid: str
    slots_allocatable: frozenset[tuple[str, int]]
    """(resource name, allocatable) of every slot resource of a preset that the node advertises."""
    ready: bool = True
    unschedulable: bool = False
    taints: frozenset[Taint] = frozenset()
    labels: frozenset[tuple[str, str]] = frozenset()
    cpu_millicores: int = 0
    memory_mib: int = 0
    pods: int = 0


class Phase(StrEnum):
    """Pod phase."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class AssignedCard:
    """One (container, card) of an assignment: a holder. It takes one slot. `whole` = alone on the card."""

    uuid: str
    memory_mib: int
    cores: int
    whole: bool


@dataclass(frozen=True, slots=True)
class AssignedContainer:
    """The cards of one container; `kind` comes from the pod's spec, not from the annotation."""

    name: str
    kind: ContainerKind
    cards: tuple[AssignedCard, ...]


class AssignmentSource(StrEnum):
    """Who made an assignment: us, or a system that runs beside us (legacy)."""

    VGPU = "vgpu"
    HAMI = "hami"
    VOLCANO = "volcano"
    VOLCANO_DP = "volcano-dp"


@dataclass(frozen=True, slots=True)
class AssignmentFact:
    """Which cards a bound pod holds. Containers are in spec order: init first, then app.

    Legacy assignments may name a card by NVML index instead of UUID; then `uuid` is "index:N" and the
    ledger resolves it by the node's inventory.
    """

    source: AssignmentSource
    node: str
    nonce: str
    containers: tuple[AssignedContainer, ...]


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What kube-scheduler's own filters look at, as far as we check it. Of a bound pod without GPUs only CPU and
    memory are kept."""

    node_selector: frozenset[tuple[str, str]] = frozenset()
    required_terms: tuple[tuple["LabelRequirement", ...], ...] = ()
    """required node affinity: the terms are OR-ed, the requirements of one term AND-ed; () = none."""
    tolerations: tuple["Toleration", ...] = ()
    cpu_millicores: int = 0
    memory_mib: int = 0
    soft_preferences: bool = False
    """True when in-tree scoring must weigh preferences: preferred affinity, spread, ScheduleAnyway."""


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One node-affinity expression; `key` "metadata.name" (field) is kept as the pseudo label of that name."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; empty key with Exists tolerates everything, empty effect matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class PodFact:
    """Just what we use of a Pod.

    `request` is None for a pod without GPUs; `refusal` is set when the request cannot be read or is not
    supported, and then `request` is None too although the pod asks for GPUs (`wants_gpus`). Both are None, and
    `wants_gpus` is True, for a bound pod that asks only for what another system's device plugin serves.
    `assignment_problem` says why an assignment that the pod carries is ignored.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    nominated_node: str = ""
    phase: Phase = Phase.PENDING
    terminating: bool = False
    gated: bool = False
    admitted: bool = False
    """status.startTime is set: kubelet has seen and admitted (or refused) the pod."""
    container_running: bool = False
    ever_ran: bool = False
    """A container runs now or has run."""
    unexpected_admission: bool = False
    """Failed with reason UnexpectedAdmissionError."""
    unschedulable: bool = False
    """Condition PodScheduled is False with reason Unschedulable."""
    unschedulable_message: str = ""
    attempt_failed: bool = False
    """The same condition with another reason: kube-scheduler's last attempt ended in an error, such as an extender
    that did not answer, and is repeated after its back-off."""
    priority: int = 0
    scheduler_name: str = ""
    owner_uid: str = ""
    daemonset_or_mirror: bool = False
    agent_pod_ready: bool | None = None
    """None unless this is an agent pod of ours; then whether it is Ready and not being deleted."""
    wants_gpus: bool = False
    request: PodRequest | None = None
    refusal: Refusal | None = None
    assignment: AssignmentFact | None = None
    assignment_problem: str = ""
    queue: str = ""
    scheduling: Scheduling = field(default_factory=Scheduling)
    created: str = ""
    """metadata.creationTimestamp: RFC 3339 in UTC, so it sorts as text."""
    containers: tuple[tuple[str, ContainerKind], ...] = ()
    """(name, kind) of every container in spec order, init first; only for pods that want GPUs."""
    terms: PodTerms | None = None
    """None for a pod that has nothing to do with GPUs and is of no group."""

    @property
    def ended(self) -> bool:
        """True when no process of the pod can hold a card any more (I3)."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED) and not self.container_running
