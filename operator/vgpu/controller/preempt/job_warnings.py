"""Warns the owner of a Job whose pod was evicted: without a rule for it, the eviction counts against backoffLimit.

Enters: evicted workloads. Leaves: one read of the Job and one Event on it, for each Job and plan. Where the Job
ignores disruptions, or is of a kind that we do not know, nobody is told anything. May not live here: evictions.
"""

import logging
from typing import Protocol

from pydantic import ValidationError

from vgpu.controller.preempt.jobs import Jobs
from vgpu.controller.preempt.told import Told
from vgpu.controller.translate.partial import Metadata, Partial
from vgpu.controller.writes import EventWrite, event_name
from vgpu.core.preempt.facts import Workload
from vgpu.errors import ApiRefused, ApiUnavailable

LOG = logging.getLogger(__name__)
JOB = "Job"
BATCH = "batch/v1"
ONE_JOB = "/apis/batch/v1/namespaces/{}/jobs/{}"
DISRUPTION_TARGET = "DisruptionTarget"
IGNORE = "Ignore"
EVICTION_COUNTS = "EvictionCounts"


class Reader(Protocol):
    """Reads one object by its API path."""

    async def get(self, path: str) -> bytes:
        """The object's JSON. Raises ApiRefused, ApiUnavailable."""


class _Pattern(Partial):
    type: str = ""


class _Rule(Partial):
    action: str = ""
    on_pod_conditions: list[_Pattern] | None = None


class _Policy(Partial):
    rules: list[_Rule] | None = None


class _JobSpec(Partial):
    backoff_limit: int | None = None
    pod_failure_policy: _Policy | None = None


class _Job(Partial):
    metadata: Metadata
    spec: _JobSpec | None = None


class JobWarnings:
    """See the module."""

    def __init__(self, reader: Reader, told: Told) -> None:
        self._reader = reader
        self._told = told
        self._jobs = Jobs("preemption: Jobs")

    def evicted(self, victim: Workload, by: str) -> None:
        """This pod's eviction was accepted, for a plan or whoever ordered it."""
        if victim.owner.kind == JOB and victim.owner.api_version in ("", BATCH):
            self._jobs.start(f"{victim.owner.uid} {by}", lambda: self._warn(victim, by))

    async def close(self) -> None:
        """Stop."""
        await self._jobs.close()

    async def _warn(self, victim: Workload, by: str) -> None:
        try:
            raw = await self._reader.get(ONE_JOB.format(victim.namespace, victim.owner.name))
            job = _Job.model_validate_json(raw)
        except (ApiRefused, ApiUnavailable, ValidationError) as error:
            LOG.info("job of evicted pod=%s not read: %s", victim.pod, error)
            return
        if job.metadata.uid == victim.owner.uid and not ignores_disruptions(job):
            self._told.soon(_event(victim, job, by))


def ignores_disruptions(job: _Job) -> bool:
    """True when the first rule that an evicted pod matches ignores it."""
    policy = job.spec.pod_failure_policy if job.spec is not None else None
    for rule in (policy.rules if policy is not None else None) or ():
        if any(pattern.type == DISRUPTION_TARGET for pattern in rule.on_pod_conditions or ()):
            return rule.action == IGNORE
    return False


def _event(victim: Workload, job: _Job, by: str) -> EventWrite:
    limit = job.spec.backoff_limit if job.spec is not None else None
    allowed = "its backoffLimit" if limit is None else f"its backoffLimit of {limit}"
    message = (
        f"pod {victim.name} was evicted for {by}, and that counts against {allowed}: give it a podFailurePolicy "
        f"with the rule {IGNORE} for the pod condition {DISRUPTION_TARGET}"
    )
    return EventWrite(
        namespace=victim.namespace,
        name=event_name(victim.owner.name, EVICTION_COUNTS.lower()),
        object_name=victim.owner.name,
        object_uid=victim.owner.uid,
        reason=EVICTION_COUNTS,
        message=message,
        api_version=BATCH,
        kind=JOB,
    )
