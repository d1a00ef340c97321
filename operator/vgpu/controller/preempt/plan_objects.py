"""Writes plans' objects: created once, their status, their end; each repeated until its outcome is known.

Enters: what a plan's object is to say. Leaves: writes through the writer, one at a time for each plan, the latest
word only. May not live here: what a plan does next, when it ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from vgpu.api.conditions import Condition
from vgpu.api.preemption import PreemptionStatus, Successor
from vgpu.controller.preempt.bodies import (
    PreemptionWrite,
    ended_condition,
    partial_condition,
    preemption_status,
)
from vgpu.controller.preempt.creating import CreatesPreemptions, ReadPreemption, create_or_take
from vgpu.controller.preempt.jobs import Jobs
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.facts import OwnerKind, PlanFact, Victim, Workload
from vgpu.core.preempt.plan import End, PlanEnd, key_of
from vgpu.errors import ApiRefused, ApiUnavailable, LeaseRunsOut, MalformedObject, NotLeading, OutcomeUnknown
from vgpu.kube.backoff import Backoff
from vgpu.kube.objects import Key

LOG = logging.getLogger(__name__)
GONE = frozenset({404, 409, 422})
Records = Callable[[Sequence[Victim]], Awaitable[Mapping[str, str]]]
"""By uid of a victim that nobody would bring back: how it is created again. Read before its eviction."""


class PlanWriter(CreatesPreemptions, Protocol):
    """Where plans go; the operator's writer. Both raise ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""

    async def apply_preemption_status(self, plan: Key, status: Mapping[str, Any]) -> None:
        """Replace the plan's status."""


@dataclass(frozen=True, slots=True)
class ObjectParts:
    """What it works with. `wanted`: do these pods still wait for their plan? `created` and `refused` tell what
    became of a creation, `refused` with what the API server says against it, "" = nothing, and whether it is tried
    again by itself."""

    writer: PlanWriter
    read: ReadPreemption
    records: Records
    wanted: Callable[[PreemptionWrite], bool]
    created: Callable[[PlanFact], None]
    refused: Callable[[PreemptionWrite, str, bool], None]
    unix_seconds: Callable[[], int]


class PlanObjects:
    """See the module."""

    def __init__(self, parts: ObjectParts) -> None:
        self._parts = parts
        self._jobs = Jobs("plans")
        self._words: dict[str, tuple[Key, Mapping[str, Any]]] = {}
        self._partial: dict[str, Condition] = {}
        self._said_partial: dict[str, str] = {}

    def create(self, write: PreemptionWrite, after: Sequence[str]) -> None:
        """Create this plan's object once the objects of `after` (NS/NAME) say that those plans are over."""
        name = f"{write.namespace}/{write.name}"
        self._jobs.start(f"create {name}", lambda: self._create(name, write, list(after)))

    def say(self, plan: PlanFact, waits_for: str) -> None:
        """Let the plan's status say what `plan` does, and whether its gang runs in part."""
        partial = self._partial_of(plan)
        if partial or plan.partial or plan.uid in self._said_partial:
            self._said_partial[plan.uid] = partial.message if partial else ""
        status = preemption_status(
            plan.phase,
            waits_for=waits_for,
            evictions_sent=plan.evictions_sent,
            debts=plan.debts,
            conditions=[partial] if partial else [],
        )
        self._write(plan, status)

    def note_partial(self, gang: str, why: str) -> None:
        """Too few of this gang are bound, and what is told of it; "" = that is not so, or no longer."""
        known = self._partial.get(gang)
        if not why:
            self._partial.pop(gang, None)
        elif known is None:
            self._partial[gang] = partial_condition(why, self._parts.unix_seconds())
        else:
            self._partial[gang] = known.model_copy(update={"message": why})

    def denies_partial(self, plan: PlanFact) -> bool:
        """True when the plan's object says otherwise than it is how its gang runs in part."""
        said, partial = self._said_partial.get(plan.uid, plan.partial), self._partial_of(plan)
        return said != (partial.message if partial else "")

    def finish(self, ended: PlanFact, end: End) -> None:
        """The plan is over, and its object says so while it carries debts; it is deleted by who settles them. One
        that was taken over says so in any case: the plan that takes its cards waits for that word."""
        self._said_partial.pop(ended.uid, None)
        if not ended.debts and end.reason is not PlanEnd.TAKEN_OVER:
            self._words.pop(key_of(ended), None)
            return
        condition = ended_condition(end, self._parts.unix_seconds())
        status = preemption_status(
            ended.phase, evictions_sent=ended.evictions_sent, debts=ended.debts, conditions=[condition]
        )
        self._write(ended, status)

    async def close(self) -> None:
        """Stop; what is in the air may still be carried out."""
        await self._jobs.close()

    def _partial_of(self, plan: PlanFact) -> Condition | None:
        return self._partial.get(plan.owner_name) if plan.owner_kind is OwnerKind.GANG else None

    def _write(self, plan: PlanFact, status: Mapping[str, Any]) -> None:
        name = key_of(plan)
        seats = PreemptionStatus(successors=tuple(Successor(lost=lost, uid=uid) for lost, uid in plan.successors))
        self._words[name] = (Key(plan.namespace, plan.name, plan.uid), {**status, **seats.dump()})
        self._jobs.start(name, lambda: self._say_all(name))

    async def _say_all(self, name: str) -> None:
        """Until the latest word is written; one that came meanwhile replaces the one before."""
        backoff = Backoff(0.1, 5.0)
        while name in self._words:
            word = self._words[name]
            known = await self._say(*word)
            if known and self._words.get(name) == word:
                del self._words[name]
            elif not known:
                await asyncio.sleep(backoff.next_seconds())

    async def _say(self, plan: Key, status: Mapping[str, Any]) -> bool:
        """False when it is to be written again."""
        try:
            await self._parts.writer.apply_preemption_status(plan, status)
        except ApiRefused as error:
            if error.status not in GONE:
                LOG.warning("plan %s/%s cannot be written: %s", plan.namespace, plan.name, error)
        except NotLeading:
            return True
        except (ApiUnavailable, OutcomeUnknown) as error:
            LOG.info("plan %s/%s not written yet: %s", plan.namespace, plan.name, error)
            return False
        return True

    async def _create(self, name: str, write: PreemptionWrite, after: list[str]) -> None:
        await self._jobs.finished(after)
        found, why = None, ""
        try:
            found = await self._created(write)
        except (ApiRefused, MalformedObject) as error:
            LOG.warning("plan %s was not created: %s", name, error)
            why = str(error)
        except NotLeading as error:
            LOG.info("plan %s was not created: %s", name, error)
        if found is None:
            self._parts.refused(write, why, False)
        else:
            self._parts.created(found)

    async def _created(self, write: PreemptionWrite) -> PlanFact | None:
        """None when nobody waits for it any more. Should a try be carried out later, the watch shows the plan,
        and it ends as one whose owner is gone."""
        backoff = Backoff(0.1, 2.0)
        records: Mapping[str, str] | None = None
        while self._parts.wanted(write):
            try:
                if records is None:
                    records = await self._parts.records(write.plan.victims)
                    write = replace(write, records=records)
                return (await create_or_take(self._parts.writer, self._parts.read, write)).fact
            except (ApiUnavailable, OutcomeUnknown) as error:
                LOG.info("plan %s/%s not created yet: %s", write.namespace, write.name, error)
                if not isinstance(error, LeaseRunsOut):
                    self._parts.refused(write, str(error), True)
            await asyncio.sleep(backoff.next_seconds())
        return None


def write_of(
    pods: Sequence[Workload], plan: Plan, next_generation: Callable[[OwnerKind, str, Sequence[str]], int]
) -> PreemptionWrite:
    """What is written for this plan of these pods."""
    first, uids = pods[0], tuple(pod.uid for pod in pods)
    gang = first.gang if first.gang is not None and first.gang.minimum > 1 else None
    kind, name = (OwnerKind.POD, first.name) if gang is None else (OwnerKind.GANG, gang.key)
    return PreemptionWrite(first.namespace, kind, name, uids, next_generation(kind, name, uids), plan)
