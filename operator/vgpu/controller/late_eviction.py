"""Evicts pods that were bound without an assignment and get no cards where they are; only if a person wants it.

Enters: pods that late assignment refused (core.late_assignment: no container of them ever ran). Leaves: one
Eviction per owner and interval, so that a controller that binds badly again and again is not chased
(architecture.md 5). A pod without an owner is never evicted: nothing would bring it back. Off by default.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys
from vgpu.controller.when_open import MOMENT_SECONDS
from vgpu.core.facts import PodFact
from vgpu.core.late_assignment import is_late_case
from vgpu.core.ledger import Ledger
from vgpu.errors import ApiRefused, ApiUnavailable, LeaseRunsOut, NotLeading, OutcomeUnknown
from vgpu.kube.objects import Key

LOG = logging.getLogger(__name__)


class EvictionSink(Protocol):
    """Where evictions go; the operator's writer."""

    async def evict(self, pod: Key) -> None:
        """Evict this uid. Raises ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""


class LateEvictions:
    """At most one eviction per owner within `interval_seconds`; refused ones are tried again after it."""

    def __init__(
        self,
        ledger: Ledger,
        sink: EvictionSink,
        *,
        enabled: bool,
        interval_seconds: float,
        now: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._sink = sink
        self._enabled = enabled
        self._interval_seconds = interval_seconds
        self._now = now
        self._due: DueKeys[str] = DueKeys()
        self._not_before: dict[str, float] = {}

    def offer(self, pod: PodFact) -> None:
        """This pod was refused cards where it is; evict it when its owner's turn comes."""
        if self._enabled and pod.owner_uid and pod.uid not in self._due:
            self._due.add(pod.uid, max(self._now(), self._not_before.get(pod.owner_uid, 0.0)))

    async def run(self) -> None:
        """Evict what is due. Runs until cancelled."""
        while True:
            uid = await self._due.next()
            with one_object("late evictions", uid):
                pod = self._still_late(uid)
                if pod is not None:
                    await self._evict(pod)

    def _still_late(self, uid: str) -> PodFact | None:
        """The pod, if it is still bound without cards and never ran, and its owner's turn has come."""
        pod = self._ledger.pod(uid)
        view = self._ledger.view(pod.node) if pod is not None else None
        if pod is None or view is None or self._ledger.booking(uid) or not is_late_case(pod, view):
            return None
        turn = self._not_before.get(pod.owner_uid, 0.0)
        if turn > self._now():
            self._due.add(uid, turn)
            return None
        return pod

    async def _evict(self, pod: PodFact) -> None:
        now = self._now()
        self._not_before = {owner: at for owner, at in self._not_before.items() if at > now}
        self._not_before[pod.owner_uid] = now + self._interval_seconds
        try:
            await self._sink.evict(Key(pod.namespace, pod.name, pod.uid))
        except LeaseRunsOut:
            del self._not_before[pod.owner_uid]
            self._due.add(pod.uid, now + MOMENT_SECONDS)
            return
        except (ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            LOG.info("late eviction failed pod=%s/%s: %s", pod.namespace, pod.name, error)
            self._due.add(pod.uid, now + self._interval_seconds)
            return
        LOG.info("evicted pod=%s/%s node=%s: bound without cards, and none fit", pod.namespace, pod.name, pod.node)
