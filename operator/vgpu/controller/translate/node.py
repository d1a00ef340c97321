"""Node JSON -> NodeFact: just what placement uses, so that heartbeats and annotations give an equal fact."""

from vgpu import names
from vgpu.controller.translate.partial import NodeModel
from vgpu.controller.translate.quantities import amount, mib, millis, whole
from vgpu.core.facts import NodeFact, Taint

SLOT_RESOURCES = (names.VOLCANO_NUMBER, names.HAMI_NUMBER)


def node_fact(raw: NodeModel) -> NodeFact:
    """The fact of one Node. A node without a Ready condition counts as not ready."""
    spec, status = raw.spec, raw.status
    allocatable = (status.allocatable if status else None) or {}
    conditions = (status.conditions if status else None) or ()
    return NodeFact(
        name=raw.metadata.name,
        uid=raw.metadata.uid,
        slots_allocatable=frozenset(
            (name, whole(allocatable[name])) for name in SLOT_RESOURCES if name in allocatable
        ),
        ready=any(c.type == names.READY_CONDITION and c.status == "True" for c in conditions),
        unschedulable=bool(spec and spec.unschedulable),
        taints=frozenset(Taint(t.key, t.value, t.effect) for t in (spec.taints if spec else None) or ()),
        labels=frozenset((raw.metadata.labels or {}).items()),
        cpu_millicores=millis(amount(allocatable, "cpu")),
        memory_mib=mib(amount(allocatable, "memory")),
        pods=whole(amount(allocatable, "pods")),
    )
