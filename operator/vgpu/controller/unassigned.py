"""Pods that are bound without a readable assignment: given cards where that is safe, otherwise told about. So are
those whose own assignment is broken while another system's is counted.

Enters: nodes whose view changed. Leaves: late assignments by the binder, one Event per pod and reason. May not
live here: when cards may be given late (core.late_assignment), evictions (late_eviction, off by default).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from vgpu.controller.binder import Binder
from vgpu.controller.fence import Fence
from vgpu.controller.guard import one_object
from vgpu.controller.late_eviction import LateEvictions
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Changes, Ledger
from vgpu.core.reasons import Reason
from vgpu.core.views import HolderState, NodeView, Unassigned


class Reporter(Protocol):
    """Who writes one event per pod and reason."""

    def report(self, pod: PodFact, reason: Reason, message: str) -> None:
        """Tell the pod's readers once."""


@dataclass(frozen=True, slots=True)
class Late:
    """Who gives cards late, and who evicts where none fit."""

    binder: Binder
    evictions: LateEvictions


class UnassignedPods:
    """Looks at the unassigned pods of changed nodes; only while this process serves as the leader."""

    def __init__(
        self,
        ledger: Ledger,
        late: Late,
        reporter: Reporter,
        fence: Fence,
        serving: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._binder = late.binder
        self._evictions = late.evictions
        self._reporter = reporter
        self._fence = fence
        self._serving = serving

    def changed(self, changes: Changes) -> None:
        """Look at the changed nodes."""
        if self._fence.leading and self._serving():
            for node in changes.nodes:
                self._look_guarded(node)

    def start_over(self) -> None:
        """This process has begun to lead: look at every node."""
        for node in list(self._ledger.nodes()):
            self._look_guarded(node)

    def _look_guarded(self, node: str) -> None:
        with one_object("unassigned pods", node):
            self._look(node)

    def _look(self, node: str) -> None:
        view = self._ledger.view(node)
        if view is None:
            return
        for uid in _counted_otherwise(view):
            pod = self._ledger.pod(uid)
            if pod is not None and pod.assignment is not None and pod.assignment_problem:
                text = (
                    f"{pod.assignment_problem}; its cards are counted as {pod.assignment.source.value} wrote them"
                )
                self._reporter.report(pod, Reason.ASSIGNMENT_IGNORED, text)
        if not view.unassigned:
            return
        for late in self._binder.consider_late(node):
            text = f"bound to {node} without cards, and none fit there now: {late.refusal.message}"
            self._reporter.report(late.pod, Reason.BOUND_WITHOUT_ASSIGNMENT, text)
            self._evictions.offer(late.pod)
        for entry in view.unassigned:
            self._tell(entry, node)

    def _tell(self, entry: Unassigned, node: str) -> None:
        pod = self._ledger.pod(entry.uid)
        if pod is None:
            return
        if pod.assignment_problem:
            self._reporter.report(pod, Reason.ASSIGNMENT_IGNORED, pod.assignment_problem)
        elif entry.blocks:
            text = (
                f"bound to {node} without an assignment by this operator, so it may use any card: "
                f"{node} takes no new GPU pods while this pod lives"
            )
            self._reporter.report(pod, Reason.BOUND_WITHOUT_ASSIGNMENT, text)
        elif pod.ever_ran and pod.request is not None:
            text = (
                f"runs on {node} without a card: it asks for {pod.request.slot_resource}, which that node does "
                "not offer; delete it and leave out spec.nodeName"
            )
            self._reporter.report(pod, Reason.BOUND_WITHOUT_ASSIGNMENT, text)


def _counted_otherwise(view: NodeView) -> set[str]:
    """Uids of the pods whose cards are known by what another system wrote."""
    holders = [h for card in view.cards for h in card.holders if h.state is HolderState.LEGACY]
    return {holder.uid for holder in (*holders, *(orphan.holder for orphan in view.orphans))}
