"""In the middle of a preemption objects go, change or come back under their names, and strangers interfere."""

from contextlib import suppress

import pytest

from devcluster import ApiRefused
from devcluster.faults import Fault, Rule
from tests.cluster.preempt import objects
from tests.cluster.preempt.objects import HIGH, LOW, Ask, Json, Kind
from tests.cluster.preempt.stage import AT_ONCE, INVENTORIES, LEASE, PLANS, QUEUES, Case
from vgpu import names

pytestmark = pytest.mark.cluster
EVICTION = r"/pods/[^/]+/eviction"
LEASES = ("get", "leases", "-n", names.NAMESPACE, "-o", "name")
LEASE_NAME = f"/{names.LEASE_NAME}\n"
NOW = {"gracePeriodSeconds": 0}


def two_queues(case: Case, *, cards: int = 4, **preemption: object) -> tuple[Kind, Kind]:
    """Lingering victims of a queue that deserves nothing, and preemptors of one that deserves so many cards."""
    low = case.queue("low")
    high = case.queue("high", deserved={"cards": str(cards)}, preemption=preemption)
    return Kind(queue=low, priority=LOW, linger=True), Kind(queue=high, priority=HIGH)


def drained(case: Case, uid: str, count: int) -> list[str]:
    """Wait until the plan's victims all leave; hands back their names."""
    leaving = case.wait_leaving("low", count)
    case.wait_phase(uid, "Draining")
    return leaving


def plan_path(case: Case, name: str = "") -> str:
    path = PLANS.replace("/v1alpha1/", f"/v1alpha1/namespaces/{case.namespace}/")
    return f"{path}/{name}" if name else path


def test_a_plan_deleted_by_hand_while_victims_leave_costs_nobody_else(case: Case) -> None:
    case.node(2)
    case.node(2)
    low, high = two_queues(case)
    case.run("low", low, 4)
    h = case.pod("h", high.but(ask=Ask(2)))
    case.may_plan_again.add(h)
    leaving = drained(case, h, 2)
    first = case.plans()[0]["metadata"]
    case.cluster.api.delete(plan_path(case, first["name"]))
    case.wait(lambda: any(p["metadata"]["uid"] != first["uid"] for p in case.plans()), "a plan anew")
    case.let_go(*leaving)
    case.wait_bound("h")
    assert sorted(case.evictions()) == leaving


def test_a_preemptor_made_anew_under_its_name_takes_the_hole_that_was_made(case: Case) -> None:
    case.node(2)
    case.node(2)
    low, high = two_queues(case)
    case.run("low", low, 4)
    kind = high.but(ask=Ask(2))
    h = case.pod("h", kind)
    leaving = drained(case, h, 2)
    case.cluster.api.delete(f"{case.pods_path}/h", NOW)
    # Until kube-scheduler has refused it nobody knows that it needs them: who waits already may start there.
    case.wait_phase(case.pod("h", kind), "Draining")
    case.let_go(*leaving)
    case.wait_bound("h")
    assert sorted(case.evictions()) == leaving


def test_a_victim_made_anew_under_its_name_is_not_evicted_for_it(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    path = f"/apis/apps/v1/namespaces/{case.namespace}/statefulsets"
    body = objects.replica_set("low", low.but(linger=False), 1)
    body["spec"]["serviceName"] = "low"
    case.cluster.api.post(path, body)
    case.wait_running("low", 1)
    rule = Rule("POST", EVICTION, Fault.SLOW, delay_seconds=2.0)
    case.world.proxy.rules.append(rule)
    case.pod("h", high)
    case.wait(lambda: rule.fired > 0, "the eviction to be sent")
    case.cluster.api.delete(f"{case.pods_path}/low-0", NOW)
    case.wait_bound("h")
    case.wait(lambda: "low-0" in case.waiting(), "the victim to be made anew")
    assert case.evictions() == []
    case.cluster.api.delete(f"{case.pods_path}/h", NOW)
    case.wait_running("low", 1)
    case.cluster.api.delete(path, AT_ONCE)


def test_a_node_that_is_deleted_while_victims_leave_frees_its_preemptor_for_another(case: Case) -> None:
    first = case.node(1)
    low, high = two_queues(case)
    case.run("low", low, 1)
    h = case.pod("h", high)
    case.may_plan_again.add(h)
    [gone] = drained(case, h, 1)
    case.cluster.api.delete(f"/api/v1/nodes/{first}")
    case.cluster.api.delete(f"{INVENTORIES}/{first}")
    other = case.node(1)
    case.wait_bound("h")
    assert case.node_of("h") == other
    assert case.evictions() == [gone]


def test_a_card_that_fails_while_its_pod_leaves_is_not_given_to_the_preemptor(case: Case) -> None:
    first = case.node(1)
    low, high = two_queues(case)
    case.run("low", low, 1)
    h = case.pod("h", high)
    case.may_plan_again.add(h)
    [gone] = drained(case, h, 1)
    case.publish(objects.inventory(first, 1, (0,)))
    case.let_go(gone)
    case.wait(lambda: gone not in case.pods(), "the victim to be gone")
    case.wait_running("low", 0)
    assert case.node_of("h") == ""
    case.publish(objects.inventory(first, 1, ()))
    case.wait_bound("h")
    assert case.evictions() == [gone]


def test_a_preemptors_queue_deleted_and_made_anew_while_victims_leave(case: Case) -> None:
    case.node(1)
    case.node(1)
    low, high = two_queues(case)
    case.run("low", low, 2)
    h = case.pod("h", high)
    case.may_plan_again.add(h)
    [gone] = drained(case, h, 1)
    case.cluster.api.delete(f"{QUEUES}/{high.queue}")
    case.wait_told("h", "QueueNotFound")
    case.cluster.api.post(QUEUES, objects.queue(high.queue, {"deserved": {"cards": "4"}}))
    case.let_go(gone)
    case.wait_bound("h")
    assert case.evictions() == [gone]


def test_who_loses_his_claim_between_two_evictions_gets_no_second(case: Case) -> None:
    case.node(2)
    low, high = two_queues(case, maxInFlight=1)
    case.run("low", low.but(priority=HIGH), 2)
    case.pod("h", high.but(ask=Ask(2)))
    [gone] = case.wait_leaving("low", 1)
    case.change_queue(high.queue, deserved={"cards": "0"})
    case.let_go(gone)
    case.wait_running("low", 2)
    assert case.evictions() == [gone]
    assert case.node_of("h") == ""


def test_a_pod_put_on_the_node_by_hand_does_not_get_the_freed_card(case: Case) -> None:
    node = case.node(1)
    low, high = two_queues(case)
    case.run("low", low, 1)
    h = case.pod("h", high)
    [gone] = drained(case, h, 1)
    case.recorder.judge.bound_by_hand.add(f"{case.namespace}/thief")
    thief = objects.bare_pod("thief", low.but(linger=False, annotations={"devcluster.vgpu.dev/hold": "true"}))
    thief["spec"]["nodeName"] = node
    case.cluster.api.post(case.pods_path, thief)
    case.let_go(gone)
    case.wait_bound("h")
    assert case.cards("thief") == []
    assert case.evictions() == [gone]


def test_who_kube_scheduler_refuses_for_what_we_do_not_know_is_not_evicted_for_again_and_again(
    case: Case,
) -> None:
    """Only kube-scheduler knows of host ports."""
    node = case.node(1)
    port: Json = {"name": "port", "image": "none", "ports": [{"containerPort": 18080, "hostPort": 18080}]}
    spec: Json = {"nodeSelector": {"kubernetes.io/hostname": node}, "schedulerName": names.SCHEDULER_NAME}
    spec |= {"containers": [port], "priorityClassName": "p1000"}
    case.cluster.api.post(case.pods_path, {"metadata": {"name": "blocks"}, "spec": spec})
    case.wait_bound("blocks")
    low = Kind(queue=case.queue("low"), priority=LOW)
    high = case.queue("high", deserved={"cards": "4"}, preemption={"holdTimeout": "2s"})
    case.run("low", low, 1)
    body = objects.bare_pod("h", Kind(queue=high, priority=HIGH))
    body["spec"]["containers"].append(port)
    h = str(case.cluster.api.post(case.pods_path, body)["metadata"]["uid"])
    case.may_plan_again.add(h)
    gone = case.wait_eviction(1)
    case.wait(lambda: "HoldExpired" in case.told("h") or "BindFailed" in case.told("h"), "its plan to end")
    case.wait_running("low", 1)
    case.wait(lambda: "evicted" in " ".join(case.explain("h")["notes"]), "nobody to go for it")
    assert case.evictions() == [gone]


def test_many_at_once_through_a_bad_line_and_a_kill_each_cost_one_pod(case: Case) -> None:
    for _ in range(8):
        case.node(4)
    low, high = two_queues(case, cards=20)
    case.run("low", low.but(linger=False), 32)
    proxy = case.world.proxy
    proxy.rules += [
        Rule("POST", EVICTION, Fault.UNANSWERED, first=2, last=4),
        Rule("POST", EVICTION, Fault.STATUS, status=500, first=6, last=8),
        Rule("POST", rf"/{names.PREEMPTION_PLURAL}(\?|$)", Fault.UNANSWERED, first=3, last=5),
        Rule("PATCH", r"/pods/[^/]+/status", Fault.UNANSWERED, first=3, last=6),
        Rule("POST", r"/binding", Fault.UNANSWERED, first=4, last=6),
        Rule("DELETE", rf"/{names.PREEMPTION_PLURAL}/", Fault.UNANSWERED, first=1, last=3),
    ]
    kill = Rule("POST", EVICTION, Fault.UNANSWERED, first=12, last=12, hook=case.world.crash)
    proxy.rules.insert(0, kill)
    case.start("h", high, 20)
    for _ in range(3):
        proxy.cut_streams()
    case.wait(kill.done.is_set, "the kill")
    case.world.revive()
    case.wait(lambda: len(case.running("h")) == 20, "all preemptors to run", 120)
    assert len(case.evictions()) == 20
    proxy.rules.clear()
    case.end_workload("h")
    case.wait_running("low", 32)
    case.wait(lambda: case.plans() == [], "all debts to be paid")


@pytest.mark.soak
def test_a_plan_whose_status_is_turned_back_by_hand_goes_on_with_its_victims(case: Case) -> None:
    case.node(2)
    case.node(2)
    low, high = two_queues(case)
    case.run("low", low, 4)
    h = case.pod("h", high.but(ask=Ask(2)))
    case.may_plan_again.add(h)
    leaving = drained(case, h, 2)
    name = case.plans()[0]["metadata"]["name"]
    token = case.cluster.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT)
    api = case.cluster.client(token)
    for phase in ("Planned", "Aborted", "Closed", "Planned"):
        status = {"phase": phase, "evictionsSent": [], "debts": []}
        with suppress(ApiRefused):
            api.patch(f"{plan_path(case, name)}/status", {"status": status})
    case.let_go(*leaving)
    case.wait_bound("h")
    assert sorted(case.evictions()) == leaving


@pytest.mark.soak
def test_an_api_server_that_is_killed_while_pods_are_evicted_and_while_they_leave(case: Case) -> None:
    case.node(4)
    case.node(4)
    low, high = two_queues(case)
    case.run("low", low, 8)
    h = case.pod("h", high.but(ask=Ask(4)))
    case.may_plan_again.add(h)
    case.wait(lambda: len(case.terminating("low")) >= 1, "the first to leave")
    case.cluster.restart_apiserver()
    case.wait(lambda: len(case.terminating("low")) >= 4, "all to leave")
    case.cluster.restart_apiserver()
    case.let_go(*case.terminating("low"))
    case.wait_bound("h")
    assert len(case.running("low")) == 4


def test_a_queue_put_on_hold_while_victims_leave(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    case.run("low", low, 1)
    h = case.pod("h", high)
    case.may_plan_again.add(h)
    [gone] = drained(case, h, 1)
    case.change_queue(high.queue, stopPolicy="Hold")
    case.let_go(gone)
    case.wait(lambda: gone not in case.pods(), "the victim to be gone")
    case.wait(lambda: len(case.waiting("low")) == 1, "its controller to have made a new pod")
    case.change_queue(high.queue, stopPolicy="None")
    case.wait_bound("h")
    assert case.evictions() == [gone]


def test_a_lease_that_is_deleted_and_taken_while_victims_leave(case: Case) -> None:
    case.node(2)
    low, high = two_queues(case)
    case.run("low", low, 2)
    h = case.pod("h", high.but(ask=Ask(2)))
    leaving = drained(case, h, 2)
    case.cluster.api.delete(LEASE)
    case.let_go(leaving[0])
    case.wait(lambda: len(case.terminating("low")) == 1, "the first victim to be gone")
    case.wait(lambda: LEASE_NAME in case.cluster.kubectl(*LEASES), "the Lease to be made anew")
    case.cluster.api.patch(LEASE, {"spec": {"holderIdentity": "somebody"}})
    case.let_go(leaving[1])
    case.wait_bound("h")
    assert sorted(case.evictions()) == leaving


def test_a_preemptor_that_is_moved_to_a_queue_without_a_claim_between_two_evictions_gets_no_second(
    case: Case,
) -> None:
    case.node(2)
    low, high = two_queues(case, maxInFlight=1)
    case.run("low", low.but(priority=HIGH), 2)
    case.pod("h", high.but(ask=Ask(2)))
    [gone] = case.wait_leaving("low", 1)
    case.cluster.api.patch(f"{case.pods_path}/h", {"metadata": {"labels": {names.POLICY_QUEUE: low.queue}}})
    case.let_go(gone)
    case.wait_running("low", 2)
    assert case.evictions() == [gone]
    assert case.node_of("h") == ""


def test_a_namespace_that_is_deleted_with_preemptor_and_plan_gives_the_room_back(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    case.run("low", low, 1)
    other = f"{case.namespace}-other"
    case.cluster.ensure_namespace(other)
    path = f"/api/v1/namespaces/{other}/pods"
    case.cluster.api.post(path, objects.bare_pod("h", high))
    [gone] = case.wait_leaving("low", 1)
    case.cluster.api.delete(f"/api/v1/namespaces/{other}")
    case.let_go(gone)
    case.wait_running("low", 1)
    assert case.evictions() == [gone]
