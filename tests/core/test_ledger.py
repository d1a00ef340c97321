"""The ledger's own rules: what counts for how long, what is noticed, and what costs nothing."""

from dataclasses import replace

import pytest

from tests.core.building import (
    bound_pod,
    holds,
    make_booking,
    make_card,
    make_inventory,
    make_ledger,
    make_node,
    make_request,
    pending_pod,
    placed,
    refused,
    share,
    want,
)
from vgpu.core.facts import AssignmentSource, LabelRequirement, Phase, PodFact, Scheduling, Taint
from vgpu.core.ledger import Ledger
from vgpu.core.reasons import Reason
from vgpu.core.views import HolderState

SMALL = make_request(want(1, 1_000))


def states(ledger: Ledger, node: str = "n1") -> list[tuple[str, HolderState]]:
    view = ledger.view(node)
    assert view is not None
    return [(holder.uid, holder.state) for card in view.cards for holder in card.holders]


def booked(uid: str = "p", node: str = "n1") -> Ledger:
    ledger = make_ledger(pending_pod(uid, SMALL), node=node)
    ledger.book(make_booking(uid, placed(ledger, SMALL, uid, node)))
    return ledger


# Bookings.


def test_a_booking_holds_until_an_event_shows_the_pod_bound() -> None:
    ledger = booked()
    ledger.put_pod(pending_pod("p", SMALL, unschedulable=True))
    assert states(ledger) == [("p", HolderState.BOOKED)]
    ledger.put_pod(bound_pod("p", holds(share("GPU-0"))))
    assert states(ledger) == [("p", HolderState.RUNNING)]
    assert ledger.booking("p") is None


def test_the_event_wins_over_a_booking_on_another_node() -> None:
    ledger = booked()
    ledger.put_node(make_node("n2"))
    ledger.put_inventory(make_inventory([make_card("GPU-x")], "n2"))
    ledger.put_pod(bound_pod("p", holds(share("GPU-x")), node="n2"))
    assert states(ledger) == []
    assert states(ledger, "n2") == [("p", HolderState.RUNNING)]


def test_only_the_nonce_of_the_booking_unbooks_it() -> None:
    ledger = booked()
    assert not ledger.unbook("p", "another")
    assert states(ledger)
    assert ledger.unbook("p", "nonce")
    assert not ledger.unbook("p", "nonce")
    assert states(ledger) == []


@pytest.mark.parametrize("end", ["deleted", "failed"])
def test_a_booking_ends_with_its_pod(end: str) -> None:
    ledger = booked()
    if end == "deleted":
        ledger.drop_pod("p")
    else:
        ledger.put_pod(pending_pod("p", SMALL, phase=Phase.FAILED))
    assert states(ledger) == []


def test_a_pod_that_holds_cards_cannot_be_booked_again() -> None:
    ledger = booked()
    again = make_booking("p", placed(ledger, SMALL, "other"))
    with pytest.raises(ValueError, match="holds cards already"):
        ledger.book(again)
    ledger.put_pod(bound_pod("p", holds(share("GPU-0"))))
    with pytest.raises(ValueError, match="holds cards already"):
        ledger.book(again)


def test_a_booking_of_a_pod_that_is_bound_already_ends_only_when_its_assignment_is_shown() -> None:
    late = bound_pod("p", request=SMALL, ever_ran=False, admitted=False)
    ledger = make_ledger(late)
    ledger.book(make_booking("p", placed(ledger, SMALL, "p")))
    ledger.put_pod(replace(late, admitted=True))
    assert states(ledger) == [("p", HolderState.BOOKED)]
    ledger.put_pod(bound_pod("p", holds(share("GPU-0")), request=SMALL))
    assert states(ledger) == [("p", HolderState.RUNNING)]


def test_a_deletion_mark_on_a_booked_pod_is_shown() -> None:
    ledger = booked()
    ledger.put_pod(pending_pod("p", SMALL, terminating=True))
    assert states(ledger) == [("p", HolderState.TERMINATING)]


# Pods.


def test_an_event_without_a_node_after_one_with_it_is_older_and_changes_nothing() -> None:
    ledger = booked()
    ledger.put_pod(bound_pod("p", holds(share("GPU-0"))))
    assert not ledger.put_pod(pending_pod("p", SMALL))
    assert states(ledger) == [("p", HolderState.RUNNING)]


def test_a_failed_pod_counts_until_no_container_runs() -> None:
    pod = bound_pod("p", holds(share("GPU-0")), phase=Phase.FAILED)
    ledger = make_ledger(pod)
    assert states(ledger)
    ledger.put_pod(replace(pod, container_running=False))
    assert states(ledger) == []


def test_a_pod_recreated_under_its_name_is_another_pod() -> None:
    ledger = make_ledger(bound_pod("old", holds(share("GPU-0")), name="web-0"))
    ledger.put_pod(pending_pod("new", SMALL, name="web-0"))
    assert [uid for uid, _ in states(ledger)] == ["old"]
    ledger.drop_pod("old")
    found = ledger.find_pod("team", "web-0")
    assert found is not None
    assert found.uid == "new"
    assert ledger.find_pod("team", "web-1") is None


def test_a_node_recreated_under_its_name_changes_nothing_for_pods() -> None:
    ledger = make_ledger(bound_pod("p", holds(share("GPU-0"))))
    ledger.put_node(make_node(uid="uid-new"))
    assert not ledger.drop_node("n1", "uid-n1")
    assert states(ledger) == [("p", HolderState.RUNNING)]
    assert ledger.drop_node("n1", "uid-new")
    assert states(ledger) == [("p", HolderState.RUNNING)]
    assert refused(ledger, SMALL).reason is Reason.NODE_GONE


def test_pods_are_kept_while_node_and_inventory_are_missing() -> None:
    ledger = Ledger()
    ledger.put_pod(bound_pod("p", holds(share("GPU-0"))))
    view = ledger.view("n1")
    assert view is not None
    assert [orphan.holder.uid for orphan in view.orphans] == ["p"]
    ledger.put_inventory(make_inventory())
    assert states(ledger) == [("p", HolderState.RUNNING)]


def test_an_old_assignment_by_index_is_resolved_by_the_nodes_inventory() -> None:
    old = bound_pod("old", holds(share("index:1", 0, whole=True)), source=AssignmentSource.VOLCANO_DP)
    ledger = make_ledger(old)
    view = ledger.view("n1")
    assert view is not None
    assert [card.used_memory_mib for card in view.cards] == [0, 24_000]
    assert states(ledger) == [("old", HolderState.LEGACY)]
    ledger.put_inventory(make_inventory(1))
    view = ledger.view("n1")
    assert view is not None
    assert [orphan.uuid for orphan in view.orphans] == ["index:1"]


def test_a_card_that_shrank_below_its_holders_takes_nothing_and_drops_nothing() -> None:
    ledger = make_ledger(bound_pod("p", holds(share("GPU-0", 20_000))), cards=1)
    ledger.put_inventory(make_inventory([make_card("GPU-0", memory_mib=16_000)]))
    view = ledger.view("n1")
    assert view is not None
    assert view.cards[0].overbooked
    assert states(ledger) == [("p", HolderState.RUNNING)]
    assert refused(ledger, make_request(want(1, 1))).reason is Reason.INSUFFICIENT_MEMORY


def test_a_pod_without_gpus_is_not_kept() -> None:
    ledger = make_ledger()
    assert not ledger.put_pod(PodFact("web", "team", "web", node="n1"))
    assert ledger.pod("web") is None


def test_pending_pods_are_those_that_want_gpus_and_have_no_node() -> None:
    ledger = make_ledger(pending_pod("a"), pending_pod("done", phase=Phase.SUCCEEDED), bound_pod("b"))
    assert [pod.uid for pod in ledger.pending()] == ["a"]


# What costs nothing.


def test_ten_thousand_annotation_only_updates_cause_no_recount() -> None:
    ledger = make_ledger(bound_pod("p", holds(share("GPU-0"))))
    ledger.view("n1")
    before = (ledger.version, ledger.recounts)
    ledger.take_changes()
    for _ in range(10_000):
        assert not ledger.put_node(make_node())
    ledger.view("n1")
    assert (ledger.version, ledger.recounts) == before
    assert not ledger.take_changes().nodes


def labelled(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


NAMED_LABELS = {
    "nobody": ([], False),
    "a selector": ([Scheduling(node_selector=labelled(zone="a"))], True),
    "required affinity": ([Scheduling(required_terms=((LabelRequirement("zone", "Exists"),),))], True),
    "a selector on another key": ([Scheduling(node_selector=labelled(disk="ssd"))], False),
}


@pytest.mark.parametrize("named_by", NAMED_LABELS)
def test_a_label_change_raises_the_version_only_if_a_pending_pod_names_the_label(named_by: str) -> None:
    pods, raises = NAMED_LABELS[named_by]
    ledger = make_ledger(*(pending_pod(f"p{n}", scheduling=wants) for n, wants in enumerate(pods)))
    ledger.view("n1")
    version, recounts = ledger.version, ledger.recounts
    assert ledger.put_node(make_node(labels=labelled(zone="b"))) is raises
    view = ledger.view("n1")
    assert view is not None
    assert view.node is not None
    assert view.node.labels == labelled(zone="b")
    assert (ledger.version > version, ledger.recounts) == (raises, recounts)


def test_a_label_stops_mattering_when_the_pod_that_named_it_is_bound() -> None:
    pod = pending_pod("p", scheduling=Scheduling(node_selector=labelled(zone="a")))
    ledger = make_ledger(pod)
    ledger.put_pod(bound_pod("p", holds(share("GPU-0")), scheduling=pod.scheduling))
    assert not ledger.put_node(make_node(labels=labelled(zone="b")))


def test_a_taint_raises_the_version_without_a_recount() -> None:
    ledger = make_ledger()
    ledger.view("n1")
    version, recounts = ledger.version, ledger.recounts
    assert ledger.put_node(make_node(taints=frozenset({Taint("gpu", "", "NoSchedule")})))
    ledger.view("n1")
    assert ledger.version > version
    assert ledger.recounts == recounts
    assert ledger.take_changes().nodes == {"n1"}


def test_a_running_pods_other_news_touches_no_node() -> None:
    pod = bound_pod("p", holds(share("GPU-0")))
    ledger = make_ledger(pod)
    ledger.view("n1")
    version = ledger.version
    assert ledger.put_pod(replace(pod, container_running=False))
    assert ledger.version == version


def test_an_assignment_that_cannot_be_read_is_a_change_of_its_node_so_that_it_is_told() -> None:
    pod = replace(bound_pod("p"), assignment=None, ever_ran=True, wants_gpus=True)
    ledger = make_ledger(pod)
    ledger.take_changes()
    ledger.put_pod(replace(pod, assignment_problem="cannot be read"))
    assert ledger.take_changes().nodes == {"n1"}


def test_events_of_a_pending_pod_raise_no_version() -> None:
    ledger = make_ledger(pending_pod("p"))
    version = ledger.version
    ledger.put_pod(pending_pod("p", unschedulable=True))
    assert ledger.version == version
    assert ledger.take_changes().pods == {"p"}


# Changes and nominations.


def test_changes_say_what_changed_and_where_more_may_fit() -> None:
    pod = bound_pod("p", holds(share("GPU-0", 20_000)))
    ledger = make_ledger()
    assert ledger.take_changes().freed == {"n1"}
    ledger.put_pod(pod)
    assert (ledger.take_changes().nodes, ledger.take_changes().nodes) == ({"n1"}, set())
    ledger.put_pod(replace(pod, terminating=True))
    changes = ledger.take_changes()
    assert (changes.nodes, changes.freed) == ({"n1"}, set())
    ledger.drop_pod("p")
    assert ledger.take_changes().freed == {"n1"}


def test_what_is_freed_and_taken_again_before_anyone_looks_frees_nothing() -> None:
    pod = bound_pod("p", holds(share("GPU-0", 20_000)))
    ledger = make_ledger(pod)
    ledger.take_changes()
    ledger.drop_pod("p")
    ledger.put_pod(replace(pod, uid="q", name="q"))
    assert ledger.take_changes().freed == set()


def test_a_nomination_ends_when_its_pod_is_booked_bound_or_gone() -> None:
    for ending in ("booked", "bound", "gone"):
        ledger = make_ledger(pending_pod("p", SMALL))
        placement = placed(ledger, SMALL, "p")
        assert ledger.nominate("p", "n1", placement)
        if ending == "booked":
            ledger.book(make_booking("p", placement))
        elif ending == "bound":
            ledger.put_pod(bound_pod("p", *placement.containers))
        else:
            ledger.drop_pod("p")
        view = ledger.view("n1")
        assert view is not None
        assert view.reservations == ()
        assert not ledger.nominate("p", "n1", placement), "only pending pods that are not booked are nominated"


def test_a_nomination_ends_when_kube_scheduler_clears_it_and_not_before() -> None:
    pod = pending_pod("p", SMALL)
    ledger = make_ledger(pod)
    assert ledger.nominate("p", "n1", placed(ledger, SMALL, "p"))
    ledger.put_pod(replace(pod, unschedulable=True))
    ledger.put_pod(replace(pod, nominated_node="n1"))
    assert ledger.nomination("p") is not None
    ledger.put_pod(pod)
    assert ledger.nomination("p") is None


def test_cards_can_be_held_for_a_pod_that_is_yet_to_be_created() -> None:
    ledger = make_ledger()
    placement = placed(ledger, SMALL, "p")
    ledger.put_pod(bound_pod("there", *placement.containers))
    assert not ledger.nominate("p", "n1", placement)
    assert ledger.nominate("p", "n1", placement, to_come=True)
    view = ledger.view("n1")
    assert view is not None
    assert [reservation.uid for reservation in view.reservations] == ["p"]
    assert ledger.nodes_of("p") == {"n1"}
    assert not ledger.nominate("there", "n1", placement, to_come=True), "one that is there must be pending"
    ledger.book(make_booking("p", placement))
    assert not ledger.nominate("p", "n1", placement, to_come=True)


def test_a_new_nomination_replaces_the_old_one() -> None:
    ledger = make_ledger(pending_pod("p", SMALL))
    for memory_mib in (1_000, 2_000):
        ledger.nominate("p", "n1", placed(ledger, make_request(want(1, memory_mib)), "p"))
    view = ledger.view("n1")
    assert view is not None
    assert [reservation.memory_mib for reservation in view.reservations] == [2_000]


def test_a_node_that_is_gone_for_good_is_forgotten() -> None:
    ledger = make_ledger()
    assert list(ledger.nodes()) == ["n1"]
    ledger.drop_node("n1", "uid-n1")
    ledger.drop_inventory("n1")
    assert ledger.take_changes().nodes == {"n1"}
    assert list(ledger.nodes()) == []
    assert ledger.view("n1") is None
