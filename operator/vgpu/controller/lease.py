"""The Lease object: reading it, writing its next state, and how long it has not changed.

Enters: raw Leases, the times at which we saw them. Leaves: bodies to write, and when the Lease is free. May not
live here: requests, waiting, the decision to lead. The times inside a Lease are for people, never compared.
"""

import asyncio
import copy
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json

from vgpu import names
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key
from vgpu.kube.wire import is_older

logger = logging.getLogger(__name__)

Body = dict[str, Any]


class _Meta(BaseModel):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = Field("", alias="resourceVersion")


class _Spec(BaseModel):
    holder: str | None = Field(None, alias="holderIdentity")
    seconds: int | None = Field(None, alias="leaseDurationSeconds")
    transitions: int | None = Field(None, alias="leaseTransitions")


class _Lease(BaseModel):
    metadata: _Meta
    spec: _Spec = _Spec.model_construct(holder=None, seconds=None, transitions=None)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One state of the Lease. `holder` "" means that nobody holds it; `body` is the whole object."""

    resource_version: str
    holder: str
    lease_seconds: float
    transitions: int
    body: Body


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who wants to lead: an identity unique to this start of the process, and where its extender listens."""

    identity: str
    address: str


def decode_lease(raw: bytes) -> Decoded[LeaseRecord]:
    """Read a Lease. Raises MalformedObject."""
    try:
        lease = _Lease.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedObject(f"the Lease cannot be read: {error}") from error
    meta, spec = lease.metadata, lease.spec
    record = LeaseRecord(
        meta.resource_version, spec.holder or "", spec.seconds or 0, spec.transitions or 0, from_json(raw)
    )
    return Decoded(Key(meta.namespace, meta.name, meta.uid), meta.resource_version, record)


def held_body(record: LeaseRecord | None, candidate: Candidate, lease_seconds: float, now: datetime) -> Body:
    """The Lease with `candidate` as its holder, renewed now; a new one, without version, if there is no record.

    The extender's address stands in an annotation of the same write, so that whoever reads one reads the other.
    """
    body = _new_body() if record is None else copy.deepcopy(record.body)
    meta, spec = body["metadata"], body.setdefault("spec", {})
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if record is None or record.holder != candidate.identity:
        spec["acquireTime"] = stamp
        spec["leaseTransitions"] = 0 if record is None else record.transitions + 1
    spec["holderIdentity"] = candidate.identity
    spec["leaseDurationSeconds"] = math.ceil(lease_seconds)
    spec["renewTime"] = stamp
    meta["annotations"] = {**(meta.get("annotations") or {}), names.LEASE_ADDRESS_ANNOTATION: candidate.address}
    return body


def released_body(record: LeaseRecord | None) -> Body:
    """The Lease with no holder and no address."""
    body = _new_body() if record is None else copy.deepcopy(record.body)
    body.setdefault("spec", {})["holderIdentity"] = ""
    (body["metadata"].get("annotations") or {}).pop(names.LEASE_ADDRESS_ANNOTATION, None)
    return body


def _new_body() -> Body:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": {}}


class LeaseView:
    """The Lease as last seen by watch, read or own write, and when it last changed before our eyes (a Sink)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.record: LeaseRecord | None = None
        self.changed = asyncio.Event()
        self._clock = clock
        self._known = False
        self._seen_at: float | None = None

    def free_in_seconds(self, identity: str, lease_seconds: float) -> float:
        """Seconds until `identity` may try to take the Lease if it does not change; inf while nothing is known.

        A Lease that vanished before our eyes is waited out too: its holder may not have noticed. One that was
        never seen is free at once (the first installation).
        """
        if not self._known:
            return math.inf
        if self._seen_at is None or (self.record is not None and self.record.holder in ("", identity)):
            return 0.0
        stated_seconds = self.record.lease_seconds if self.record else 0.0
        return max(0.0, self._seen_at + max(stated_seconds, lease_seconds) - self._clock())

    def held_by_other(self, identity: str) -> bool:
        """Whether the last seen Lease names another holder."""
        return self.record is not None and self.record.holder not in ("", identity)

    def put(self, record: LeaseRecord) -> None:
        """The watch shows this; it may come later than what a read or a write of ours already told."""
        if self.record is None or not is_older(record.resource_version, self.record.resource_version):
            self.learn(record)
        self._known = True

    def learn(self, record: LeaseRecord) -> None:
        """A read or a write of ours was answered with this, whatever its version (etcd may have been restored)."""
        if self.record is None or self.record.resource_version != record.resource_version:
            self.record = record
            self._seen_at = self._clock()
            self.changed.set()

    def drop(self, _: Key) -> None:
        """The Lease was deleted."""
        self.vanished()

    def vanished(self) -> None:
        """There is no Lease now."""
        if self.record is None:
            return
        self.record = None
        self._seen_at = self._clock()
        self.changed.set()

    def malformed(self, key: Key, message: str) -> None:
        """The Lease cannot be read: the last readable one stands."""
        logger.error("lease unreadable name=%s: %s", key.name, message)

    def synced(self) -> None:
        """Now it is known whether there is a Lease."""
        self._known = True
        self.changed.set()
