"""GpuQueue -> QueueFact: durations in seconds, cards in thousandths, so that equal specs give an equal fact.

A queue whose spec cannot be read is still a queue: what is wrong with it is told in its status.
"""

from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError, field_validator

from vgpu.api.model import Metadata, first_fault
from vgpu.api.queue import Amounts, GpuQueue, QueueStatus, duration_seconds
from vgpu.core.preempt.facts import Limits, QueueFact
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key


@dataclass(frozen=True, slots=True)
class SeenQueue:
    """A queue as our watch shows it. `fact` None: its spec cannot be read, `fault` says why. `status` is what
    stands there; one that cannot be read counts as none."""

    name: str
    fact: QueueFact | None
    status: QueueStatus
    fault: str = ""


class _OnlyMetadata(BaseModel):
    metadata: Metadata


class _OnlyStatus(BaseModel):
    status: QueueStatus | None = None


def decode_queue(raw: bytes) -> Decoded[SeenQueue]:
    """One GpuQueue. Raises MalformedObject only where not even metadata can be read."""
    try:
        metadata = _OnlyMetadata.model_validate_json(raw).metadata
    except ValidationError as error:
        raise MalformedObject(f"GpuQueue: {first_fault(error)}") from error
    fact, fault = _spec_of(raw)
    seen = SeenQueue(metadata.name, fact, _status_of(raw), fault)
    return Decoded(Key("", metadata.name, metadata.uid), metadata.resource_version, seen)


def _spec_of(raw: bytes) -> tuple[QueueFact | None, str]:
    try:
        return queue_fact(_WithoutStatus.model_validate_json(raw)), ""
    except ValidationError as error:
        return None, first_fault(error)


def _status_of(raw: bytes) -> QueueStatus:
    try:
        return _OnlyStatus.model_validate_json(raw).status or QueueStatus()
    except ValidationError:
        return QueueStatus()


class _WithoutStatus(GpuQueue):
    status: None = Field(None, exclude=True)  # read apart: a wrong status says nothing about the spec

    @field_validator("status", mode="before")
    @classmethod
    def _skip(cls, value: object) -> None:
        del value


def queue_fact(queue: GpuQueue) -> QueueFact:
    """The fact of one queue."""
    spec = queue.spec
    rules, after = spec.preemption, spec.on_preempted
    return QueueFact(
        name=queue.metadata.name,
        priority=spec.priority,
        guarantee=_limits(spec.guarantee),
        deserved=_limits(spec.deserved),
        capability=_limits(spec.capability),
        reclaimable=spec.reclaimable,
        within_queue=rules.within_queue,
        reclaim_across_queues=rules.reclaim_across_queues,
        borrow_across_queues=rules.borrow_across_queues.policy,
        borrow_max_priority=rules.borrow_across_queues.max_priority_threshold,
        min_runtime_preempt_seconds=duration_seconds(rules.min_runtime.preempt),
        min_runtime_reclaim_seconds=duration_seconds(rules.min_runtime.reclaim),
        wait_before_seconds=duration_seconds(rules.wait_before),
        disruption_budget=rules.disruption_budget,
        max_in_flight=rules.max_in_flight,
        stuck_timeout_seconds=duration_seconds(rules.stuck_timeout),
        hold_timeout_seconds=duration_seconds(rules.hold_timeout),
        on_preempted=after.action,
        backoff_base_seconds=duration_seconds(after.backoff.base),
        backoff_max_seconds=duration_seconds(after.backoff.max),
        stop_policy=spec.stop_policy,
    )


def _limits(amounts: Amounts) -> Limits:
    return Limits(amounts.cards_thousandths, amounts.memory_mib, amounts.cores)
