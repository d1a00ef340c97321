"""Which nodes fit a request: the verdicts of every node, kept per request shape between questions.

Enters: the ledger and a question (request, owner, nodes of interest). Leaves: Verdicts. A node is evaluated only
when it is asked about, and again only when the ledger says that it changed; pods of one job share a shape. Where
the owner itself counts or has cards held (its nomination), its verdict is evaluated for it alone.
"""

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from heapq import nsmallest
from itertools import islice

from vgpu.core.alike import Alike, judged_alike
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies, evaluate
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import PodRequest
from vgpu.core.score import chain_for
from vgpu.core.search import effort_of

SHAPES = 64
"""Request shapes whose verdicts are kept; the least recently asked goes first."""

_GONE = Refusal(Reason.NODE_GONE, "the Node object does not exist")
_FEW = 64
"""So many simple nodes are evaluated, and put in their places one by one, whether asked about or not."""
MOST_EFFORT = 2_000
"""What one question may cost; what is left over stays unknown. One simple node is 1: about 0.1 ms."""
_SCAN_SHARE = 8
"""Where fewer names than this part of all that fit are asked about, looking each up is cheaper than walking past
those that were not asked about."""


class Verdicts:
    """The answer to one question; good until the ledger changes or another question is asked.

    `fitting`: score 0..10 of each node that fits. `refused`: why each other node does not. Nodes that the
    ledger does not know are in neither; refusal() says NodeGone for them. best() ranks more finely than 0..10.
    """

    def __init__(self, shape: "_Shape") -> None:
        self.whole = not shape.unknown
        """Every node was evaluated; otherwise the answer is good for the nodes asked about only."""
        self.fitting: Mapping[str, int] = shape.fitting
        self.refused: Mapping[str, Refusal] = shape.refused
        self._thousandths = shape.thousandths
        self._ranking = shape.ranking

    def score(self, node: str) -> int:
        """0..10 as prioritize answers it; 0 for a node that does not fit."""
        return self.fitting.get(node, 0)

    def thousandths(self, node: str) -> int | None:
        """The score that score() rounds, 0..10000; None for a node that does not fit."""
        return self._thousandths.get(node)

    def refusal(self, node: str) -> Refusal | None:
        """Why this node does not fit, None when it does."""
        return None if node in self.fitting else self.refused.get(node, _GONE)

    def best(self, count: int, among: Collection[str] | None = None) -> list[str]:
        """The `count` best fitting nodes (of `among`), best first, equal ones by name."""
        if among is None:
            return [name for _, name in self._ranking[:count]]
        if len(among) * _SCAN_SHARE < len(self._ranking):
            ranked = ((-self._thousandths[name], name) for name in among if name in self.fitting)
            return [name for _, name in nsmallest(count, ranked)]
        allowed = among if isinstance(among, (set, frozenset, dict)) else set(among)
        result: list[str] = []
        for _, name in self._ranking:
            if name in allowed:
                result.append(name)
                if len(result) == count:
                    break
        return result

    def counts(self) -> Counter[Reason]:
        """How many nodes refuse, by reason."""
        return Counter(refusal.reason for refusal in self.refused.values())


class _Shape:
    """The verdicts of nodes for one request, as of `version`; `unknown` are the nodes not evaluated since then."""

    def __init__(self) -> None:
        self.version = -1
        self.fitting: dict[str, int] = {}
        self.thousandths: dict[str, int] = {}
        self.refused: dict[str, Refusal] = {}
        self.ranking: list[tuple[int, str]] = []
        self.unknown: set[str] = set()

    def forget_all(self, nodes: Iterable[str]) -> None:
        """Every verdict is void; these are the nodes that there are."""
        self.fitting, self.thousandths, self.refused, self.ranking = {}, {}, {}, []
        self.unknown = set(nodes)

    def forget(self, name: str) -> None:
        """This node's verdict is void."""
        self.put(name, None)
        self.unknown.add(name)

    def learn(self, verdicts: Sequence[tuple[str, int | Refusal]]) -> None:
        """Take verdicts of nodes that had none."""
        if len(verdicts) <= _FEW:
            for name, verdict in verdicts:
                self.put(name, verdict)
            return
        for name, verdict in verdicts:
            self._note(name, verdict)
        self.ranking = sorted((-score, name) for name, score in self.thousandths.items())

    def put(self, name: str, verdict: int | Refusal | None) -> None:
        """Replace one node's verdict; None = the node is gone."""
        before = self.thousandths.pop(name, None)
        if before is not None:
            del self.fitting[name]
            del self.ranking[bisect_left(self.ranking, (-before, name))]
        self.refused.pop(name, None)
        if verdict is not None:
            self._note(name, verdict)
        if name in self.thousandths:
            insort(self.ranking, (-self.thousandths[name], name))

    def copy(self) -> "_Shape":
        """For an answer that differs on a few nodes."""
        twin = _Shape()
        twin.fitting, twin.thousandths = dict(self.fitting), dict(self.thousandths)
        twin.refused, twin.ranking = dict(self.refused), list(self.ranking)
        twin.unknown = self.unknown
        return twin

    def _note(self, name: str, verdict: int | Refusal) -> None:
        if isinstance(verdict, Refusal):
            self.refused[name] = verdict
        else:
            self.thousandths[name] = verdict
            self.fitting[name] = verdict // 1000


class FitIndex:
    """Verdicts per request shape over the whole ledger. `evaluations` counts nodes evaluated (metric)."""

    def __init__(self, ledger: Ledger, policies: Policies) -> None:
        self.policies = policies
        self.evaluations = 0
        self._ledger = ledger
        self._alike = Alike()
        self._shapes: OrderedDict[PodRequest, _Shape] = OrderedDict()

    def verdicts(self, request: PodRequest, owner_uid: str, among: Set[str] | None = None) -> Verdicts:
        """Every node's verdict for this request, as asked by the pod `owner_uid`; with `among`, the answer is
        good for these names only, and others may be missing from it.

        A question costs MOST_EFFORT at most: where more nodes are unknown, some are in no list (`whole` is False).
        Whoever needs them all lets learn_some work first, in turns.
        """
        shape = self._fresh_shape(request)
        self._learn(shape, request, among)
        own = {name: self._evaluate(name, request, owner_uid) for name in self._ledger.nodes_of(owner_uid)}
        if own:
            shape = shape.copy()
            for name, verdict in own.items():
                shape.put(name, verdict)
        return Verdicts(shape)

    def learn_some(self, request: PodRequest, effort: int) -> bool:
        """Evaluate nodes that this request was not asked about yet, for about `effort` (at least one node); True
        while more are left.

        For callers that must not hold up others: a question about all nodes is cheap once nothing is left.
        """
        shape = self._fresh_shape(request)
        self._evaluate_into(shape, request, set(islice(shape.unknown, max(1, effort // effort_of(request)))))
        return bool(shape.unknown)

    def _fresh_shape(self, request: PodRequest) -> _Shape:
        shape = self._shapes.get(request)
        if shape is None:
            shape = self._shapes[request] = _Shape()
            while len(self._shapes) > SHAPES:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(request)
        if shape.version != self._ledger.version:
            self._void_changed(shape)
        return shape

    def _void_changed(self, shape: _Shape) -> None:
        changed = self._ledger.changed_since(shape.version) if shape.version >= 0 else None
        if changed is None:
            shape.forget_all(self._ledger.nodes())
        else:
            for name in changed:
                shape.forget(name)
        shape.version = self._ledger.version

    def _learn(self, shape: _Shape, request: PodRequest, among: Set[str] | None) -> None:
        one = effort_of(request)
        few = len(shape.unknown) <= _FEW // one
        wanted = shape.unknown if among is None or few else shape.unknown & among
        most = max(1, MOST_EFFORT // one)
        self._evaluate_into(shape, request, wanted if len(wanted) <= most else set(islice(wanted, most)))

    def _evaluate_into(self, shape: _Shape, request: PodRequest, names: Set[str]) -> None:
        if names:
            shape.learn(list(self._verdicts_of(names, request)))
            shape.unknown = shape.unknown - names

    def _verdicts_of(self, names: Iterable[str], request: PodRequest) -> Iterator[tuple[str, int | Refusal]]:
        alike = judged_alike(request, chain_for(request, self.policies))
        known: dict[int, int | Refusal] = {}
        for name in names:
            view = self._ledger.view(name)
            kind = self._alike.kind(view) if alike and view is not None else None
            verdict = None if kind is None else known.get(kind)
            if verdict is None:
                verdict = self._evaluate(name, request, "")
            if verdict is None:
                continue
            if kind is not None:
                known[kind] = verdict
            yield name, verdict

    def _evaluate(self, name: str, request: PodRequest, owner_uid: str) -> int | Refusal | None:
        view = self._ledger.view(name)
        if view is None:
            self._alike.forget(name)
            return None
        self.evaluations += 1
        return evaluate(view, request, owner_uid, self.policies)
