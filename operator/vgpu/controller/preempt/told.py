"""What people are told about preemption: events on victims, on preemptors, and on pods for which nobody goes.

Enters: plans, workloads, verdicts. Leaves: Events through the writer, so many a second. A victim's is written
at once, beside its eviction; all others may come later. May not live here: the words (core.preempt.words),
decisions.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from vgpu.controller.events import EventSink
from vgpu.controller.guard import one_object
from vgpu.controller.pacing import DueKeys, Pace
from vgpu.controller.told_codes import ToldCodes
from vgpu.controller.when_open import when_open
from vgpu.controller.writes import EventWrite, event_name
from vgpu.core.explain import clip
from vgpu.core.preempt.eligible import Standing, may_evict
from vgpu.core.preempt.facts import OwnerKind, PlanFact, Workload
from vgpu.core.preempt.plan import End, key_of
from vgpu.core.preempt.protection import Right
from vgpu.core.preempt.words import Held, preemptor_message, victim_message
from vgpu.core.reasons import Reason, Refusal
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

LOG = logging.getLogger(__name__)
PREEMPTED = "Preempted"
PREEMPTING = "Preempting"
CARDS_HELD = "CardsHeld"
SEAT_TAKEN = "SeatTaken"
VICTIMS_DRAINING = "VictimsDraining"
PREEMPTION_ENDED = "PreemptionEnded"
QUEUE_DRAINS = "QueueDrains"
GANG_BROKEN = "GangBroken"
OWN_REASONS = frozenset(
    {
        Reason.POD_GROUP_NOT_FOUND,
        Reason.NO_LOWER_RANK,
        Reason.NO_ROOM_FOR_GANG,
        Reason.VICTIM_ENTITLED,
        Reason.QUEUE_CAPABILITY,
        Reason.QUEUE_GUARANTEE,
        Reason.EVICTION_LIMITS,
        Reason.QUEUE_NOT_RECLAIMABLE,
        Reason.QUEUE_POLICY,
        Reason.PRIORITY_THRESHOLD,
        Reason.PREEMPTION_NEVER,
        Reason.NEVER_A_VICTIM,
        Reason.PROTECTED,
        Reason.WAIT_BEFORE,
        Reason.SWAP_FROZEN,
        Reason.PLAN_NOT_WRITTEN,
    }
)
"""Reasons of preemption. What nodes and queues say to a pod it is told anyway, once is enough: QueueCapability is
told here to pods that only together are too many for their queue."""
MOST_WAITING = 5000
"""Events that wait for their turn; more would be read by nobody."""


@dataclass(frozen=True, slots=True)
class Going:
    """A victim, and the UUIDs of the cards that it holds."""

    pod: Workload
    cards: Sequence[str] = ()


class Told:
    """See the module. `codes`: what waiting pods were told by whomever. `queue_says`: what the queue of a pod (by
    its uid) has against it alone; that is told by who tells why pods wait, and not here."""

    def __init__(
        self, sink: EventSink, settings: OperatorSettings, queue_says: Callable[[str], Reason | None]
    ) -> None:
        self.codes = ToldCodes(settings.event_repeat_seconds)
        self._sink = sink
        self._pace = Pace(settings.events_per_second)
        self._settle_seconds = settings.event_settle_seconds
        self._queue_says = queue_says
        self._events: asyncio.Queue[EventWrite] = asyncio.Queue(MOST_WAITING)
        self._nos: dict[str, tuple[Key, Refusal]] = {}
        self._due: DueKeys[str] = DueKeys()

    async def now(self, event: EventWrite) -> None:
        """Write this event; a failure is logged, and stops nobody."""
        try:
            await when_open(lambda: self._sink.write_event(event))
        except (ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            LOG.info("event not written pod=%s/%s: %s", event.namespace, event.object_name, error)

    def soon(self, event: EventWrite) -> None:
        """Write this event when its turn comes."""
        if not self._events.full():
            self._events.put_nowait(event)

    def refused(self, pod: Key, refusal: Refusal, *, quiet: bool = False) -> None:
        """Nobody is evicted for this pod, for this reason: told once for each reason, when it has held a while.

        `quiet`: it is no news to anybody.
        """
        known = self._nos.get(pod.uid)
        self._nos[pod.uid] = (pod, refusal)
        if known is not None and known[1].reason is refusal.reason:
            return
        self._due.discard(pod.uid)
        if not quiet and refusal.reason in OWN_REASONS:
            self._due.add(pod.uid, asyncio.get_running_loop().time() + self._settle_seconds)

    def not_written(self, pods: Iterable[Key], why: str) -> None:
        """The API server does not take the object of the plan for these pods."""
        for pod in pods:
            text = f"the API server does not take the plan that makes room for it: {why}"
            self.refused(pod, Refusal(Reason.PLAN_NOT_WRITTEN, text))

    def refusal(self, uid: str) -> Refusal | None:
        """Why nobody is evicted for this pod, as far as that was found out."""
        known = self._nos.get(uid)
        return None if known is None else known[1]

    def refusals(self) -> list[Refusal]:
        """Why nobody is evicted, one for each pod that waits."""
        return [refusal for _, refusal in self._nos.values()]

    def not_refused(self, uids: Iterable[str]) -> None:
        """For these pods there is a plan, or room."""
        for uid in uids:
            self._nos.pop(uid, None)
            self._due.discard(uid)

    def keep_only(self, uids: set[str]) -> None:
        """Only these pods wait still."""
        for uid in self._nos.keys() - uids:
            self.not_refused([uid])
        self.codes.keep_only(uids)

    async def write_events(self) -> None:
        """Write what waits. Runs until cancelled."""
        while True:
            event = await self._events.get()
            await self._pace.turn()
            with one_object("preemption: events", f"{event.namespace}/{event.object_name}"):
                await self.now(event)

    async def write_refusals(self) -> None:
        """Tell why nobody is evicted. Runs until cancelled."""
        while True:
            uid = await self._due.next()
            known = self._nos.get(uid)
            if known is not None:
                with one_object("preemption: refusals", f"{known[0].namespace}/{known[0].name}"):
                    self._tell_refusal(*known)

    def _tell_refusal(self, pod: Key, refusal: Refusal) -> None:
        code = refusal.reason.value
        if self.codes.was_told(pod.uid, code) or self._queue_says(pod.uid) is refusal.reason:
            return
        self.codes.tell(pod.uid, code, asyncio.get_running_loop().time())
        self.soon(event_about(pod, code, refusal.message, warning=True, if_absent=True))


def event_about(
    pod: Key, reason: str, message: str, *, about: str = "", warning: bool = False, if_absent: bool = False
) -> EventWrite:
    """An event on a pod; the same for the same pod, reason and plan (`about`) in every process, and without a plan
    the same whoever tells it."""
    digest = sha256("/".join(filter(None, (pod.uid, reason, about))).encode()).hexdigest()[:16]
    return EventWrite(
        namespace=pod.namespace,
        name=event_name(pod.name, digest),
        object_name=pod.name,
        object_uid=pod.uid,
        reason=reason,
        message=clip(message),
        type="Warning" if warning else "Normal",
        if_absent=if_absent,
    )


def victim_event(
    standing: Standing, plan: PlanFact, preemptor: Workload | None, victim: Going, now_seconds: int
) -> EventWrite:
    """What the victim is told: for whom, by which right, which cards it gives free, what is lost."""
    goes, name = victim.pod, key_of(plan)
    pod = Key(goes.namespace, goes.name, goes.uid)
    gang = plan.owner_name if plan.owner_kind is OwnerKind.GANG else ""
    held = Held(name, victim.cards, goes.node or "", gang)
    if preemptor is None:
        who, gives = gang or f"{plan.namespace}/{plan.owner_name}", f"; it gives free {held.where}"
        message = f"evicted for {who} by {plan.rule}{gives if held.where else ''}; plan {name}"
        return event_about(pod, PREEMPTED, message, about=name, warning=True, if_absent=True)
    verdict = may_evict(standing, preemptor, goes, now_seconds)
    right = verdict if isinstance(verdict, Right) else Right(plan.rule.partition(", ")[0])
    message = victim_message(right, preemptor, goes, held, now_seconds)
    return event_about(pod, PREEMPTED, message, about=name, warning=True, if_absent=True)


def preemptor_events(plan: PlanFact, pods: Iterable[Workload]) -> list[EventWrite]:
    """What the pods of the plan's owner are told: whom they wait for, which cards are held for each.

    Nothing of a plan that evicts nobody: its keeper tells of that, who knows whom it waits for.
    """
    victims = [f"{one.namespace}/{one.name}" for one in plan.victims]
    gang = plan.owner_name if plan.owner_kind is OwnerKind.GANG else ""
    events = []
    for pod in pods if victims else ():
        mine = [card for card in plan.reservations if card.reservation.uid == pod.uid]
        cards = [card.reservation.uuid for card in mine]
        held = Held(key_of(plan), cards, mine[0].node if mine else "", gang)
        message = preemptor_message(plan.rule, victims, held, exact=plan.exact)
        key = Key(pod.namespace, pod.name, pod.uid)
        events.append(event_about(key, PREEMPTING, message, about=held.plan, if_absent=True))
    return events


def ended_event(plan: PlanFact, pod: Key, end: End) -> EventWrite:
    """What a pod of the plan's owner is told when the plan came to nothing; once for each plan and cause."""
    message = f"{end.reason.value}: {end.message}; plan {key_of(plan)}"
    about = f"{key_of(plan)}/{end.reason.value}"
    return event_about(pod, PREEMPTION_ENDED, message, about=about, if_absent=True)
