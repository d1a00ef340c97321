"""Pod JSON -> PodFact. A piece that cannot be read becomes the pod's own refusal or assignment problem.

Of a pod without GPUs hardly anything is kept: what it takes of its node's CPU and memory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from vgpu import names
from vgpu.compat import asks_volcano_dp
from vgpu.controller.translate.assignment import read_assignment
from vgpu.controller.translate.partial import (
    Condition,
    Container,
    ContainerStatus,
    Metadata,
    PodModel,
    PodSpec,
    PodStatus,
)
from vgpu.controller.translate.scheduling import SIDECAR_RESTART_POLICY, plain_scheduling_of, scheduling_of
from vgpu.controller.translate.terms import group_of, pod_terms
from vgpu.core.facts import Phase, PodFact, Scheduling
from vgpu.core.preempt.queues import named_queue
from vgpu.core.presets import ContainerAmounts, PresetSettings, read_request
from vgpu.core.reasons import Refusal
from vgpu.core.request import ContainerKind, PodRequest
from vgpu.core.terms import PodTerms
from vgpu.settings import OperatorSettings

UNEXPECTED_ADMISSION = "UnexpectedAdmissionError"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
_PHASES = {phase.value: phase for phase in Phase}
_NO_SCHEDULING = Scheduling()
_UNTRIED = Condition()
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class PodReading:
    """What reading pods depends on: the units of the presets, the namespace of our own agents, and whether bare
    pods are created again after an eviction."""

    presets: PresetSettings
    namespace: str
    recreate_bare_pods: bool = False

    @classmethod
    def of(cls, settings: OperatorSettings) -> "PodReading":
        """The reading that `settings` ask for."""
        presets = PresetSettings(settings.volcano_memory_factor, settings.hami_memory_factor)
        return cls(presets, settings.namespace, settings.recreate_bare_pods)


def pod_fact(raw: PodModel, reading: PodReading) -> PodFact:
    """The fact of one Pod."""
    metadata, spec, status = raw.metadata, raw.spec or PodSpec(), raw.status or PodStatus()
    containers = container_amounts(spec)
    asked = _request(containers, metadata, reading.presets)
    assignment, problem = read_assignment(metadata, spec.node_name, containers, reading.presets)
    running, ever_ran = _runs(status)
    concerns_cards = asked is not None or assignment is not None or _bound_by_others(spec, containers)
    return PodFact(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        node=spec.node_name,
        nominated_node=status.nominated_node_name,
        phase=_PHASES.get(status.phase, Phase.UNKNOWN) if status.phase else Phase.PENDING,
        terminating=metadata.deletion_timestamp is not None,
        gated=bool(spec.scheduling_gates),
        admitted=status.start_time is not None,
        container_running=running,
        ever_ran=ever_ran,
        unexpected_admission=status.phase == Phase.FAILED and status.reason == UNEXPECTED_ADMISSION,
        unschedulable=(tried := _tried(status)).reason == UNSCHEDULABLE,
        unschedulable_message=tried.message if tried.reason == UNSCHEDULABLE else "",
        attempt_failed=tried.reason == SCHEDULER_ERROR,
        priority=spec.priority or 0,
        scheduler_name=spec.scheduler_name,
        owner_uid=_owner_uid(metadata),
        daemonset_or_mirror=_daemonset_or_mirror(metadata),
        agent_pod_ready=_agent_pod_ready(metadata, status, reading.namespace),
        wants_gpus=asked is not None or _bound_by_others(spec, containers),
        request=asked if isinstance(asked, PodRequest) else None,
        refusal=asked if isinstance(asked, Refusal) else None,
        assignment=assignment,
        assignment_problem=problem,
        queue=_queue(metadata) if concerns_cards else "",
        scheduling=_scheduling(spec, concerns_cards=concerns_cards),
        created=metadata.creation_timestamp or "",
        containers=tuple((c.name, c.kind) for c in containers) if asked is not None else (),
        terms=_terms(raw, reading) if concerns_cards or group_of(metadata, spec) else None,
    )


def _scheduling(spec: PodSpec, *, concerns_cards: bool) -> Scheduling:
    if concerns_cards:
        return scheduling_of(spec)
    return plain_scheduling_of(spec) if spec.node_name else _NO_SCHEDULING


def _terms(raw: PodModel, reading: PodReading) -> PodTerms:
    """Leave to evict a bare pod counts only where it would be created again."""
    terms = pod_terms(raw.metadata, raw.spec or PodSpec(), raw.status or PodStatus())
    return terms if reading.recreate_bare_pods or not terms.evict_opt_in else replace(terms, evict_opt_in=False)


def container_amounts(spec: PodSpec) -> tuple[ContainerAmounts, ...]:
    """The containers in spec order, init first, with their limits merged over their requests."""
    init = (_amounts(c, _init_kind(c)) for c in spec.init_containers or ())
    app = (_amounts(c, ContainerKind.APP) for c in spec.containers or ())
    return (*init, *app)


def _init_kind(container: Container) -> ContainerKind:
    sidecar = container.restart_policy == SIDECAR_RESTART_POLICY
    return ContainerKind.SIDECAR if sidecar else ContainerKind.INIT


def _amounts(container: Container, kind: ContainerKind) -> ContainerAmounts:
    resources = container.resources
    requests = (resources.requests if resources else None) or _NOTHING
    limits = (resources.limits if resources else None) or _NOTHING
    return ContainerAmounts(container.name, kind, {**requests, **limits} if requests else limits)


def _request(
    containers: tuple[ContainerAmounts, ...], metadata: Metadata, presets: PresetSettings
) -> PodRequest | Refusal | None:
    if not any("/" in resource for c in containers for resource in c.amounts):
        return None  # no extended resource at all: what nearly every pod of a cluster is
    return read_request(containers, metadata.annotations or _NOTHING, presets)


def _bound_by_others(spec: PodSpec, containers: tuple[ContainerAmounts, ...]) -> bool:
    """It holds cards that only its annotation tells; while that is not readable it may hold any of its node's."""
    return bool(spec.node_name) and asks_volcano_dp(containers)


def _runs(status: PodStatus) -> tuple[bool, bool]:
    running = ever_ran = False
    for container in _statuses(status):
        state, last = container.state, container.last_state
        runs = state is not None and state.running is not None
        ended = state is not None and state.terminated is not None
        before = last is not None and (last.terminated is not None or last.running is not None)
        running = running or runs
        ever_ran = ever_ran or runs or ended or before or container.restart_count > 0
    return running, ever_ran


def _statuses(status: PodStatus) -> Iterable[ContainerStatus]:
    yield from status.container_statuses or ()
    yield from status.init_container_statuses or ()
    yield from status.ephemeral_container_statuses or ()


def _tried(status: PodStatus) -> Condition:
    """kube-scheduler's last word on a pod that it did not bind; an empty one where there is none."""
    conditions = (one for one in status.conditions or () if one.type == names.SCHEDULED_CONDITION)
    return next((one for one in conditions if one.status == "False"), _UNTRIED)


def _owner_uid(metadata: Metadata) -> str:
    owners = metadata.owner_references or ()
    return next((o.uid for o in owners if o.controller), owners[0].uid if owners else "")


def _daemonset_or_mirror(metadata: Metadata) -> bool:
    if names.MIRROR_POD_ANNOTATION in (metadata.annotations or _NOTHING):
        return True
    return any(o.kind in ("DaemonSet", "Node") for o in metadata.owner_references or ())


def _agent_pod_ready(metadata: Metadata, status: PodStatus, namespace: str) -> bool | None:
    label, value = names.AGENT_POD_LABEL
    if metadata.namespace != namespace or (metadata.labels or _NOTHING).get(label) != value:
        return None
    ready = any(c.type == names.READY_CONDITION and c.status == "True" for c in status.conditions or ())
    return ready and metadata.deletion_timestamp is None


def _queue(metadata: Metadata) -> str:
    return named_queue(metadata.labels or _NOTHING, metadata.annotations or _NOTHING)
