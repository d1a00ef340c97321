"""Evictions: one call for each victim at a time, the same uid again while nobody knows, never another instead.

Enters: orders (which pod, for whom, why), what the API answers. Leaves: per victim whether it is leaving, how
often a disruption budget was against it, when to ask again. Before the call the orderer is asked once more whether
the victim still must go. In memory only: after a restart the victims' deletion marks tell. May not live
here: who goes.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from vgpu.controller.preempt.jobs import Jobs
from vgpu.controller.preempt_metrics import EvictionOutcome
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.endings import MOST_REFUSALS
from vgpu.core.preempt.facts import Workload
from vgpu.errors import ApiRefused, ApiUnavailable, LeaseRunsOut, NotLeading, OutcomeUnknown
from vgpu.kube.backoff import Backoff
from vgpu.kube.objects import Key

LOG = logging.getLogger(__name__)
AT_ONCE = 16
"""Calls in the air together."""
FIRST_RETRY_SECONDS = 2
"""After a disruption budget refused; doubled each time."""
GONE_SECONDS = 1
TOO_MANY_REQUESTS = 429
GONE = frozenset({404, 409})
BUDGET_WORDS = "disruption budget"
SEVERAL_BUDGETS_WORDS = "more than one poddisruptionbudget"


class EvictionWriter(Protocol):
    """Where evictions go; the operator's writer."""

    async def evict(self, pod: Key) -> None:
        """Evict this uid. Raises ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""


@dataclass(frozen=True, slots=True)
class Order:
    """Evict `pod` on `node`. `orderer`: NS/NAME of the plan, or who else wants it, with `plan`, the plan's uid: of
    one name there may be several, one after another. `still` is asked before the call: must it be carried out as
    things stand? `tell` is begun with the first call, and may not raise.
    `over` is asked in its place once a call has had no answer: does nobody need to know any more? None = when it
    is not to be carried out any more. `victim`: the pod as it stood; by the answer its object may be gone."""

    orderer: str
    pod: Key
    node: str
    rule: str
    still: Callable[[], bool]
    tell: Callable[[], Coroutine[Any, Any, None]]
    over: Callable[[], bool] | None = None
    victim: Workload | None = None
    plan: str = ""

    @property
    def by(self) -> tuple[str, str]:
        """Whose order it is: of two plans of one name, which one's."""
        return self.orderer, self.plan

    def is_over(self) -> bool:
        """True when its outcome concerns nobody any more."""
        return not self.still() if self.over is None else self.over()


@dataclass(slots=True)
class Asked:
    """What became of one order. `unknown`: a call was made that may yet be carried out; `doubt`: the same, of a
    call that is not repeated any more. `fails_since`: when calls began to fail, and do still; `failure`: what the
    API server said against it the last time, but for a budget."""

    order: Order
    accepted: bool = False
    unknown: bool = False
    doubt: bool = False
    wanted: bool = True
    refusals: int = 0
    retry_seconds: int = 0
    fails_since: int | None = None
    failure: str = ""

    @property
    def leaving(self) -> bool:
        """True when the pod goes, as far as anybody knows."""
        return self.accepted or self.unknown


@dataclass(frozen=True, slots=True)
class EvictionParts:
    """What the queue works with. `accepted` is called once for each eviction that the API accepted, `answered`
    after every call, `settled` when an order is done, however it ended, and when its calls begin to fail."""

    ledger: Ledger
    writer: EvictionWriter
    unix_seconds: Callable[[], int]
    accepted: Callable[[Order], None]
    answered: Callable[[EvictionOutcome], None]
    settled: Callable[[Order], None]
    backoff: Callable[[], Backoff] = field(default=lambda: Backoff(0.2, 5.0))


class Evictions:
    """See the module."""

    def __init__(self, parts: EvictionParts) -> None:
        self._parts = parts
        self._asked: dict[str, Asked] = {}
        self._jobs, self._words = Jobs("evictions"), Jobs("evictions: words")
        self._slots = asyncio.Semaphore(AT_ONCE)

    def ask(self, order: Order) -> None:
        """Carry the order out, unless its pod was evicted or is being evicted already."""
        uid = order.pod.uid
        asked = self._asked.get(uid)
        if asked is None or (asked.order.by != order.by and uid not in self._jobs and not asked.leaving):
            asked = self._asked[uid] = Asked(order)
        if asked.order.by != order.by or asked.accepted:
            return
        asked.wanted = True
        if asked.retry_seconds <= self._parts.unix_seconds():
            self._jobs.start(uid, partial(self._carry_out, asked))

    def only(self, orderer: str, uids: Collection[str]) -> None:
        """Of this orderer's orders only these are still wanted; what is in the air goes on."""
        for uid, asked in self._asked.items():
            if asked.order.orderer == orderer and uid not in uids:
                asked.wanted = False

    def get(self, uid: str) -> Asked | None:
        """What became of the order for this uid."""
        return self._asked.get(uid)

    def of_plan(self, plan: str, uid: str) -> Asked | None:
        """What became of the order of this plan (its uid) for this pod; what another one was told says nothing."""
        asked = self._asked.get(uid)
        return asked if asked is not None and asked.order.plan == plan else None

    def leaving(self, uid: str) -> bool:
        """True when this process has evicted the pod, or may have."""
        asked = self._asked.get(uid)
        return asked is not None and asked.leaving

    def under_way(self, uid: str) -> bool:
        """True while a call for this pod is made or waits for its turn."""
        return uid in self._jobs

    def accepted(self) -> frozenset[str]:
        """Uids whose eviction was accepted and that are still there."""
        return frozenset(uid for uid, asked in self._asked.items() if asked.accepted)

    def forget_gone(self) -> None:
        """Forget pods that are not there any more, and orders that nobody wants. How often a budget was against
        one is kept: its plan counts that."""
        ledger = self._parts.ledger
        for asked in [asked for asked in self._asked.values() if asked.unknown or asked.doubt]:
            if self._leaves(asked):
                self._was_carried_out(asked)
            elif asked.doubt and asked.order.is_over():
                asked.doubt = False  # were it carried out after all, the pod's own mark tells
        gone = [
            uid
            for uid, asked in self._asked.items()
            if uid not in self._jobs
            and (ledger.pod(uid) is None or not (asked.wanted or asked.leaving or asked.refusals or asked.doubt))
        ]
        for uid in gone:
            del self._asked[uid]

    def start_over(self) -> None:
        """This process begins to lead: what the pods show counts."""
        for asked in self._asked.values():
            asked.wanted = False
        self._asked = {uid: asked for uid, asked in self._asked.items() if uid in self._jobs}

    async def close(self) -> None:
        """Stop; what is in the air may still be carried out."""
        await self._jobs.close()
        await self._words.close()

    async def _carry_out(self, asked: Asked) -> None:
        """Until it is known. A pod that is gone needs no eviction. Its event is written beside the call: neither
        waits for the other's answer."""
        backoff, order, told = self._parts.backoff(), asked.order, False
        try:
            while not self._slots.locked() or self._goes_on(asked):
                async with self._slots:
                    if not self._goes_on(asked):
                        return
                    told = told or self._words.start(order.pod.uid, order.tell)
                    outcome, at_least_seconds = await self._call(asked)
                self._parts.answered(outcome)
                if outcome is not EvictionOutcome.UNAVAILABLE:
                    return
                await asyncio.sleep(backoff.next_seconds(at_least_seconds))
        finally:
            self._parts.settled(order)

    def _goes_on(self, asked: Asked) -> bool:
        pod = self._parts.ledger.pod(asked.order.pod.uid)
        if pod is None or pod.ended or pod.terminating or asked.accepted:
            if (asked.unknown or asked.doubt) and self._leaves(asked):
                self._was_carried_out(asked)
            asked.unknown = False
            return False
        if asked.wanted and asked.order.still():
            return True
        asked.doubt = (asked.doubt or asked.unknown) and not asked.order.is_over()
        asked.unknown, asked.fails_since = False, None
        return False

    async def _call(self, asked: Asked) -> tuple[EvictionOutcome, float]:
        order, key = asked.order, asked.order.pod
        before, asked.unknown = asked.unknown or asked.doubt, True
        try:
            await self._parts.writer.evict(key)
        except ApiRefused as error:
            asked.unknown = asked.doubt = False
            return self._not_evicted(asked, error, known=not before), 0
        except NotLeading:
            asked.unknown = asked.wanted = False
            return EvictionOutcome.REFUSED, 0
        except ApiUnavailable as error:
            return self._unavailable(asked, error, known=not before)
        except OutcomeUnknown as error:
            LOG.info("eviction unanswered pod=%s/%s for=%s: %s", key.namespace, key.name, order.orderer, error)
            self._fails(asked, error)
            return EvictionOutcome.UNAVAILABLE, 0
        self._accept(asked, "evicted")
        return EvictionOutcome.ACCEPTED, 0

    def _accept(self, asked: Asked, how: str) -> None:
        """Once, whether its pod is seen to leave or the answer comes first."""
        asked.unknown = asked.doubt = False
        if not asked.accepted:
            asked.accepted, order = True, asked.order
            pod = f"{order.pod.namespace}/{order.pod.name}"
            LOG.info("%s pod=%s node=%s for=%s rule=%s", how, pod, order.node, order.orderer, order.rule)
            self._parts.accepted(order)

    def _not_evicted(self, asked: Asked, error: ApiRefused, *, known: bool) -> EvictionOutcome:
        """`known`: no earlier call of this order may have been carried out."""
        if error.status not in GONE:
            pod = f"{asked.order.pod.namespace}/{asked.order.pod.name}"
            LOG.warning("eviction refused pod=%s for=%s: %s", pod, asked.order.orderer, error)
            self._refused(asked, MOST_REFUSALS)
            asked.failure = str(error)
            return EvictionOutcome.REFUSED
        if not known:
            self._was_carried_out(asked)
            return EvictionOutcome.ACCEPTED
        # Its event is on its way. Should that not come, it is asked for once a second and no oftener.
        asked.fails_since = None
        asked.retry_seconds = self._parts.unix_seconds() + GONE_SECONDS
        return EvictionOutcome.GONE

    def _leaves(self, asked: Asked) -> bool:
        pod = self._parts.ledger.pod(asked.order.pod.uid)
        return pod is None or pod.terminating

    def _was_carried_out(self, asked: Asked) -> None:
        """The pod left after a call without an answer: it counts as evicted. What is owed in vain is seen when its
        owner is read; what is forgotten is lost."""
        self._accept(asked, "evicted, as it left")
        if self._parts.ledger.pod(asked.order.pod.uid) is None:
            self._parts.ledger.plans.forget(asked.order.pod.uid)

    def _unavailable(self, asked: Asked, error: ApiUnavailable, *, known: bool) -> tuple[EvictionOutcome, float]:
        """`known`: no earlier call of this order may still be carried out."""
        words = str(error).lower()
        if BUDGET_WORDS in words or SEVERAL_BUDGETS_WORDS in words:
            asked.unknown = False
            times = MOST_REFUSALS if SEVERAL_BUDGETS_WORDS in words else 1
            self._refused(asked, times, error.retry_after_seconds)
            LOG.info("eviction put off pod=%s/%s: %s", asked.order.pod.namespace, asked.order.pod.name, error)
            return EvictionOutcome.BUDGET, 0
        if known and error.status in (0, TOO_MANY_REQUESTS):
            asked.unknown = False  # it was not carried out, and another try may do
        if not isinstance(error, LeaseRunsOut):
            self._fails(asked, error)
        return EvictionOutcome.UNAVAILABLE, error.retry_after_seconds

    def _fails(self, asked: Asked, error: Exception) -> None:
        """Whoever ordered it is told once: he sees to it that this does not go on for ever."""
        asked.failure = str(error)
        if asked.fails_since is None:
            asked.fails_since = self._parts.unix_seconds()
            self._parts.settled(asked.order)

    def _refused(self, asked: Asked, times: int, retry_after_seconds: float = 0) -> None:
        asked.refusals += times
        asked.fails_since, asked.failure = None, ""
        pause = max(FIRST_RETRY_SECONDS << min(asked.refusals - 1, 6), math.ceil(retry_after_seconds))
        asked.retry_seconds = self._parts.unix_seconds() + pause
