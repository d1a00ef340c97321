"""Evicted bare pods come back: the plan's object keeps their manifests, they are created again when there is room.

Enters: victims before their eviction, plans with records, debts. Leaves: records for a plan to be created, pods
that are absent and owed, creations. Only with the setting recreate_bare_pods. May not live here: whose turn it is.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from vgpu.controller.preempt.debt_book import DebtBook
from vgpu.controller.preempt.owners import Reader
from vgpu.controller.preempt.records import body_of, record_of, waiting_pod
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.debts import BARE_POD, creditor
from vgpu.core.preempt.facts import Debt, PlanFact, Victim, Workload
from vgpu.core.preempt.roster import Roster
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject, NotLeading, OutcomeUnknown
from vgpu.kube.objects import Decoded

LOG = logging.getLogger(__name__)
NAME_TAKEN = 409
NAMESPACE_GONE = 404


class PodCreator(Protocol):
    """The one write of this file; the operator's writer."""

    async def create_pod(self, namespace: str, body: dict[str, Any]) -> bytes:
        """Create the pod. Raises ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""


@dataclass(frozen=True, slots=True)
class BareParts:
    """What bare pods are brought back with. `enabled`: the setting recreate_bare_pods."""

    ledger: Ledger
    roster: Roster
    book: DebtBook
    reader: Reader
    writer: PodCreator
    decode_pod: Callable[[bytes], Decoded[PodFact]]
    enabled: bool


@dataclass(frozen=True, slots=True)
class _Record:
    text: str
    pod: PodFact
    creditor: str


class BarePods:
    """See the module. A pod is meant by the uid that it had when it was evicted."""

    def __init__(self, parts: BareParts) -> None:
        self._parts = parts
        self._records: dict[str, _Record] = {}
        self._created: set[str] = set()

    async def records(self, victims: Iterable[Victim]) -> dict[str, str]:
        """How those of the victims that are bare pods are created again, by uid; for the plan's object.

        Raises ApiRefused (404: a victim is gone), ApiUnavailable, MalformedObject: then nobody may be evicted.
        """
        found: dict[str, str] = {}
        for victim in victims if self._parts.enabled else ():
            workload = self._parts.roster.workloads.get(victim.uid)
            if workload is not None and workload.bare and workload.evict_opt_in:
                found[victim.uid] = await self._record(workload)
        return found

    async def _record(self, victim: Workload) -> str:
        raw = await self._parts.reader.get(f"/api/v1/namespaces/{victim.namespace}/pods/{victim.name}")
        if self._parts.decode_pod(raw).key.uid != victim.uid:
            raise MalformedObject(f"pod {victim.pod} is another one by now")
        return record_of(raw)

    def put(self, plan: PlanFact) -> None:
        """Take in the plan's records; one that cannot be read is told and left out."""
        for uid, text in plan.records:
            if uid in self._records:
                continue
            try:
                pod = self._parts.decode_pod(waiting_pod(text, uid)).fact
            except MalformedObject as error:
                LOG.warning("evicted pod cannot come back plan=%s/%s: %s", plan.namespace, plan.name, error)
                continue
            self._records[uid] = _Record(text, pod, creditor(pod.namespace, pod.name, ""))

    def drop(self, plan: PlanFact) -> None:
        """The plan's object is gone."""
        for uid, _ in plan.records:
            self._records.pop(uid, None)
            self._created.discard(uid)

    def debt(self, uid: str) -> Debt | None:
        """What is owed to the evicted pod, as far as its record tells; None without one."""
        record = self._records.get(uid)
        if record is None:
            return None
        pod = record.pod
        return Debt(
            uid, BARE_POD, pod.namespace, pod.name, pod.queue, f"priority {pod.priority}", api_version="v1"
        )

    def has_record(self, uid: str) -> bool:
        """True when the pod can be created again."""
        return self._parts.enabled and uid in self._records

    def was_created(self, whose: str) -> bool:
        """True when the pod of this creditor was created again by this process."""
        return any(self.creditor_of(uid) == whose for uid in self._created)

    def is_absent(self, uid: str) -> bool:
        """True while this evicted pod is owed, and none of its name is there."""
        record = self._records.get(uid)
        if record is None or not self._parts.enabled or uid in self._created:
            return False
        named = self._parts.ledger.find_pod(record.pod.namespace, record.pod.name)
        return named is None and self._parts.book.owes(record.creditor)

    def absent(self) -> list[PodFact]:
        """Pods that are to be created when there is room."""
        return [record.pod for uid, record in self._records.items() if self.is_absent(uid)]

    def creditor_of(self, uid: str) -> str:
        """NS/NAME of the evicted pod, "" when it has no record."""
        record = self._records.get(uid)
        return "" if record is None else record.creditor

    def queue_of(self, uid: str) -> str:
        """The queue that the evicted pod named."""
        record = self._records.get(uid)
        return "" if record is None else record.pod.queue

    async def create(self, pod: PodFact) -> bool:
        """Create it again. False when that was refused for now: it is tried again."""
        record = self._records.get(pod.uid)
        if record is None:
            return True
        try:
            await self._parts.writer.create_pod(pod.namespace, body_of(record.text))
        except ApiRefused as refusal:
            if refusal.status not in (NAME_TAKEN, NAMESPACE_GONE):
                # A quota, a missing right, an admission webhook: each may change, and the record is all there is.
                LOG.warning("evicted pod not created again pod=%s/%s: %s", pod.namespace, pod.name, refusal)
                return False
            LOG.info("evicted pod not created again pod=%s/%s: %s", pod.namespace, pod.name, refusal)
            self._created.add(pod.uid)
            if refusal.status == NAMESPACE_GONE:
                self._parts.book.settle(record.creditor)
            return True
        except (ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            LOG.info("evicted pod not created again pod=%s/%s: %s", pod.namespace, pod.name, error)
            return isinstance(error, OutcomeUnknown)  # it may be there, and be seen in a moment
        self._created.add(pod.uid)
        LOG.info("created again pod=%s/%s", pod.namespace, pod.name)
        return True
