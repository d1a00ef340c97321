"""Gangs whose pods are unlike: in several queues, of several classes, with unlike requests."""

from typing import Any

import pytest

from tests.core.building import make_request, pending_pod, want
from tests.core.preempt.queueing import limit, make_queue
from tests.core.preempt.roster_world import Told
from tests.core.preempt.test_decision_queues import Cluster, high, made, refused, uids
from vgpu.core.preempt.facts import BorrowPolicy, Gang, Workload
from vgpu.core.preempt.preview import Outcome, Preview, preview
from vgpu.core.reasons import Reason
from vgpu.core.terms import GroupName, GroupSource, PodTerms

GANG = Gang("team/g", 2)
PAIR = make_request(want(2))


def members(*queues: str, **fields: Any) -> list[Workload]:
    return [high(f"m{i}", queue=queue, gang=GANG, **fields) for i, queue in enumerate(queues)]


def two_open_queues() -> Cluster:
    """Work of a third queue fills the node; a and b would each let one pod in, by right of what they deserve or
    may borrow."""
    borrows: dict[str, Any] = {"borrow_across_queues": BorrowPolicy.LOWER_PRIORITY, "capability": limit(1)}
    cluster = Cluster(make_queue("low", 0), make_queue("a", 1, **borrows), make_queue("b", 1, **borrows))
    for number in range(4):
        cluster.run(f"L{number}", queue="low")
    return cluster


def emptied(cluster: Cluster, *gone: str) -> Cluster:
    for uid in gone:
        del cluster.workloads[uid]
        cluster.ledgers["n1"].drop_pod(uid)
    return cluster


def test_a_gang_in_two_queues_evicts_nobody_and_is_told_which_they_are() -> None:
    no = refused(two_open_queues().ask(*members("a", "b")))
    said = "gang team/g has pods in several queues (team/m0 in a, team/m1 in b): nobody is evicted for it"
    assert no.reason is Reason.QUEUE_POLICY
    assert no.refusal.message.startswith(said)


def test_it_is_told_the_same_where_one_of_its_queues_is_full() -> None:
    """The claims of both are not the first one's alone: nobody goes whose cards the other could not use."""
    cluster = emptied(two_open_queues(), "L3")
    cluster.run("B", queue="b", priority=100)
    assert refused(cluster.ask(*members("a", "b"))).reason is Reason.QUEUE_POLICY


def test_many_queues_are_counted() -> None:
    pods = [high(f"m{i}", queue=f"q{i}", gang=Gang("team/g", 6)) for i in range(6)]
    cluster = Cluster(*(make_queue(f"q{i}", 1) for i in range(6)))
    assert "team/m3 in q3 and 2 more)" in refused(cluster.ask(*pods)).refusal.message


def test_whoever_is_missing_of_it_is_decided_on_in_his_own_queue() -> None:
    """The others of the gang run in another queue: only his claim is new, and in his queue."""
    cluster = emptied(two_open_queues(), "L3")
    cluster.run("m0", queue="a", gang=GANG, priority=100)
    assert len(uids(cluster.ask(*members("a", "b")[1:]))) == 1


def asked(cluster: Cluster, *pods: Workload) -> Preview:
    return preview(cluster.world(*pods), pods, 100_000)


def test_a_what_if_tells_it_too_and_that_it_starts_where_room_is_free() -> None:
    answer = asked(two_open_queues(), *members("a", "b"))
    assert answer.refusal is not None
    assert (answer.outcome, answer.refusal.reason) == (Outcome.NO, Reason.QUEUE_POLICY)
    roomy = emptied(two_open_queues(), "L2", "L3")
    assert asked(roomy, *members("a", "b")).outcome is Outcome.FITS_NOW


@pytest.mark.parametrize("never", [False, True])
def test_free_cards_are_nothing_to_pods_whose_queue_is_full(never: bool) -> None:
    roomy = emptied(two_open_queues(), "L1", "L2", "L3")
    roomy.run("B", queue="b")
    queues = ("b", "b") if never else ("a", "b")
    answer = asked(roomy, *members(*queues, preempt_never=never)[-1 if never else 0 :])
    assert answer.refusal is not None
    assert (answer.outcome, answer.refusal.reason) == (Outcome.NO, Reason.QUEUE_CAPABILITY)


def test_of_unlike_classes_the_lowest_has_to_have_the_right() -> None:
    cluster = Cluster(make_queue("q", 0))
    for number in range(4):
        cluster.run(f"L{number}", priority=10 if number < 2 else 60)
    pods = [high("m0", gang=GANG, priority=100), high("m1", gang=GANG, priority=50)]
    assert uids(cluster.ask(*pods)) == {"L0", "L1"}
    three = [*pods, high("m2", gang=GANG, priority=100)]
    no = refused(cluster.ask(*three))
    assert no.reason is Reason.NO_ROOM_FOR_GANG


def test_unlike_requests_are_counted_together_in_their_queue() -> None:
    """Three cards are asked for; the queue may use four, and two of those run."""
    cluster = Cluster(make_queue("low", 0), make_queue("q", 3, capability=limit(4)))
    for number in range(2):
        cluster.run(f"L{number}", queue="low")
        cluster.run(f"Q{number}")
    pods = [high("m0", gang=GANG), high("m1", PAIR, gang=GANG, size=2000)]
    answer = made(cluster.ask(*pods))
    assert len(answer.victims) == 3
    assert {"Q0", "Q1"} & uids(answer)


def test_the_same_name_in_two_namespaces_is_two_gangs() -> None:
    it = Told()
    for namespace in ("one", "two"):
        group = GroupName(GroupSource.LABEL, namespace, "g")
        terms = PodTerms(group=group, group_minimum=2)
        it.put_pod(pending_pod(f"m-{namespace}", namespace=namespace, terms=terms))
    assert it.roster.members("one/g") == ("m-one",)
    assert it.roster.members("two/g") == ("m-two",)


def test_a_member_that_names_no_queue_is_in_its_namespaces_as_any_pod_is() -> None:
    it = Told()
    terms = PodTerms(group=GroupName(GroupSource.LABEL, "team", "g"), group_minimum=2)
    it.put_pod(pending_pod("m0", queue="a", terms=terms))
    it.put_pod(pending_pod("m1", terms=terms))
    assert {one.queue for one in it.roster.workloads.values()} == {"a", "default"}
    it.put_namespace("team", "a")
    assert {one.queue for one in it.roster.workloads.values()} == {"a"}
