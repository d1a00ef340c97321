"""GpuPreemption -> PlanFact. One that cannot be read is no fact: it holds nothing, its fault is told by name."""

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from vgpu import names
from vgpu.api.conditions import Condition, ConditionStatus
from vgpu.api.preemption import PARTIAL, CardReservation, GpuPreemption, parse_preemption
from vgpu.api.preemption import Debt as DebtModel
from vgpu.api.preemption import Victim as VictimModel
from vgpu.controller.translate.terms import moment_seconds
from vgpu.core.preempt.facts import Debt, NodeReservation, PlanFact, PlanPhase, Victim
from vgpu.core.preempt.gang_seats import with_successors
from vgpu.core.views import Reservation
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key

_RECORDS = TypeAdapter(dict[str, str])


def decode_preemption(raw: bytes) -> Decoded[PlanFact]:
    """One GpuPreemption. Raises MalformedObject."""
    model = parse_preemption(raw)
    metadata = model.metadata
    key = Key(metadata.namespace, metadata.name, metadata.uid)
    return Decoded(key, metadata.resource_version, plan_fact(model))


def plan_fact(model: GpuPreemption) -> PlanFact:
    """The fact of one plan; without a status it is Planned. Raises MalformedObject for a creationTimestamp that is
    none."""
    metadata, spec, status = model.metadata, model.spec, model.status
    conditions = status.conditions if status else ()
    made = PlanFact(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        owner_kind=spec.owner.kind,
        owner_name=spec.owner.name,
        owner_uids=spec.owner.uids,
        reservations=tuple(_reservation(one) for one in spec.reservations),
        victims=tuple(_victim(one) for one in spec.victims),
        rule=spec.rule,
        exact=spec.exact,
        created_seconds=_created(metadata.creation_timestamp),
        generation=spec.generation,
        phase=status.phase if status else PlanPhase.PLANNED,
        evictions_sent=frozenset(status.evictions_sent) if status else frozenset(),
        debts=tuple(_debt(one) for one in status.debts) if status else (),
        records=_records(metadata.annotations or {}),
        partial=next((one.message for one in conditions if _is_partial(one)), ""),
    )
    return with_successors(made, {one.lost: one.uid for one in status.successors} if status else {})


def _is_partial(condition: Condition) -> bool:
    return condition.type == PARTIAL and condition.status is ConditionStatus.TRUE


def _records(annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What cannot be read says nothing: the plan counts all the same."""
    text = annotations.get(names.RECORDS_ANNOTATION)
    if text is None:
        return ()
    try:
        return tuple(sorted(_RECORDS.validate_json(text).items()))
    except ValidationError:
        return ()


def _created(text: str) -> int:
    try:
        return moment_seconds(text)
    except MalformedObject as error:
        raise MalformedObject(f"GpuPreemption: metadata.creationTimestamp {error}, not {text[:64]!r}") from error


def _reservation(held: CardReservation) -> NodeReservation:
    reservation = Reservation(
        held.uid, held.card, held.slots, held.memory_mib, held.cores, held.exclusive, held.coreless
    )
    return NodeReservation(held.node, reservation)


def _victim(victim: VictimModel) -> Victim:
    return Victim(victim.uid, victim.namespace, victim.name, victim.node, victim.unit)


def _debt(debt: DebtModel) -> Debt:
    return Debt(
        debt.uid,
        debt.kind,
        debt.namespace,
        debt.name,
        debt.queue,
        debt.rank,
        debt.pods,
        debt.lost_seconds,
        debt.api_version,
    )
