"""What the owner of evicted pods says now: how many pods it wants, or that it wants none any more.

Enters: a debt, the JSON of its owner, read once. Leaves: wanted pods, or why the debt is settled. Kinds that are
not listed here are not read. May not live here: when to ask.
"""

import logging
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from pydantic import ValidationError

from vgpu.controller.translate.partial import Condition, Metadata, Partial
from vgpu.core.preempt.facts import Debt
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject

LOG = logging.getLogger(__name__)
NOT_FOUND = 404


class Reader(Protocol):
    """Reads one object by its API path."""

    async def get(self, path: str) -> bytes:
        """The object's JSON. Raises ApiRefused, ApiUnavailable."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """So many pods the owner wants at one time now. `why` tells what a 0 rests on."""

    pods: int
    why: str = ""


class _Spec(Partial):
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class _Status(Partial):
    succeeded: int | None = None
    conditions: list[Condition] | None = None


class _Owner(Partial):
    metadata: Metadata
    spec: _Spec | None = None
    status: _Status | None = None


_PATHS = {
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/{}/jobs/{}",
    ("apps/v1", "ReplicaSet"): "/apis/apps/v1/namespaces/{}/replicasets/{}",
    ("apps/v1", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets/{}",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/{}/deployments/{}",
}
JOB_OVER = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")


def path_of(debt: Debt) -> str | None:
    """Where its owner is read; None for a kind that we cannot read: then only its pods tell. A status may be older
    than this process, and a name in it any text."""
    path = _PATHS.get((debt.api_version, debt.kind))
    return None if path is None else path.format(quote(debt.namespace, safe=""), quote(debt.name, safe=""))


def wanted_by(raw: bytes, debt: Debt) -> Wanted:
    """How many pods the owner wants now. Raises MalformedObject when it cannot be read."""
    try:
        owner = _Owner.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(f"{debt.kind} {debt.namespace}/{debt.name}: {error.errors()[0]['msg']}") from error
    if owner.metadata.uid != debt.uid:
        return Wanted(0, "another one bears its name")
    if owner.metadata.deletion_timestamp is not None:
        return Wanted(0, "it is being deleted")
    return _by_job(owner) if debt.kind == "Job" else _by_replicas(owner)


async def ask_owner(reader: Reader, debt: Debt) -> Wanted | None:
    """Read the owner once. None = the API gives no answer now. One that may not be read is owed nothing: nobody
    could tell when it is paid."""
    path = path_of(debt)
    if path is None:
        return None
    try:
        return wanted_by(await reader.get(path), debt)
    except ApiRefused as refusal:
        if refusal.status == NOT_FOUND:
            return Wanted(0, "it is gone")
        LOG.warning("owner cannot be read %s=%s/%s: %s", debt.kind, debt.namespace, debt.name, refusal)
        return Wanted(0, "it cannot be read")
    except MalformedObject as error:
        return Wanted(0, str(error))
    except ApiUnavailable:
        return None


def _by_replicas(owner: _Owner) -> Wanted:
    replicas = owner.spec.replicas if owner.spec is not None else None
    return Wanted(1 if replicas is None else replicas, "it wants no pods")


def _by_job(owner: _Owner) -> Wanted:
    spec, status = owner.spec or _Spec(), owner.status or _Status()
    over = [one.type for one in status.conditions or () if one.type in JOB_OVER and one.status == "True"]
    if over:
        return Wanted(0, f"it is over ({over[0]})")
    if spec.suspend:
        return Wanted(0, "it is suspended")
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        # Without a number of completions the first success ends it: it starts no pod more.
        return Wanted(0 if status.succeeded else parallelism, "a pod of it has succeeded")
    return Wanted(min(parallelism, max(0, spec.completions - (status.succeeded or 0))), "all of it is done")
