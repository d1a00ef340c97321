"""Where many pods go one after another: each to the node that suits it best, with room left by those before it.

Enter: nodes as they stand, pods in turn. Leave: placements, the same as if every node were asked for every pod.
Equal pods ask a node once, until somebody is placed there; so the work grows with pods and nodes, and not with
their product. Nothing is held here: the nodes are a scratch copy.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from vgpu.core.facts import PodFact, Scheduling
from vgpu.core.intree import obstacle
from vgpu.core.nomination import take
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView

PIECE = 32
"""Nodes that are asked in one go: a few milliseconds."""
MOST_KEPT = 8192

Kind = tuple[PodRequest | None, Scheduling]
"""Equal for pods that any node answers alike, but where cards are held for them."""
LetsIn = Callable[[NodeView, PodFact], bool]


def kind_of(pod: PodFact) -> Kind:
    """The pod's kind."""
    return (pod.request, pod.scheduling)


@dataclass(slots=True)
class Answers:
    """What nodes answered, good while they stand as they did. Keep one for questions about the same nodes."""

    policies: Policies
    asked: int = 0
    """Nodes that were asked so far (a figure for tests)."""
    _known: dict[tuple[str, Kind], tuple[NodeView, Placement | None]] = field(default_factory=dict)
    _own: dict[tuple[str, str], tuple[NodeView, PodFact, Placement | None]] = field(default_factory=dict)

    def of(self, view: NodeView, kind: Kind, *, keep: bool) -> Placement | None:
        """Where any such pod goes on this node. `keep`: the node stands so in truth, and may be asked again."""
        known = self._known.get((view.name, kind))
        if known is not None and known[0] is view:
            return known[1]
        answer = self._ask(view, kind, "")
        if keep:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[view.name, kind] = view, answer
        return answer

    def on_own(self, view: NodeView, pod: PodFact, *, keep: bool = True) -> Placement | None:
        """Where this pod goes on a node where cards are held for it."""
        known = self._own.get((view.name, pod.uid))
        if known is not None and known[0] is view and known[1] is pod:
            return known[2]
        answer = self._ask(view, kind_of(pod), pod.uid)
        if keep:
            if len(self._own) >= MOST_KEPT:
                self._own.clear()
            self._own[view.name, pod.uid] = view, pod, answer
        return answer

    def _ask(self, view: NodeView, kind: Kind, uid: str) -> Placement | None:
        self.asked += 1
        request, scheduling = kind
        if request is None or view.node is None or obstacle(view.node, scheduling):
            return None
        found = place(view, request, uid, self.policies)
        return found if isinstance(found, Placement) else None


@dataclass(slots=True)
class _Line:
    """The nodes for one kind of pod. `now`: what each answered; `best`: the same as a heap, where what is not in
    `now` any more is passed over; `ask`: nodes to ask anew."""

    ask: list[str]
    now: dict[str, Placement] = field(default_factory=dict)
    best: list[tuple[int, str]] = field(default_factory=list)

    def copy(self) -> "_Line":
        return _Line(list(self.ask), dict(self.now), list(self.best))

    def put(self, node: str, answer: Placement | None) -> None:
        if answer is None:
            self.now.pop(node, None)
        else:
            self.now[node] = answer
            heappush(self.best, (-answer.score, node))


class Spots:
    """See the module. `lets_in`: may this pod go to that node as things stand, cards aside? A node that does not
    let a pod in will not later either. `own`: nodes on which cards are held for the pod itself."""

    def __init__(
        self,
        views: Iterable[NodeView],
        answers: Answers,
        lets_in: LetsIn,
        own: Callable[[PodFact], Collection[str]] = lambda pod: (),
    ) -> None:
        self.views = {view.name: view for view in views}
        self._true = dict(self.views)
        self._answers, self._lets_in, self._own = answers, lets_in, own
        self._lines: dict[Kind, _Line] = {}

    def copy(self, lets_in: LetsIn) -> "Spots":
        """The same as it stands now, to go on with apart."""
        twin = Spots((), self._answers, lets_in, self._own)
        twin.views, twin._true = dict(self.views), self._true
        twin._lines = {kind: line.copy() for kind, line in self._lines.items()}
        return twin

    def ask(self, kind: Kind) -> Iterator[None]:
        """All that seat() is going to ask for such a pod, a piece at a time."""
        line = self._line(kind)
        asked = self._answers.asked
        while line.ask:
            name = line.ask.pop()
            view = self.views.get(name)
            line.put(name, None if view is None else self._answer(view, kind))
            if self._answers.asked - asked >= PIECE:
                yield
                asked = self._answers.asked

    def seat(self, pod: PodFact) -> Placement | None:
        """Place the pod where it fits best; None when it fits nowhere."""
        kind = kind_of(pod)
        for _ in self.ask(kind):
            pass
        known = (self._best(self._line(kind), pod), *self._on_own(pod))
        found = [placement for placement in known if placement is not None]
        if not found:
            return None
        placement = min(found, key=lambda one: (-one.score, one.node))
        take(self.views, pod, placement)
        for line in self._lines.values():
            line.ask.append(placement.node)
        return placement

    def _line(self, kind: Kind) -> _Line:
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(sorted(self.views))
        return line

    def _best(self, line: _Line, pod: PodFact) -> Placement | None:
        while line.best:
            score, name = line.best[0]
            answer = line.now.get(name)
            if answer is not None and -score == answer.score:
                if self._lets_in(self.views[name], pod):
                    return answer
                del line.now[name]
            heappop(line.best)
        return None

    def _on_own(self, pod: PodFact) -> Iterator[Placement | None]:
        for name in self._own(pod):
            view = self.views.get(name)
            if view is not None and self._lets_in(view, pod):
                yield self._answers.on_own(view, pod, keep=self._is_true(view))

    def _answer(self, view: NodeView, kind: Kind) -> Placement | None:
        return self._answers.of(view, kind, keep=self._is_true(view))

    def _is_true(self, view: NodeView) -> bool:
        return self._true.get(view.name) is view
