"""Looks for room for the gangs that wait, in the order of service, without holding up the loop for long.

Enters: the fit index, the ledger, what nodes carry, whose turn it is, gangs that are complete. Leaves: offers that
fit together now. May not live here: holding, writing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vgpu.controller.learning import in_pieces, learn
from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.intree import obstacle
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import Turns, waits_for_us
from vgpu.core.placement import Policies
from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.eligible import Standing
from vgpu.core.preempt.facts import NOTHING, Amounts, Workload
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.gang_offer import GangClaim, GangOffer, Order, Room, SingleClaim, offers_in_pieces
from vgpu.core.preempt.gang_state import GangState, starts_with
from vgpu.core.preempt.queues import may_start
from vgpu.core.preempt.room import is_free
from vgpu.core.preempt.usage import QueueUsage
from vgpu.core.views import NodeView, Reservation

SPARE_NODES = 16
"""Fitting nodes that are looked at for a gang beside one for each member."""
SINGLES = 64
"""Single pods before the last gang that take their place first, at most."""


class RoomRoster(Protocol):
    """What is asked of the roster."""

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """All GPU pods that are not over, by uid."""

    @property
    def uses(self) -> Mapping[str, NodeUse]:
        """What all pods of a node ask for beyond cards, by node."""

    def standing(self) -> Standing:
        """How the queues stand."""

    def usage(self, queue: str) -> QueueUsage:
        """What the queue uses and is promised now."""


@dataclass(frozen=True, slots=True)
class RoomParts:
    """What is looked at. `turns`: the order of this moment; `most_unadmitted`: pods that kubelet has not admitted,
    per node; `absent`: pods that are created when there is room for them."""

    ledger: Ledger
    index: FitIndex
    policies: Policies
    roster: RoomRoster
    turns: Callable[[], Turns]
    scheduler_name: str
    most_unadmitted: int
    absent: Callable[[], Iterable[PodFact]] = lambda: ()


class GangRooms:
    """See the module."""

    def __init__(self, parts: RoomParts) -> None:
        self._parts = parts

    async def prepare(self, states: Iterable[GangState]) -> None:
        """Come back when `find` is quick for these gangs."""
        await learn(self._parts.index, {pod.request for state in states for pod in state.waiting})

    async def find(self, states: Sequence[GangState]) -> tuple[list[GangOffer], dict[str, int]]:
        """Offers for gangs that fit, and for how many members of each other one there is room (-1: its queue is
        against it). Others have their turn meanwhile: ask still() before anything is held."""
        turns = self._parts.turns()
        claims = [
            GangClaim(state.gang.key, state.waiting, state.missing, turns.key(state.required[0]))
            for state in states
        ]
        if not claims:
            return [], {}

        def admits(served: Sequence[GangClaim], claim: GangClaim) -> bool:
            before = [pod for one in served for pod in one.pods[: one.missing]]
            return self._queue_admits(before, claim.pods[: claim.missing])

        views = self._views(states)
        singles = self._singles(turns, max(claim.order for claim in claims)) if views else []
        parts = self._parts
        room = Room(views, parts.policies, parts.roster.uses, parts.most_unadmitted, self._own)
        return await in_pieces(offers_in_pieces(claims, singles, room, admits))

    def still(self, offers: Iterable[GangOffer], states: Mapping[str, GangState]) -> list[GangOffer]:
        """Those of these offers that can be held as all stands now, beside one another."""
        kept: list[GangOffer] = []
        held: dict[str, list[Reservation]] = {}
        for offer in offers:
            state, pods = states.get(offer.key), [pod for pod, _ in offer.seats]
            before = [pod for one in kept for pod, _ in one.seats]
            if state is None or not {pod.uid for pod in pods} <= {pod.uid for pod in state.waiting}:
                continue
            if not starts_with(state, [pod.uid for pod in pods]) or not self._queue_admits(before, pods):
                continue
            beside = {node: list(cards) for node, cards in held.items()}
            for card in offer.hold("").cards:
                beside.setdefault(card.node, []).append(card.reservation)
            nodes = {placement.node for _, placement in offer.seats}
            if all(is_free(self._parts.ledger.view(node), beside[node]) for node in nodes):
                kept.append(offer)
                held = beside
        return kept

    def queue_takes(self, pods: Sequence[PodFact]) -> bool:
        """Whether their queues let all these pods start now; what is held for them counts once more."""
        return self._queue_admits((), pods)

    def queue_of(self, pod: PodFact) -> str:
        """The pod's queue, "" while its event is not worked out yet."""
        known = self._parts.roster.workloads.get(pod.uid)
        return "" if known is None else known.queue

    def used_in(self, queue: str) -> Amounts:
        """What is used in the queue, by those who stay and by those for whom cards are held."""
        return self._parts.roster.usage(queue).after(NOTHING)

    def _queue_admits(self, before: Sequence[PodFact], pods: Sequence[PodFact]) -> bool:
        """Whether the pods' queues let all of them start together, beside those before them."""
        everybody, standing = self._parts.roster.workloads, self._parts.roster.standing()
        mine = [everybody[pod.uid] for pod in pods if pod.uid in everybody]
        others = [everybody[pod.uid] for pod in before if pod.uid in everybody]
        if len(mine) < len(pods):
            return False  # its event is not worked out yet
        for name in {one.queue for one in mine}:
            claim = sum_of(one.claim for one in (*others, *mine) if one.queue == name)
            if may_start(name, standing.queues, standing.usage_of(name), claim) is not None:
                return False
        return True

    def _singles(self, turns: Turns, last: Order) -> list[SingleClaim]:
        pods = [pod for pod in self._parts.ledger.pending() if self._waits_alone(pod)]
        pods += [pod for pod in self._parts.absent() if self._parts.ledger.nomination(pod.uid) is None]
        claims = [claim for pod in pods if (claim := SingleClaim(pod, turns.key(pod))).order < last]
        return sorted(claims, key=lambda claim: claim.order)[:SINGLES]

    def _waits_alone(self, pod: PodFact) -> bool:
        ledger = self._parts.ledger
        known = self._parts.roster.workloads.get(pod.uid)
        if known is None or (known.gang is not None and known.gang.together):
            return False
        if not waits_for_us(pod, self._parts.scheduler_name):
            return False
        return ledger.booking(pod.uid) is None and ledger.nomination(pod.uid) is None

    def _views(self, states: Sequence[GangState]) -> list[NodeView]:
        """For each kind of member the best nodes that kube-scheduler's own filters would let it onto: every such
        node takes at least one, so that these are enough for the largest gang."""
        kinds: dict[tuple[object, object], tuple[PodFact, int]] = {}
        for state in states:
            for pod in state.waiting:
                kind = (pod.request, pod.scheduling)
                most = kinds[kind][1] if kind in kinds else 0
                kinds[kind] = (pod, max(most, len(state.waiting)))
        names = {name for pod, members in kinds.values() for name in self._nodes_for(pod, members + SPARE_NODES)}
        views = (self._parts.ledger.view(name) for name in sorted(names))
        return [view for view in views if view is not None]

    def _own(self, pod: PodFact) -> frozenset[str]:
        return self._parts.ledger.nodes_of(pod.uid)

    def _nodes_for(self, pod: PodFact, count: int) -> list[str]:
        if pod.request is None:
            return []
        verdicts = self._parts.index.verdicts(pod.request, pod.uid)
        found: list[str] = []
        for name in verdicts.best(len(verdicts.fitting)):
            view = self._parts.ledger.view(name)
            if view is not None and view.node is not None and not obstacle(view.node, pod.scheduling):
                found.append(name)
                if len(found) == count:
                    break
        return found
