"""kube-scheduler's three questions about node names: which fit, how good, which may be preempted on.

Enters: the ledger, its fit index, a PodFact, names. Leaves: names, texts and scores. Asking changes nothing, so
the same question has the same answer until the ledger changes. Knows no HTTP and no JSON; may not book.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import PodRequest

UNKNOWN_NODE = Refusal(Reason.NODE_GONE, "the operator does not know this node (not seen yet, or deleted)")
REMEMBERED_REFUSALS = 8192


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """`nodes` fit. `failed` may be asked about in-tree preemption, `unresolvable` never.

    `no_fit_anywhere`: it is known that not one node of the whole ledger fits, whatever names were sent.
    `barred`: its queue does not let the pod start now, wherever it fits.
    """

    nodes: list[str]
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)
    no_fit_anywhere: bool = False
    barred: bool = False

    @property
    def missed(self) -> bool:
        """None of the names fits although another node does, or may: a nomination can help."""
        return not self.nodes and not self.no_fit_anywhere


def filter_nodes(
    index: FitIndex, ledger: Ledger, pod: PodFact, node_names: Sequence[str], best: int
) -> FilterAnswer:
    """Which of `node_names` take the pod: the `best` ones (at least 2), all when in-tree scoring has preferences
    to weigh; only the booked node while a booking of this pod stands.

    Reasons are given when none does: kube-scheduler reads them only then, and a node in no list is not chosen.
    """
    if pod.refusal is not None:
        return _all_refused(node_names, pod.refusal.message)
    if pod.request is None:
        return FilterAnswer(list(node_names))
    booking = ledger.booking(pod.uid)
    if booking is not None:
        return _only(booking.node, node_names)
    # Thousands of names come as new strings: each is looked at no further in plain Python.
    sent = set(node_names)
    verdicts = index.verdicts(pod.request, pod.uid, sent)
    fitting = verdicts.fitting
    if pod.scheduling.soft_preferences:
        chosen = [name for name in dict.fromkeys(node_names) if name in fitting]
    else:
        chosen = verdicts.best(max(2, best), sent)
    if not chosen:
        # Whether a node that was not sent fits is found out elsewhere, in turns: kube-scheduler waits for us here.
        failed, unresolvable = sort_refusals(node_names, verdicts.refused)
        return FilterAnswer([], failed, unresolvable, no_fit_anywhere=verdicts.whole and not fitting)
    nomination = ledger.nomination(pod.uid)
    if nomination is not None and nomination.node in sent and nomination.node in fitting:
        chosen = [nomination.node, *(name for name in chosen if name != nomination.node)]
    return FilterAnswer(chosen)


def sort_refusals(
    node_names: Iterable[str], refused: Mapping[str, Refusal]
) -> tuple[dict[str, str], dict[str, str]]:
    """(failed, unresolvable) texts of the refusing names. A node that only waits for another pod's admission is
    `failed`; all others stay out of in-tree preemption, which could free no card there."""
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    waits = Reason.WAITS_FOR_ADMISSION
    for name in node_names:
        refusal = refused.get(name, UNKNOWN_NODE)
        side = failed if refusal.reason is waits else unresolvable
        side[name] = refusal.message
    return failed, unresolvable


class NodeFilter:
    """filter_nodes with the one verdict that may be remembered: no node of the whole ledger fits.

    kube-scheduler asks again at each node update it sees; the memory is by pod uid, for one ledger version.
    """

    def __init__(
        self,
        index: FitIndex,
        ledger: Ledger,
        best: int,
        queue_refusal: Callable[[PodFact], Refusal | None] = lambda _: None,
    ) -> None:
        self._index = index
        self._queue_refusal = queue_refusal
        self._ledger = ledger
        self._best = best
        self._version = -1
        self._hopeless: dict[str, tuple[PodRequest, Mapping[str, Refusal]]] = {}
        self.remembered = 0
        """Answers given from memory."""

    def filter(self, pod: PodFact, node_names: Sequence[str]) -> FilterAnswer:
        """As filter_nodes, for a pod that its queue lets start."""
        barred = self._queue_refusal(pod)
        if barred is not None:
            return replace(_all_refused(node_names, barred.message), barred=True)
        if self._version != self._ledger.version:
            self._hopeless.clear()
            self._version = self._ledger.version
        known = self._hopeless.get(pod.uid)
        if known is not None and known[0] == pod.request:
            self.remembered += 1
            failed, unresolvable = sort_refusals(node_names, known[1])
            return FilterAnswer([], failed, unresolvable, no_fit_anywhere=True)
        answer = filter_nodes(self._index, self._ledger, pod, node_names, self._best)
        if answer.no_fit_anywhere and pod.request is not None and len(self._hopeless) < REMEMBERED_REFUSALS:
            self._hopeless[pod.uid] = (pod.request, self._index.verdicts(pod.request, pod.uid).refused)
        return answer


def prioritize(index: FitIndex, pod: PodFact, node_names: Sequence[str]) -> dict[str, int]:
    """Scores 0..10 by the pod's node policy, stretched over the nodes asked about: the best have 10, the others
    1..9, those that do not fit 0. Unstretched, a slot more or less among eighty would vanish in the rounding, and
    kube-scheduler's own scores, which spread, would decide.
    """
    if pod.request is None:
        return dict.fromkeys(node_names, 0)
    verdicts = index.verdicts(pod.request, pod.uid, set(node_names))
    fine = {name: verdicts.thousandths(name) for name in node_names}
    known = [score for score in fine.values() if score is not None]
    if not known:
        return dict.fromkeys(node_names, 0)
    low, high = min(known), max(known)
    return {name: 0 if score is None else _stretched(score, low, high) for name, score in fine.items()}


def _stretched(score: int, low: int, high: int) -> int:
    return 10 if score == high else 1 + 8 * (score - low) // (high - low)


def keep_candidates(
    index: FitIndex, ledger: Ledger, pod: PodFact, victims: Mapping[str, Collection[str]]
) -> list[str]:
    """Of in-tree preemption's candidates (node -> victims' uids) those where it may go on: the pod's cards fit
    there now without any eviction, and no victim holds or asks for GPUs. Only our planner evicts those."""
    if pod.refusal is not None or ledger.booking(pod.uid) is not None:
        return []
    fitting = index.verdicts(pod.request, pod.uid, set(victims)).fitting if pod.request is not None else victims
    return [
        node
        for node, uids in victims.items()
        if node in fitting and not any(_touches_gpus(ledger, uid) for uid in uids)
    ]


def _touches_gpus(ledger: Ledger, uid: str) -> bool:
    """The ledger keeps every pod that has to do with GPUs; one just bound is booked before its event comes."""
    pod = ledger.pod(uid)
    return ledger.booking(uid) is not None or (pod is not None and (pod.wants_gpus or pod.assignment is not None))


def _all_refused(node_names: Sequence[str], message: str) -> FilterAnswer:
    return FilterAnswer([], {}, dict.fromkeys(node_names, message), no_fit_anywhere=True)


def _only(booked: str, node_names: Sequence[str]) -> FilterAnswer:
    text = f"cards of node {booked} are booked for this pod; its binding is under way"
    others = {name: text for name in node_names if name != booked}
    nodes = [booked] if len(others) < len(node_names) else []
    # A booking answers by itself: no nomination can help.
    return FilterAnswer(nodes, {}, others, no_fit_anywhere=not nodes)
