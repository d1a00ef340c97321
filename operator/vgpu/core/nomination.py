"""Which waiting pods are sent to which node when something fits that did not fit before.

Enters: views of the nodes in question, waiting pods, policies. Leaves: nominations in turn, as many as fit
together and no more: each takes its cards in a scratch copy before the next is looked at. Knows neither limits
per pod and second (the caller's) nor the API.

Three occasions: capacity was freed; a sampled filter held no fit although one exists; a deferred node's pod was
admitted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vgpu.core.charge import Charge, card_charges, pod_slots
from vgpu.core.facts import Identity, PodFact, Scheduling
from vgpu.core.intree import obstacle
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.request import PodRequest
from vgpu.core.views import CardView, Holder, HolderState, NodeView, Reservation


@dataclass(frozen=True, slots=True)
class Nomination:
    """`pod` is to be asked about again, with its cards held on `placement.node` meanwhile.

    `direct` False: the pod has preferences that in-tree scoring must weigh, so it is woken without a node.
    """

    pod: PodFact
    placement: Placement
    direct: bool

    @property
    def node(self) -> str | None:
        """What goes into status.nominatedNodeName; None = leave it alone, only wake."""
        return self.placement.node if self.direct else None


def may_be_placed(pod: PodFact, scheduler_name: str) -> bool:
    """True for a pod with a readable request that our scheduler may bind now or at its next attempt."""
    if pod.request is None or pod.node or pod.terminating or pod.gated or pod.ended:
        return False
    return pod.scheduler_name == scheduler_name


def waits_for_us(pod: PodFact, scheduler_name: str) -> bool:
    """True for one that our scheduler has tried and put aside."""
    return pod.unschedulable and may_be_placed(pod, scheduler_name)


def takes_turns(pod: PodFact, scheduler_name: str) -> bool:
    """True for such a one, and for one whose attempt ended in an error: nobody could tell it anything, and others
    are not to pass it while its back-off lasts."""
    return (pod.unschedulable or pod.attempt_failed) and may_be_placed(pod, scheduler_name)


def rank(pod: PodFact) -> tuple[int, str, str]:
    """Sort key: higher priority first, then who was created earlier, then uid."""
    return (-pod.priority, pod.created, pod.uid)


@dataclass(frozen=True, slots=True)
class Turns:
    """Whose turn it is. `key` sorts waiting pods, the first to be served first; `admits` tells whether a pod may
    start beside the ones already served (limits of its queue); `alone` whether it starts by itself, and not with
    its gang. Good for one moment."""

    key: Callable[[PodFact], tuple[Any, ...]] = rank
    admits: Callable[[Sequence[PodFact], PodFact], bool] = lambda served, pod: True
    alone: Callable[[PodFact], bool] = lambda pod: True


BY_AGE = Turns()
"""By priority and age alone."""


_Shape = tuple[PodRequest | None, Scheduling]


def nominate(
    views: Iterable[NodeView], waiting: Iterable[PodFact], policies: Policies, limit: int, turns: Turns = BY_AGE
) -> list[Nomination]:
    """At most `limit` nominations of `waiting` pods onto `views`, in turn, that all fit together."""
    scratch = {view.name: view for view in views if view.closed is None}
    held = {reservation.uid for view in scratch.values() for reservation in view.reservations}
    hopeless: set[_Shape] = set()
    known: dict[_Shape, dict[str, Placement | None]] = {}
    chosen: list[Nomination] = []
    served: list[PodFact] = []
    for pod in sorted(waiting, key=turns.key):
        if len(chosen) >= limit or not scratch:
            break
        # Nodes only get fuller from here on, so a pod equal to one that did not fit cannot fit either; but a pod
        # with cards held for it is judged apart, by what others hold.
        shape = None if pod.uid in held else (pod.request, pod.scheduling)
        if pod.request is None or (shape is not None and shape in hopeless):
            continue
        if not turns.alone(pod) or not turns.admits(served, pod):
            continue
        found = {} if shape is None else known.setdefault(shape, {})
        placement = _best_known(scratch, pod, policies, found)
        if placement is None:
            if shape is not None:
                hopeless.add(shape)
            continue
        chosen.append(Nomination(pod, placement, direct=not pod.scheduling.soft_preferences))
        served.append(pod)
        take(scratch, pod, placement)
        for found in known.values():
            found.pop(placement.node, None)
    return chosen


def nominate_one(
    views: Sequence[NodeView], pod: PodFact, policies: Policies, turns: Turns = BY_AGE
) -> Nomination | None:
    """The best of `views` (in order of preference) for one pod, or None."""
    for view in views:
        found = nominate([view], [pod], policies, 1, turns)
        if found:
            return found[0]
    return None


def best_placement(views: Iterable[NodeView], pod: PodFact, policies: Policies) -> Placement | None:
    """The best of the pod's placements on these nodes, or None when it fits on none."""
    return _best(_placement(view, pod, policies) for view in views)


def _best_known(
    views: Mapping[str, NodeView], pod: PodFact, policies: Policies, known: dict[str, Placement | None]
) -> Placement | None:
    """The same; `known` keeps what equal pods were answered by nodes that took nobody since."""
    for name, view in views.items():
        if name not in known:
            known[name] = _placement(view, pod, policies)
    return _best(known[name] for name in views)


def _placement(view: NodeView, pod: PodFact, policies: Policies) -> Placement | None:
    if pod.request is None or view.node is None or obstacle(view.node, pod.scheduling):
        return None
    placement = place(view, pod.request, pod.uid, policies)
    return placement if isinstance(placement, Placement) else None


def _best(placements: Iterable[Placement | None]) -> Placement | None:
    best: Placement | None = None
    for placement in placements:
        if placement is not None and (best is None or _better(placement, best)):
            best = placement
    return best


def _better(one: Placement, other: Placement) -> bool:
    return (-one.score, one.node) < (-other.score, other.node)


def take(scratch: dict[str, NodeView], pod: PodFact, placement: Placement) -> None:
    """Count the pod as a holder: what is freed later by leaving pods does not make two fit now. It is not there
    yet: where it books no cores, it must find some unbooked when it comes."""
    view = scratch[placement.node]
    if view.inventory is not None and view.inventory.identity is Identity.DEFERRED:
        del scratch[placement.node]  # one unconfirmed pod at a time
        return
    charges = card_charges(placement.containers)
    scratch[placement.node] = replace(
        view,
        cards=tuple(_with_holder(card, pod, charges.get(card.fact.uuid)) for card in view.cards),
        reservations=(
            *(r for r in view.reservations if r.uid != pod.uid),
            *(Reservation(pod.uid, uuid, 0, 0, 0, False, True) for uuid, c in charges.items() if c.coreless),
        ),
        used_slots=view.used_slots + pod_slots(placement.containers),
    )


def _with_holder(card: CardView, pod: PodFact, charge: Charge | None) -> CardView:
    if charge is None:
        return card
    booked = HolderState.BOOKED
    holder = Holder(
        pod.uid, pod.namespace, pod.name, charge.slots, charge.memory_mib, charge.cores, charge.exclusive, booked
    )
    return replace(
        card,
        holders=(*card.holders, holder),
        used_slots=card.used_slots + charge.slots,
        used_memory_mib=card.used_memory_mib + charge.memory_mib,
        used_cores=card.used_cores + charge.cores,
        exclusive=card.exclusive or charge.exclusive,
    )
