"""Room that is free for whole gangs: cards for all that must start at once, or for none of them.

Enter: gangs that wait and single pods that do, each with its place in the order of service, the nodes as they
stand. Leave: an offer for each gang that fits beside all who come before it. Singles only take their place in the
scratch copy: who sends them is somebody else's. Nobody is evicted and nothing is held here.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from vgpu.core.facts import PodFact
from vgpu.core.placement import Placement, Policies
from vgpu.core.preempt.facts import NodeReservation
from vgpu.core.preempt.feasible import NodeUse, obstacle_after
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.spots import PIECE, Answers, Kind, Spots, kind_of
from vgpu.core.recount import reservations_of
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
    kubelet has not admitted a node takes; `own`: nodes on which cards are held for the pod itself."""

    views: Sequence[NodeView]
    policies: Policies
    uses: Mapping[str, NodeUse] = field(default_factory=dict)
    most_unadmitted: int = 16
    own: Callable[[PodFact], Collection[str]] = lambda pod: ()


class _Scratch:
    """The nodes while pods are placed on them."""

    def __init__(self, room: Room) -> None:
        views = [view for view in room.views if view.closed is None]
        self.room = room
        self.spots = Spots(views, Answers(room.policies), self._lets_in, room.own)
        self._uses: dict[str, NodeUse] = {}
        self._coming = {view.name: len(view.awaiting) for view in views}

    def copy(self) -> "_Scratch":
        twin = copy(self)
        twin._uses, twin._coming = dict(self._uses), dict(self._coming)
        twin.spots = self.spots.copy(twin._lets_in)
        return twin

    def seat(self, pod: PodFact) -> Placement | None:
        """Take the pod in where it fits best; None when it fits nowhere."""
        placement = self.spots.seat(pod)
        if placement is not None:
            node = placement.node
            self._uses[node] = self._use(node).plus((pod.scheduling,))
            self._coming[node] += 1
        return placement

    def _lets_in(self, view: NodeView, pod: PodFact) -> bool:
        if view.node is None or self._coming[view.name] >= self.room.most_unadmitted:
            return False
        return not obstacle_after(view.node, self._use(view.name), pod.scheduling)

    def _use(self, node: str) -> NodeUse:
        return self._uses.get(node) or self.room.uses.get(node, NodeUse())


_Shape = tuple[int, tuple[Kind, ...]]
Found = tuple[list[GangOffer], dict[str, int]]
Admits = Callable[[Sequence[GangClaim], GangClaim], bool]
"""Do their queues let the first `missing` pods of this gang start, beside those of the gangs already served? What
they take of some pods they take of fewer of them."""


def offer_gangs(
    gangs: Iterable[GangClaim],
    singles: Iterable[SingleClaim],
    room: Room,
    admits: Admits = lambda served, one: True,
) -> Found:
    """Offers in order of service, all of which fit together; and, by key of each gang that does not fit, for how
    many of its members there is room (-1: its queue does not let it start)."""
    work = offers_in_pieces(gangs, singles, room, admits)
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: Found = done.value
            return found


def offers_in_pieces(
    gangs: Iterable[GangClaim], singles: Iterable[SingleClaim], room: Room, admits: Admits
) -> Generator[None, None, Found]:
    """The same, a few milliseconds at a time: it yields between any two pieces."""
    scratch = _Scratch(room)
    hopeless: dict[_Shape, int] = {}
    full: set[Kind] = set()
    served: list[GangClaim] = []
    offers: list[GangOffer] = []
    short: dict[str, int] = {}
    everybody: list[GangClaim | SingleClaim] = [*gangs, *singles]
    for claim in sorted(everybody, key=lambda claim: claim.order):
        if isinstance(claim, SingleClaim):
            kind = kind_of(claim.pod)
            if kind not in full:
                yield from scratch.spots.ask(kind)
                if scratch.seat(claim.pod) is None:
                    full.add(kind)
            continue
        if not admits(served, claim):
            short[claim.key] = -1
            continue
        starting = _as_many_as_start(claim, served, admits)
        # Nodes only get fuller: what did not fit once fits no more.
        shape = (claim.missing, tuple(kind_of(pod) for pod in starting.pods))
        if shape in hopeless:
            short[claim.key] = hopeless[shape]
            continue
        found, after = yield from _seated(starting, scratch)
        if isinstance(found, int):
            hopeless[shape] = short[claim.key] = found
            continue
        scratch = after
        served.append(replace(claim, pods=tuple(pod for pod, _ in found), missing=len(found)))
        offers.append(GangOffer(claim.key, found))
    return offers, short


def _as_many_as_start(claim: GangClaim, served: Sequence[GangClaim], admits: Admits) -> GangClaim:
    """The gang without the youngest members that its queue does not take beside the others: what is held for
    those would count as used, and keep everybody from starting."""
    least, most = claim.missing, len(claim.pods)
    if most <= least or admits(served, replace(claim, missing=most)):
        return claim
    while most - least > 1:
        middle = (least + most) // 2
        if admits(served, replace(claim, missing=middle)):
            least = middle
        else:
            most = middle
    return replace(claim, pods=claim.pods[:least])


def _seated(
    claim: GangClaim, before: _Scratch
) -> Generator[None, None, tuple[tuple[tuple[PodFact, Placement], ...] | int, _Scratch]]:
    """Everybody who finds room, when these are enough; otherwise how many they are. Equal members are
    interchangeable, of unequal ones the largest are seated first: the small ones find room more easily."""
    scratch = before.copy()
    seats: list[tuple[PodFact, Placement]] = []
    alike: dict[Kind, list[PodFact]] = {}
    for pod in sorted(claim.pods, key=_largest_first):
        alike.setdefault(kind_of(pod), []).append(pod)
    for kind, pods in alike.items():
        for number, pod in enumerate(pods, 1):
            yield from scratch.spots.ask(kind)
            placement = scratch.seat(pod)
            if placement is None:
                break
            seats.append((pod, placement))
            if number % PIECE == 0:
                yield
    return (tuple(seats), scratch) if len(seats) >= claim.missing else (len(seats), before)


def _largest_first(pod: PodFact) -> tuple[int, int]:
    containers = pod.request.containers if pod.request is not None else ()
    mib = sum(container.number * container.card.memory_on(2**20) for container in containers)
    return (-mib, -sum(container.number for container in containers))
