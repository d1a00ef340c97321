"""Preemption on a small cluster in memory: what the API server holds, a process that may die, and a scheduler.

`Api` is the truth; a `Process` is all that one replica knows. A write may be the last one of a process: it is not
carried out (`BEFORE`), or carried out and never answered (`AFTER`). Everything runs on a virtual clock.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, cast

from prometheus_client import CollectorRegistry
from pydantic_core import to_json

from tests.controller.cluster_facts import SLOTS, inventory, node
from tests.controller.virtual_time import run_virtually
from vgpu import names
from vgpu.controller.consumer import Consumer
from vgpu.controller.fence import Fence
from vgpu.controller.preempt.assembly import Preemption, Shared
from vgpu.controller.preempt.bodies import PreemptionWrite, preemption_body
from vgpu.controller.preempt.wall import Wall
from vgpu.controller.preempt_metrics import PreemptionMetrics
from vgpu.controller.translate import Translator
from vgpu.controller.translate.preemption import decode_preemption
from vgpu.controller.writer import Writer
from vgpu.controller.writes import EventWrite
from vgpu.core.facts import AssignmentFact, AssignmentSource, Phase, PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.budget_book import BudgetFact
from vgpu.core.preempt.facts import PlanFact, QueueFact
from vgpu.core.preempt.roster import Roster
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest, PodRequest
from vgpu.core.terms import OwnerRef, PodTerms
from vgpu.errors import ApiRefused
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

CARD_MIB = 40_960
BORN = 1_700_000_000
STEP_SECONDS = 0.05


class Last(Enum):
    """What becomes of the write at which a process dies."""

    BEFORE = auto()
    AFTER = auto()


def whole(number: int = 1) -> PodRequest:
    """So many cards for the pod alone."""
    return PodRequest(SLOTS, (ContainerRequest("main", ContainerKind.APP, number, CardRequest()),))


def percent(share: int, number: int = 1) -> PodRequest:
    """So much of so many cards."""
    card = CardRequest(memory_percent=share, cores=share)
    return PodRequest(SLOTS, (ContainerRequest("main", ContainerKind.APP, number, card),))


def now() -> int:
    """Seconds since 1970, by the virtual clock."""
    return BORN + int(asyncio.get_running_loop().time())


class LoopClock:
    """Both of its times are the loop's."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def unix_seconds(self) -> int:
        return now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Api:
    """The truth, and who may change it. `raises`: what the next calls of a kind answer instead."""

    nodes: Mapping[str, int] = field(default_factory=lambda: {"n1": 4})
    queues: list[QueueFact] = field(default_factory=lambda: [QueueFact("default")])
    pods: dict[str, PodFact] = field(default_factory=dict)
    plans: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    budgets: list[BudgetFact] = field(default_factory=list)
    evictions: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    events: list[EventWrite] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    raises: dict[str, list[Exception]] = field(default_factory=dict)
    on_write: Callable[[str], None] = lambda kind: None
    made: int = 0

    def facts(self) -> list[PlanFact]:
        """Every plan as its object stands."""
        return [decode_preemption(to_json(raw)).fact for raw in self.plans.values()]

    def of_owner(self, uid: str) -> list[PlanFact]:
        """Plans of this pod."""
        return [plan for plan in self.facts() if uid in plan.owner_uids]


class FakeWriter:
    """The operator's writer of one process. `dies_at`: the number of the write that is its last one."""

    def __init__(self, api: Api, dies_at: int = 0, last: Last = Last.AFTER) -> None:
        self.fence_clock = 0.0
        self.fence = Fence(10, 4, lambda: self.fence_clock)
        self.fence.renewed(0.0)
        self.count = 0
        self.dead = asyncio.Event()
        self._api = api
        self._dies_at = dies_at
        self._last = last

    async def evict(self, pod: Key) -> None:
        await self._write("evict", lambda: self._evict(pod), pod.uid)

    async def nominate(self, pod: Key, node: str | None, wake: int) -> None:
        await self._write("nominate", lambda: None)

    async def create_preemption(self, write: PreemptionWrite) -> bytes:
        return cast(bytes, await self._write("create", lambda: self._create(write)))

    async def apply_preemption_status(self, plan: Key, status: Mapping[str, Any]) -> None:
        await self._write("status", lambda: self._status(plan, status))

    async def delete_preemption(self, plan: Key) -> None:
        await self._write("delete", lambda: self._delete(plan))

    async def write_event(self, event: EventWrite) -> None:
        await self._write("event", lambda: self._api.events.append(event))

    async def create_pod(self, namespace: str, body: Mapping[str, Any]) -> bytes:
        raise AssertionError("no pod is created here")

    async def remove_gate(self, pod: Key, gate: str) -> None:
        raise AssertionError("no gate is removed here")

    async def _write(self, kind: str, do: Callable[[], Any], what: str = "") -> Any:
        await asyncio.sleep(0.001)
        if self.dead.is_set():
            await asyncio.get_running_loop().create_future()
        self.fence.admit(kind)
        self.count += 1
        dies = self.count == self._dies_at
        if dies and self._last is Last.BEFORE:
            await self._die()
        self._api.writes[kind] += 1
        self._api.on_write(kind)
        if kind == "evict":
            self._api.asked.append(what)
        waiting = self._api.raises.get(kind)
        if waiting:
            raise waiting.pop(0)
        done = do()
        if dies:
            await self._die()
        return done

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.get_running_loop().create_future()

    def _evict(self, pod: Key) -> None:
        known = self._api.pods.get(pod.uid)
        if known is None:
            raise ApiRefused(404, "NotFound", "no such pod")
        if not known.terminating:
            self._api.evictions.append(pod.uid)
            terms = replace(known.terms or PodTerms(), deletion_seconds=now() + 30)
            self._api.pods[pod.uid] = replace(known, terminating=True, terms=terms)

    def _create(self, write: PreemptionWrite) -> bytes:
        key = write.namespace, write.name
        if key in self._api.plans:
            raise ApiRefused(409, "AlreadyExists", "it exists")
        self._api.made += 1
        body = preemption_body(write)
        body["metadata"] |= {"uid": f"plan-{self._api.made}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        self._api.plans[key] = body
        return to_json(body)

    def _status(self, plan: Key, status: Mapping[str, Any]) -> None:
        known = self._api.plans.get((plan.namespace, plan.name))
        if known is None or known["metadata"]["uid"] != plan.uid:
            raise ApiRefused(404, "NotFound", "no such plan")
        known["status"] = dict(status)

    def _delete(self, plan: Key) -> None:
        known = self._api.plans.get((plan.namespace, plan.name))
        if known is None or known["metadata"]["uid"] != plan.uid:
            raise ApiRefused(404, "NotFound", "no such plan")
        del self._api.plans[plan.namespace, plan.name]


class FakeReader:
    """Reads plans; nothing else is there."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def get(self, path: str) -> bytes:
        namespace, plan = path.split("/namespaces/")[1].split("/", maxsplit=1)[0], path.rpartition("/")[2]
        if (namespace, plan) not in self._api.plans:
            raise ApiRefused(404, "NotFound", path)
        return to_json(self._api.plans[namespace, plan])


class Process:
    """One replica that leads."""

    def __init__(self, api: Api, writer: FakeWriter) -> None:
        settings = OperatorSettings(events_per_second=1000, event_settle_seconds=0.2)
        self.api, self.writer = api, writer
        self.ledger = Ledger()
        self.roster = Roster(self.ledger, names.SCHEDULER_NAME)
        self.consumer = Consumer(self.ledger, 0.01)
        self.decisions = 0
        self.meanwhile: Callable[[Any], None] = lambda answer: None
        """What happens while a decision is worked out."""
        policies = Policies()
        reader = cast(ApiClient, FakeReader(api))
        translator = Translator(settings, lambda _: None)
        shared = Shared(
            client=reader,
            settings=settings,
            ledger=self.ledger,
            index=FitIndex(self.ledger, policies),
            policies=policies,
            writer=cast(Writer, writer),
            roster=self.roster,
            decode_pod=translator.decode_pod,
            metrics=PreemptionMetrics(CollectorRegistry()),
            poke=self.consumer.poke,
        )
        self._count_decisions(shared.metrics)
        clock = LoopClock()
        loop = asyncio.get_running_loop()
        self.preemption = Preemption(shared, Wall(lambda: BORN + loop.time()), clock)
        for listener in self.preemption.listeners:
            self.consumer.add(listener)
        self._seen: dict[str, PodFact] = {}
        self._seen_plans: dict[Key, PlanFact] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Learn everything there is, and begin to lead."""
        for name, cards in self.api.nodes.items():
            self.ledger.put_node(node(name))
            self.ledger.put_inventory(inventory(name, cards))
            self.roster.cards_changed(name)
        for queue in self.api.queues:
            self.roster.put_queue(queue)
        for budget in self.api.budgets:
            self.roster.put_budget(budget)
        self.hear()
        works = {"consumer": self.consumer.run, **self.preemption.tasks()}
        self._tasks = [asyncio.ensure_future(work()) for work in works.values()]
        self.preemption.start_over()

    def hear(self) -> None:
        """The watches bring what has changed."""
        for uid in self._seen.keys() - self.api.pods.keys():
            self.ledger.drop_pod(uid)
            self.roster.drop_pod(uid)
            del self._seen[uid]
        for uid, pod in self.api.pods.items():
            if self._seen.get(uid) != pod:
                self._seen[uid] = pod
                self.ledger.put_pod(pod)
                self.roster.put_pod(pod)
        self._hear_plans()
        self.consumer.poke()

    def _hear_plans(self) -> None:
        there = {Key(plan.namespace, plan.name, plan.uid): plan for plan in self.api.facts()}
        for key in self._seen_plans.keys() - there.keys():
            self.preemption.book.drop(key)
            del self._seen_plans[key]
        for key, plan in there.items():
            if self._seen_plans.get(key) != plan:
                self._seen_plans[key] = plan
                self.preemption.book.put(plan)

    def change_queue(self, queue: QueueFact) -> None:
        """A queue is another than before."""
        self.api.queues = [one for one in self.api.queues if one.name != queue.name] + [queue]
        self.roster.put_queue(queue)
        self.preemption.rules_changed()

    async def stop(self) -> None:
        """End at once, as after SIGKILL."""
        assert not any(task.done() for task in self._tasks), [t.exception() for t in self._tasks if t.done()]
        for task in self._tasks:
            task.cancel()
        await self.preemption.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _count_decisions(self, metrics: PreemptionMetrics) -> None:
        observe = metrics.decided

        def decided(answer: Any, seconds: float) -> None:
            self.decisions += 1
            observe(answer, seconds)
            self.meanwhile(answer)

        metrics.decided = decided  # type: ignore[method-assign]


class World:
    """The truth and one process at a time. `schedules`: kube-scheduler binds who is sent to his cards."""

    def __init__(self, api: Api | None = None) -> None:
        self.api = api or Api()
        self.process: Process | None = None
        self.victims_end = True
        self.schedules = True

    async def begin(self, dies_at: int = 0, last: Last = Last.AFTER) -> Process:
        """Start a process; one before it is dead by now."""
        if self.process is not None:
            await self.process.stop()
        self.process = Process(self.api, FakeWriter(self.api, dies_at, last))
        self.process.start()
        return self.process

    async def close(self) -> None:
        if self.process is not None:
            await self.process.stop()

    async def pass_time(self, seconds: float) -> None:
        """Let things happen for so long, or until the process dies."""
        assert self.process is not None
        for _ in range(round(seconds / STEP_SECONDS)):
            await asyncio.sleep(STEP_SECONDS)
            if self.process.writer.dead.is_set():
                return
            if self.victims_end:
                self.end_leaving()
            if self.schedules:
                self.bind_sent()
            self.process.hear()

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
        """Let things happen until the condition holds."""
        for _ in range(round(seconds / STEP_SECONDS)):
            if condition():
                return
            await self.pass_time(STEP_SECONDS)
        raise AssertionError(f"{what}: not within {seconds} s; plans: {self.api.facts()}")

    def low(self, name: str, request: PodRequest | None = None, node_name: str = "n1", **changes: Any) -> PodFact:
        """A pod of a Job that runs on cards that `place` gave it."""
        pod = self.pod(name, request, **changes)
        view = self._ledger_now().view(node_name)
        assert view is not None
        assert pod.request is not None
        placement = place(view, pod.request, pod.uid, Policies())
        assert isinstance(placement, Placement), placement
        return self._bind(pod, placement)

    def pod(self, name: str, request: PodRequest | None = None, *, owner: str = "", **changes: Any) -> PodFact:
        """A pod that kube-scheduler has tried and called unschedulable."""
        said = {key: changes.pop(key) for key in list(changes) if key in PodTerms.__dataclass_fields__}
        terms = PodTerms(
            owner=OwnerRef(f"job-{owner or name}", "ReplicaSet", owner or name, "apps/v1"),
            created_seconds=said.pop("created_seconds", BORN),
            **said,
        )
        made = PodFact(
            uid=f"uid-{name}",
            namespace="team",
            name=name,
            scheduler_name=names.SCHEDULER_NAME,
            wants_gpus=True,
            request=request or whole(),
            unschedulable=True,
            owner_uid=terms.owner.uid,
            terms=terms,
        )
        self.api.pods[made.uid] = made = replace(made, **changes)
        return made

    def high(self, name: str, request: PodRequest | None = None, **changes: Any) -> PodFact:
        """A pod of class 100 that waits."""
        return self.pod(name, request, **{"priority": 100, **changes})

    def bound(self, uid: str) -> bool:
        pod = self.api.pods.get(uid)
        return pod is not None and bool(pod.node)

    def end_leaving(self) -> None:
        """Victims' processes end."""
        for uid in [uid for uid, pod in self.api.pods.items() if pod.terminating]:
            del self.api.pods[uid]

    def bind_sent(self) -> None:
        """kube-scheduler asks about those who were sent, and binds them where they fit."""
        assert self.process is not None
        ledger = self.process.ledger
        for pod in list(self.api.pods.values()):
            held = ledger.nomination(pod.uid)
            view = ledger.view(held.node) if held is not None else None
            if held is None or view is None or pod.node or pod.request is None:
                continue
            placement = place(view, pod.request, pod.uid, Policies())
            if isinstance(placement, Placement):
                self._bind(pod, placement)

    def _bind(self, pod: PodFact, placement: Placement) -> PodFact:
        terms = replace(pod.terms or PodTerms(), started_seconds=BORN)
        assignment = AssignmentFact(AssignmentSource.VGPU, placement.node, "nonce", placement.containers)
        self.api.pods[pod.uid] = made = replace(
            pod,
            node=placement.node,
            phase=Phase.RUNNING,
            admitted=True,
            container_running=True,
            ever_ran=True,
            unschedulable=False,
            assignment=assignment,
            terms=terms,
        )
        return made

    def _ledger_now(self) -> Ledger:
        ledger = Ledger()
        for name, cards in self.api.nodes.items():
            ledger.put_node(node(name))
            ledger.put_inventory(inventory(name, cards))
        for pod in self.api.pods.values():
            ledger.put_pod(pod)
        return ledger


def note_steps(process: Process, noted: list[str]) -> None:
    """From now on each step of a plan is taken down by the plan's name."""
    keeper, step = process.preemption.planner.keeper, process.preemption.planner.keeper.step

    def note(name: str) -> None:
        noted.append(name)
        step(name)

    keeper.step = note  # type: ignore[method-assign]


def play_beside_lows(scenario: Callable[[World], Awaitable[None]], api: Api | None = None) -> None:
    """The scenario in a world of four low pods whose evictions do not end by themselves."""

    async def run() -> None:
        world = World(api)
        world.victims_end = False
        for number in range(4):
            world.low(f"l{number}")
        await scenario(world)
        await world.close()

    run_virtually(run())
