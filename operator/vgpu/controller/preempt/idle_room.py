"""Room for all pods of a plan's owner at once, as everything stands and without any eviction.

Enter: waiting pods that start together. Leave: where each of them goes, or nothing. Asked at every step of every
plan: nodes that stand as they did are not asked again, and a gang's members ask for their own seats only. May not
live here: when it is asked, what is done.
"""

from collections.abc import Collection, Generator, Sequence

from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import Nomination
from vgpu.core.placement import Policies
from vgpu.core.preempt.feasible import NodeUse, obstacle_after
from vgpu.core.preempt.roster import Roster
from vgpu.core.preempt.spots import PIECE, Answers, Spots, kind_of
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView

CANDIDATES = 32
"""Fitting nodes that are looked at, beside one for each pod."""


class IdleRoom:
    """See the module."""

    def __init__(self, ledger: Ledger, index: FitIndex, roster: Roster, policies: Policies) -> None:
        self._ledger = ledger
        self._index = index
        self._roster = roster
        self.answers = Answers(policies)

    def room_for(self, pods: Sequence[PodFact]) -> list[Nomination]:
        """Where all these pods could go at once; [] = nowhere."""
        work = self.in_pieces(pods)
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: list[Nomination] = done.value
                return found

    def in_pieces(self, pods: Sequence[PodFact]) -> Generator[None, None, list[Nomination]]:
        """The same, a few milliseconds at a time."""
        names = self._shared(pods)
        if not pods or not all(names.get(pod.request) or self._has_seat(pod) for pod in pods):
            return []
        takes = {pod.uid: self._has_seat(pod) for pod in pods}
        spots, uses = self._spots(pods, {name for found in names.values() for name in found})
        found: dict[str, Nomination] = {}
        soonest_to_fail = sorted(pods, key=lambda pod: takes[pod.uid])
        for number, pod in enumerate(soonest_to_fail, 1):
            yield from spots.ask(kind_of(pod))
            placement = spots.seat(pod)
            if placement is None:
                return []
            use = uses.get(placement.node) or self._roster.uses.get(placement.node, NodeUse())
            uses[placement.node] = use.plus([pod.scheduling])
            found[pod.uid] = Nomination(pod, placement, direct=True)
            if number % PIECE == 0:
                yield
        return [found[pod.uid] for pod in pods]

    def _spots(self, pods: Sequence[PodFact], names: set[str]) -> tuple[Spots, dict[str, NodeUse]]:
        known, uses = self._roster.uses, dict[str, NodeUse]()

        def lets_in(view: NodeView, pod: PodFact) -> bool:
            use = uses.get(view.name) or known.get(view.name)
            return view.node is not None and (use is None or not obstacle_after(view.node, use, pod.scheduling))

        everywhere = names.union(*(self._own(pod) for pod in pods))
        views = [view for name in sorted(everywhere) if (view := self._ledger.view(name)) is not None]
        return Spots(views, self.answers, lets_in, self._own), uses

    def _shared(self, pods: Sequence[PodFact]) -> dict[PodRequest | None, list[str]]:
        """Nodes that fit any pod of a request, by request."""
        many: dict[PodRequest, int] = {}
        for pod in pods:
            if pod.request is not None:
                many[pod.request] = many.get(pod.request, 0) + 1
        return {one: self._index.verdicts(one, "").best(CANDIDATES + count) for one, count in many.items()}

    def _has_seat(self, pod: PodFact) -> bool:
        views = (self._ledger.view(name) for name in self._own(pod))
        return any(self.answers.on_own(view, pod) is not None for view in views if view is not None)

    def _own(self, pod: PodFact) -> Collection[str]:
        return self._ledger.nodes_of(pod.uid)
