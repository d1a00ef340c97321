"""The roster kept from events is the one built from nothing; what it says of pods, queues, gangs and budgets."""

import importlib
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.core.building import bound_pod, holds, make_card, make_inventory, make_request, pending_pod, share, want
from tests.core.preempt.roster_world import GROUPS, Told, assigned, random_event
from vgpu.core.facts import AssignedCard, AssignmentSource, PodFact, Scheduling
from vgpu.core.ledger import Booking
from vgpu.core.placement import Placement
from vgpu.core.preempt.budget_book import BudgetFact, LabelRule
from vgpu.core.preempt.eligible import standing_of
from vgpu.core.preempt.facts import Amounts, Gang, Limits, QueueFact, StopPolicy
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.pod_groups import PodGroupIs
from vgpu.core.preempt.queue_gate import QueueGate
from vgpu.core.preempt.roster import Roster
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import Selection
from vgpu.core.terms import GroupFact, OwnerRef, PodTerms


def difference(seed: int) -> str:
    """Random events; "" when the roster was as one built from nothing whenever it was asked."""
    random = Random(seed)
    told = Told()
    for step in range(120):
        random_event(random, told)
        if random.random() < 0.6:
            continue
        anew = Told(told.truth)
        for what in ("workloads", "scheduling", "uses", "queues"):
            if getattr(told.roster, what) != getattr(anew.roster, what):
                return f"seed {seed}, step {step}: {what}"
        if told.roster.disruptions() != anew.roster.disruptions():
            return f"seed {seed}, step {step}: disruptions"
        if any(told.roster.members(group.key) != anew.roster.members(group.key) for group in GROUPS):
            return f"seed {seed}, step {step}: members"
        standing = told.roster.standing()
        if standing != standing_of(told.roster.queues, told.roster.workloads.values()):
            return f"seed {seed}, step {step}: standing"
        if dict(told.roster.world().workloads) != dict(told.roster.workloads):
            return f"seed {seed}, step {step}: world"
    return ""


def test_the_roster_is_the_one_built_from_nothing() -> None:
    assert [found for seed in range(30) if (found := difference(seed))] == []


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        ("card_kinds.CardKinds.put", False),
        ("pod_indexes.BookingChanges.take", set()),
        ("gang_book.GangBook.put_member", ()),
        ("gang_book.GangBook.put_class", ()),
        ("node_uses.NodeUses.drop", None),
        ("uid_index.UidIndex.of", ()),
        ("homes.Homes.take_moved", set()),
        ("homes.Homes._renew", None),
    ],
)
def test_what_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch, rule: str, answer: Any) -> None:
    """The part does its work and says that nothing follows from it; where nothing is said, it does nothing."""
    module, kind, method = rule.split(".")
    part = getattr(importlib.import_module(f"vgpu.core.preempt.{module}"), kind)
    does = getattr(part, method)
    monkeypatch.setattr(part, method, lambda *given: (answer is not None and does(*given), answer)[1])
    assert any(difference(seed) for seed in range(30))


def told(*pods: PodFact, cards: int = 2, **fields: Any) -> Told:
    """One node with cards of 24,000 MiB, and these pods."""
    made = Told()
    made.put_inventory(make_inventory(cards, **fields))
    made.put_queue(QueueFact("default"))
    for pod in pods:
        made.put_pod(pod)
    return made


def test_a_waiting_pod_is_charged_what_the_smallest_card_that_could_take_it_makes_of_it() -> None:
    it = told(pending_pod("p", make_request(want(1, percent=50))))
    big = make_card("GPU-big", memory_mib=80_000)
    it.put_inventory(make_inventory([big], "n2"))
    assert it.roster.workloads["p"].claim == Amounts(500, 12_000, 0)
    it.drop_inventory("n1")
    assert it.roster.workloads["p"].claim == Amounts(500, 40_000, 0)


def test_a_pod_that_wants_more_cards_than_any_node_has_holds_no_share_of_its_queue_until_one_has() -> None:
    it = told(pending_pod("big", make_request(want(3))), pending_pod("fits", make_request(want(2))))
    it.put_inventory(make_inventory(2))
    assert {uid: pod.active for uid, pod in it.roster.workloads.items()} == {"big": False, "fits": True}
    it.put_inventory(make_inventory(3))
    assert it.roster.workloads["big"].active


def test_a_running_pod_is_charged_the_card_that_it_holds_and_claims_the_smallest() -> None:
    it = told()
    it.put_inventory(make_inventory([make_card("GPU-big", memory_mib=80_000)], "n2"))
    pod = bound_pod("p", holds(share("GPU-big", 40_000)), node="n2", request=make_request(want(1, percent=50)))
    it.put_pod(pod)
    workload = it.roster.workloads["p"]
    assert (workload.amounts, workload.claim) == (Amounts(500, 40_000, 0), Amounts(500, 12_000, 0))
    assert (workload.running, workload.active, workload.legacy) == (True, True, False)


def test_a_legacy_pod_that_names_its_card_by_index_is_charged_that_card() -> None:
    source = AssignmentSource.VOLCANO_DP
    it = told(bound_pod("p", holds(share("index:1", 12_000)), source=source))
    workload = it.roster.workloads["p"]
    assert workload.legacy
    assert workload.amounts == Amounts(500, 12_000, 0)


def test_a_booking_counts_before_any_event_shows_it_and_no_longer_when_it_is_taken_back() -> None:
    it = told(pending_pod("p", make_request(want(1, 12_000))))
    it.book(Booking("p", "team", "p", "n1", "x", Placement("n1", (holds(share("GPU-0", 24_000, whole=True)),), 5)))
    workload = it.roster.workloads["p"]
    assert (workload.running, workload.node, workload.amounts) == (True, "n1", Amounts(1000, 24_000, 100))
    it.unbook("p")
    assert not it.roster.workloads["p"].running


@pytest.mark.parametrize(
    ("changes", "want_active"),
    [
        ({}, True),
        ({"gated": True, "terms": PodTerms(gates=frozenset({"vgpu.dev/gang"}))}, True),
        ({"gated": True, "terms": PodTerms(gates=frozenset({"vgpu.dev/gang", "other"}))}, False),
        ({"gated": True}, False),
        ({"request": None}, False),
        ({"request": make_request(want(1, 90_000))}, False),
        ({"terminating": True}, False),
        ({"queue": "unknown"}, False),
    ],
)
def test_a_waiting_pod_is_active_while_only_room_keeps_it_from_starting(
    changes: dict[str, Any], want_active: bool
) -> None:
    it = told(replace(pending_pod("p"), **changes))
    assert it.roster.workloads["p"].active is want_active


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        (
            {"gated": True, "terms": PodTerms(gates=frozenset({"vgpu.dev/gang", "a", "b"}))},
            "its scheduling gates a, b must be taken off first, by whoever set them",
        ),
        ({"gated": True}, "its scheduling gate must be taken off first, by whoever set it"),
        ({"request": None, "refusal": Refusal(Reason.INVALID_REQUEST, "vgpu-number is -1")}, "vgpu-number is -1"),
        ({"request": None}, "what it asks for cannot be read; correct its limits"),
        (
            {"request": make_request(want(1, 90_000))},
            "no card is as large as what it asks for; ask for less of each card",
        ),
        (
            {
                "request": replace(
                    make_request(want(1)), selection=Selection(use_uuids=frozenset({"GPU-elsewhere"}))
                )
            },
            "its annotations allow none of the cards that are large enough; let them allow more",
        ),
        (
            {"request": make_request(want(3))},
            "no node has as many cards that could take it; ask for fewer cards in one container",
        ),
        ({"terminating": True}, "it is being deleted"),
        ({"queue": "unknown"}, "there is no GpuQueue unknown; create it, or let the pod name another"),
    ],
    ids=["active", "gates", "a gate", "refused", "unread", "large", "card", "cards", "deleted", "queue"],
)
def test_who_could_not_be_scheduled_is_told_what_keeps_it_and_what_to_do(
    changes: dict[str, Any], why: str
) -> None:
    it = told(replace(pending_pod("p"), **changes))
    assert it.roster.workloads["p"].inactive_why == why


def test_who_could_not_be_scheduled_is_told_of_queues_on_hold_other_schedulers_and_missing_cards() -> None:
    it = told(pending_pod("p"))
    it.put_queue(QueueFact("default", stop_policy=StopPolicy.HOLD))
    assert it.roster.workloads["p"].inactive_why == "queue default is on Hold; set its stopPolicy to None"
    roster = Roster(it.ledger, "ours")
    for uid, scheduler in (("a", "ours"), ("b", "theirs")):
        pod = pending_pod(uid, scheduler_name=scheduler)
        it.ledger.put_pod(pod)
        roster.put_pod(pod)
    why = {uid: pod.inactive_why for uid, pod in roster.workloads.items()}
    assert why["a"].startswith("no node lists a card; start agents on the GPU nodes")
    assert why["b"].startswith("it names the scheduler theirs, and not this operator's")


def test_who_holds_cards_needs_no_such_words() -> None:
    it = told(bound_pod("p", holds(share("GPU-0")), terminating=True))
    assert (it.roster.workloads["p"].active, it.roster.workloads["p"].inactive_why) == (True, "")


def test_a_pod_that_another_scheduler_places_is_not_active() -> None:
    it = told()
    roster = Roster(it.ledger, "ours")
    roster.put_queue(QueueFact("default"))
    roster.cards_changed("n1")
    for uid, scheduler in (("a", "ours"), ("b", "theirs")):
        pod = pending_pod(uid, scheduler_name=scheduler)
        it.ledger.put_pod(pod)
        roster.put_pod(pod)
    assert {uid: workload.active for uid, workload in roster.workloads.items()} == {"a": True, "b": False}


def test_a_stopped_queue_has_no_active_pods_until_it_goes_on() -> None:
    it = told(pending_pod("p"))
    it.put_queue(QueueFact("default", stop_policy=StopPolicy.HOLD))
    assert not it.roster.workloads["p"].active
    it.put_queue(QueueFact("default"))
    assert it.roster.workloads["p"].active


def test_who_cannot_start_for_other_reasons_is_not_active_until_that_ends() -> None:
    it = told(pending_pod("p"))
    it.roster.set_inactive("p", "its Binding failed")
    assert not it.roster.workloads["p"].active
    it.roster.set_inactive("p", "")
    assert it.roster.workloads["p"].active


def test_an_accepted_eviction_counts_as_leaving_before_any_event_shows_it() -> None:
    it = told(bound_pod("p", holds(share("GPU-0"))))
    it.roster.mark_evicted("p")
    assert it.roster.workloads["p"].terminating
    assert it.roster.standing().usage_of("default").leaving.memory_mib == 1_000


def test_what_an_owner_has_been_through_is_known_of_its_next_pod() -> None:
    terms = PodTerms(owner=OwnerRef("rs", "ReplicaSet", "rs"))
    it = told(pending_pod("old", terms=terms))
    it.roster.set_evictions("rs", 3)
    assert it.roster.workloads["old"].evictions == 3
    it.drop_pod("old")
    it.put_pod(pending_pod("new", terms=terms))
    assert it.roster.workloads["new"].evictions == 3


def test_what_an_owner_has_been_through_changes_none_of_its_pods_that_run() -> None:
    terms = PodTerms(owner=OwnerRef("rs", "ReplicaSet", "rs"))
    it = told(bound_pod("runs", terms=terms))
    before, revision = it.roster.workloads["runs"], it.roster.revision
    it.roster.set_evictions("rs", 3)
    assert (it.roster.workloads["runs"], it.roster.revision) == (before, revision)
    it.put_pod(pending_pod("waits", terms=terms))
    it.roster.set_evictions("rs", 4)
    assert {uid: one.evictions for uid, one in it.roster.workloads.items()} == {"runs": 0, "waits": 4}


def test_a_pod_names_its_queue_or_its_namespace_does_or_it_is_the_default_one() -> None:
    it = told(pending_pod("named", queue="a"), pending_pod("p"))
    assert (it.roster.workloads["named"].queue, it.roster.workloads["p"].queue) == ("a", "default")
    it.put_namespace("team", "b")
    assert (it.roster.workloads["named"].queue, it.roster.workloads["p"].queue) == ("a", "b")
    assert it.roster.queue_of(pending_pod("unseen")) == "b"


def test_a_pod_keeps_the_queue_that_it_was_bound_in() -> None:
    it = told(bound_pod("p", holds(share("GPU-0"))))
    assert it.roster.workloads["p"].queue == "default"
    it.put_namespace("team", "a")
    assert it.roster.workloads["p"].queue == "a", "it was bound before all namespaces were known"
    it.roster.namespaces_known()
    assert it.roster.workloads["p"].queue == "a"
    it.put_namespace("team", "b")
    it.put_pod(replace(it.truth.pods["p"], queue="c"))
    assert it.roster.workloads["p"].queue == "a"


def test_a_gangs_minimum_is_its_podgroups_else_the_largest_that_its_pods_say() -> None:
    label, volcano, _ = GROUPS
    it = told(
        pending_pod("a", terms=PodTerms(group=label, group_minimum=2)),
        pending_pod("b", terms=PodTerms(group=label, group_minimum=4)),
        pending_pod("c", terms=PodTerms(group=volcano)),
    )
    assert it.roster.gang_of("a") == it.roster.workloads["a"].gang == Gang(label.key, 4)
    assert it.roster.members(label.key) == ("a", "b")
    unread = Gang(volcano.key, 1, disruption_all=True, pod_group=PodGroupIs.UNREAD)
    assert it.roster.gang_of("c") == unread
    it.put_group(GroupFact(volcano, 3, priority_class="high"))
    it.put_class("high", 70)
    assert it.roster.workloads["c"].gang == Gang(volcano.key, 3)
    assert it.roster.workloads["c"].priority == 70
    it.drop_pod("b")
    assert it.roster.workloads["a"].gang == Gang(label.key, 2)


def test_pods_of_a_group_without_a_minimum_of_its_own_are_no_gang() -> None:
    kubernetes = GROUPS[2]
    it = told(pending_pod("a", terms=PodTerms(group=kubernetes)))
    it.put_group(GroupFact(kubernetes, None, priority=9))
    assert (it.roster.gang_of("a"), it.roster.workloads["a"].priority) == (None, 9)
    it.put_group(GroupFact(kubernetes, None, disruption_all=True))
    assert it.roster.gang_of("a") == Gang(kubernetes.key, 1, disruption_all=True)


@pytest.mark.parametrize(
    ("rules", "want_uids"),
    [
        (None, set()),
        ((), {"x", "y"}),
        ((LabelRule("app", "In", frozenset({"x"})),), {"x"}),
        ((LabelRule("app", "NotIn", frozenset({"x"})),), {"y"}),
        ((LabelRule("none", "NotIn", frozenset({"x"})),), {"x", "y"}),
        ((LabelRule("app", "Exists"), LabelRule("none", "DoesNotExist")), {"x", "y"}),
        ((LabelRule("app", "DoesNotExist"),), set()),
    ],
)
def test_a_budgets_selector_means_what_policy_v1_says(
    rules: tuple[LabelRule, ...] | None, want_uids: set[str]
) -> None:
    pods = [pending_pod(app, terms=PodTerms(labels=frozenset({("app", app)}))) for app in "xy"]
    it = told(*pods, pending_pod("z", namespace="other"))
    it.put_budget(BudgetFact("team", "b", 1, rules))
    assert {uid for fact in it.roster.disruptions() for uid in fact.uids} == want_uids


def test_what_a_budget_does_not_count_yet_of_accepted_evictions_is_taken_off() -> None:
    it = told(*(bound_pod(uid, holds(share("GPU-0"))) for uid in "abc"))
    it.put_budget(BudgetFact("team", "b", 2, ()))
    assert [fact.allowed for fact in it.roster.disruptions({"a"})] == [1]
    it.put_budget(BudgetFact("team", "b", 1, (), frozenset({"a"})))
    assert [fact.allowed for fact in it.roster.disruptions({"a", "b"})] == [0]
    it.put_pod(replace(it.truth.pods["b"], terminating=True))
    assert [fact.allowed for fact in it.roster.disruptions({"a", "b"})] == [1], "its status shows it by then"


def test_what_all_pods_ask_of_a_node_is_summed_until_they_are_over() -> None:
    plain = PodFact("plain", "team", "plain", node="n1", scheduling=Scheduling(cpu_millicores=500, memory_mib=64))
    gpu = replace(bound_pod("gpu", holds(share("GPU-0"))), scheduling=Scheduling(cpu_millicores=1, memory_mib=2))
    it = told(plain, gpu)
    assert it.roster.uses == {"n1": NodeUse(501, 66, 2)}
    assert set(it.roster.workloads) == {"gpu"}
    it.put_pod(replace(plain, terminating=True))
    assert it.roster.uses == {"n1": NodeUse(501, 66, 2)}
    it.drop_pod("plain")
    assert it.roster.world().uses == {"n1": NodeUse(1, 2, 1)}


def test_a_world_does_not_change_any_more() -> None:
    it = told(pending_pod("p"))
    world = it.roster.world()
    it.put_pod(pending_pod("q"))
    it.put_queue(QueueFact("other"))
    assert set(world.workloads) == {"p"}
    assert set(world.standing.queues) == {"default"}
    assert set(it.roster.world().workloads) == {"p", "q"}


def test_a_queue_lets_a_pod_start_that_exists_and_is_not_used_up() -> None:
    it = told(pending_pod("p", queue="q"), pending_pod("second", queue="q"))
    gate, pod = QueueGate(it.roster), it.truth.pods["p"]

    def reason() -> Reason | None:
        refusal = gate.refusal(pod)
        return None if refusal is None else refusal.reason

    assert reason() is Reason.QUEUE_NOT_FOUND
    it.put_queue(QueueFact("q", stop_policy=StopPolicy.HOLD_AND_DRAIN))
    assert reason() is Reason.QUEUE_STOPPED
    it.put_queue(QueueFact("q", capability=Limits(1500)))
    assert reason() is None
    it.roster.promise({"p", "second"})
    assert reason() is Reason.QUEUE_CAPABILITY, "the room of the other one is spoken for"
    it.roster.promise({"p"})
    assert reason() is None, "what is promised to itself"
    placement = Placement("n1", assigned("n1", AssignedCard("GPU-0", 24_000, 100, whole=True)).containers, 5)
    it.book(Booking("second", "team", "second", "n1", "x", placement))
    assert reason() is Reason.QUEUE_CAPABILITY
    assert gate.refusal(it.truth.pods["second"]) is None, "it holds its cards already"
    assert gate.open_kinds({"p"}) == frozenset()
    it.unbook("second")
    it.roster.promise(())
    assert gate.open_kinds({"p", "second", "unknown"}) == {("q", Amounts(1000, 24_000, 100))}
