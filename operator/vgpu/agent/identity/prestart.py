"""A container is about to start: whose is it, may it have its cards, and what the runtime must find.

Slot ids enter from kubelet, a CDI file leaves, or PreStartRefused with the text that people read. The order of
steps is `pre_start`; the rules are in the pure modules beside this one. Never guesses.

PodResources names pods without a uid, and a name may be used anew. So a pod is taken for the one that kubelet
starts only if the API showed it accepted by kubelet (status.startTime) before kubelet was asked, which rules out
that kubelet still means an earlier pod of that name, and the API still has the same uid after kubelet answered,
which rules out a later one. That read happens once in a pod's life: from then on the grant on disk tells, without
kubelet and API server.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vgpu import names
from vgpu.agent.clock import Clock, wait_for_event
from vgpu.agent.identity import checks
from vgpu.agent.identity.allocation_log import AllocationLog, Grant, GrantedContainer
from vgpu.agent.identity.cdi import cdi_name
from vgpu.agent.identity.contract import TRUE_WORDS
from vgpu.agent.identity.files import ContainerFiles
from vgpu.agent.identity.matching import Ids, NoMatch, Shown, match_pod, owner_of
from vgpu.agent.identity.neighbours import Neighbours
from vgpu.agent.identity.pod_processes import PodProcesses
from vgpu.agent.identity.pod_resources import PodResources, PodResourcesAway, ShownPod
from vgpu.agent.identity.pod_watch import PodSeen, PodWatch
from vgpu.agent.identity.port import AllocationRefused, CardNow, CardsNow, ContainerAnswer, PreStartRefused
from vgpu.api.assignment import AssignmentModel, parse_assignment
from vgpu.errors import ApiError, MalformedObject

LOG = logging.getLogger(__name__)
ALLOCATION_VARIABLE = "VGPU_ALLOCATION"
PATIENCE_SECONDS = 20.0
"""kubelet gives PreStartContainer 30 s."""
LOOK_AGAIN_SECONDS = 1.0


class PodReader(Protocol):
    """One pod as the API server has it now."""

    async def read(self, namespace: str, name: str) -> PodSeen | None:
        """None when there is none of that name. Raises ApiError and MalformedObject."""


class NotYet(Exception):
    """Not certain or not ready now; may be so without anybody's help."""


@dataclass(frozen=True, slots=True)
class World:
    """Where facts about pods come from. `answered` is told of each answer to Allocate."""

    node: str
    pods: PodWatch
    kubelet: PodResources
    api: PodReader
    processes: PodProcesses
    clock: Clock
    answered: Callable[[], None] = lambda: None


async def patiently(world: World, step: Callable[[], Awaitable[None]]) -> None:
    """Try `step` at each change of the pods and each second. Raises PreStartRefused after 20 s of NotYet."""
    deadline = world.clock.monotonic() + PATIENCE_SECONDS
    while True:
        change = world.pods.change
        try:
            await step()
            return
        except NotYet as error:
            left = deadline - world.clock.monotonic()
            if left <= 0:
                raise PreStartRefused(str(error)) from error
        await wait_for_event(change, world.clock, min(left, LOOK_AGAIN_SECONDS))


class NodeIdentity:
    """Answers kubelet on one node."""

    def __init__(self, world: World, log: AllocationLog, files: ContainerFiles) -> None:
        self._world = world
        self._log = log
        self._files = files
        self._neighbours = Neighbours(
            world.node, world.pods, log, world.processes, files.cards_of_unrecorded(log.grants)
        )
        self._cards: Mapping[str, CardNow] | None = None

    def kubelet_came(self) -> None:
        """Answers before and after are never taken for answers in a row."""
        self._log.leave_gap()

    def cards_changed(self, cards: CardsNow) -> None:
        """These are the node's cards from now on."""
        self._cards = {card.uuid: card for card in cards.cards}

    async def ready_for(self, requests: Sequence[Ids]) -> None:
        """An answer here needs nothing."""

    def allocate(self, requests: Sequence[Ids]) -> list[ContainerAnswer]:
        """One answer for each set of ids, on disk before this returns. Raises AllocationRefused."""
        try:
            entries = self._log.answer(requests)
        except OSError as error:
            raise AllocationRefused(f"the answer cannot be written down on this node: {error}") from error
        self._world.answered()
        return [ContainerAnswer((cdi_name(entry.nonce),), {ALLOCATION_VARIABLE: entry.nonce}) for entry in entries]

    async def pre_start(self, ids: Ids) -> None:
        """Make ready what a container with these slots needs. Raises PreStartRefused, after 20 s at the latest."""
        await patiently(self._world, lambda: self._make_ready(ids))

    async def _make_ready(self, ids: Ids) -> None:
        cards = self._cards
        if cards is None:
            raise NotYet("the cards of this node have not been read yet")
        grant = self._log.granted(ids)
        if grant is None:
            grant = await self._settle(ids, cards)
        else:
            self._check_unaltered(grant)
        self._write(grant, cards)

    async def _settle(self, ids: Ids, cards: Mapping[str, CardNow]) -> Grant:
        """Find whose these answers are, check its assignment and write both down."""
        before = self._world.pods.pods
        try:
            shown = await self._world.kubelet.shown()
        except PodResourcesAway as error:
            raise NotYet(str(error)) from error
        pod, run = self._owner(ids, shown, before)
        pod = await self._confirmed(pod)
        known = self._log.grants.get(pod.uid)
        if known is not None:
            self._check_unaltered(known)
            if known.nonces == run.keys():
                return known  # another container of the pod was quicker
        assignment = self._checked(pod, cards)
        grant = _grant_of(pod, run)
        try:
            self._log.grant(grant)
        except OSError as error:
            raise PreStartRefused(f"{pod.path}: its grant cannot be written down on this node: {error}") from error
        uuids = {card.uuid for container in assignment.containers for card in container.cards}
        LOG.info("cards granted pod=%s uid=%s gpus=%s", pod.path, pod.uid, ",".join(sorted(uuids)))
        return grant

    def _owner(
        self, ids: Ids, shown: Sequence[ShownPod], seen: Mapping[tuple[str, str], PodSeen]
    ) -> tuple[PodSeen, Mapping[str, str]]:
        """The pod whose run of answers has one with `ids`: first among those that are shown to hold them."""
        holders = [pod for pod in shown if pod.ids & ids]
        matches, problem = self._matches(holders or shown, shown, seen)
        found = owner_of(ids, [(pod.path, run) for pod, run in matches], self._log.entries)
        if isinstance(found, NoMatch):
            raise NotYet(problem if holders and problem else found.message)
        return next(match for match in matches if match[0].path == found[0])

    def _matches(
        self, candidates: Sequence[ShownPod], shown: Sequence[ShownPod], seen: Mapping[tuple[str, str], PodSeen]
    ) -> tuple[list[tuple[PodSeen, Mapping[str, str]]], str]:
        """Every candidate whose answers are certain, and why another's are not."""
        matches, problem = [], ""
        for candidate in candidates:
            pod = seen.get((candidate.namespace, candidate.name))
            run: Mapping[str, str] | NoMatch = _not_ready(candidate, pod)
            if pod is not None and not run:
                others = [ids for one in shown if one is not candidate for ids in one.containers.values()]
                containers = [container.slots for container in pod.containers]
                run = match_pod(self._log.entries, containers, Shown(candidate.containers, others))
            if isinstance(run, NoMatch):
                problem = f"{candidate.namespace}/{candidate.name}: {run.message}"
            elif pod is not None:
                matches.append((pod, run))
        return matches, problem

    async def _confirmed(self, pod: PodSeen) -> PodSeen:
        """The same pod as the API server has it now."""
        try:
            now = await self._world.api.read(pod.namespace, pod.name)
        except (ApiError, MalformedObject) as error:
            raise NotYet(f"{pod.path} cannot be read from the API server: {error}") from error
        if now is None or now.uid != pod.uid:
            raise NotYet(f"{pod.path} was deleted")
        return now

    def _checked(self, pod: PodSeen, cards: Mapping[str, CardNow]) -> AssignmentModel:
        """The pod's assignment. Raises NotYet while there is none or no room, PreStartRefused for a wrong one."""
        if not pod.assignment:
            raise NotYet(
                f"{pod.path} has no assignment of cards: it was bound to this node by another hand than the "
                "operator's; it starts when the operator assigns cards to it, otherwise delete it and leave "
                "out spec.nodeName"
            )
        try:
            assignment = parse_assignment(pod.assignment)
        except MalformedObject as error:
            raise PreStartRefused(f"{pod.path}: {error}") from error
        asked = {container.slots.name: container.slots.number for container in pod.containers}
        problem = (
            checks.foreign(assignment, pod.uid, self._world.node)
            or checks.unlike_spec(assignment, asked)
            or checks.unknown_cards(assignment, cards)
        )
        if problem:
            raise PreStartRefused(f"{pod.path}: {problem}")
        own = checks.charges_of(assignment, {c.slots.name: c.slots.kind for c in pod.containers})
        crowd = checks.no_room(own, self._neighbours.before(pod, own, self._log.grants), cards)
        if crowd:
            raise NotYet(f"{pod.path}: {crowd}")
        return assignment

    def _check_unaltered(self, grant: Grant) -> None:
        pod = self._world.pods.pods.get((grant.namespace, grant.name))
        if pod is not None and pod.uid == grant.uid and pod.assignment != grant.assignment:
            raise PreStartRefused(
                f"{pod.path}: its {names.ASSIGNMENT_ANNOTATION} was altered since the pod was first let start; "
                "put it back or delete the pod"
            )

    def _write(self, grant: Grant, cards: Mapping[str, CardNow]) -> None:
        path = f"{grant.namespace}/{grant.name}"
        assignment = parse_assignment(grant.assignment)
        problem = checks.unknown_cards(assignment, cards) or self._files.isolation_fault(assignment, cards)
        if problem:
            raise PreStartRefused(f"{path}: {problem}")
        try:
            self._files.ensure(grant, assignment, cards)
        except OSError as error:
            raise PreStartRefused(f"{path}: its CDI file cannot be written on this node: {error}") from error


def _not_ready(shown: ShownPod, pod: PodSeen | None) -> NoMatch | Mapping[str, str]:
    """Why this pod cannot be told yet; nothing when it can."""
    if pod is None:
        return NoMatch("it is not on this node's list of pods yet")
    if pod.problem:
        return NoMatch(pod.problem)
    if not pod.accepted:
        return NoMatch("the API server does not show yet that kubelet accepted it")
    unknown = sorted(shown.containers.keys() - {container.slots.name for container in pod.containers})
    if unknown:
        return NoMatch(f"kubelet shows slots for container {unknown[0]}, which its spec does not have")
    return {}


def _grant_of(pod: PodSeen, run: Mapping[str, str]) -> Grant:
    spec = {container.slots.name: container for container in pod.containers}
    containers = tuple(
        GrantedContainer(
            nonce=nonce,
            name=name,
            kind=spec[name].slots.kind,
            control_off=spec[name].control_switch in TRUE_WORDS,
            priority=spec[name].priority,
        )
        for nonce, name in run.items()
    )
    return Grant(
        uid=pod.uid, namespace=pod.namespace, name=pod.name, assignment=pod.assignment, containers=containers
    )
