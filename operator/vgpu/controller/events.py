"""One Event per pending GPU pod and reason code: written when the code changes and has held for a moment.

Enters: the pending pods of the ledger with their current reason. Leaves: Events through the writer, 20 a second
in all. May not live here: the words (core.explain), the API call (the writer).

The same code is told to the same pod at most once in ten minutes, and never again while it does not change. An
Event is named after the pod's uid and the code, so that after a restart the API server itself answers that it
is there already.
"""

import asyncio
import logging
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from vgpu.controller.answers import Answers
from vgpu.controller.fence import Fence
from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys, Pace
from vgpu.controller.told_codes import ToldCodes
from vgpu.controller.writer import EventWrite
from vgpu.controller.writes import event_name
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.reasons import Reason
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.settings import OperatorSettings

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 0.5
"""The least time between two looks at all pending pods."""
RETRY_SECONDS = 5.0


class EventSink(Protocol):
    """Where events go; the operator's writer."""

    async def write_event(self, event: EventWrite) -> None:
        """Create the event, or renew it when it exists. Raises ApiRefused, ApiUnavailable, OutcomeUnknown,
        NotLeading."""


@dataclass(slots=True)
class _Told:
    """What one pod's event code is, and what it has been told last."""

    current: Reason | None = None
    last: Reason | None = None


class EventReporter:
    """Keeps every pending GPU pod's event at its current reason; only while this process leads. `codes`: what
    pods were told by whomever; to be shared with all who tell them the same codes."""

    def __init__(
        self, ledger: Ledger, answers: Answers, sink: EventSink, fence: Fence, settings: OperatorSettings
    ) -> None:
        self._ledger = ledger
        self._answers = answers
        self._sink = sink
        self._fence = fence
        self._settings = settings
        self.codes = ToldCodes(settings.event_repeat_seconds)
        self._pods: dict[str, _Told] = {}
        self._due: DueKeys[str] = DueKeys()
        self._pace = Pace(settings.events_per_second)
        self._changed = asyncio.Event()
        self._reports: asyncio.Queue[tuple[PodFact, Reason, str]] = asyncio.Queue()
        self._reported: set[tuple[str, Reason]] = set()

    def changed(self, changes: Changes | None = None) -> None:
        """The ledger changed: look at the pending pods soon."""
        del changes  # one look serves all
        self._changed.set()

    def report(self, pod: PodFact, reason: Reason, message: str) -> None:
        """Tell once about a pod that does not wait: bound without cards, an assignment that is ignored."""
        if self._fence.leading and (pod.uid, reason) not in self._reported:
            self._reported.add((pod.uid, reason))
            self._reports.put_nowait((pod, reason, message))

    async def tell_reports(self) -> None:
        """Write what was reported. Runs until cancelled."""
        while True:
            pod, reason, message = await self._reports.get()
            if self._ledger.pod(pod.uid) is None:
                continue
            await self._pace.turn()
            written = False
            with one_object("events: reports", f"{pod.namespace}/{pod.name}"):
                written = await self._write(pod, reason, message)
            if not written:
                self._reported.discard((pod.uid, reason))

    async def watch(self) -> None:
        """Look at all pending pods after each change, at most twice a second. Runs until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._fence.leading:
                with one_object("events: watch", "all pending pods"):
                    await self._answers.prepare()
                self.look(asyncio.get_running_loop().time())
            await asyncio.sleep(LOOK_SECONDS)

    def look(self, now: float) -> None:
        """Compare every pending pod's reason with the one known; new reasons become due once they have held."""
        waiting = {pod.uid: pod for pod in self._ledger.pending() if self._answers.concerns_us(pod)}
        for uid in [uid for uid in self._pods if uid not in waiting]:
            del self._pods[uid]
            self._due.discard(uid)
        self.codes.keep_only({pod.uid for pod in self._ledger.pending()})
        self._reported = {key for key in self._reported if self._ledger.pod(key[0]) is not None}
        for uid, pod in waiting.items():
            with one_object("events: watch", f"{pod.namespace}/{pod.name}"):
                self._notice(pod, self._pods.setdefault(uid, _Told()), now)

    def start_over(self) -> None:
        """This process has begun to lead: what has become due before is due now, what was put off too."""
        now = asyncio.get_running_loop().time()
        for uid, told in self._pods.items():
            told.current = None
            self._due.discard(uid)
        self.look(now)

    async def tell(self) -> None:
        """Write the events that are due, one at a time. Runs until cancelled."""
        while True:
            uid = await self._due.next()
            pod = self._ledger.pod(uid)
            if pod is None:
                continue
            with one_object("events: tell", f"{pod.namespace}/{pod.name}") as attempt:
                if self._is_news(pod):
                    await self._pace.turn()
                    await self._tell(pod)
            if attempt.failed and (told := self._pods.get(uid)) is not None:
                told.current = None  # its next look makes it due again

    def _notice(self, pod: PodFact, told: _Told, now: float) -> None:
        reason = self._answers.reason(pod)
        if reason is told.current:
            return
        told.current = reason
        self._due.discard(pod.uid)
        if reason is None or reason is told.last:
            return
        self._due.add(pod.uid, now + self._settings.event_settle_seconds)

    def _is_news(self, pod: PodFact) -> bool:
        """False when the pod no longer waits for the reason that became due; a new one gets its own turn."""
        told = self._pods.get(pod.uid)
        if told is None or not self._fence.leading or not self._answers.concerns_us(pod):
            return False
        reason = self._answers.reason(pod)
        if reason is not told.current:
            self.changed()
            return False
        if reason is None or reason is told.last:
            return False
        again_at = self.codes.again_at(pod.uid, reason.value)
        if again_at > asyncio.get_running_loop().time():
            self._due.add(pod.uid, again_at)
            return False
        return True

    async def _tell(self, pod: PodFact) -> None:
        verdict = self._answers.verdict(pod)
        told = self._pods.get(pod.uid)
        if verdict.reason is None or told is None:
            return
        now, code, written = asyncio.get_running_loop().time(), verdict.reason.value, False
        before = self.codes.tell(pod.uid, code, now)
        try:
            written = await self._write(pod, verdict.reason, verdict.message, again=before is not None)
        finally:
            if not written:
                self.codes.failed(pod.uid, code, before)
        if written:
            told.last = verdict.reason
        else:
            self._due.add(pod.uid, now + RETRY_SECONDS)

    async def _write(self, pod: PodFact, reason: Reason, message: str, *, again: bool = False) -> bool:
        """False when it should be tried again."""
        try:
            await self._sink.write_event(pod_event(pod, reason, message, again=again))
        except ApiRefused as error:
            LOG.warning("event refused pod=%s/%s reason=%s: %s", pod.namespace, pod.name, reason, error)
        except (ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            LOG.info("event put off pod=%s/%s reason=%s: %s", pod.namespace, pod.name, reason, error)
            return False
        return True


def pod_event(pod: PodFact, reason: Reason, message: str, *, again: bool = False) -> EventWrite:
    """The event that tells `pod` about `reason`; equal for every process that would write it.

    Unless it is told `again` after a while, one that stands there from before a restart is left as it is.
    """
    digest = sha256(f"{pod.uid}/{reason.value}".encode()).hexdigest()[:16]
    return EventWrite(
        namespace=pod.namespace,
        name=event_name(pod.name, digest),
        object_name=pod.name,
        object_uid=pod.uid,
        reason=reason.value,
        message=message,
        if_absent=not again,
    )
