"""Bound pods whose assignment is not theirs are told so, once."""

from dataclasses import dataclass, field, replace

import pytest

from tests.controller.cluster_facts import bound, ledger_of
from vgpu.controller.binder import Binder, LateRefusal
from vgpu.controller.fence import Fence
from vgpu.controller.late_eviction import LateEvictions
from vgpu.controller.unassigned import Late, UnassignedPods
from vgpu.core.facts import AssignmentSource, PodFact
from vgpu.core.reasons import Reason

PROBLEM = "vgpu.dev/assignment: not JSON"


@dataclass
class Told:
    reports: list[tuple[str, Reason, str]] = field(default_factory=list)

    def report(self, pod: PodFact, reason: Reason, message: str) -> None:
        self.reports.append((pod.name, reason, message))


def look_at(pod: PodFact) -> list[tuple[str, Reason, str]]:
    ledger, told = ledger_of("node-a"), Told()
    ledger.put_pod(pod)
    late = Late(Binder.__new__(Binder), LateEvictions.__new__(LateEvictions))  # nobody is without cards
    UnassignedPods(ledger, late, told, Fence(10, 4), lambda: True).start_over()
    return told.reports


def legacy(**changes: object) -> PodFact:
    pod = bound("old", "node-a")
    assert pod.assignment is not None
    assignment = replace(pod.assignment, source=AssignmentSource.HAMI)
    return replace(pod, assignment=assignment, **changes)  # type: ignore[arg-type]


def test_a_broken_assignment_beside_a_readable_legacy_one_is_told() -> None:
    want = ("old", Reason.ASSIGNMENT_IGNORED, f"{PROBLEM}; its cards are counted as hami wrote them")
    assert look_at(legacy(assignment_problem=PROBLEM)) == [want]


def test_also_when_its_card_is_not_listed() -> None:
    pod = legacy(assignment_problem=PROBLEM)
    assert pod.assignment is not None
    [container] = pod.assignment.containers
    cards = tuple(replace(card, uuid="GPU-of-nobody") for card in container.cards)
    lost = replace(pod.assignment, containers=(replace(container, cards=cards),))
    assert [reason for _, reason, _ in look_at(replace(pod, assignment=lost))] == [Reason.ASSIGNMENT_IGNORED]


@pytest.mark.parametrize("pod", [legacy(), bound("old", "node-a")], ids=["legacy", "ours"])
def test_a_readable_assignment_is_nothing_to_tell(pod: PodFact) -> None:
    assert look_at(pod) == []


class NobodyLate(Binder):
    """Gives nobody cards late."""

    def consider_late(self, node: str) -> list[LateRefusal]:
        return []


def test_a_pod_that_runs_without_a_card_because_its_node_never_offered_what_it_asks_for_is_told() -> None:
    ledger, told = ledger_of("node-a"), Told()
    pod = bound("by-hand", "node-a")
    assert pod.request is not None
    request = replace(pod.request, slot_resource="nvidia.com/gpu")
    ledger.put_pod(replace(pod, assignment=None, request=request, ever_ran=True))
    late = Late(NobodyLate.__new__(NobodyLate), LateEvictions.__new__(LateEvictions))
    UnassignedPods(ledger, late, told, Fence(10, 4), lambda: True).start_over()
    [(name, reason, message)] = told.reports
    assert (name, reason) == ("by-hand", Reason.BOUND_WITHOUT_ASSIGNMENT)
    assert "without a card: it asks for nvidia.com/gpu, which that node does not offer" in message
