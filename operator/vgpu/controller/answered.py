"""Pods that filter has answered with nodes and that are about to be bound: they have their place in rank as well.

Between the answer and the bind (tens to hundreds of milliseconds) such a pod is neither refused nor booked. What
it may take must not go to one that comes after it, so it is counted in turn with those that wait: on each node it
was answered with, for only kube-scheduler knows which of them it takes. Nothing is held or written for it, and it
is not counted for longer than a moment: later steps of kube-scheduler may turn it down.

Enters: answers of the extender; views and waiting pods. Leaves: nominations of waiting pods; the nodes that were
left aside, once those for whom they were have come or were waited for long enough. May not live here: whose turn
it is, limits per pod, holds, writes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice

from vgpu.controller.guard import one_object
from vgpu.core.facts import PodFact
from vgpu.core.filtering import FilterAnswer
from vgpu.core.intree import FIELD_NAME
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import BY_AGE, Nomination, Turns, best_placement, may_be_placed, nominate, take
from vgpu.core.placement import Policies
from vgpu.core.views import NodeView

COMING_SECONDS = 2.0
"""So long a pod is counted after its answer; kube-scheduler usually binds within one."""
REST_SECONDS = 30.0
"""One that was counted so long in vain is not counted again for this time, unless its cards fitted nowhere since:
asked about over and over, it keeps nobody waiting for ever."""
MOST_COUNTED = 32
"""So many pods are counted at once, the last answered first: more would make an answer wait."""


class AnsweredPods:
    """See the module."""

    def __init__(self, ledger: Ledger, policies: Policies) -> None:
        self._ledger = ledger
        self._policies = policies
        self._until: dict[str, float] = {}
        self._nodes: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._aside: dict[str, set[str]] = {}

    def note(self, pod: PodFact, answer: FilterAnswer) -> None:
        """The extender has answered for this pod."""
        now, uid = _now(), pod.uid
        self._end_over(now)
        self._nodes.pop(uid, None)
        if answer.no_fit_anywhere:
            self._until.pop(uid, None)
        if not answer.nodes or pod.request is None:
            return
        until = self._until.get(uid)
        if until is None or now >= until + REST_SECONDS:
            until = self._until[uid] = now + COMING_SECONDS
        if now < until:
            self._nodes[uid] = frozenset(answer.nodes)

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._nodes.pop(uid, None)
        self._until.pop(uid, None)

    def clear(self) -> None:
        """What was answered under an earlier lead counts no more."""
        self._nodes.clear()
        self._until.clear()
        self._aside.clear()

    def counted_on(self, node: str) -> bool:
        """Whether any pod is counted there."""
        return any(node in self._nodes[pod.uid] for pod in self._coming())

    def nominate(
        self, views: Sequence[NodeView], waiting: Sequence[PodFact], limit: int, turns: Turns, asking: str = ""
    ) -> list[Nomination]:
        """As core.nomination's, beside the pods that are about to be bound. These are not nominated, also where
        they are among `waiting`; but for the pod `asking`, whose answer is worked out anew."""
        names = {view.name for view in views}
        coming = {pod.uid: pod for pod in self._coming(but_not=asking)}
        counted = [copy for pod in coming.values() for copy in self._on_each(pod, names)]
        among = [pod.uid for pod in waiting if pod.uid in coming] if coming else []
        if not counted and not among:
            return nominate(views, waiting, self._policies, limit, turns)
        others = [pod for pod in waiting if pod.uid not in coming]
        most, beside = limit + len(counted), _Beside(coming.keys(), turns)
        found: list[Nomination] = []
        with one_object("nominations", "pods about to be bound") as together:
            found = nominate(views, [*others, *counted], self._policies, most, beside.turns())
        if together.failed:
            return nominate(views, waiting, self._policies, limit, turns)
        for uid in {one.pod.uid for one in found if one.pod.uid in coming}.union(among):
            self._aside.setdefault(uid, set()).update(names)
        chosen = [one for one in found if one.pod.uid not in coming][:limit]
        came = sum(one.pod.uid in coming for one in found)
        tight, after = self._tight(views, chosen)
        fit = nominate(after, counted, self._policies, most, _Beside(coming.keys(), turns).turns())
        return tight if len(fit) >= came else chosen

    def take_back(self) -> set[str]:
        """Nodes that were left aside for pods that are about to be bound no longer."""
        over = [uid for uid in self._aside if not self._is_coming(uid)]
        return {name for uid in over for name in self._aside.pop(uid)}

    def next_over(self) -> float | None:
        """When something left aside comes back at the latest, in the loop's seconds; None = nothing is aside."""
        return min((self._until.get(uid, 0.0) for uid in self._aside), default=None)

    def _coming(self, but_not: str = "") -> list[PodFact]:
        pods = (self._ledger.pod(uid) for uid in reversed(self._nodes) if uid != but_not and self._is_coming(uid))
        return list(islice((pod for pod in pods if pod is not None), MOST_COUNTED))

    def _is_coming(self, uid: str) -> bool:
        pod = self._ledger.pod(uid)
        if pod is None or uid not in self._nodes or _now() >= self._until[uid]:
            return False
        held = self._ledger.booking(uid) is not None or self._ledger.nomination(uid) is not None
        return not held and may_be_placed(pod, pod.scheduler_name)

    def _tight(
        self, views: Iterable[NodeView], others: Sequence[Nomination]
    ) -> tuple[list[Nomination], Iterable[NodeView]]:
        """The same pods on the same nodes, on the cards that they would have if nobody were counted, and what the
        nodes are then. Most of those who are counted on a node never come there: cards chosen beside all of them
        leave small pieces, in which pods of several cards find no room later."""
        scratch, tight = {view.name: view for view in views}, list[Nomination]()
        for one in others:
            placement = best_placement([scratch[one.placement.node]], one.pod, self._policies) or one.placement
            tight.append(replace(one, placement=placement))
            take(scratch, one.pod, placement)
        return tight, scratch.values()

    def _on_each(self, pod: PodFact, names: Set[str]) -> Iterable[PodFact]:
        """The pod once for each of these nodes that it was answered with, to be placed there alone."""
        for name in sorted(self._nodes[pod.uid] & names):
            selector = pod.scheduling.node_selector | {(FIELD_NAME, name)}
            yield replace(pod, scheduling=replace(pod.scheduling, node_selector=selector))

    def _end_over(self, now: float) -> None:
        while self._nodes and now >= self._until[uid := next(iter(self._nodes))]:
            del self._nodes[uid]


@dataclass(slots=True)
class _Beside:
    """Turns in which pods that are about to be bound may start, and fill their queues once however many nodes they
    are counted on."""

    coming: Set[str]
    others: Turns = BY_AGE
    seen: int = 0
    served: dict[str, PodFact] = field(default_factory=dict)

    def turns(self) -> Turns:
        return Turns(self.others.key, self._admits, self._alone)

    def _admits(self, served: Sequence[PodFact], pod: PodFact) -> bool:
        """`served` only grows from one call to the next."""
        if pod.uid in self.coming:
            return True  # its queue was asked before it was answered
        self.served.update((one.uid, one) for one in served[self.seen :])
        self.seen = len(served)
        return self.others.admits(list(self.served.values()), pod)

    def _alone(self, pod: PodFact) -> bool:
        return pod.uid in self.coming or self.others.alone(pod)


def _now() -> float:
    return asyncio.get_running_loop().time()
