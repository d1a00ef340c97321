"""GpuQueue: whose share of the cluster is how large, and who may take it back (preemption.md 4.1).

JSON enters and leaves; a field that is not given has the default stated here. What a queue means for a pod
is decided elsewhere.
"""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from vgpu import names
from vgpu.api.conditions import Condition
from vgpu.api.model import LIST_MAP_BY_TYPE, ApiModel, Count, Flag, Integer, Metadata, read_json, rules
from vgpu.core.preempt.facts import (
    BorrowPolicy,
    DisruptionBudget,
    PreemptedAction,
    ReclaimAcrossQueues,
    StopPolicy,
    WithinQueue,
)

CARDS_PATTERN = r"^([0-9]{1,6}([.][0-9]{1,3})?|[0-9]{1,9}m)$"
CARDS_MESSAGE = "cards must be a number of cards such as 4, 250m or '0.5', a fraction in quotes"
DURATION_PATTERN = r"^([0-9]{1,6}[hms]){1,3}$"
DURATION_MESSAGE = "must be a duration of hours, minutes and seconds such as 90s, 5m or 1h30m, without spaces"
_SECONDS = {"h": 3600, "m": 60, "s": 1}


def _a_duration(text: str) -> str:
    if re.fullmatch(DURATION_PATTERN, text) is None:
        raise ValueError(DURATION_MESSAGE)
    return text


# A rule in place of a pattern: the API server would answer a pattern's regular expression.
Duration = Annotated[
    str,
    AfterValidator(_a_duration),
    Field(max_length=21, json_schema_extra=rules((f"self.matches('{DURATION_PATTERN}')", DURATION_MESSAGE))),
]
Priority = Annotated[Integer, Field(ge=-(2**31), le=2**31 - 1)]


def duration_seconds(text: str) -> int:
    """Seconds in a duration such as "90s", "5m" or "1h30m"."""
    return sum(int(count) * _SECONDS[unit] for count, unit in re.findall(r"([0-9]+)([hms])", text))


class Amounts(ApiModel):
    """Amounts of the three dimensions; one that is absent is not stated."""

    cards: Annotated[str, Field(pattern=CARDS_PATTERN)] | None = Field(
        None,
        description="number of cards, written as one value such as 4, 250m (a quarter) or '0.5' (in quotes: "
        "without them it is refused), not as a map",
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "maxLength": 10,
            **rules((f"string(self).matches('{CARDS_PATTERN}')", CARDS_MESSAGE)),
        },
    )
    memory_mib: Count | None = Field(None, description="MiB of card memory, a whole number without a unit")
    cores: Count | None = Field(None, description="percent of a card's compute, 100 for each whole card")

    @field_validator("cards", mode="before")
    @classmethod
    def _a_whole_number_is_text_too(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @property
    def cards_thousandths(self) -> int | None:
        """`cards` in thousandths of a card."""
        if self.cards is None:
            return None
        if self.cards.endswith("m"):
            return int(self.cards[:-1])
        whole, _, part = self.cards.partition(".")
        return int(whole) * 1000 + int(part.ljust(3, "0"))


class BorrowAcrossQueues(ApiModel):
    """Evicting for borrowed capacity."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.maxPriorityThreshold) || (has(self.policy) && self.policy == 'LowerPriority')",
                "maxPriorityThreshold needs policy LowerPriority",
            )
        )
    )

    policy: BorrowPolicy = BorrowPolicy.NEVER
    max_priority_threshold: Priority | None = Field(None, description="only victims of at most this priority")


class MinRuntime(ApiModel):
    """How long a pod is safe after its start."""

    preempt: Duration = Field("0s", description="from eviction for a higher priority; such as 90s, 5m or 1h30m")
    reclaim: Duration = Field("0s", description="from eviction by a queue that takes back its own; such as 5m")


class QueuePreemption(ApiModel):
    """Who may evict whom, when, and how fast."""

    within_queue: WithinQueue = WithinQueue.LOWER_PRIORITY
    reclaim_across_queues: ReclaimAcrossQueues = ReclaimAcrossQueues.ANY
    borrow_across_queues: BorrowAcrossQueues = BorrowAcrossQueues()
    min_runtime: MinRuntime = MinRuntime()
    wait_before: Duration = Field("0s", description="pending time before anything is evicted, such as 30s")
    disruption_budget: DisruptionBudget = DisruptionBudget.RESPECT
    max_in_flight: Annotated[Integer, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="evictions running at once; absent is unlimited"
    )
    stuck_timeout: Duration = Field(
        "60s", description="after a victim's own grace period has ended, before the plan moves on"
    )
    hold_timeout: Duration = Field(
        "5m", description="after the last victim left or was declared stuck, until all members are bound"
    )


class Backoff(ApiModel):
    """Waiting time of a requeued workload: `base`, doubled each time up to `max`."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                # A base or max that is none has its own message.
                f"!self.base.matches('{DURATION_PATTERN}') || !self.max.matches('{DURATION_PATTERN}') || "
                "duration(self.base) <= duration(self.max)",
                "base must be at most max",
            )
        )
    )

    base: Duration = Field(description="first waiting time, such as 10s")
    max: Duration = Field(description="longest waiting time, such as 5m")


class OnPreempted(ApiModel):
    """What becomes of an evicted workload of this queue."""

    action: PreemptedAction = PreemptedAction.REQUEUE
    backoff: Backoff = Backoff(base="10s", max="5m")


def _at_most(lower: str, upper: str, *, upper_needed: bool) -> list[tuple[str, str]]:
    """Rules that hold `lower` <= `upper` in each dimension."""
    pairs = []
    for field in ("cards", "memoryMiB", "cores"):
        a, b = f"self.{lower}.{field}", f"self.{upper}.{field}"
        order = (
            f"quantity(string({a})).compareTo(quantity(string({b}))) <= 0" if field == "cards" else f"{a} <= {b}"
        )
        there = f"has(self.{upper}) && has({b})"
        bound = f"({there} && {order})" if upper_needed else f"!({there}) || {order}"
        pairs.append(
            (
                f"!has(self.{lower}) || !has({a}) || {bound}",
                f"{lower}.{field} must be at most {upper}.{field}",
            )
        )
    return pairs


class QueueSpec(ApiModel):
    """guarantee <= deserved <= capability in each dimension."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *_at_most("guarantee", "deserved", upper_needed=True),
            *_at_most("deserved", "capability", upper_needed=False),
            *_at_most("guarantee", "capability", upper_needed=False),
        )
    )

    priority: Priority = Field(0, description="served first, reclaimed last")
    guarantee: Amounts = Field(Amounts(), description="never reclaimed below this, not lent")
    deserved: Amounts = Field(Amounts(), description="entitlement; may be lent and taken back")
    capability: Amounts = Field(Amounts(), description="hard cap; a dimension that is absent has none")
    reclaimable: Flag = Field(True, description="may lose borrowed work")
    preemption: QueuePreemption = QueuePreemption()
    on_preempted: OnPreempted = OnPreempted()
    stop_policy: StopPolicy = StopPolicy.NONE


class QueueStatus(ApiModel):
    """Written by the operator alone."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        (), description="what holds of the queue now", json_schema_extra=LIST_MAP_BY_TYPE
    )
    used: Amounts = Field(Amounts(), description="what its running pods are charged")
    entitled: Amounts = Field(Amounts(), description="the part of it that nobody may take back")
    borrowed: Amounts = Field(Amounts(), description="the part of it that others may take back")
    pending: Amounts = Field(Amounts(), description="what its waiting pods would take of the smallest cards")
    pending_pods: Count = Field(0, description="pods of the queue that wait")


class GpuQueue(ApiModel):
    """Whose share of the cluster is how large, and who may take it back."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self.metadata.name.size() <= 63", "a queue's name is used in labels: at most 63 characters")
        )
    )

    api_version: str = names.API_VERSION
    kind: str = names.QUEUE_KIND
    metadata: Metadata = Metadata()
    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None


def parse_queue(text: str | bytes) -> GpuQueue:
    """Read one object as the API server sends it. Raises MalformedObject that names the first wrong field."""
    return read_json(GpuQueue, text, names.QUEUE_KIND)
