"""Scenarios of the node's side from public bug reports, by number, as far as the operator's memory goes."""

from dataclasses import replace

import pytest

from tests.core.building import (
    bind,
    bound_pod,
    holds,
    make_card,
    make_inventory,
    make_ledger,
    make_node,
    make_request,
    pending_pod,
    placed,
    refused,
    share,
    uuids_of,
    want,
)
from vgpu.core.facts import Identity, Phase, Plugin, PodFact
from vgpu.core.inventory_status import inventory_status
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement
from vgpu.core.reasons import Reason
from vgpu.core.views import HolderState, NodeView

ONE = make_request(want(1, 1_000))
KINDS = [(Identity.EXACT, Plugin.VGPU), (Identity.DEFERRED, Plugin.VGPU), (Identity.DEFERRED, Plugin.VOLCANO)]


def view_of(ledger: Ledger) -> NodeView:
    view = ledger.view("n1")
    assert view is not None
    return view


def holders(ledger: Ledger) -> dict[str, list[str]]:
    return {card.fact.uuid: [holder.uid for holder in card.holders] for card in view_of(ledger).cards}


def conditions(ledger: Ledger) -> dict[str, str]:
    return {condition.type: condition.message for condition in inventory_status(view_of(ledger)).conditions}


def failed(uid: str) -> PodFact:
    return replace(not_admitted(uid), phase=Phase.FAILED, admitted=True, unexpected_admission=True)


def not_admitted(uid: str) -> PodFact:
    return bound_pod(uid, holds(share("GPU-0")), admitted=False, ever_ran=False, container_running=False)


def admission_refused(ledger: Ledger, uid: str) -> None:
    ledger.put_pod(not_admitted(uid))
    ledger.put_pod(failed(uid))


def test_r08_a_share_that_two_pods_hold_is_told_with_both_names_and_counts_for_both() -> None:
    """However it came about: each pod counts by its own assignment, and nobody is put beside them."""
    whole = holds(share("GPU-0", 24_000, whole=True))
    ledger = make_ledger(bound_pod("a", whole), bound_pod("b", whole), cards=1)
    assert holders(ledger) == {"GPU-0": ["a", "b"]}
    assert "GPU-0 (held by team/a, team/b)" in conditions(ledger)["Overbooked"]
    assert refused(ledger, ONE).reason is Reason.EXCLUSIVE_HOLDER
    ledger.drop_pod("a")
    assert "Overbooked" not in conditions(ledger)


def test_r08_a_pod_that_was_deleted_by_force_is_counted_no_more_and_its_successor_is_another() -> None:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0", whole=True)), name="web"), cards=1)
    ledger.drop_pod("old")
    ledger.put_pod(bound_pod("new", holds(share("GPU-0", whole=True)), name="web"))
    assert holders(ledger) == {"GPU-0": ["new"]}
    assert not ledger.drop_pod("old"), "a late word of the old pod ends nothing of the new one"
    assert holders(ledger) == {"GPU-0": ["new"]}


def test_r24_twelve_thousand_failed_pods_hold_nothing_and_cost_no_recount() -> None:
    ledger = make_ledger(cards=1)
    for uid in ("x", "y", "z"):
        admission_refused(ledger, uid)
    before, recounts = view_of(ledger), ledger.recounts
    for number in range(12_000):
        ledger.put_pod(failed(f"p{number}"))
    assert view_of(ledger) == before
    assert ledger.recounts == recounts
    assert holders(ledger) == {"GPU-0": []}
    assert list(ledger.pending()) == []


def test_r24_a_node_that_refuses_again_and_again_is_left_out_and_says_so() -> None:
    ledger = make_ledger()
    for uid in ("a", "b", "c"):
        assert placed(ledger, ONE)
        admission_refused(ledger, uid)
    refusal = refused(ledger, ONE)
    assert refusal.reason is Reason.ADMISSION_REFUSED
    assert "kubelet refused 3 GPU pods in a row" in refusal.message
    assert "UnexpectedAdmissionError" in conditions(ledger)["Ready"]


@pytest.mark.parametrize(("identity", "plugin"), KINDS)
def test_r27_a_hung_plugin_shows_only_in_pods_that_nobody_admits_and_closes_the_node(
    identity: Identity, plugin: Plugin
) -> None:
    """All else looks well: a plugin that hangs inside Allocate blocks kubelet's loop, probes included."""
    ledger = make_ledger(bound_pod("old", holds(share("GPU-1"))), identity=identity, plugin=plugin)
    accepted = 0
    for number in range(40):
        answer = bind_unadmitted(ledger, f"p{number}")
        accepted += isinstance(answer, Placement)
    assert accepted == (16 if identity is Identity.EXACT else 1)
    assert "old" in holders(ledger)["GPU-1"]


def bind_unadmitted(ledger: Ledger, uid: str) -> object:
    answer = bind(ledger, uid, make_request(want(1, 10)))
    pod = ledger.pod(uid)
    if pod is not None:
        ledger.put_pod(replace(pod, admitted=False, ever_ran=False, container_running=False))
    return answer


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"node": make_node(allocatable=0)}, id="kubelet restarted"),
        pytest.param({"inventory": make_inventory(read_error="driver not loaded")}, id="driver not loaded yet"),
        pytest.param({"inventory": make_inventory(isolation_error="no libvgpu.so")}, id="library not there"),
        pytest.param({"agent": False}, id="agent down"),
    ],
)
def test_r28_a_passing_failure_ends_with_the_event_of_its_end(changes: dict[str, object]) -> None:
    """The content is the same as before: nothing has to be edited, and the waiting are told that room is free."""
    ledger = make_ledger()
    agent = PodFact("agent", "vgpu-system", "agent", node="n1", agent_pod_ready=True)
    ledger.put_pod(agent)
    want_view = view_of(ledger)
    if "node" in changes:
        ledger.put_node(changes["node"])  # type: ignore[arg-type]
    if "inventory" in changes:
        ledger.put_inventory(changes["inventory"])  # type: ignore[arg-type]
    ledger.put_pod(replace(agent, agent_pod_ready=changes.get("agent", True)))  # type: ignore[arg-type]
    assert view_of(ledger).closed is not None
    ledger.take_changes()
    ledger.put_node(make_node())
    ledger.put_inventory(make_inventory())
    ledger.put_pod(agent)
    assert view_of(ledger) == want_view
    assert ledger.take_changes().freed == {"n1"}


def test_r31_two_writers_of_one_resource_are_told_and_the_lower_number_counts() -> None:
    ledger = make_ledger(cards=8, allocatable=160)
    assert "another device plugin registers the same resource" in conditions(ledger)["SlotsMismatch"]
    assert view_of(ledger).effective_slots == 80
    ledger.put_node(make_node(allocatable=80))
    assert "SlotsMismatch" not in conditions(ledger)


def test_r36_a_device_list_that_was_cut_off_is_told_and_the_lower_number_counts() -> None:
    ledger = make_ledger(cards=8, allocatable=9)
    assert "kubelet offers 9" in conditions(ledger)["SlotsMismatch"]
    assert view_of(ledger).effective_slots == 9


def test_r32_after_a_reboot_a_pod_keeps_its_cards_by_uid_and_one_that_failed_holds_nothing() -> None:
    stays = bound_pod("stays", holds(share("GPU-0", whole=True)))
    fails = bound_pod("fails", holds(share("GPU-1", whole=True)))
    ledger = make_ledger(stays, fails, boot_id="boot-1")
    ledger.put_node(make_node(allocatable=0))
    ledger.put_pod(replace(stays, container_running=False))
    ledger.put_pod(replace(fails, container_running=False, phase=Phase.FAILED, unexpected_admission=True))
    ledger.put_inventory(make_inventory(boot_id="boot-2"))
    ledger.put_node(make_node())
    ledger.put_pod(stays)
    assert holders(ledger) == {"GPU-0": ["stays"], "GPU-1": []}
    assert uuids_of(placed(ledger, make_request(), "recreated")) == [["GPU-1"]]


def test_r32_pods_that_a_reboot_rejected_do_not_close_the_node_that_came_back() -> None:
    """They fail before the plugin is there; its registration is the change that opens the node."""
    pods = [bound_pod(f"p{n}", holds(share("GPU-0", 10))) for n in range(5)]
    ledger = make_ledger(*pods, boot_id="boot-1")
    ledger.put_node(make_node(allocatable=0))
    for pod in pods:
        ledger.put_pod(replace(pod, phase=Phase.FAILED, unexpected_admission=True, container_running=False))
    ledger.put_node(make_node())
    ledger.put_inventory(make_inventory(boot_id="boot-2"))
    assert view_of(ledger).closed is None
    assert placed(ledger, ONE)


def test_r34_an_agent_that_restarts_with_the_same_content_changes_nothing_for_anybody() -> None:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0"))), pending_pod("waits"))
    before, version, recounts = view_of(ledger), ledger.version, ledger.recounts
    assert not ledger.put_inventory(make_inventory())
    assert (view_of(ledger), ledger.version, ledger.recounts) == (before, version, recounts)


def test_r35_could_not_read_differs_from_has_none() -> None:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0"))))
    ledger.put_inventory(make_inventory(read_error="NVML: driver not loaded"))
    assert refused(ledger, ONE).reason is Reason.READ_ERROR
    assert holders(ledger)["GPU-0"] == ["old"], "the last good list stays"
    ledger.put_inventory(make_inventory([]))
    assert refused(ledger, ONE).reason is Reason.MORE_CARDS_THAN_NODE
    assert "GPU-0 (held by team/old)" in conditions(ledger)["OrphanedCards"]


def test_r39_a_card_that_fell_ill_and_recovered_is_an_ordinary_event() -> None:
    ill = [make_card("GPU-0", 0, healthy=False, health_reason="Xid 79: off the bus"), make_card("GPU-1", 1)]
    ledger = make_ledger(bound_pod("on-it", holds(share("GPU-0"))))
    ledger.put_inventory(make_inventory(ill))
    assert "GPU-0 (Xid 79: off the bus; held by team/on-it)" in conditions(ledger)["Ready"]
    assert uuids_of(placed(ledger, make_request())) == [["GPU-1"]]
    ledger.take_changes()
    ledger.put_inventory(make_inventory())
    assert ledger.take_changes().freed == {"n1"}
    assert holders(ledger)["GPU-0"] == ["on-it"]


def test_r42_the_pod_of_a_replaced_card_is_an_orphan_also_after_its_container_restarted() -> None:
    pod = bound_pod("old", holds(share("GPU-0", whole=True)))
    ledger = make_ledger(pod, cards=1)
    ledger.put_inventory(make_inventory([make_card("GPU-new", 0)]))
    for running in (False, True):
        ledger.put_pod(replace(pod, container_running=running))
        [orphan] = view_of(ledger).orphans
        assert (orphan.uuid, orphan.holder.uid, orphan.holder.state) == ("GPU-0", "old", HolderState.ORPHAN)
        assert "GPU-0 (held by team/old)" in conditions(ledger)["OrphanedCards"]
        assert holders(ledger) == {"GPU-new": []}
    ledger.drop_pod("old")
    assert "OrphanedCards" not in conditions(ledger)
