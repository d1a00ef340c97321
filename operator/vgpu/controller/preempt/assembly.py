"""Puts preemption together: plans, the planner, recovery, gangs, and what they share.

Enters: the shared parts of the process. Leaves: one object with the tasks to run, those who listen to changes,
what nominator, filter and binder ask, and what people ask. May not live here: what any part does.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from vgpu import names
from vgpu.controller.clock import Clock, SystemClock
from vgpu.controller.preempt.bodies import PreemptionWrite
from vgpu.controller.preempt.deciding import Deciding
from vgpu.controller.preempt.evictions import EvictionParts, Evictions, Order
from vgpu.controller.preempt.gang_side import GangSide, GangSideParts
from vgpu.controller.preempt.job_warnings import JobWarnings
from vgpu.controller.preempt.keeper import PlanKeeper
from vgpu.controller.preempt.keeper_parts import KeeperParts
from vgpu.controller.preempt.lessons import Lessons
from vgpu.controller.preempt.people import ForPeople, PeopleParts
from vgpu.controller.preempt.plan_book import PlanBook
from vgpu.controller.preempt.plan_objects import ObjectParts, PlanObjects
from vgpu.controller.preempt.plan_worlds import PlanWorlds, WorldParts
from vgpu.controller.preempt.planner import Planner, PlannerParts
from vgpu.controller.preempt.queue_drains import QueueDrains
from vgpu.controller.preempt.recovery import Recovery, RecoveryParts
from vgpu.controller.preempt.rounds import Rounds
from vgpu.controller.preempt.sending import Sender
from vgpu.controller.preempt.told import Told
from vgpu.controller.preempt.waiting import Waiting
from vgpu.controller.preempt.wall import Wall
from vgpu.controller.preempt_metrics import PreemptionMetrics
from vgpu.controller.queue_waiters import queue_says
from vgpu.controller.translate.preemption import decode_preemption
from vgpu.controller.writer import Writer
from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.preempt.roster import Roster
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Decoded
from vgpu.kube.reflector import Reflector, ReflectorSpec
from vgpu.settings import OperatorSettings

PLANS = f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"
ONE_PLAN = f"/apis/{names.API_VERSION}/namespaces/{{}}/{names.PREEMPTION_PLURAL}/{{}}"


@dataclass(frozen=True, slots=True)
class Shared:
    """Parts of the process that preemption works with. `poke`: the ledger was changed."""

    client: ApiClient
    settings: OperatorSettings
    ledger: Ledger
    index: FitIndex
    policies: Policies
    writer: Writer
    roster: Roster
    decode_pod: Callable[[bytes], Decoded[PodFact]]
    metrics: PreemptionMetrics
    poke: Callable[[], None]


class Preemption:
    """See the module."""

    def __init__(self, shared: Shared, wall: Wall | None = None, clock: Clock | None = None) -> None:
        self._shared = shared
        self.wall = wall or Wall()
        self._clock = clock or SystemClock()
        settings, ledger, roster, writer = shared.settings, shared.ledger, shared.roster, shared.writer
        self.book = PlanBook(ledger.plans, self.wall.now_seconds)
        self.told = Told(writer, settings, partial(queue_says, ledger, QueueGate(roster)))
        self.sender = Sender(ledger, writer, settings.nomination_seconds, shared.poke)
        self.evictions = Evictions(self._eviction_parts())
        bare, fence = settings.recreate_bare_pods, writer.fence
        self.recovery = Recovery(
            RecoveryParts(
                ledger, roster, shared.client, writer, shared.decode_pod, fence, self._clock, bare_pods=bare
            )
        )
        self.gangs = GangSide(self._gang_parts())
        self.worlds = PlanWorlds(self._world_parts())
        name = settings.scheduler_name
        self.waiting = Waiting(ledger, roster, self.gangs.desk, name, self.book.planned_for)
        self.warnings = JobWarnings(shared.client, self.told)
        self.objects = PlanObjects(self._object_parts())
        self.planner = Planner(self._planner_parts())
        self.planner.keeper = PlanKeeper(self._keeper_parts())
        self.people = ForPeople(self._people_parts())
        self.book.add(self.recovery)
        self.book.add(self.planner)
        self.reflector: Reflector[PlanFact] = Reflector(shared.client, self._spec(), decode_preemption, self.book)

    # What the process runs and calls.

    def tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What is to run, by name."""
        return {
            "planner": self.planner.run,
            "recovery": self.recovery.run,
            "preemption: events": self.told.write_events,
            "preemption: refusals": self.told.write_refusals,
            "preemption: expire": self.sender.expire,
            "preemption: left over": self.planner.left.expire,
            **self.gangs.tasks(),
        }

    @property
    def listeners(self) -> tuple[Recovery, GangSide, Planner]:
        """Who is told of changes of the ledger, in this order."""
        return (self.recovery, self.gangs, self.planner)

    def start_over(self) -> None:
        """This process has begun to lead."""
        self.evictions.start_over()
        self.book.start_over()
        self.planner.keeper.start_over()
        self.recovery.start_over()
        self.gangs.start_over()
        self.planner.start_over()

    def rules_changed(self) -> None:
        """A queue, a namespace's queue, a budget or a group is another than before."""
        self.gangs.groups_changed()
        self.planner.rules_changed()

    async def close(self) -> None:
        """Stop what runs beside the tasks."""
        for part in (self.evictions, self.objects, self.sender, self.warnings):
            await part.close()
        self.gangs.close()

    # How the parts are made.

    def _spec(self) -> ReflectorSpec:
        settings = self._shared.settings
        return ReflectorSpec(
            PLANS, page_size=settings.list_page_size, silence_seconds=settings.watch_silence_seconds
        )

    def _eviction_parts(self) -> EvictionParts:
        shared = self._shared
        return EvictionParts(
            ledger=shared.ledger,
            writer=shared.writer,
            unix_seconds=self.wall.now_seconds,
            accepted=self._accepted,
            answered=shared.metrics.eviction_answered,
            settled=self._settled,
        )

    def _world_parts(self) -> WorldParts:
        shared = self._shared
        return WorldParts(
            ledger=shared.ledger,
            index=shared.index,
            roster=shared.roster,
            policies=shared.policies,
            evictions=self.evictions,
            living=self.book.all_living,
            taken_over_by=self._taken_over_by,
            unix_seconds=self.wall.now_seconds,
            gang=self.gangs.desk.now,
        )

    def _object_parts(self) -> ObjectParts:
        return ObjectParts(
            writer=self._shared.writer,
            read=self._read_plan,
            records=self.recovery.bare.records,
            wanted=self._still_wanted,
            created=self._created,
            refused=self._not_created,
            unix_seconds=self.wall.now_seconds,
        )

    def _planner_parts(self) -> PlannerParts:
        shared = self._shared
        return PlannerParts(
            ledger=shared.ledger,
            roster=shared.roster,
            policies=shared.policies,
            fence=shared.writer.fence,
            book=self.book,
            objects=self.objects,
            evictions=self.evictions,
            worlds=self.worlds,
            rounds=Rounds(shared.ledger, shared.index, self.waiting),
            deciding=Deciding(shared.metrics.decided),
            lessons=Lessons(self._owner_of),
            drains=QueueDrains(shared.roster, self.evictions, self.told, self._look_at, self.wall.now_seconds),
            told=self.told,
            wall=self.wall,
            poke=shared.poke,
        )

    def _keeper_parts(self) -> KeeperParts:
        shared = self._shared
        return KeeperParts(
            ledger=shared.ledger,
            roster=shared.roster,
            book=self.book,
            worlds=self.worlds,
            evictions=self.evictions,
            objects=self.objects,
            sender=self.sender,
            told=self.told,
            lessons=self.planner.lessons,
            left=self.planner.left,
            metrics=shared.metrics,
            wall=self.wall,
            recovery=self.recovery,
            waiting=self.waiting,
            world=self.planner.world,
            wake=self.planner.wake,
            again=self.planner.look_again,
            poke=shared.poke,
        )

    def _people_parts(self) -> PeopleParts:
        shared = self._shared
        return PeopleParts(
            ledger=shared.ledger,
            roster=shared.roster,
            book=self.book,
            debts=self.recovery.book,
            told=self.told,
            planner=self.planner,
            gangs=self.gangs.desk,
            decode_pod=shared.decode_pod,
            now_seconds=self.wall.now_seconds,
            scheduler_name=shared.settings.scheduler_name,
            leading=lambda: shared.writer.fence.leading,
        )

    def _gang_parts(self) -> GangSideParts:
        shared = self._shared
        return GangSideParts(
            ledger=shared.ledger,
            index=shared.index,
            roster=shared.roster,
            policies=shared.policies,
            settings=shared.settings,
            writer=shared.writer,
            clock=self._clock,
            offers=self.recovery.offers,
            evictions=self.evictions,
            told=self.told,
            short=self._look_again,
            poke=shared.poke,
            partly=self._partly,
        )

    def _accepted(self, order: Order) -> None:
        self.planner.keeper.accepted(order)
        victim = self._shared.roster.workloads.get(order.pod.uid)
        if victim is not None:
            self.warnings.evicted(victim, order.orderer)

    def _settled(self, order: Order) -> None:
        self.planner.keeper.settled(order)
        self.gangs.settled(order)
        self.planner.look_again()

    # Calls of the planner by parts that are made before it.

    def _taken_over_by(self, plan: str) -> str:
        return self.planner.keeper.taken_over_by(plan)

    def _still_wanted(self, write: PreemptionWrite) -> bool:
        return self.planner.still_wanted(write)

    def _created(self, plan: PlanFact) -> None:
        self.planner.created(plan)

    def _not_created(self, write: PreemptionWrite, why: str, again: bool) -> None:
        self.planner.not_created(write, why, again)

    def _owner_of(self, uid: str) -> str:
        pod = self._shared.ledger.pod(uid)
        return uid if pod is None else pod.owner_uid or uid

    def _look_at(self, moment_seconds: int) -> None:
        self.planner.look_at(moment_seconds)

    def _partly(self, gang: str, why: str) -> None:
        self.planner.keeper.partly(gang, why)

    def _look_again(self) -> None:
        self.planner.look_again()

    async def _read_plan(self, namespace: str, name: str) -> bytes:
        return await self._shared.client.get(ONE_PLAN.format(namespace, name))
