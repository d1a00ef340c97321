"""Puts together what starts gangs, holds their bindings together, and ends those that run in vain.

Enters: the shared parts of the process. Leaves: one object with those, the tasks to run, and what filter, binder
and planner ask. May not live here: what any of them does.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from vgpu.controller.clock import Clock
from vgpu.controller.preempt.bind_barrier import MARGIN_SECONDS, BindBarrier
from vgpu.controller.preempt.broken_gangs import BrokenGangs, BrokenParts
from vgpu.controller.preempt.debt_offers import DebtOffers
from vgpu.controller.preempt.evictions import Evictions, Order
from vgpu.controller.preempt.gang_rooms import GangRooms, RoomParts
from vgpu.controller.preempt.gang_sender import GangSender
from vgpu.controller.preempt.gangs import GangParts, Gangs
from vgpu.controller.preempt.promises import Promises
from vgpu.controller.preempt.told import GANG_BROKEN, Told, event_about
from vgpu.controller.writer import Writer
from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.placement import Policies
from vgpu.core.preempt.facts import QueueFact
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.gang_state import Rules
from vgpu.core.preempt.protection import never_victim
from vgpu.core.preempt.roster import Roster
from vgpu.core.reasons import Reason, Refusal
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

ORDERER = "gang "
"""Begins the orderer's name of evictions; the gang's key follows."""
LEAST_WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class GangSideParts:
    """Parts of the process. `offers`: whose turn it is; `short` is called when gangs found no room, `poke` after
    the ledger was changed here, `partly` with a gang's key and why too few of it are bound, "" = they are not."""

    ledger: Ledger
    index: FitIndex
    roster: Roster
    policies: Policies
    settings: OperatorSettings
    writer: Writer
    clock: Clock
    offers: DebtOffers
    evictions: Evictions
    told: Told
    short: Callable[[], None]
    poke: Callable[[], None]
    partly: Callable[[str, str], None]


class GangSide:
    """See the module."""

    def __init__(self, parts: GangSideParts) -> None:
        self._parts = parts
        settings, ledger, roster = parts.settings, parts.ledger, parts.roster
        self.desk = GangDesk(ledger, roster, Rules(settings.scheduler_name, settings.ungate_gangs))
        wait_seconds = max(LEAST_WAIT_SECONDS, settings.bind_deadline_seconds - MARGIN_SECONDS)
        self.barrier = BindBarrier(self.desk, ledger, parts.clock, wait_seconds)
        self._broken = BrokenGangs(
            BrokenParts(
                self.desk,
                self._hold_seconds,
                self._evict,
                self._tell,
                lambda: parts.writer.fence.leading,
                parts.partly,
            )
        )
        self._gangs = Gangs(
            GangParts(
                ledger=ledger,
                desk=self.desk,
                rooms=self._rooms(),
                sender=GangSender(parts.writer, lambda uid: ledger.pod(uid) is not None),
                broken=self._broken,
                fence=parts.writer.fence,
                hold_seconds=self._hold_seconds,
                short=parts.short,
                held=Promises(ledger, roster).note,
                poke=parts.poke,
                lacking=self._tell_lack,
            )
        )

    def tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What is to run, by name."""
        return {"gangs": self._gangs.run, "gangs: expire": self._gangs.expire, "gangs: broken": self._broken.run}

    def notes(self, others: Callable[[PodFact], str]) -> Callable[[PodFact], str]:
        """What is to be said of a pod beside its verdict: what we have to say, or else `others`."""
        return lambda pod: self.desk.note_on(pod) or others(pod)

    def changed(self, changes: Changes) -> None:
        """The ledger changed."""
        self._gangs.changed(changes)

    def groups_changed(self) -> None:
        """A PodGroup or a queue is another than before."""
        self._gangs.rules_changed()

    def start_over(self) -> None:
        """This process has begun to lead."""
        self._gangs.start_over()

    def settled(self, order: Order) -> None:
        """An eviction is done; one that a disruption budget put off is asked for again."""
        asked = self._parts.evictions.get(order.pod.uid)
        if order.orderer.startswith(ORDERER) and asked is not None and asked.refusals and not asked.leaving:
            self._broken.again(order.orderer.removeprefix(ORDERER))

    def close(self) -> None:
        """Let no binding wait any longer."""
        self.barrier.close()

    def _rooms(self) -> GangRooms:
        parts = self._parts
        return GangRooms(
            RoomParts(
                parts.ledger,
                parts.index,
                parts.policies,
                parts.roster,
                parts.offers.turns,
                parts.settings.scheduler_name,
                parts.settings.unadmitted_limit,
                parts.offers.absent_now,
            )
        )

    def _hold_seconds(self, pod: PodFact) -> int:
        name = self._parts.roster.queue_of(pod)
        return (self._parts.roster.queues.get(name) or QueueFact(name)).hold_timeout_seconds

    def _evict(self, pod: PodFact, key: str, why: str) -> None:
        """Through the same queue as every other eviction: budgets are respected, who is protected stays."""
        told, target = self._parts.told, Key(pod.namespace, pod.name, pod.uid)
        event = event_about(target, GANG_BROKEN, f"evicted: {why}", about=key, warning=True, if_absent=True)
        still = partial(self._still_in_vain, key, pod.uid)
        if still():
            self._parts.evictions.ask(
                Order(f"{ORDERER}{key}", target, pod.node, GANG_BROKEN, still, partial(told.now, event))
            )

    def _still_in_vain(self, key: str, uid: str) -> bool:
        state, workload = self.desk.state(key), self._parts.roster.workloads.get(uid)
        partly = state is not None and state.partial
        return partly and workload is not None and never_victim(workload) is None

    def _tell_lack(self, pod: PodFact, refusal: Refusal | None) -> None:
        if refusal is None:
            self._parts.told.not_refused([pod.uid])
        else:
            self._parts.told.refused(Key(pod.namespace, pod.name, pod.uid), refusal)

    def _tell(self, pod: PodFact, reason: Reason, text: str) -> None:
        target = Key(pod.namespace, pod.name, pod.uid)
        self._parts.told.soon(event_about(target, reason.value, text, warning=True, if_absent=True))
