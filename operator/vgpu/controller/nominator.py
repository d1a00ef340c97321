"""Sends waiting pods to what has become free: one status patch wakes a pod and names its node.

Enters: changes of the ledger, answers of the extender. Leaves: nominations held in the ledger and written by the
writer. Which pod goes where is core.nomination's; this file keeps to the limits: so many a second, so many per
pod until its answer changes, and cards held no longer than a few seconds. Whose turn it is tell the offers.

A pod's answer is whether its cards fit anywhere. It changes by outside facts, never by our own nominations, so a
pod that other filters keep refusing is woken a few times and then left alone: a quiet cluster stays quiet. Pods
that never reached the extender, because in-tree filters alone refused them, are not woken, unless they are owed.

kube-scheduler clears a nomination that it finds when an attempt ends that began without it, and its first refusal
of a pod is always followed by one more attempt. So a pod is sent once it has not been asked about for a moment;
what frees capacity often wakes kube-scheduler too, and then nothing is left to write.
"""

import asyncio
import logging

from vgpu.controller.answered import AnsweredPods
from vgpu.controller.clock import wake_count
from vgpu.controller.fence import Fence
from vgpu.controller.first_in_rank import FirstInRank, Question
from vgpu.controller.guard import one_object
from vgpu.controller.held import Held
from vgpu.controller.learning import learn
from vgpu.controller.nominator_parts import Deciders, News, NominationSink
from vgpu.controller.pacing import DueKeys, Pace
from vgpu.controller.room_search import RoomSearch
from vgpu.controller.tries import Tries
from vgpu.controller.when_open import when_open
from vgpu.core.facts import PodFact
from vgpu.core.filtering import FilterAnswer
from vgpu.core.ledger import Changes
from vgpu.core.nomination import Nomination, may_be_placed, takes_turns
from vgpu.core.request import PodRequest
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

__all__ = ["Deciders", "NominationSink", "Nominator"]

LOG = logging.getLogger(__name__)
BATCH = 20
"""Nominations chosen at once; each is checked again when its turn comes."""
LONGEST_SETTLES = 5
"""A pod that is asked about without pause is sent after so many settling times."""
FREED = ""
"""The key, beside pods' uids, of what was freed."""
AGAIN = "again "
"""Before the uid of a pod that is looked at again: its backoff is over, or it could not be written to."""


class Nominator:
    """Wakes and directs pods that the extender has refused, and owed ones; only while this process leads."""

    def __init__(
        self,
        deciders: Deciders,
        sink: NominationSink,
        fence: Fence,
        settings: OperatorSettings,
        news: News,
    ) -> None:
        self._ledger = deciders.ledger
        self._index = deciders.index
        self._sink = sink
        self._fence = fence
        self._settings = settings
        self._news = news
        self._offers = deciders.offers
        self._pace = Pace(settings.nominations_per_second)
        self._pace_owed = Pace(settings.nominations_owed_per_second)
        self._tries = Tries(self._ledger, self._index, self._offers, settings.nominations_per_answer)
        self._refused: set[str] = set()
        self._freed: set[str] = set()
        self._missed: dict[str, float] = {}
        self._due: DueKeys[str] = DueKeys()
        self._held = Held(self._ledger, settings.nomination_seconds)
        self._last_look = 0.0
        self._answered = AnsweredPods(self._ledger, deciders.policies)
        self._room = RoomSearch(self._ledger, self._index, deciders.policies, self._offers, self._answered)
        self._first = FirstInRank(self._ledger, self._index, self._answered, self._held)

    def before_answer(self, asking: PodFact) -> None:
        """kube-scheduler asks about this pod: what was freed is held for those before it in rank."""
        if self._held.came(asking):
            self._news.poke()
        if not self._fence.leading or not (self._refused or self._offers.owed() or self._offers.absent()):
            return
        self._take_back()
        if self._ledger.frees():
            self._news.drain()
        freed = self._first.not_looked_at(self._freed)
        if not freed or asking.request is None:
            return
        with one_object("first in rank", f"{asking.namespace}/{asking.name}"):
            waiting = [pod for pod in self._waiting(at_once=True) if pod.uid != asking.uid]
            if waiting and self._first.hold(Question(asking, freed, waiting, self._offers.turns())):
                self._news.poke()

    def answered(self, pod: PodFact, answer: FilterAnswer) -> None:
        """The extender has answered for this pod."""
        self._due.discard(pod.uid)
        (self._refused.discard if answer.nodes else self._refused.add)(pod.uid)
        if answer.barred:  # that says nothing about what it was sent to
            self._tries.forget(pod.uid)
        self._answered.note(pod, answer)
        self._take_back()
        if not answer.missed or not self._fence.leading:
            self._missed.pop(pod.uid, None)
            return
        now, settle = asyncio.get_running_loop().time(), self._settings.nomination_settle_seconds
        first = self._missed.setdefault(pod.uid, now)
        self._due.add(pod.uid, min(now + settle, first + LONGEST_SETTLES * settle))

    def changed(self, changes: Changes) -> None:
        """Note what was freed, and forget the tries of pods whose answer has changed."""
        for uid in changes.pods:
            if (pod := self._ledger.pod(uid)) is None or pod.node or pod.ended:
                self._forget(uid)
            else:
                self._held.look(uid)
                if pod.attempt_failed:
                    self._refused.add(uid)
        self._tries.forgive()
        if changes.freed - self._held.take_given_up():
            self._offers.room_came()
        if changes.freed and self._fence.leading:
            self._freed |= changes.freed
            self._first.freed(changes.freed)
            self._look_at_freed(self._settings.nomination_settle_seconds)
        self._take_back()
        # Told with the next changes: it frees nothing.
        if [pod for uid in changes.pods if (pod := self._ledger.pod(uid)) is not None and self._held.came(pod)]:
            self._news.poke()

    def start_over(self) -> None:
        """This process has begun to lead: what waiting pods were told is not known, what is free may be news."""
        self._refused |= {pod.uid for pod in self._ledger.pending() if self._waits(pod)}
        self._freed |= set(self._ledger.nodes())
        self._answered.clear()
        self._look_at_freed(0)

    async def run(self) -> None:
        """Nominate what can be. Runs until cancelled."""
        while True:
            key = await self._due.next()
            self._take_back()
            found: list[Nomination] = []
            with one_object("nominations", key or "what was freed"):
                await learn(self._index, self._requests(key))
                found = self._choose(key)
            for chosen in found:
                await (self._pace_owed if self._offers.owes(chosen.pod.uid) else self._pace).turn()
                with one_object("nominations", f"{chosen.pod.namespace}/{chosen.pod.name}"):
                    await self._send(chosen)

    async def expire(self) -> None:
        """Give up what has been held for too long. Runs until cancelled."""
        while True:
            uid = await self._held.next_over()
            with one_object("nominations: expire", uid):
                if uid and self._offers.owes(uid):
                    self._rest(uid)
                self._news.poke()

    def _look_at_freed(self, in_seconds: float) -> None:
        self._due.add(FREED, asyncio.get_running_loop().time() + in_seconds)

    def _take_back(self) -> None:
        """What was left aside for pods that came, or were waited for long enough, is free for all again. It is
        looked at now, but in a burst of such pods not for each of them."""
        if back := self._answered.take_back():
            self._freed |= back
            self._first.freed(back)
            rested = self._last_look + self._settings.nomination_settle_seconds
            self._due.add(FREED, max(rested, asyncio.get_running_loop().time()))

    def _choose(self, key: str) -> list[Nomination]:
        """The next nominations in rank order; what is left over is looked at again afterwards."""
        if not self._fence.leading:
            self._freed.clear()
            self._missed.clear()
            self._first.clear()
            return []
        if key != FREED:
            again = key.removeprefix(AGAIN)
            self._missed.pop(key, None)
            chosen = self._for_missed(key) if again == key else self._once_more(again)
            return [chosen] if chosen is not None else []
        found = self._first.take_unsent() or self._choose_freed()
        if self._freed:
            self._look_at_freed(0)
        elif (over := self._answered.next_over()) is not None:
            self._due.add(FREED, over)
        return found

    def _choose_freed(self) -> list[Nomination]:
        self._last_look = asyncio.get_running_loop().time()
        waiting = self._waiting()
        views = self._room.freed_views(waiting, self._freed)
        found = self._room.best_for_all(views, waiting, BATCH) if views else []
        if not found:
            # Taints, selectors or what is held may bar exactly these: the other freed nodes have their turn.
            self._freed = self._freed - {view.name for view in views} if views else set()
        return found

    def _requests(self, key: str) -> set[PodRequest | None]:
        """What the pods ask for that `key` is about."""
        pods = self._waiting() if key == FREED else [self._ledger.pod(key.removeprefix(AGAIN))]
        return {pod.request for pod in pods if pod is not None}

    def _for_missed(self, uid: str) -> Nomination | None:
        pod = self._ledger.pod(uid)
        if pod is None or pod.node or not self._may_try(uid):
            return None
        return self._room.best_of_all(pod, but_not=self._tries.nodes(uid))

    def _once_more(self, uid: str) -> Nomination | None:
        """A pod that is looked at again, wherever it was sent before."""
        pod = self._ledger.pod(uid) or next((pod for pod in self._offers.absent() if pod.uid == uid), None)
        if pod is None or not self._waits(pod) or self._ledger.nomination(uid):
            return None
        return self._room.best_of_all(pod)

    def _waiting(self, *, at_once: bool = False) -> list[PodFact]:
        """Pods that we refused or could not be asked about, and owed ones, that nothing is held for yet. To be
        written to: those that kube-scheduler has put aside, and whose own turn does not come anyway."""
        if not self._freed:
            return []
        uids = {uid for uid in self._refused if at_once or uid not in self._due}.union(self._offers.owed())
        pods = [pod for uid in uids if (pod := self._ledger.pod(uid)) is not None]
        pods += self._offers.absent()
        return [pod for pod in pods if self._waits(pod, at_once=at_once) and self._may_try(pod.uid)]

    def _waits(self, pod: PodFact, *, at_once: bool = False) -> bool:
        waits = may_be_placed if at_once else takes_turns
        return waits(pod, self._settings.scheduler_name) and self._ledger.booking(pod.uid) is None

    def _may_try(self, uid: str) -> bool:
        return self._tries.allowed(uid, owed=self._offers.owes(uid))

    def _rest(self, uid: str) -> None:
        """An owed pod did not come."""
        self._tries.forget(uid)
        if (after := self._offers.failed(uid)) is not None:
            self._look_again(uid, after)

    def _look_again(self, uid: str, in_seconds: float) -> None:
        self._due.add(AGAIN + uid, asyncio.get_running_loop().time() + in_seconds)

    async def _send(self, chosen: Nomination) -> None:
        """Check once more, hold the cards, then write."""
        pod = self._ledger.pod(chosen.pod.uid)
        if pod is None:
            await self._create(chosen)
            return
        if pod.request is None or not self._fence.leading:
            return
        placement = self._room.placement_now(chosen, pod)
        if placement is None or not self._held.hold(pod, placement):
            return
        self._news.poke()
        self._first.sent(pod.uid)
        if self._tries.note(pod.uid, placement.node) and self._offers.owes(pod.uid):
            self._rest(pod.uid)
        key = Key(pod.namespace, pod.name, pod.uid)
        try:
            await when_open(lambda: self._sink.nominate(key, chosen.node, wake_count()))
        except (ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            # What is held ends by its time-out, and that wakes whoever still waits. This one was not told of it.
            if not isinstance(error, ApiRefused):
                self._look_again(pod.uid, 2 * self._settings.nomination_seconds)
            LOG.info("nomination failed pod=%s/%s node=%s: %s", pod.namespace, pod.name, placement.node, error)
            return
        LOG.info("nominated pod=%s/%s node=%s direct=%s", pod.namespace, pod.name, placement.node, chosen.direct)

    async def _create(self, chosen: Nomination) -> None:
        """Hold the cards, then create the pod, to which they pass."""
        pod = next((pod for pod in self._offers.absent() if pod.uid == chosen.pod.uid), None)
        if pod is None or pod.request is None or not self._fence.leading:
            return
        placement = self._room.placement_now(chosen, pod)
        if placement is None or not self._held.hold(pod, placement):
            return
        self._news.poke()
        self._first.sent(pod.uid)
        if not await self._offers.create(pod):
            self._rest(pod.uid)
            self._held.give_up(pod.uid)
            self._news.poke()

    def _forget(self, uid: str) -> None:
        self._tries.forget(uid)
        self._refused.discard(uid)
        self._answered.forget(uid)
        self._missed.pop(uid, None)
        self._due.discard(uid)
        self._due.discard(AGAIN + uid)
        self._held.forget(uid)
