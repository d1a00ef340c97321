"""What kube-scheduler's own filters look at in a pod -> Scheduling."""

from collections.abc import Callable
from functools import lru_cache

from vgpu.controller.translate.partial import Affinity, Container, Expression, PodSpec, RequiredTerms
from vgpu.controller.translate.quantities import amount, mib, millis
from vgpu.core.facts import LabelRequirement, Scheduling, Toleration

SIDECAR_RESTART_POLICY = "Always"


def scheduling_of(spec: PodSpec) -> Scheduling:
    """Selectors, tolerations, CPU and memory of a pod, and whether in-tree scoring has preferences to weigh."""
    affinity = spec.affinity
    node_affinity = affinity.node_affinity if affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    return Scheduling(
        node_selector=frozenset((spec.node_selector or {}).items()),
        required_terms=_terms(required) if required else (),
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "")
            for t in spec.tolerations or ()
        ),
        cpu_millicores=requested(spec, "cpu", millis),
        memory_mib=requested(spec, "memory", mib),
        soft_preferences=bool(spec.topology_spread_constraints) or _prefers(affinity),
    )


def plain_scheduling_of(spec: PodSpec) -> Scheduling:
    """CPU and memory alone, for pods that are never nominated: nearly every pod of a cluster, and few kinds."""
    return _plain(requested(spec, "cpu", millis), requested(spec, "memory", mib))


@lru_cache(maxsize=16_384)
def _plain(cpu_millicores: int, memory_mib: int) -> Scheduling:
    return Scheduling(cpu_millicores=cpu_millicores, memory_mib=memory_mib)


def requested(spec: PodSpec, resource: str, read: Callable[[str], int]) -> int:
    """What kube-scheduler counts of `resource` for a pod: pod-level requests, else the larger of the app
    containers with the sidecars and each init container with the sidecars before it; plus overhead."""
    overhead = read(amount(spec.overhead, resource))
    pod_level = spec.resources.requests if spec.resources else None
    if pod_level and resource in pod_level:
        return read(pod_level[resource]) + overhead
    sidecars = peak = 0
    for container in spec.init_containers or ():
        value = read(_container_request(container, resource))
        if container.restart_policy == SIDECAR_RESTART_POLICY:
            sidecars += value
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + value)
    steady = sidecars + sum(read(_container_request(c, resource)) for c in spec.containers or ())
    return max(peak, steady) + overhead


def _container_request(container: Container, resource: str) -> str:
    return amount(container.resources.requests if container.resources else None, resource)


def _terms(required: RequiredTerms) -> tuple[tuple[LabelRequirement, ...], ...]:
    return tuple(
        tuple(_requirement(e) for e in (*(t.match_expressions or ()), *(t.match_fields or ())))
        for t in required.node_selector_terms or ()
    )


def _requirement(expression: Expression) -> LabelRequirement:
    return LabelRequirement(expression.key, expression.operator, tuple(expression.values or ()))


def _prefers(affinity: Affinity | None) -> bool:
    if affinity is None:
        return False
    parts = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
    return any(p is not None and p.preferred_during_scheduling_ignored_during_execution for p in parts)
