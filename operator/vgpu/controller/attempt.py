"""One assignment being written: sent, read back, and settled. The small state machine behind the binder.

Enters: a booking (or none, for a pod without cards), how to send it, how to read the pod. Leaves: "" when the pod
carries it, else why not; the booking is ended only when it is known not to have been carried out (architecture.md
4). May not live here: choosing cards, deadlines of callers.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

from vgpu.controller.clock import Clock
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Booking, Ledger
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject, NotLeading, OutcomeUnknown
from vgpu.kube.backoff import Backoff
from vgpu.kube.objects import Key

SETTLED_SECONDS = 60.0
"""The API server ends every request after this time at the latest, so what was sent and is not seen by then will
not be carried out. It also stops what our own ?timeout= did not."""
TOO_MANY_REQUESTS = 429
NOT_FOUND = 404


class Sent(Enum):
    """What is known right after one try."""

    DONE = auto()
    REFUSED = auto()
    TURNED_AWAY = auto()
    """Nothing was written; another try may do."""
    FENCED = auto()
    """Nothing was sent: this process may not write now."""
    UNKNOWN = auto()


class Seen(Enum):
    """What the pod itself says."""

    LANDED = auto()
    ABSENT = auto()
    """The pod is as before: what was sent may still be carried out."""
    OTHERWISE = auto()
    """Bound, assigned or ended in a way that excludes ours."""
    UNREADABLE = auto()


@dataclass(frozen=True, slots=True)
class Shell:
    """The outside of an attempt."""

    ledger: Ledger
    clock: Clock
    read_pod: Callable[[str, str], Awaitable[PodFact]]
    """(namespace, name) -> the pod now. Raises ApiRefused (404: gone), ApiUnavailable, MalformedObject."""


class Attempt:
    """Send until it is known. `callers` counts who waits for the outcome: only then is a binding sent again, as
    kube-scheduler has checked the node anew for them; an assignment of a bound pod needs nobody to wait."""

    def __init__(
        self,
        shell: Shell,
        pod: Key,
        node: str,
        booking: Booking | None,
        send: Callable[[], Awaitable[None]],
    ) -> None:
        self.callers = 0
        self.late = False
        self._shell = shell
        self._pod = pod
        self._node = node
        self._booking = booking
        self._send = send
        self._last = ""
        self._maybe_written = False
        self._sent_at = 0.0
        self._at_least_seconds = 0.0
        self._backoff = Backoff(0.1, 2.0)

    async def run(self) -> str:
        """ "" once the pod carries the assignment; else why it does not. Returns only when it is known."""
        sent = await self._try()
        while True:
            if sent is Sent.DONE:
                return ""
            # What was never sent leaves the pod as it was: no need to read it.
            seen, story = (Seen.ABSENT, "") if self._never_sent(sent) else await self._look()
            if seen is Seen.LANDED:
                return ""
            if seen is Seen.OTHERWISE or (seen is Seen.ABSENT and self._settled(sent)):
                return self._give_up(story or self._last)
            await self._shell.clock.sleep(self._backoff.next_seconds(self._at_least_seconds))
            ended = self._ended_by_event()
            if ended is not None:
                return ended
            if seen is Seen.ABSENT and self._wanted:
                sent = await self._try()

    @property
    def _wanted(self) -> bool:
        return self.late or self.callers > 0

    def _never_sent(self, sent: Sent) -> bool:
        return sent in (Sent.FENCED, Sent.TURNED_AWAY) and not self._maybe_written

    def _settled(self, sent: Sent) -> bool:
        """True when a pod that is as before proves that nothing came of it and nothing will."""
        if not self._maybe_written:
            return sent in (Sent.REFUSED, Sent.FENCED) or not self._wanted
        return self._shell.clock.monotonic() - self._sent_at > SETTLED_SECONDS

    async def _try(self) -> Sent:
        sent_at = self._shell.clock.monotonic()
        try:
            await self._send()
        except NotLeading as error:
            self._last = str(error)
            return Sent.FENCED
        except ApiRefused as error:
            self._last = str(error)
            return Sent.REFUSED
        except ApiUnavailable as error:
            self._last = str(error)
            if error.status in (0, TOO_MANY_REQUESTS):
                self._at_least_seconds = error.retry_after_seconds
                return Sent.TURNED_AWAY
        except OutcomeUnknown as error:
            self._last = str(error)
        else:
            return Sent.DONE
        self._maybe_written = True
        self._sent_at = sent_at
        return Sent.UNKNOWN

    async def _look(self) -> tuple[Seen, str]:
        try:
            fact = await self._shell.read_pod(self._pod.namespace, self._pod.name)
        except ApiRefused as error:
            if error.status == NOT_FOUND:
                return Seen.OTHERWISE, "the pod is gone"
            return Seen.UNREADABLE, ""
        except (ApiUnavailable, MalformedObject):
            return Seen.UNREADABLE, ""
        return self.judge(fact)

    def judge(self, fact: PodFact) -> tuple[Seen, str]:
        """What `fact`, the pod as it is now, says about this attempt, and why it excludes it."""
        if fact.uid != self._pod.uid:
            return Seen.OTHERWISE, "the pod is gone; another one bears its name"
        if self._carried_by(fact):
            return Seen.LANDED, ""
        if fact.ended:
            return Seen.OTHERWISE, f"the pod has ended ({fact.phase.value})"
        if self.late and fact.assignment is not None:
            return Seen.OTHERWISE, "the pod carries another assignment"
        if fact.node and not self.late:
            return Seen.OTHERWISE, f"the pod is bound to {fact.node} by someone else"
        return Seen.ABSENT, ""

    def _carried_by(self, fact: PodFact) -> bool:
        if self._booking is None:
            return fact.node == self._node
        return fact.assignment is not None and fact.assignment.nonce == self._booking.nonce

    def _ended_by_event(self) -> str | None:
        """The outcome when a watch event has ended the booking meanwhile; None when it stands."""
        if self._booking is None:
            return None
        standing = self._shell.ledger.booking(self._pod.uid)
        if standing is not None and standing.nonce == self._booking.nonce:
            return None
        fact = self._shell.ledger.pod(self._pod.uid)
        if fact is None:
            return "the pod is gone"
        seen, story = self.judge(fact)
        return "" if seen is Seen.LANDED else story or self._last

    def _give_up(self, story: str) -> str:
        if self._booking is not None:
            self._shell.ledger.unbook(self._booking.uid, self._booking.nonce)
        return story
