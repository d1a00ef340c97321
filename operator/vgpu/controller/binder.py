"""Binds: one synchronous step re-checks, picks cards and books them; then one Binding carries the assignment.

Enters: bind calls of kube-scheduler, nodes with pods that were bound without an assignment. Leaves: error texts
("" = bound) within the deadline, writes through the writer, bookings in the ledger. What happens to a write whose
outcome is not known is the attempt's. May not live here: which card fits.
"""

import asyncio
import logging
from dataclasses import dataclass

from vgpu.controller.attempt import Attempt, Shell
from vgpu.controller.binder_parts import BinderParts
from vgpu.controller.carried import carried_annotations
from vgpu.controller.guard import one_object
from vgpu.controller.wire import BindArgs
from vgpu.controller.writes import BindingWrite
from vgpu.core.facts import AssignmentSource, Plugin, PodFact
from vgpu.core.late_assignment import place_late
from vgpu.core.ledger import Booking
from vgpu.core.placement import Placement
from vgpu.core.preempt.held_cards import place_held_first
from vgpu.core.reasons import Refusal
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject
from vgpu.kube.objects import Key

__all__ = ["Binder", "BinderParts", "LateRefusal"]

LOG = logging.getLogger(__name__)
LATE_REST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LateRefusal:
    """A bound pod without cards that got none where it is, and why."""

    pod: PodFact
    refusal: Refusal


@dataclass(slots=True)
class _Flight:
    """One pod's bind in progress. `attempt` is None until something is decided."""

    node: str
    callers: int = 0
    attempt: Attempt | None = None
    task: "asyncio.Task[str] | None" = None

    def count(self, difference: int) -> None:
        self.callers += difference
        if self.attempt is not None:
            self.attempt.callers = self.callers


class Binder:
    """At most one attempt per pod uid at any time."""

    def __init__(self, parts: BinderParts) -> None:
        self._parts = parts
        self._shell = Shell(parts.ledger, parts.clock, self.read_pod)
        self._flights: dict[str, _Flight] = {}
        self._rest_until: dict[str, float] = {}

    async def bind(self, args: BindArgs) -> str:
        """Bind the pod to the node with cards; "" = done. A second call for the same pod joins the first.

        Answers within the deadline: an outcome that is not known by then is an error, the booking stands, and the
        reading goes on.
        """
        flight = self._flights.get(args.pod_uid)
        if flight is None:
            flight = self._flights[args.pod_uid] = _Flight(args.node)
            flight.task = asyncio.create_task(self._fly(flight, args))
        elif flight.node != args.node:
            return f"cards of node {flight.node} are booked for this pod; its binding is under way"
        assert flight.task is not None
        flight.count(+1)
        try:
            return await self._within_deadline(flight.task)
        finally:
            flight.count(-1)

    def consider_late(self, node: str) -> list[LateRefusal]:
        """Give cards to pods that stand on `node` without an assignment and never ran; says who got none."""
        view = self._parts.ledger.view(node)
        refused: list[LateRefusal] = []
        for entry in view.unassigned if view is not None else ():
            pod = self._parts.ledger.pod(entry.uid)
            view = self._parts.ledger.view(node)
            if pod is None or view is None or entry.uid in self._flights or self._rests(entry.uid):
                continue
            decision = place_late(view, pod, self._parts.policies)
            if isinstance(decision, Refusal):
                refused.append(LateRefusal(pod, decision))
            elif decision is not None:
                self._assign_late(pod, decision)
        return refused

    def _rests(self, uid: str) -> bool:
        """True shortly after a late assignment failed: every change of the ledger asks again."""
        return self._parts.clock.monotonic() < self._rest_until.get(uid, 0.0)

    def in_flight(self, uid: str) -> bool:
        """Whether an attempt for this pod is under way, which ends its booking or lets it stand."""
        return uid in self._flights

    async def close(self) -> None:
        """Stop waiting for outcomes (the process ends); bookings are rebuilt from pods by whoever leads next."""
        tasks = [flight.task for flight in self._flights.values() if flight.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _within_deadline(self, task: "asyncio.Task[str]") -> str:
        sleeper = asyncio.ensure_future(self._parts.clock.sleep(self._parts.deadline_seconds))
        try:
            await asyncio.wait({task, sleeper}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
        if task.done():
            return task.result()
        return (
            f"the outcome is not known after {self._parts.deadline_seconds:g} s; the cards stay booked for this "
            "pod until it is"
        )

    async def _fly(self, flight: _Flight, args: BindArgs) -> str:
        try:
            pod = await self._find(args)
            if isinstance(pod, str):
                return pod
            booked_before = self._parts.ledger.booking(pod.uid) is not None
            attempt = self._decide(pod, args)
            if isinstance(attempt, str):
                return attempt
            flight.attempt = attempt
            flight.count(0)
            alone = booked_before or pod.request is None
            outcome = ("" if alone else await self._muster(pod)) or await attempt.run()
            self._told(pod, args.node, outcome)
            return outcome
        finally:
            del self._flights[args.pod_uid]
            self._parts.changed()

    async def _muster(self, pod: PodFact) -> str:
        """Wait for the others of the pod's gang; where they do not come, its booking ends."""
        why = "its gang could not be looked at: see the operator's log"
        with one_object("gangs: bind", f"{pod.namespace}/{pod.name}"):
            why = await self._parts.barrier(pod)
        booking = self._parts.ledger.booking(pod.uid)
        if why and booking is not None:
            self._parts.ledger.unbook(pod.uid, booking.nonce)
        return why

    async def _find(self, args: BindArgs) -> PodFact | str:
        """The pod by the ledger, or by one read when its event has not come yet."""
        pod = self._parts.ledger.pod(args.pod_uid)
        # kube-scheduler binds nothing that a gate holds back: the event that shows it gone is on its way.
        if pod is None or pod.gated:
            try:
                pod = await self.read_pod(args.pod_namespace, args.pod_name)
            except (ApiRefused, ApiUnavailable, MalformedObject) as error:
                return f"pod {args.pod_namespace}/{args.pod_name} cannot be read: {error}"
            # Its event may have come while it was read, and then knows more.
            known = self._parts.ledger.pod(args.pod_uid)
            pod = known if known is not None and not known.gated else pod
        if (pod.namespace, pod.name, pod.uid) != (args.pod_namespace, args.pod_name, args.pod_uid):
            return f"there is no pod {args.pod_namespace}/{args.pod_name} with uid {args.pod_uid}"
        return pod

    def _decide(self, pod: PodFact, args: BindArgs) -> Attempt | str:
        """The synchronous step: re-check, place, book. "" when the pod is bound as wanted already."""
        barred = _barred(pod, args.node)
        if barred is not None:
            return barred
        view = self._parts.ledger.view(args.node)
        if view is None or view.node is None:
            return f"there is no node {args.node}"
        if pod.request is None:
            return self._attempt(pod, args.node, None, {})
        standing = self._parts.ledger.booking(pod.uid)
        if standing is not None and standing.node != args.node:
            return f"cards of node {standing.node} are booked for this pod"
        return self._book(pod, pod.request, view, standing)

    def _book(self, pod: PodFact, request: PodRequest, view: NodeView, standing: Booking | None) -> Attempt | str:
        booking = standing
        if booking is None:
            barred = self._parts.queue_refusal(pod)
            if barred is not None:
                return barred.message
            plans = self._parts.ledger.plans
            placement = place_held_first(view, request, pod.uid, self._parts.policies, plans)
            if isinstance(placement, Refusal):
                return placement.message
            booking = self._booking(pod, placement)
        annotations = self._annotations(pod, booking, view)
        if isinstance(annotations, str):
            return annotations
        if standing is None:
            self._parts.ledger.book(booking)
            self._parts.changed()
        return self._attempt(pod, view.name, booking, annotations)

    def _attempt(self, pod: PodFact, node: str, booking: Booking | None, annotations: dict[str, str]) -> Attempt:
        key = Key(pod.namespace, pod.name, pod.uid)
        write = BindingWrite(pod.namespace, pod.name, pod.uid, node, annotations)
        return Attempt(self._shell, key, node, booking, lambda: self._parts.writer.bind(write))

    def _booking(self, pod: PodFact, placement: Placement) -> Booking:
        return Booking(pod.uid, pod.namespace, pod.name, placement.node, self._parts.nonce(), placement)

    def _annotations(self, pod: PodFact, booking: Booking, view: NodeView) -> dict[str, str] | str:
        plugin = view.inventory.plugin if view.inventory is not None else Plugin.VGPU
        return carried_annotations(pod, booking, plugin, self._parts.presets, self._parts.clock.unix_seconds())

    def _assign_late(self, pod: PodFact, placement: Placement) -> None:
        booking = self._booking(pod, placement)
        view = self._parts.ledger.view(pod.node)
        annotations = self._annotations(pod, booking, view) if view is not None else ""
        if isinstance(annotations, str):
            LOG.warning("no late assignment pod=%s/%s: %s", pod.namespace, pod.name, annotations)
            return
        self._parts.ledger.book(booking)
        key, carried = Key(pod.namespace, pod.name, pod.uid), annotations
        attempt = Attempt(
            self._shell, key, pod.node, booking, lambda: self._parts.writer.assign_bound(key, carried)
        )
        attempt.late = True
        flight = self._flights[pod.uid] = _Flight(pod.node, attempt=attempt)
        flight.task = asyncio.create_task(self._fly_late(pod, attempt))
        self._parts.changed()

    async def _fly_late(self, pod: PodFact, attempt: Attempt) -> str:
        try:
            outcome = await attempt.run()
            self._told(pod, pod.node, outcome)
            now = self._parts.clock.monotonic()
            self._rest_until = {uid: until for uid, until in self._rest_until.items() if until > now}
            if outcome:
                self._rest_until[pod.uid] = now + LATE_REST_SECONDS
            return outcome
        finally:
            del self._flights[pod.uid]
            self._parts.changed()

    async def read_pod(self, namespace: str, name: str) -> PodFact:
        """The pod as it is now. Raises ApiRefused (404: gone), ApiUnavailable, MalformedObject."""
        raw = await self._parts.reader.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return self._parts.decode_pod(raw).fact

    def _told(self, pod: PodFact, node: str, outcome: str) -> None:
        if outcome:
            LOG.info("not bound pod=%s/%s node=%s: %s", pod.namespace, pod.name, node, outcome)
            return
        booking = self._parts.ledger.booking(pod.uid)
        known = self._parts.ledger.pod(pod.uid)
        containers = booking.placement.containers if booking else ()
        if not booking and known is not None and known.assignment is not None:
            containers = known.assignment.containers
        cards = ",".join(card.uuid for container in containers for card in container.cards)
        LOG.info("bound pod=%s/%s node=%s cards=%s", pod.namespace, pod.name, node, cards)


def _barred(pod: PodFact, node: str) -> str | None:
    """Why this pod is not to be bound at all; "" when it is bound as wanted; None when it may be bound."""
    if pod.node:
        ours = pod.assignment is not None and pod.assignment.source is AssignmentSource.VGPU
        return "" if ours and pod.node == node else f"the pod is bound to {pod.node} already"
    if pod.terminating or pod.ended or pod.gated:
        return "the pod is being deleted, has ended or is held back by a scheduling gate"
    return pod.refusal.message if pod.refusal is not None else None
