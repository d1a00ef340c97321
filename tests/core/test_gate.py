"""The node gate: each rule closes the node, says so in the same words everywhere, and opens again."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.core.building import (
    SLOTS,
    bound_pod,
    holds,
    make_booking,
    make_inventory,
    make_ledger,
    make_node,
    make_request,
    pending_pod,
    placed,
    share,
    want,
)
from vgpu.core.facts import Identity, Phase, PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.reasons import Reason

ONE = make_request(want(1, 100))


def closed(ledger: Ledger, node: str = "n1") -> Reason | None:
    view = ledger.view(node)
    assert view is not None
    return view.closed.reason if view.closed else None


def agent(uid: str = "agent", ready: bool = True, **fields: object) -> PodFact:
    return PodFact(uid, "vgpu-system", uid, node="n1", agent_pod_ready=ready, **fields)  # type: ignore[arg-type]


def unadmitted(count: int) -> list[PodFact]:
    return [bound_pod(f"p{n}", holds(share("GPU-0", 10)), admitted=False, ever_ran=False) for n in range(count)]


CASES: dict[str, tuple[Callable[[Ledger], object], Reason | None]] = {
    "open": (lambda ledger: None, None),
    "node deleted": (lambda ledger: ledger.drop_node("n1", "uid-n1"), Reason.NODE_GONE),
    "node deleted, another uid": (lambda ledger: ledger.drop_node("n1", "uid-old"), None),
    "inventory deleted": (lambda ledger: ledger.drop_inventory("n1"), Reason.NO_INVENTORY),
    "inventory unreadable": (
        lambda ledger: ledger.put_inventory(make_inventory(problem="gpus: expected a list")),
        Reason.INVENTORY_INVALID,
    ),
    "cards unreadable": (
        lambda ledger: ledger.put_inventory(make_inventory(read_error="NVML: driver not loaded")),
        Reason.READ_ERROR,
    ),
    "no isolation": (
        lambda ledger: ledger.put_inventory(make_inventory(isolation_error="libvgpu.so is not there")),
        Reason.ISOLATION_ERROR,
    ),
    "allocatable 0": (lambda ledger: ledger.put_node(make_node(allocatable=0)), Reason.NO_ALLOCATABLE),
    "allocatable of another resource": (
        lambda ledger: ledger.put_inventory(make_inventory(slot_resource="nvidia.com/gpu")),
        Reason.NO_ALLOCATABLE,
    ),
    "agent ready": (lambda ledger: ledger.put_pod(agent()), None),
    "agent not ready": (lambda ledger: ledger.put_pod(agent(ready=False)), Reason.AGENT_DOWN),
    "agent failed": (lambda ledger: ledger.put_pod(agent(ready=False, phase=Phase.FAILED)), Reason.AGENT_DOWN),
    "old agent failed, new one ready": (
        lambda ledger: (ledger.put_pod(agent("old", ready=False)), ledger.put_pod(agent("new"))),
        None,
    ),
    "15 wait for admission": (lambda ledger: [ledger.put_pod(pod) for pod in unadmitted(15)], None),
    "16 wait for admission": (
        lambda ledger: [ledger.put_pod(pod) for pod in unadmitted(16)],
        Reason.TOO_MANY_UNADMITTED,
    ),
    "unknown pod ran": (lambda ledger: ledger.put_pod(bound_pod("x", request=ONE)), Reason.UNKNOWN_HOLDER),
    "unknown pod never ran": (lambda ledger: ledger.put_pod(bound_pod("x", request=ONE, ever_ran=False)), None),
    "unknown DaemonSet pod": (
        lambda ledger: ledger.put_pod(bound_pod("x", request=ONE, ever_ran=False, daemonset_or_mirror=True)),
        Reason.UNKNOWN_HOLDER,
    ),
    "unknown pod that ended": (
        lambda ledger: ledger.put_pod(bound_pod("x", request=ONE, phase=Phase.SUCCEEDED, container_running=False)),
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_gate_closes_and_says_why(case: str) -> None:
    change, reason = CASES[case]
    ledger = make_ledger()
    change(ledger)
    assert closed(ledger) is reason


def test_an_unknown_pod_on_a_deferred_node_closes_it_even_before_it_runs() -> None:
    ledger = make_ledger(bound_pod("x", request=ONE, ever_ran=False), identity=Identity.DEFERRED)
    assert closed(ledger) is Reason.UNKNOWN_HOLDER
    view = ledger.view("n1")
    assert view is not None
    assert view.closed is not None
    assert "team/x" in view.closed.message


OTHER = "nvidia.com/gpu"


@pytest.mark.parametrize("identity", Identity)
def test_a_pod_that_asks_for_what_its_node_never_offered_closes_nothing(identity: Identity) -> None:
    pod = bound_pod("x", request=make_request(want(2, 100), slot_resource=OTHER), daemonset_or_mirror=True)
    ledger = make_ledger(pod, identity=identity)
    assert closed(ledger) is None
    view = ledger.view("n1")
    assert view is not None
    assert (view.used_slots, [entry.uid for entry in view.unassigned]) == (0, ["x"])


def test_it_closes_the_node_where_an_unreadable_assignment_says_that_it_was_given_cards() -> None:
    request = make_request(want(1, 100), slot_resource=OTHER)
    ledger = make_ledger(bound_pod("x", request=request, assignment_problem="not JSON"))
    assert closed(ledger) is Reason.UNKNOWN_HOLDER


@pytest.mark.parametrize("left", [0, 8], ids=["its plugin went", "another plugin serves it"])
def test_it_closes_the_node_where_a_plugin_could_have_served_it(left: int) -> None:
    ledger = make_ledger(bound_pod("x", request=make_request(want(1, 100), slot_resource=OTHER)))
    assert closed(ledger) is None
    ledger.put_node(replace(make_node(), slots_allocatable=frozenset({(SLOTS, 1000), (OTHER, left)})))
    assert closed(ledger) is Reason.UNKNOWN_HOLDER


def test_booked_pods_count_as_waiting_for_admission() -> None:
    ledger = make_ledger(*unadmitted(15), pending_pod("new", ONE))
    ledger.book(make_booking("new", placed(ledger, ONE, "new")))
    assert closed(ledger) is Reason.TOO_MANY_UNADMITTED


def test_the_same_cause_reads_the_same_on_every_node() -> None:
    ledger = Ledger()
    for name, cards in (("n1", 1), ("n2", 4)):
        ledger.put_node(make_node(name, allocatable=0))
        ledger.put_inventory(make_inventory(cards, name))
    assert len({str(ledger.view(name).closed) for name in ("n1", "n2")}) == 1  # type: ignore[union-attr]


def refuse(ledger: Ledger, uid: str, *, seen_before: bool = True) -> None:
    pod = bound_pod(uid, holds(share("GPU-0", 10)), admitted=False, ever_ran=False, container_running=False)
    if seen_before:
        ledger.put_pod(pod)
    ledger.put_pod(replace(pod, phase=Phase.FAILED, admitted=True, unexpected_admission=True))


def test_three_refused_admissions_in_a_row_close_the_node() -> None:
    ledger = make_ledger()
    for uid in ("a", "b"):
        refuse(ledger, uid)
    assert closed(ledger) is None
    refuse(ledger, "c")
    assert closed(ledger) is Reason.ADMISSION_REFUSED


def test_a_pod_admitted_normally_ends_the_row() -> None:
    ledger = make_ledger()
    for uid in ("a", "b"):
        refuse(ledger, uid)
    ledger.put_pod(bound_pod("good", holds(share("GPU-0", 10))))
    refuse(ledger, "c")
    assert closed(ledger) is None


def test_pods_that_a_new_kubelet_fails_say_nothing_about_the_node() -> None:
    """They were admitted before; that their plugin had not registered yet is over when allocatable is there."""
    ledger = make_ledger()
    for uid in ("a", "b", "c", "d"):
        pod = bound_pod(uid, holds(share("GPU-0", 10)))
        ledger.put_pod(pod)
        ledger.put_pod(replace(pod, phase=Phase.FAILED, unexpected_admission=True, container_running=False))
    assert closed(ledger) is None


def test_a_refused_pod_counts_once_and_not_when_first_seen_failed() -> None:
    ledger = make_ledger()
    for _ in range(3):
        refuse(ledger, "a")
    for uid in ("b", "c", "d"):
        refuse(ledger, uid, seen_before=False)
    assert closed(ledger) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.put_node(make_node(allocatable=999)),
        lambda ledger: ledger.put_inventory(make_inventory(3)),
        lambda ledger: ledger.put_pod(agent("new-agent")),
    ],
    ids=["allocatable", "inventory", "agent pod"],
)
def test_a_change_of_the_node_opens_it_after_refused_admissions(change: Callable[[Ledger], object]) -> None:
    ledger = make_ledger()
    for uid in ("a", "b", "c"):
        refuse(ledger, uid)
    assert closed(ledger) is Reason.ADMISSION_REFUSED
    change(ledger)
    assert closed(ledger) is None
