"""Sends owners of reservations to their cards: a nomination in the ledger, and one patch that wakes the pod.

Enters: uids with their placements. Leaves: nominations that are held for a few seconds, writes at a pace of their
own. Limits per pod are the plan's (core.preempt.plan_step). May not live here: who is sent where.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from vgpu.controller.clock import wake_count
from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys, Pace
from vgpu.controller.preempt.jobs import Jobs
from vgpu.controller.when_open import when_open
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.kube.objects import Key

LOG = logging.getLogger(__name__)
PER_SECOND = 200


class NominationWriter(Protocol):
    """Where nominations go; the operator's writer."""

    async def nominate(self, pod: Key, node: str | None, wake: int) -> None:
        """Patch the pod's status. Raises ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""


class Sender:
    """See the module. `changed` is called when what is held for a pod has lapsed."""

    def __init__(
        self, ledger: Ledger, writer: NominationWriter, held_seconds: float, changed: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._writer = writer
        self._held_seconds = held_seconds
        self._changed = changed
        self._pace = Pace(PER_SECOND)
        self._jobs = Jobs("preemption: nominations")
        self._held: DueKeys[str] = DueKeys()

    def send(self, uid: str, placement: Placement) -> bool:
        """Hold the placement for the pod and wake it. False: it waits no longer."""
        pod = self._ledger.pod(uid)
        if pod is None or not self._ledger.nominate(uid, placement.node, placement):
            return False
        self._held.discard(uid)
        self._held.add(uid, asyncio.get_running_loop().time() + self._held_seconds)
        key = Key(pod.namespace, pod.name, uid)
        self._jobs.start(uid, lambda: self._write(key))
        return True

    def drop(self, uid: str) -> None:
        """Hold nothing for the pod any more."""
        self._held.discard(uid)
        self._ledger.drop_nomination(uid)

    async def expire(self) -> None:
        """Give up what has been held for too long. Runs until cancelled."""
        while True:
            uid = await self._held.next()
            with one_object("preemption: expire", uid):
                if self._ledger.drop_nomination(uid):
                    self._changed()

    async def close(self) -> None:
        """Stop; what is in the air may still be carried out."""
        await self._jobs.close()

    async def _write(self, pod: Key) -> None:
        await self._pace.turn()
        held = self._ledger.nomination(pod.uid)
        if held is None:
            return
        node = held.node
        try:
            await when_open(lambda: self._writer.nominate(pod, node, wake_count()))
        except (ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            # What is held ends by its time-out, and the plan sends the pod again.
            LOG.info("nomination failed pod=%s/%s node=%s: %s", pod.namespace, pod.name, node, error)
            return
        LOG.info("sent pod=%s/%s node=%s to the cards held for it", pod.namespace, pod.name, node)
