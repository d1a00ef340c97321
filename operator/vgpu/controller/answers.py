"""Why each pending GPU pod waits, asked of the ledger and remembered per request and ledger version.

Enters: the ledger and its fit index. Leaves: reasons, verdicts and full explanations (core.explain). May not
live here: writes, HTTP, rules.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from vgpu.controller.learning import learn
from vgpu.core import explain
from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.nearness import Nearness, closest_words, freest_card, may_ever_take, nearness, never_words
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import PodRequest, Selection
from vgpu.core.views import CardView, NodeView

REMEMBERED_REQUESTS = 4096
WORDS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Question:
    """A pod and what every node says about it."""

    pod: PodFact
    tally: explain.Tally | None
    nodes: tuple[tuple[NodeView, Refusal | None], ...]
    notes: tuple[str, ...]
    barred: Refusal | None = None
    around: explain.Around = explain.NOTHING_AROUND

    def answer(self) -> explain.Explanation:
        """Every node and card as the pod sees them."""
        return explain.explain(self.pod, self.tally, self.nodes, self.notes, self.barred, self.around)


class Answers:
    """Answers for pods; pods with equal requests share one tally while the ledger stays as it is."""

    def __init__(
        self,
        ledger: Ledger,
        index: FitIndex,
        scheduler_name: str,
        queue_refusal: Callable[[PodFact], Refusal | None] = lambda _: None,
        planner_says: Callable[[PodFact], str] = lambda _: "",
        held_for: Callable[[str], str] = lambda _: "another pod",
    ) -> None:
        """`held_for`: whose this uid's cards are that are held, by what and until when, in words."""
        self._ledger = ledger
        self._index = index
        self._scheduler_name = scheduler_name
        self._queue_refusal = queue_refusal
        self._planner_says = planner_says
        self._held_for = held_for
        self._tallies: dict[PodRequest, explain.Tally] = {}
        self._version = -1
        self._words: dict[PodRequest, tuple[float, str]] = {}
        self._freest: dict[str, tuple[NodeView, CardView | None]] = {}

    def concerns_us(self, pod: PodFact) -> bool:
        """True for a GPU pod that waits to be placed by our scheduler (not gated, not being deleted)."""
        waits = not pod.node and not pod.ended and not pod.terminating and not pod.gated
        return pod.wants_gpus and waits and pod.scheduler_name == self._scheduler_name

    async def prepare(self) -> None:
        """Come back when every pod that concerns us can be answered without holding up the loop."""
        await learn(self._index, [pod.request for pod in self._ledger.pending() if self.concerns_us(pod)])

    def reason(self, pod: PodFact) -> Reason | None:
        """The pod's current reason; None: nothing stands in its way, its cards are booked already, or they are
        held for it and others are leaving them."""
        if self._ledger.booking(pod.uid) is not None:
            return None
        tally, barred = self._tally(pod), self._queue_refusal(pod)
        waits = barred is None and tally is not None and not tally.fitting and pod.refusal is None
        if waits and self._ledger.plans.nodes_of(pod.uid):
            return None
        return explain.waiting_reason(pod, tally, barred)

    def verdict(self, pod: PodFact) -> explain.Verdict:
        """The pod's current reason with the message for its event."""
        barred, held_on = self._queue_refusal(pod), self._ledger.plans.nodes_of(pod.uid)
        return explain.verdict(pod, self._tally(pod), self._closest(pod), barred, held_on)

    def question(self, pod: PodFact) -> Question:
        """Everything that an explanation of `pod` needs, as values: answering takes a while on a large cluster
        and may be done in another thread."""
        said = self._planner_says(pod)
        notes = (*explain.notes_on(pod, self._scheduler_name), *((said,) if said else ()))
        if pod.node or pod.ended:
            return Question(pod, None, (), notes)
        nodes, barred = tuple(self._nodes(pod)), self._queue_refusal(pod)
        return Question(pod, self._tally(pod), nodes, notes, barred, self._around(pod, nodes))

    def _around(self, pod: PodFact, nodes: Iterable[tuple[NodeView, Refusal | None]]) -> explain.Around:
        """What is held for the pod, and for whom else on these nodes."""
        others = {one.uid for view, _ in nodes for one in view.reservations if one.uid != pod.uid}
        words = {uid: self._held_for(uid) for uid in others}
        return explain.Around(self._closest(pod), self._ledger.plans.nodes_of(pod.uid), words)

    def pending_by_reason(self) -> Counter[str]:
        """How many pods wait, per reason; "" counts those that nothing stands in the way of."""
        waiting = (pod for pod in self._ledger.pending() if self.concerns_us(pod))
        return Counter(reason.value if (reason := self.reason(pod)) else "" for pod in waiting)

    def _tally(self, pod: PodFact) -> explain.Tally | None:
        if pod.request is None:
            return None
        # What is held for the pod itself does not stand in its way.
        if self._ledger.nomination(pod.uid) is not None or self._ledger.plans.nodes_of(pod.uid):
            return self._fresh(pod.request, pod.uid)
        if self._version != self._ledger.version or len(self._tallies) > REMEMBERED_REQUESTS:
            self._tallies.clear()
            self._version = self._ledger.version
        if pod.request not in self._tallies:
            self._tallies[pod.request] = self._fresh(pod.request, "")
        return self._tallies[pod.request]

    def _fresh(self, request: PodRequest, owner_uid: str) -> explain.Tally:
        verdicts = self._index.verdicts(request, owner_uid)
        return explain.tally(verdicts.fitting, verdicts.refused, self._never(request, verdicts.refused))

    def _never(self, request: PodRequest, refused: Mapping[str, Refusal]) -> set[str]:
        """Closed nodes that could not take the request open either; they only matter where no open node may."""
        near = {name: nearness(refusal.reason) for name, refusal in refused.items()}
        if Nearness.OPEN in near.values():
            return set()
        closed = (name for name, how_near in near.items() if how_near is Nearness.CLOSED)
        views = ((name, self._ledger.view(name)) for name in closed)
        return {name for name, view in views if view is None or not may_ever_take(view, request)}

    def _closest(self, pod: PodFact) -> str:
        """Words for the best node; those of a moment ago are good enough for a text."""
        request = pod.request
        if request is None:
            return ""
        known, now = self._words.get(request), time.monotonic()
        if known is None or now - known[0] > WORDS_SECONDS:
            if len(self._words) > REMEMBERED_REQUESTS:
                self._words.clear()
            known = self._words[request] = (now, self._closest_to(request))
        return known[1]

    def _closest_to(self, request: PodRequest) -> str:
        refused = self._index.verdicts(request, "").refused
        if len(self._freest) > 2 * len(refused):
            self._freest.clear()  # mostly nodes that are gone
        near = {name: nearness(refusal.reason) for name, refusal in refused.items()}
        nearest = min(near.values(), default=Nearness.UNMEANT)
        rows = self._rows({name: why for name, why in refused.items() if near[name] is nearest}, request)
        nearest_words = closest_words(rows) if nearest <= Nearness.CLOSED else ""
        return nearest_words or never_words(refused.values())

    def _rows(
        self, refused: Mapping[str, Refusal], request: PodRequest
    ) -> Iterator[tuple[NodeView, CardView | None, Refusal]]:
        selective = request.selection != Selection()
        for name, why in refused.items():
            view = self._ledger.view(name)
            if view is None or (nearness(why.reason) is Nearness.CLOSED and not may_ever_take(view, request)):
                continue
            yield view, freest_card(view, request.selection) if selective else self._freest_of(view), why

    def _freest_of(self, view: NodeView) -> CardView | None:
        """Remembered per view: most nodes are as they were when the last pod was told."""
        known = self._freest.get(view.name)
        if known is None or known[0] is not view:
            known = self._freest[view.name] = (view, freest_card(view))
        return known[1]

    def _nodes(self, pod: PodFact) -> list[tuple[NodeView, Refusal | None]]:
        if pod.request is None:
            return []  # no node was asked: what is refused by its own request fits nowhere
        verdicts = self._index.verdicts(pod.request, pod.uid)
        names = [*verdicts.fitting, *verdicts.refused]
        views = ((name, self._ledger.view(name)) for name in names)
        return [(view, verdicts.refused.get(name)) for name, view in views if view is not None]
