"""What the writes about plans say: a decided plan as the object that carries it, and what its status tells. Pure.

Enters: a Plan of the decision core, whose it is. Leaves: bodies as the API server takes them. A write has one
name: its repeat after an unknown outcome meets the first object. A later decision for the same owner has a higher
generation and with it another name; should both come to stand, the higher one counts.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from vgpu import names
from vgpu.api.conditions import LONGEST_MESSAGE, Condition, ConditionStatus
from vgpu.api.model import MAX_TEXT, first_fault
from vgpu.api.preemption import (
    ENDED,
    PARTIAL,
    CardReservation,
    GpuPreemption,
    Owner,
    PreemptionMetadata,
    PreemptionSpec,
    PreemptionStatus,
)
from vgpu.api.preemption import Debt as DebtModel
from vgpu.api.preemption import Victim as VictimModel
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.facts import Debt, NodeReservation, OwnerKind, PlanPhase, Victim
from vgpu.core.preempt.plan import End
from vgpu.core.reasons import Reason
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Key

MOST_NAMED = 5
"""So many pods, or nodes, are named where people read; of the others only their number is told."""
LONGEST_OWNER = 200
"""Characters of the owner's name in the plan's; with digest and number it stays below what a name may have."""


@dataclass(frozen=True, slots=True)
class PreemptionWrite:
    """One plan to create, in its owner's namespace.

    `owner_name` is the pod's name or the gang's key; `owner_uids` are the pods that wait for it. `generation` is
    above that of every earlier plan for this owner. `records`: by uid of a victim that is a bare pod, how it is
    created again.
    """

    namespace: str
    owner_kind: OwnerKind
    owner_name: str
    owner_uids: tuple[str, ...]
    generation: int
    plan: Plan
    records: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The object's name."""
        return preemption_name(self.owner_kind, self.owner_name, self.owner_uids, self.generation)


def preemption_name(kind: OwnerKind, owner_name: str, owner_uids: Collection[str], generation: int) -> str:
    """The one name of this owner's plan of this generation.

    A pod is meant by its uid. A gang is meant by its key: two processes may see different members of it.
    """
    whose = "/".join(sorted(owner_uids)) if kind is OwnerKind.POD else owner_name
    digest = sha256(f"{kind.value}/{whose}".encode()).hexdigest()[:10]
    name = owner_name.rpartition("/")[2].partition(" ")[0]  # of a gang without its namespace and whose it is
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower())[:LONGEST_OWNER].strip("-")
    return "-".join(part for part in (readable, digest, str(generation)) if part)


def preemption_body(write: PreemptionWrite) -> dict[str, Any]:
    """The object of a plan. It has no owner reference to the preemptor: the debts in its status outlive that one,
    and the garbage collector would forget with the object who must come back.

    Raises MalformedObject for a plan of more cards or pods than an object may name."""
    try:
        spec = _spec(write)
    except ValidationError as error:
        raise MalformedObject(f"{names.PREEMPTION_KIND}: {first_fault(error)}") from error
    annotations = {names.RECORDS_ANNOTATION: to_json(dict(write.records)).decode()} if write.records else None
    metadata = PreemptionMetadata(name=write.name, namespace=write.namespace, annotations=annotations)
    model = GpuPreemption(metadata=metadata, spec=spec)
    return {"apiVersion": names.API_VERSION, "kind": names.PREEMPTION_KIND, **model.dump()}


def _spec(write: PreemptionWrite) -> PreemptionSpec:
    plan = write.plan
    return PreemptionSpec(
        owner=Owner(kind=write.owner_kind, name=write.owner_name, uids=write.owner_uids),
        reservations=tuple(_reservation(one) for one in plan.reservations),
        victims=tuple(_victim(one, plan.units.get(one.uid, "")) for one in plan.victims),
        rule=plan.rule,
        exact=plan.exact,
        generation=write.generation,
        victim_names=names_for_people(f"{one.namespace}/{one.name}" for one in plan.victims),
        node_names=names_for_people(sorted({one.node for one in plan.reservations})),
    )


def preemption_status(
    phase: PlanPhase,
    *,
    waits_for: str = "",
    evictions_sent: Iterable[str] = (),
    debts: Iterable[Debt] = (),
    conditions: Iterable[Condition] = (),
) -> dict[str, Any]:
    """The whole status of a plan, equal for equal content. Words for people never keep it from being written."""
    model = PreemptionStatus(
        phase=phase,
        waits_for=_cut(waits_for, MAX_TEXT),
        evictions_sent=tuple(sorted(evictions_sent)),
        debts=tuple(_debt(one) for one in debts),
        conditions=tuple(conditions),
    )
    return {"phase": phase.value, **model.dump()}


def preemption_status_body(plan: Key, status: Mapping[str, Any]) -> dict[str, Any]:
    """The whole status of one plan, for server-side apply. A uid in it would not be looked at; the name is only
    ever that of one owner's one generation."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PREEMPTION_KIND,
        "metadata": {"name": plan.name, "namespace": plan.namespace},
        "status": dict(status),
    }


def ended_condition(end: End, now_seconds: int) -> Condition:
    """Why a plan is over, as its status tells it. `now_seconds` is since the epoch."""
    return _condition(ENDED, end.reason.value, end.message, now_seconds)


def partial_condition(why: str, now_seconds: int) -> Condition:
    """Too few of the plan's gang are bound, as its status tells it. `now_seconds` is since the epoch."""
    return _condition(PARTIAL, Reason.GANG_PARTIAL.value, why, now_seconds)


def names_for_people(names_of: Iterable[str]) -> str:
    """`a/b, a/c and 3 more`: the first by name, the others by their number."""
    known = list(names_of)
    named = ", ".join(known[:MOST_NAMED])
    rest = len(known) - MOST_NAMED
    # Five names of the greatest length are more than the field takes.
    if len(named) > MAX_TEXT // 2:
        named, rest = known[0], len(known) - 1
    return f"{named} and {rest} more" if rest > 0 else named


def _condition(of: str, reason: str, message: str, now_seconds: int) -> Condition:
    since, said = time_words(now_seconds), _cut(message, LONGEST_MESSAGE)
    return Condition(type=of, status=ConditionStatus.TRUE, reason=reason, message=said, last_transition_time=since)


def _cut(text: str, most: int) -> str:
    """Names may be as long as Kubernetes lets them, and what an API server says longer."""
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def time_words(epoch_seconds: int) -> str:
    """A moment as Kubernetes writes it."""
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _reservation(held: NodeReservation) -> CardReservation:
    one = held.reservation
    return CardReservation(
        uid=one.uid,
        node=held.node,
        card=one.uuid,
        slots=one.slots,
        memory_mib=one.memory_mib,
        cores=one.cores,
        exclusive=one.exclusive,
        coreless=one.coreless,
    )


def _victim(victim: Victim, unit: str) -> VictimModel:
    """What goes with whom is not to be seen any more once the first of them has gone."""
    return VictimModel(uid=victim.uid, namespace=victim.namespace, name=victim.name, node=victim.node, unit=unit)


def _debt(debt: Debt) -> DebtModel:
    return DebtModel(
        uid=debt.uid,
        kind=debt.kind,
        namespace=debt.namespace,
        name=debt.name,
        queue=debt.queue[:MAX_TEXT],  # a pod may name any; those that exist are short
        rank=debt.rank,
        pods=debt.pods,
        lost_seconds=debt.lost_seconds,
        api_version=debt.api_version,
    )
