"""Where there is room for waiting pods: among all nodes for one of them, among freed nodes for all of them.

Enters: the ledger, its fit index, whose turn it is. Leaves: nominations and views, nothing held and nothing
written. May not live here: who waits, limits.
"""

from collections.abc import Collection, Iterable, Sequence, Set

from vgpu.controller.answered import AnsweredPods
from vgpu.controller.guard import one_object
from vgpu.controller.offers import Offers
from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import Nomination
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.views import NodeView

CANDIDATES = 32
"""Fitting nodes that are looked at for one pod."""
VIEWS = 64
"""Freed nodes that are looked at in one batch; the others have their turn in the next."""


class RoomSearch:
    """See the module."""

    def __init__(
        self, ledger: Ledger, index: FitIndex, policies: Policies, offers: Offers, answered: AnsweredPods
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._policies = policies
        self._offers = offers
        self._answered = answered

    def best_of_all(self, pod: PodFact, but_not: Collection[str] = ()) -> Nomination | None:
        """The best node for this pod, or None."""
        if pod.request is None:
            return None
        names = self._index.verdicts(pod.request, pod.uid).best(CANDIDATES + len(but_not))
        views = self._views(name for name in names if name not in but_not)
        turns = self._offers.turns()
        each = (self._answered.nominate([view], [pod], 1, turns, pod.uid) for view in views)
        return next((found[0] for found in each if found), None)

    def best_for_all(self, views: Sequence[NodeView], waiting: Sequence[PodFact], limit: int) -> list[Nomination]:
        """At most `limit` nominations onto these views, in turn, that all fit together."""
        turns, found = self._offers.turns(), list[Nomination]()
        with one_object("nominations", f"{len(waiting)} waiting pods together") as together:
            found = self._answered.nominate(views, waiting, limit, turns)
        # One of them is at fault: each has its turn alone, and is checked again before it is sent.
        for pod in waiting if together.failed else ():
            with one_object("nominations", f"{pod.namespace}/{pod.name}"):
                found += self._answered.nominate(views, [pod], 1, turns)
        return found[:limit]

    def freed_views(self, waiting: Sequence[PodFact], freed: Set[str]) -> list[NodeView]:
        """The freed nodes that fit some waiting request, the best for each; not the whole cluster at a start."""
        requests = {pod.request for pod in waiting if pod.request is not None}
        each = max(1, VIEWS // max(1, len(requests)))
        names: set[str] = set()
        for request in requests:
            names |= set(self._index.verdicts(request, "").best(each, freed))
        return self._views(sorted(names))

    def placement_now(self, chosen: Nomination, pod: PodFact) -> Placement | None:
        """Where the chosen pod's cards are as things stand now, on the chosen node. Others of its queue may have
        started since it was chosen."""
        view = self._ledger.view(chosen.placement.node)
        if view is None or pod.request is None or not self._offers.admits(pod):
            return None
        if self._answered.counted_on(view.name):
            found = self._answered.nominate([view], [pod], 1, self._offers.turns())
            return found[0].placement if found else None
        placement = place(view, pod.request, pod.uid, self._policies)
        return placement if isinstance(placement, Placement) else None

    def _views(self, names: Iterable[str]) -> list[NodeView]:
        return [view for name in names if (view := self._ledger.view(name)) is not None]
