"""Nodes whose runtime knows no CDI: a container's cards must stand in the answer to Allocate, which names no pod.

Slot ids enter from kubelet; environment and mounts leave in the answer itself, or a refusal. It rests on the
operator, which binds one pod at a time to a node whose inventory says `deferred`: that pod is the only one that
kubelet has not accepted yet. Where it is not so nobody is guessed at. Before a container starts, kubelet's
PodResources must show that its slots are those of the pod that the answer was made for, so that no mistake of the
first step ever runs.
"""

import logging
from collections.abc import Mapping, Sequence

from vgpu.agent.clock import wait_for_event
from vgpu.agent.identity import checks
from vgpu.agent.identity.allocation_log import AllocationLog, Grant, GrantedContainer
from vgpu.agent.identity.contract import TRUE_WORDS
from vgpu.agent.identity.files import ContainerFiles
from vgpu.agent.identity.matching import Ids
from vgpu.agent.identity.neighbours import Neighbours
from vgpu.agent.identity.pod_resources import PodResourcesAway, ShownPod
from vgpu.agent.identity.pod_watch import ContainerSeen, PodSeen
from vgpu.agent.identity.port import AllocationRefused, CardNow, CardsNow, ContainerAnswer, PreStartRefused
from vgpu.agent.identity.prestart import ALLOCATION_VARIABLE, NotYet, World, patiently
from vgpu.api.assignment import AssignmentModel, parse_assignment
from vgpu.errors import ApiError, MalformedObject

LOG = logging.getLogger(__name__)
PATIENCE_SECONDS = 3.0
"""kubelet may see a pod before this agent does. Its own loop stands still meanwhile, so not for long."""


class DeferredIdentity:
    """Answers kubelet on one node that takes one unconfirmed pod at a time."""

    def __init__(self, world: World, log: AllocationLog, files: ContainerFiles) -> None:
        self._world = world
        self._log = log
        self._files = files
        self._neighbours = Neighbours(world.node, world.pods, log, world.processes)
        self._cards: Mapping[str, CardNow] = {}
        self._begun: dict[str, tuple[GrantedContainer, ...]] = {}
        self._certain: set[str] = set()

    def kubelet_came(self) -> None:
        """Whatever it was about to ask for, it begins anew."""
        self._begun.clear()
        self._log.leave_gap()

    def cards_changed(self, cards: CardsNow) -> None:
        """These are the node's cards from now on."""
        self._cards = {card.uuid: card for card in cards.cards}

    async def ready_for(self, requests: Sequence[Ids]) -> None:
        """Return once the pod that waits is known, after three seconds in any case."""
        deadline = self._world.clock.monotonic() + PATIENCE_SECONDS
        while (left := deadline - self._world.clock.monotonic()) > 0:
            change = self._world.pods.change
            if not isinstance(self._next(len(requests[0])), str):
                return
            await wait_for_event(change, self._world.clock, left)

    def allocate(self, requests: Sequence[Ids]) -> list[ContainerAnswer]:
        """One answer for each set of ids. Raises AllocationRefused: the pod fails, its owner makes another."""
        return [self._answer(ids) for ids in requests]

    async def pre_start(self, ids: Ids) -> None:
        """Make sure that the answer was for this container's pod. Raises PreStartRefused, within 20 s."""
        await patiently(self._world, lambda: self._make_ready(ids))

    async def _make_ready(self, ids: Ids) -> None:
        grant = self._log.granted(ids)
        if grant is None:
            raise PreStartRefused("its slots are in no answer that this agent remembers; delete the pod")
        pod = None if grant.uid in self._certain else await self._make_certain(ids, grant)
        assignment = parse_assignment(grant.assignment)
        cards = self._cards
        problem = checks.unknown_cards(assignment, cards) or self._files.isolation_fault(assignment, cards)
        if problem:
            raise PreStartRefused(f"{grant.namespace}/{grant.name}: {problem}")
        if pod is not None:
            self._require_room(pod, assignment)
            self._certain = (self._certain & self._log.grants.keys()) | {grant.uid}
        for container in grant.containers:
            self._prepare(grant.uid, container, assignment)

    def _answer(self, ids: Ids) -> ContainerAnswer:
        found = self._next(len(ids))
        if isinstance(found, str):
            raise AllocationRefused(found)
        pod, container = found
        assignment = self._checked(pod)
        try:
            [entry] = self._log.answer([ids])
            granted = _granted(container, entry.nonce)
            edits = self._files.prepare(pod.uid, granted, assignment, self._cards)
            self._keep(pod, granted)
        except OSError as error:
            raise AllocationRefused(f"{pod.path}: its answer cannot be written on this node: {error}") from error
        return ContainerAnswer((), {**edits.env, ALLOCATION_VARIABLE: entry.nonce}, edits.mounts)

    def _next(self, number: int) -> tuple[PodSeen, ContainerSeen] | str:
        """The one pod that kubelet can be asking for, and its next container; or why there is none."""
        waiting = [pod for pod in self._world.pods.pods.values() if self._waits(pod)]
        if len(waiting) > 1:
            names = ", ".join(sorted(pod.path for pod in waiting))
            return f"more than one pod waits on this node, which takes one at a time: {names}"
        if not self._world.pods.is_synced or not waiting:
            return "no pod with an assignment waits on this node, as far as this agent has seen"
        [pod] = waiting
        if pod.problem:
            return f"{pod.path}: {pod.problem}"
        container = pod.containers[len(self._begun.get(pod.uid, ()))]
        if container.slots.number != number:
            return f"kubelet asks {number} slots, {container.slots.name} of {pod.path} is next with another number"
        return pod, container

    def _waits(self, pod: PodSeen) -> bool:
        asks = bool(pod.containers or pod.problem)
        return asks and not pod.ended and not pod.accepted and pod.uid not in self._log.grants

    def _checked(self, pod: PodSeen) -> AssignmentModel:
        if not pod.assignment:
            raise AllocationRefused(f"{pod.path} has no assignment: the operator's scheduler did not bind it")
        try:
            assignment = parse_assignment(pod.assignment)
        except MalformedObject as error:
            raise AllocationRefused(f"{pod.path}: {error}") from error
        asked = {container.slots.name: container.slots.number for container in pod.containers}
        problem = (
            checks.foreign(assignment, pod.uid, self._world.node)
            or checks.unlike_spec(assignment, asked)
            or checks.unknown_cards(assignment, self._cards)
            or self._files.isolation_fault(assignment, self._cards)
        )
        if problem:
            raise AllocationRefused(f"{pod.path}: {problem}")
        return assignment

    def _keep(self, pod: PodSeen, granted: GrantedContainer) -> None:
        """On disk with the pod's last container: before that none of them starts."""
        containers = (*self._begun.pop(pod.uid, ()), granted)
        if len(containers) < len(pod.containers):
            self._begun[pod.uid] = containers
            return
        self._log.grant(
            Grant(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                assignment=pod.assignment,
                containers=containers,
            )
        )
        LOG.info("cards granted pod=%s uid=%s", pod.path, pod.uid)

    def _require_room(self, pod: PodSeen, assignment: AssignmentModel) -> None:
        """Raises NotYet while others hold its cards and none of its containers has run."""
        if pod.started:
            return
        own = checks.charges_of(assignment, {c.slots.name: c.slots.kind for c in pod.containers})
        crowd = checks.no_room(own, self._neighbours.before(pod, own, self._certain), self._cards)
        if crowd:
            raise NotYet(f"{pod.path}: {crowd}")

    async def _make_certain(self, ids: Ids, grant: Grant) -> PodSeen:
        """The pod as the API server has it.

        Raises NotYet while it cannot be told, PreStartRefused where kubelet gave the answer to another."""
        path = f"{grant.namespace}/{grant.name}"
        try:
            shown = await self._world.kubelet.shown()
            now = await self._world.api.read(grant.namespace, grant.name)
        except (PodResourcesAway, ApiError, MalformedObject) as error:
            raise NotYet(f"it is not certain yet that these cards are for {path}: {error}") from error
        holders = [pod for pod in shown if pod.ids & ids]
        if now is None or now.uid != grant.uid or now.ended or _holds_otherwise(holders, grant, self._log):
            raise PreStartRefused(
                f"the cards of this answer were meant for {path}, and kubelet gave it to another container; "
                "delete the pod, and it is placed anew"
            )
        # PodResources does not show plain init containers. Had another pod taken this answer, there would have
        # been none for the pod it was meant for, and kubelet would have refused that one.
        if not holders and not now.accepted:
            raise NotYet(f"kubelet does not show yet that {path} holds these slots")
        return now

    def _prepare(self, uid: str, container: GrantedContainer, assignment: AssignmentModel) -> None:
        try:
            self._files.prepare(uid, container, assignment, self._cards)
        except OSError as error:
            raise PreStartRefused(f"{container.name}: its folders cannot be made on this node: {error}") from error


def _granted(container: ContainerSeen, nonce: str) -> GrantedContainer:
    return GrantedContainer(
        nonce=nonce,
        name=container.slots.name,
        kind=container.slots.kind,
        control_off=container.control_switch in TRUE_WORDS,
        priority=container.priority,
    )


def _holds_otherwise(holders: Sequence[ShownPod], grant: Grant, log: AllocationLog) -> bool:
    """Does kubelet show these slots with another pod, or another container of this one, than was meant?"""
    answered = {entry.nonce: entry.ids for entry in log.entries}
    meant = {container.name: answered.get(container.nonce) for container in grant.containers}
    return any(
        (pod.namespace, pod.name) != (grant.namespace, grant.name)
        or any(meant.get(name) != ids for name, ids in pod.containers.items())
        for pod in holders
    )
