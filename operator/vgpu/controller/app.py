"""Puts one replica of the operator together and runs it.

Enters: settings and a kubeconfig. Leaves: watches that keep a warm ledger in every replica; in the one that
leads, the extender's answers and all writes. May not live here: what any part does.
"""

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from vgpu.controller import health
from vgpu.controller.answers import Answers
from vgpu.controller.binder import Binder, BinderParts
from vgpu.controller.clock import SystemClock
from vgpu.controller.consumer import Consumer
from vgpu.controller.elector import Callbacks, Candidate, Elector, new_identity
from vgpu.controller.endpoint import advertised_address, publish_endpoint
from vgpu.controller.events import EventReporter
from vgpu.controller.extender_side import ExtenderSide, ExtenderSideParts
from vgpu.controller.fence import Fence
from vgpu.controller.http_server import HttpServer, serve
from vgpu.controller.kopf_host import Hooks, run_kopf
from vgpu.controller.late_eviction import LateEvictions
from vgpu.controller.leadership import Leadership
from vgpu.controller.metrics import Metrics, Snapshot, WatchRow, watch_row
from vgpu.controller.nominator import Deciders, Nominator
from vgpu.controller.preempt.assembly import Preemption, Shared
from vgpu.controller.roster_side import RosterSide
from vgpu.controller.status import StatusPublisher
from vgpu.controller.stray_bookings import StrayBookings, StrayParts
from vgpu.controller.supervisor import Supervisor
from vgpu.controller.translate import Translator
from vgpu.controller.unassigned import Late, UnassignedPods
from vgpu.controller.warm import warm_views
from vgpu.controller.watched import WatchParts, ledger_reflectors
from vgpu.controller.writer import Writer
from vgpu.core.facts import InventoryFact, PodFact
from vgpu.core.gate import GateLimits
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.presets import PresetSettings
from vgpu.core.reasons import Refusal
from vgpu.core.request import CardPolicy, NodePolicy
from vgpu.errors import ConfigurationError
from vgpu.kube.client import ApiClient
from vgpu.kube.connection import load_connection
from vgpu.kube.reflector import Reflector
from vgpu.settings import OperatorSettings

FactT = TypeVar("FactT")
USER_AGENT = "vgpu-operator"
DECIDING = ("nodes", "pods", "inventories", "queues", "namespaces", "plans")
"""A new leader folds a list of each before it answers anything."""
CLOSE_SECONDS = 0.3
EXTRA_SILENCE_SECONDS = 20.0
"""A reflector ends a silent watch by itself; readiness notices one that does not."""


async def run_operator(settings: OperatorSettings, kubeconfig: Path | None) -> None:
    """Run one replica until SIGTERM. Raises ConfigurationError when it cannot start as told."""
    connection = await load_connection(kubeconfig)
    async with ApiClient(connection, USER_AGENT) as client:
        operator = Operator(settings, client, advertised_address(settings))
        await operator.open()
        try:
            hooks = Hooks(operator.start, operator.stop, operator.queue_changed)
            await run_kopf(hooks, connection, USER_AGENT)
        finally:
            await operator.close()


class Operator:
    """All parts of one replica, wired. `open` before kopf starts, `start` and `stop` by kopf, `close` after it."""

    def __init__(self, settings: OperatorSettings, client: ApiClient, address: str) -> None:
        self.settings = settings
        self.ledger = Ledger(GateLimits(settings.unadmitted_limit, settings.admission_refused_limit))
        self.consumer = Consumer(self.ledger, settings.coalesce_seconds)
        self.fence = Fence(settings.renew_deadline_seconds, settings.write_margin_seconds)
        self.writer = Writer(client, self.fence, settings)
        self.metrics = Metrics()
        self.queues = RosterSide(client, settings, self.ledger, self.writer)
        self._client = client
        self._address = address
        self._supervisor = Supervisor()
        self._http: HttpServer | None = None
        self._presets = PresetSettings(settings.volcano_memory_factor, settings.hami_memory_factor)
        self._policies = Policies(
            NodePolicy(settings.node_policy),
            (CardPolicy(settings.card_policy),),
            volcano_matches_count=settings.volcano_matches_count,
            volcano_unit_mib=settings.volcano_memory_factor,
        )
        self._translator = Translator(settings, self._inventory_of)
        self._build_decisions()
        self._build_reflectors()
        self._build_leadership()
        self._build_extender()

    def _build_decisions(self) -> None:
        settings, ledger, poke = self.settings, self.ledger, self.consumer.poke
        self.index = FitIndex(ledger, self._policies)
        plans = self.preemption = self._preemption()
        self.queues.on_change(plans.rules_changed)
        says, name = plans.gangs.notes(plans.people.planner_says), settings.scheduler_name
        self.answers = Answers(ledger, self.index, name, self._refusal, says, plans.people.held_for)
        self.status = StatusPublisher(ledger, self.writer, self.fence, settings)
        self.events = EventReporter(ledger, self.answers, self.writer, self.fence, settings)
        self.events.codes = self.preemption.told.codes
        deciders = Deciders(ledger, self.index, self._policies, self.preemption.recovery.offers)
        self.nominator = Nominator(deciders, self.writer, self.fence, settings, self.consumer)
        self.binder = Binder(
            BinderParts(
                ledger=ledger,
                policies=self._policies,
                presets=self._presets,
                writer=self.writer,
                reader=self._client,
                decode_pod=self._translator.decode_pod,
                clock=SystemClock(),
                deadline_seconds=settings.bind_deadline_seconds,
                changed=poke,
                barrier=self.preemption.gangs.barrier.hold,
                queue_refusal=self._refusal,
            )
        )
        self.waiters = self.queues.waiters(self.nominator.changed)
        self.queues.on_change(self.events.changed)

    def _build_reflectors(self) -> None:
        poke = self.consumer.poke
        self.strays = StrayBookings(StrayParts(self.ledger, self.binder.read_pod, self.binder.in_flight, poke))
        parts = WatchParts(
            client=self._client,
            settings=self.settings,
            ledger=self.ledger,
            roster=self.queues.roster,
            translator=self._translator,
            status=self.status,
            poke=poke,
            in_step=self.strays.synced,
        )
        self.reflectors: dict[str, Reflector[Any]] = {
            **ledger_reflectors(parts),
            **self.queues.watches.reflectors,
            "plans": self.preemption.reflector,
        }

    def _build_extender(self) -> None:
        self.extender = ExtenderSide(
            ExtenderSideParts(
                client=self._client,
                settings=self.settings,
                ledger=self.ledger,
                index=self.index,
                translator=self._translator,
                binder=self.binder,
                writer=self.writer,
                metrics=self.metrics,
                barred=self._refusal,
                refusal=self.leadership.refusal,
                before=self.nominator.before_answer,
                answered=(self.nominator.answered, self.waiters.answered),
            )
        )

    def _build_leadership(self) -> None:
        deciding = [self.reflectors[kind] for kind in DECIDING]
        self.leadership = Leadership(self.fence, deciding, (partial(warm_views, self.ledger), self._take_service))
        self.late_evictions = LateEvictions(
            self.ledger,
            self.writer,
            enabled=self.settings.evict_unassigned,
            interval_seconds=self.settings.evict_unassigned_seconds,
            now=time.monotonic,
        )
        late = Late(self.binder, self.late_evictions)
        self.unassigned = UnassignedPods(
            self.ledger, late, self.events, self.fence, lambda: self.leadership.serving
        )
        actors = (self.events, self.nominator, self.status, self.unassigned, self.queues.status, self.waiters)
        for listener in self.preemption.listeners:
            self.consumer.add(listener)
        self.leadership.on_start(self.preemption.start_over)
        for actor in actors:
            self.consumer.add(actor)
            self.leadership.on_start(actor.start_over)
        self.leadership.on_start(self.queues.watches.start_over)
        callbacks = Callbacks(self.leadership.started, self.leadership.stopped)
        candidate = Candidate(new_identity(), self._address)
        self.elector = Elector(self._client, self.writer, self.settings, candidate, callbacks)

    async def open(self) -> None:
        """Listen for plain HTTP. Raises ConfigurationError when the port cannot be had."""
        asked, owed = self.preemption.people.what_if(), self.preemption.people.owed
        sources = health.Sources(
            self.ledger, self.answers, self.metrics, self.snapshot, self.watches, self.problems, asked, owed
        )
        host, port = self.settings.http_host, self.settings.http_port
        try:
            self._http = await serve(health.application(sources), (host, port), limits=health.LIMITS)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on VGPU_HTTP_HOST:VGPU_HTTP_PORT {host}:{port}: {error}"
            ) from error

    async def start(self) -> None:
        """Start everything that runs until stop."""
        for kind, reflector in self.reflectors.items():
            self._supervisor.start(f"watch of {kind}", reflector.run)
        for name, work in {**self.queues.tasks(), **self.preemption.tasks()}.items():
            self._supervisor.start(name, work)
        self._supervisor.start("elector", self.elector.run)
        self._supervisor.start("consumer", self.consumer.run)
        self._supervisor.start("status", self.status.run)
        self._supervisor.start("events: watch", self.events.watch)
        self._supervisor.start("events: tell", self.events.tell)
        self._supervisor.start("events: reports", self.events.tell_reports)
        self._supervisor.start("nominations", self.nominator.run)
        self._supervisor.start("nominations: expire", self.nominator.expire)
        self._supervisor.start("stray bookings", self.strays.run)
        self._supervisor.start("late evictions", self.late_evictions.run)

    async def stop(self) -> None:
        """Stop everything; the Lease is given back."""
        self.leadership.stopped()
        await self.preemption.close()
        await self.binder.close()
        await self._supervisor.stop()

    async def close(self) -> None:
        """Stop listening; a request that is being answered gets a moment."""
        runners = [runner for runner in (self.extender.server, self._http) if runner is not None]
        if runners:
            await asyncio.wait([asyncio.ensure_future(r.cleanup()) for r in runners], timeout=CLOSE_SECONDS)

    def queue_changed(self, name: str) -> None:
        """An event of a GpuQueue: what waiting pods are told may be another now."""
        self.events.changed()

    def watches(self) -> dict[str, WatchRow]:
        """Every watch as it stands."""
        now = time.monotonic()
        running = {**self.reflectors, **self.queues.watches.running}
        states = {kind: reflector.state for kind, reflector in running.items()}
        states["lease"] = self.elector.reflector.state
        return {kind: watch_row(state, now) for kind, state in states.items()}

    def problems(self) -> list[str]:
        """What keeps this replica from being ready, leading or not."""
        silence_seconds = self.settings.watch_silence_seconds + EXTRA_SILENCE_SECONDS
        found = self._supervisor.problems() + health.watch_problems(self.watches(), silence_seconds)
        return [*found, self.elector.problem] if self.elector.problem else found

    def snapshot(self) -> Snapshot:
        """Everything that a scrape of the metrics shows."""
        views = map(self.ledger.view, self.ledger.nodes())
        return Snapshot(
            views=tuple(view for view in views if view is not None and view.inventory is not None),
            pending=self.answers.pending_by_reason(),
            writes=dict(self.writer.counts),
            watches=self.watches(),
            version=self.ledger.version,
            recounts=self.ledger.recounts,
            leading=self.fence.holds_lease,
            serving=not self.leadership.refusal(),
            queues=len(self.queues.roster.queues),
            preemption=self.preemption.people.state(),
        )

    def _preemption(self) -> Preemption:
        return Preemption(
            Shared(
                client=self._client,
                settings=self.settings,
                ledger=self.ledger,
                index=self.index,
                policies=self._policies,
                writer=self.writer,
                roster=self.queues.roster,
                decode_pod=self._translator.decode_pod,
                metrics=self.metrics.preemption,
                poke=self.consumer.poke,
            )
        )

    def _refusal(self, pod: PodFact) -> Refusal | None:
        """Why the pod may not start now although it fits: its queue, its gang."""
        return self.queues.gate.refusal(pod) or self.preemption.gangs.desk.refusal(pod)

    def _inventory_of(self, node: str) -> InventoryFact | None:
        view = self.ledger.view(node)
        return view.inventory if view is not None else None

    async def _take_service(self) -> None:
        await self.extender.open()
        await publish_endpoint(self.writer, self._address, self.settings.namespace)
