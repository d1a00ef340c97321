"""filter, prioritize and preempt as pure answers of the ledger."""

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, index_of, inventory, ledger_of, node, pending
from vgpu.core.facts import Identity, PodFact, Scheduling
from vgpu.core.filtering import FilterAnswer, NodeFilter, filter_nodes, keep_candidates, prioritize
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Booking, Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.reasons import Reason, Refusal

NODES = [f"n{i:03}" for i in range(100)]


def ask(ledger: Ledger, pod: PodFact, names: list[str], best: int = 32) -> FilterAnswer:
    return filter_nodes(index_of(ledger), ledger, pod, names, best)


def placed(ledger: Ledger, pod: PodFact, name: str) -> Placement:
    view = ledger.view(name)
    assert view is not None
    assert pod.request is not None
    found = place(view, pod.request, pod.uid, Policies())
    assert isinstance(found, Placement)
    return found


def book(ledger: Ledger, pod: PodFact, name: str) -> None:
    ledger.book(Booking(pod.uid, pod.namespace, pod.name, name, "0" * 16, placed(ledger, pod, name)))


def full_nodes(*names: str) -> Ledger:
    ledger = ledger_of(*names)
    for name in names:
        ledger.put_pod(bound(f"old-{name}", name, memory_mib=CARD_MIB))
    return ledger


def test_the_best_nodes_of_the_names_sent_are_given_back_and_never_just_one() -> None:
    ledger = ledger_of(*NODES)
    ledger.put_pod(bound("old", "n050"))
    pod = pending("new")
    assert len(ask(ledger, pod, NODES).nodes) == 32
    two = ask(ledger, pod, NODES[40:60], best=1).nodes
    assert len(two) == 2
    assert two[0] == "n050", "binpack: the fuller node first"
    assert set(ask(ledger, pod, NODES[:5]).nodes) == set(NODES[:5])


def test_nodes_that_do_not_fit_are_never_given_back_beside_those_that_do() -> None:
    ledger = full_nodes("n1", "n2")
    ledger.put_node(node("free"))
    ledger.put_inventory(inventory("free"))
    for scheduling in (Scheduling(), Scheduling(soft_preferences=True)):
        answer = ask(ledger, pending("new", scheduling=scheduling), ["n1", "free", "n2", "ghost", "free"])
        assert answer.nodes == ["free"]


def test_all_fitting_nodes_are_given_back_when_the_scheduler_has_preferences_to_weigh() -> None:
    pod = pending("new", scheduling=Scheduling(soft_preferences=True))
    assert len(ask(ledger_of(*NODES), pod, NODES).nodes) == 100


def test_full_and_unknown_nodes_are_unresolvable_with_one_text_per_cause() -> None:
    ledger = full_nodes("n1", "n2")
    answer = ask(ledger, pending("new"), ["n1", "n2", "ghost"])
    assert answer.nodes == []
    assert answer.failed == {}
    assert answer.unresolvable["n1"] == answer.unresolvable["n2"]
    assert "4096 MiB" in answer.unresolvable["n1"]
    assert "does not know" in answer.unresolvable["ghost"]
    assert answer.no_fit_anywhere
    assert not answer.missed


def test_a_sample_without_the_fitting_node_is_told_apart_from_no_fit_at_all() -> None:
    ledger = full_nodes("n1", "n2")
    ledger.put_node(node("free"))
    ledger.put_inventory(inventory("free"))
    missed = ask(ledger, pending("new"), ["n1", "n2"])
    assert missed.missed
    assert not missed.no_fit_anywhere
    assert not ask(ledger, pending("new"), ["n1", "free"]).missed


def test_a_deferred_node_that_waits_for_admission_is_failed_not_unresolvable() -> None:
    ledger = ledger_of("n1")
    ledger.put_inventory(inventory("n1", identity=Identity.DEFERRED))
    ledger.put_pod(bound("first", "n1", admitted=False))
    answer = ask(ledger, pending("new"), ["n1"])
    assert list(answer.failed) == ["n1"]
    assert "team/first" in answer.failed["n1"]
    ledger.put_pod(bound("first", "n1", admitted=True))
    assert ask(ledger, pending("new"), ["n1"]).nodes == ["n1"]


def test_asking_again_changes_nothing() -> None:
    ledger, pod = ledger_of(*NODES), pending("new")
    before = ledger.version
    assert ask(ledger, pod, NODES) == ask(ledger, pod, NODES)
    assert ledger.version == before


def test_a_booked_pod_is_only_given_its_booked_node() -> None:
    ledger, pod = ledger_of("n1", "n2"), pending("new")
    ledger.put_pod(pod)
    book(ledger, pod, "n2")
    answer = ask(ledger, pod, ["n1", "n2"])
    assert answer.nodes == ["n2"]
    assert "n2" in answer.unresolvable["n1"]
    elsewhere = ask(ledger, pod, ["n1"])
    assert elsewhere.nodes == []
    assert not elsewhere.missed, "no nomination can help a pod whose binding is under way"


def test_a_nominated_node_comes_first_and_its_held_cards_are_the_pods_own() -> None:
    ledger, pod = ledger_of(*NODES), pending("new", memory_mib=CARD_MIB)
    ledger.put_pod(pod)
    ledger.nominate(pod.uid, "n099", placed(ledger, pod, "n099"))
    answer = ask(ledger, pod, NODES)
    assert answer.nodes[0] == "n099"
    assert len(answer.nodes) >= 32
    assert ask(ledger, pod, ["n099"]).nodes == ["n099"]
    assert "n099" not in ask(ledger, pending("other", CARD_MIB), NODES, best=100).nodes


def test_a_pod_refused_by_name_is_refused_everywhere_with_its_reason() -> None:
    pod = pending("new", request=None, refusal=Refusal(Reason.INVALID_REQUEST, "vgpu-number is -1"))
    answer = ask(ledger_of("n1", "n2"), pod, ["n1", "n2"])
    assert answer.unresolvable == {"n1": "vgpu-number is -1", "n2": "vgpu-number is -1"}
    assert not answer.missed


def test_a_pod_that_names_a_resource_with_zero_passes_everywhere() -> None:
    pod = pending("new", request=None, wants_gpus=False)
    assert ask(ledger_of("n1"), pod, ["n1", "anything"]).nodes == ["n1", "anything"]


def test_no_names_no_answer() -> None:
    assert ask(ledger_of("n1"), pending("new"), []).nodes == []


def remembering(ledger: Ledger) -> NodeFilter:
    return NodeFilter(index_of(ledger), ledger, 32)


def test_that_no_node_fits_is_remembered_until_the_ledger_changes() -> None:
    ledger = full_nodes("n1", "n2")
    asked, pod = remembering(ledger), pending("new")
    first = asked.filter(pod, ["n1", "n2"])
    assert asked.filter(pod, ["n1", "n2"]) == first
    assert asked.filter(pod, ["n2", "ghost"]).unresolvable.keys() == {"n2", "ghost"}
    assert asked.remembered == 2
    ledger.drop_pod("uid-old-n1")
    assert asked.filter(pod, ["n1", "n2"]).nodes == ["n1"]


def test_a_request_that_changed_is_judged_anew() -> None:
    ledger = ledger_of("n1")
    asked = remembering(ledger)
    assert asked.filter(pending("new", memory_mib=CARD_MIB + 1), ["n1"]).nodes == []
    assert asked.filter(pending("new", memory_mib=1000), ["n1"]).nodes == ["n1"]


def test_a_missed_sample_is_never_remembered() -> None:
    ledger = full_nodes("n1")
    ledger.put_node(node("free"))
    ledger.put_inventory(inventory("free"))
    asked, pod = remembering(ledger), pending("new")
    assert asked.filter(pod, ["n1"]).missed
    assert asked.filter(pod, ["n1"]).missed
    assert asked.remembered == 0


def test_annotation_only_changes_leave_the_memory_alone() -> None:
    ledger = full_nodes("n1")
    asked, pod = remembering(ledger), pending("new")
    asked.filter(pod, ["n1"])
    ledger.put_node(node("n1"))
    asked.filter(pod, ["n1"])
    assert asked.remembered == 1


def test_scores_are_0_to_10_and_prefer_the_fuller_node() -> None:
    ledger = full_nodes("full")
    for name in ("empty", "half"):
        ledger.put_node(node(name))
        ledger.put_inventory(inventory(name))
    ledger.put_pod(bound("other", "half", memory_mib=CARD_MIB // 2))
    scores = prioritize(index_of(ledger), pending("new"), ["full", "empty", "half", "ghost"])
    assert all(0 <= score <= 10 for score in scores.values())
    assert scores["half"] > scores["empty"]
    assert scores["full"] == scores["ghost"] == 0


def test_what_other_nodes_say_is_not_found_out_while_kube_scheduler_waits() -> None:
    """A sample without a fit on a large cluster: `missed` until all nodes are known, then a remembered no."""
    ledger = full_nodes(*(f"n{number:03}" for number in range(200)))
    for number in range(200):  # no two nodes alike
        ledger.put_pod(bound(f"more-{number}", f"n{number:03}", memory_mib=number + 1))
    index = index_of(ledger)
    asked = NodeFilter(index, ledger, 32)
    pod = pending("new")
    assert pod.request is not None
    first = asked.filter(pod, ["n003", "n004"])
    assert (first.nodes, first.missed, index.evaluations) == ([], True, 2)
    assert set(first.unresolvable) == {"n003", "n004"}
    while index.learn_some(pod.request, 64):
        pass
    assert asked.filter(pod, ["n003", "n004"]).no_fit_anywhere


def test_the_best_node_stands_out_however_small_the_difference() -> None:
    """kube-scheduler adds scores of its own, which spread: what rounds to nothing would be theirs to decide."""
    ledger = Ledger()
    for name in ("a", "b", "c"):
        ledger.put_node(node(name))
        ledger.put_inventory(inventory(name))
    for number in range(2):
        ledger.put_pod(bound(f"p{number}", "b", memory_mib=CARD_MIB // 100))
    scores = prioritize(index_of(ledger), pending("new"), ["a", "b", "c"])
    assert scores["b"] == 10
    assert scores["a"] == scores["c"] == 1


def keep(ledger: Ledger, pod: PodFact, victims: dict[str, list[str]]) -> list[str]:
    return keep_candidates(FitIndex(ledger, Policies()), ledger, pod, victims)


def test_in_tree_preemption_goes_on_only_where_the_cards_fit_without_it() -> None:
    ledger = full_nodes("full")
    ledger.put_node(node("free"))
    ledger.put_inventory(inventory("free"))
    kept = keep(ledger, pending("new"), {"full": ["plain"], "free": ["plain"], "ghost": []})
    assert kept == ["free"]


@pytest.mark.parametrize("victim", ["holder", "asker", "foreign"])
def test_in_tree_preemption_never_takes_a_pod_with_gpus(victim: str) -> None:
    ledger = ledger_of("n1")
    ledger.put_pod(bound("holder", "n1"))
    ledger.put_pod(bound("asker", "n1", assignment=None))
    ledger.put_pod(bound("foreign", "n1", wants_gpus=False, request=None))
    assert keep(ledger, pending("new"), {"n1": ["plain", f"uid-{victim}"]}) == []


def test_in_tree_preemption_never_takes_a_pod_whose_binding_is_under_way() -> None:
    ledger, pod = ledger_of("n1"), pending("soon")
    book(ledger, pod, "n1")
    assert keep(ledger, pending("new"), {"n1": [pod.uid]}) == []
    assert keep(ledger, pending("new"), {"n1": ["plain"]}) == ["n1"]


def test_nothing_is_preempted_for_a_pod_that_is_refused_or_being_bound() -> None:
    ledger, pod = ledger_of("n1"), pending("new")
    refused = pending("bad", request=None, refusal=Refusal(Reason.INVALID_REQUEST, "x"))
    assert keep(ledger, refused, {"n1": []}) == []
    book(ledger, pod, "n1")
    assert keep(ledger, pod, {"n1": []}) == []


def test_a_pod_without_gpus_may_preempt_pods_without_gpus() -> None:
    ledger = ledger_of("n1")
    ledger.put_pod(bound("holder", "n1"))
    plain = pending("new", request=None, wants_gpus=False)
    assert keep(ledger, plain, {"n1": ["plain"], "n2": ["uid-holder"]}) == ["n1"]
