"""Room that is free for whole gangs: cards for all that must start at once, or for none of them.

Enter: gangs that wait and single pods that do, each with its place in the order of service, the nodes as they
stand. Leave: an offer for each gang that fits beside all who come before it. Singles only take their place in the
scratch copy: who sends them is somebody else's. Nobody is evicted and nothing is held here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vgpu.core.facts import PodFact, Scheduling
from vgpu.core.nomination import best_placement, take
from vgpu.core.placement import Placement, Policies
from vgpu.core.preempt.facts import NodeReservation
from vgpu.core.preempt.feasible import NodeUse, obstacle_after
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.recount import reservations_of
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView

Order = tuple[Any, ...]
"""As core.preempt.recovery.claim_order makes it; the smallest is served first."""


@dataclass(frozen=True, slots=True)
class GangClaim:
    """A gang that waits. `pods`: those that could start, `missing` of them at once."""

    key: str
    pods: tuple[PodFact, ...]
    missing: int
    order: Order


@dataclass(frozen=True, slots=True)
class SingleClaim:
    """A pod that waits alone."""

    pod: PodFact
    order: Order


@dataclass(frozen=True, slots=True)
class GangOffer:
    """Cards for members of one gang, enough for it to start."""

    key: str
    seats: tuple[tuple[PodFact, Placement], ...]

    def hold(self, plan: str) -> PlanHold:
        """All of it as one hold: it is kept whole, also while a member is replaced, and ends whole (S57)."""
        cards = tuple(
            NodeReservation(placement.node, reservation)
            for pod, placement in self.seats
            for reservation in reservations_of(((pod.uid, placement),))
        )
        return PlanHold(plan, 0, cards, kept=frozenset(pod.uid for pod, _ in self.seats))


@dataclass(frozen=True, slots=True)
class Room:
    """The nodes in question. `uses`: what their pods ask for beyond cards; `most_unadmitted`: so many pods that
    kubelet has not admitted a node takes."""

    views: Sequence[NodeView]
    policies: Policies
    uses: Mapping[str, NodeUse] = field(default_factory=dict)
    most_unadmitted: int = 16


@dataclass(slots=True)
class _Scratch:
    """The nodes while pods are placed on them."""

    views: dict[str, NodeView]
    uses: dict[str, NodeUse]
    coming: dict[str, int]
    room: Room

    @classmethod
    def of(cls, room: Room) -> "_Scratch":
        views = {view.name: view for view in room.views if view.closed is None}
        return cls(views, dict(room.uses), {name: len(view.awaiting) for name, view in views.items()}, room)

    def copy(self) -> "_Scratch":
        return _Scratch(dict(self.views), dict(self.uses), dict(self.coming), self.room)

    def seat(self, pod: PodFact) -> Placement | None:
        """Take the pod in where it fits best; None when it fits nowhere."""
        takers = [view for view in self.views.values() if self._lets_in(view, pod.scheduling)]
        placement = best_placement(takers, pod, self.room.policies)
        if placement is not None:
            node = placement.node
            self.uses[node] = self.uses.get(node, NodeUse()).plus((pod.scheduling,))
            self.coming[node] += 1
            take(self.views, pod, placement)
        return placement

    def _lets_in(self, view: NodeView, pod: Scheduling) -> bool:
        if view.node is None or self.coming[view.name] >= self.room.most_unadmitted:
            return False
        return not obstacle_after(view.node, self.uses.get(view.name, NodeUse()), pod)


_Shape = tuple[int, tuple[tuple[PodRequest | None, Scheduling], ...]]
Admits = Callable[[Sequence[GangClaim], GangClaim], bool]
"""May this gang start beside those already served (queue limits)?"""


def offer_gangs(
    gangs: Iterable[GangClaim],
    singles: Iterable[SingleClaim],
    room: Room,
    admits: Admits = lambda served, one: True,
) -> tuple[list[GangOffer], dict[str, int]]:
    """Offers in order of service, all of which fit together; and, by key of each gang that does not fit, for how
    many of its members there is room (-1: its queue does not let it start)."""
    scratch = _Scratch.of(room)
    hopeless: dict[_Shape, int] = {}
    full: set[tuple[PodRequest | None, Scheduling]] = set()
    served: list[GangClaim] = []
    offers: list[GangOffer] = []
    short: dict[str, int] = {}
    everybody: list[GangClaim | SingleClaim] = [*gangs, *singles]
    for claim in sorted(everybody, key=lambda claim: claim.order):
        if isinstance(claim, SingleClaim):
            kind = (claim.pod.request, claim.pod.scheduling)
            if kind not in full and scratch.seat(claim.pod) is None:
                full.add(kind)
            continue
        if not admits(served, claim):
            short[claim.key] = -1
            continue
        # Nodes only get fuller: what did not fit once fits no more.
        shape = (claim.missing, tuple((pod.request, pod.scheduling) for pod in claim.pods))
        found, after = (hopeless[shape], scratch) if shape in hopeless else _seated(claim, scratch)
        if isinstance(found, int):
            hopeless[shape] = short[claim.key] = found
            continue
        scratch = after
        served.append(claim)
        offers.append(GangOffer(claim.key, found))
    return offers, short


def _seated(claim: GangClaim, before: _Scratch) -> tuple[tuple[tuple[PodFact, Placement], ...] | int, _Scratch]:
    """Everybody who finds room, when these are enough; otherwise how many they are. Equal members are
    interchangeable, of unequal ones the largest are seated first: the small ones find room more easily."""
    scratch = before.copy()
    seats: list[tuple[PodFact, Placement]] = []
    full: set[tuple[PodRequest | None, Scheduling]] = set()
    for pod in sorted(claim.pods, key=_largest_first):
        kind = (pod.request, pod.scheduling)
        placement = None if kind in full else scratch.seat(pod)
        if placement is None:
            full.add(kind)
        else:
            seats.append((pod, placement))
    return (tuple(seats), scratch) if len(seats) >= claim.missing else (len(seats), before)


def _largest_first(pod: PodFact) -> tuple[int, int]:
    containers = pod.request.containers if pod.request is not None else ()
    mib = sum(container.number * container.card.memory_on(2**20) for container in containers)
    return (-mib, -sum(container.number for container in containers))
