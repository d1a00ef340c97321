"""Gangs on a real control plane: all required members are bound at once or none is, at every event that is seen.

The gate is put on by the admission policy and lifted by the operator, as the component `gangs` installs it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devcluster import Cluster
from devcluster.observe import TIMEOUT_SECONDS, Observer
from tests.cluster.components import install_components, remove_rights
from tests.cluster.preempt.objects import HIGH, LOW, Ask, Json, Kind, bare_pod
from tests.cluster.preempt.stage import Case, World, preempt_world
from vgpu import names

pytestmark = pytest.mark.cluster
SETTINGS = {"VGPU_UNGATE_GANGS": "true", "VGPU_BIND_DEADLINE_SECONDS": "3"}
PAIR = Ask(2)
PORT = 18080
GATE = {"name": names.GANG_GATE}


@pytest.fixture(scope="module")
def world(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The product with the component that lets it lift gates, without nodes."""
    try:
        with preempt_world(cluster, SETTINGS) as running:
            install_components(cluster, tmp_path_factory.mktemp("components"), "gangs")
            cluster.wait_until(lambda: _is_gated(running), "the gate to be put on pods of gangs")
            yield running
    finally:
        remove_rights(cluster, "gangs")


def _is_gated(world: World) -> bool:
    body = bare_pod("probe", gang_kind("probe", 2))
    answer = world.cluster.api.post("/api/v1/namespaces/default/pods?dryRun=All", body)
    return bool(answer["spec"].get("schedulingGates") == [GATE])


def gang_kind(name: str, minimum: int, ask: Ask = PAIR, **changes: object) -> Kind:
    labels = {names.POLICY_GANG: name, names.POLICY_GANG_MIN: str(minimum)}
    return Kind(ask, labels=labels).but(**changes)


class Bound:
    """Every event of a case's pods: which of them were seen bound, in the order of the events."""

    def __init__(self, case: Case) -> None:
        self.events = 0
        self.names: list[str] = []
        self._observer = Observer(case.cluster.kubeconfig(), case.pods_path)
        self._thread = threading.Thread(target=self._run, name="watch of bound pods", daemon=True)

    def _run(self) -> None:
        for kind, pod in self._observer.events():
            if kind in ("ADDED", "MODIFIED"):
                self.events += 1
                if pod["spec"].get("nodeName") and pod["metadata"]["name"] not in self.names:
                    self.names.append(pod["metadata"]["name"])

    @contextmanager
    def watching(self) -> Iterator["Bound"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._observer.stop.set()
            self._thread.join(2 * TIMEOUT_SECONDS)


def bindings(case: Case) -> list[str]:
    """Pods whose Binding was posted in the case, in order."""
    events = case.cluster.audit_events(case.since).events
    return [
        e.name for e in events if (e.subresource, e.namespace, e.verb) == ("binding", case.namespace, "create")
    ]


def gates(case: Case) -> set[str]:
    """Pods that a gate holds back."""
    return {name for name, pod in case.pods().items() if pod["spec"].get("schedulingGates")}


def test_s52_four_members_of_two_cards_start_on_two_nodes_when_the_last_one_is_there(case: Case) -> None:
    case.node()
    case.node()
    members = [f"m{number}" for number in range(4)]
    with Bound(case).watching() as bound:
        for name in members[:3]:
            case.pod(name, gang_kind("g", 4))
        case.pod("alone", Kind(PAIR))
        case.wait_bound("alone")  # whoever waits for nobody is bound meanwhile
        assert (gates(case), bound.names) == ({*members[:3]}, ["alone"])
        case.delete("alone")
        case.wait(lambda: "alone" not in case.pods(), "its cards to be free")
        case.pod(members[3], gang_kind("g", 4))
        case.wait_bound(*members)
    assert sorted(case.node_of(name) for name in members) == sorted(case.nodes * 2)
    assert sorted(bindings(case)) == sorted(["alone", *members])
    assert len(set(case.cards(*members))) == 8


def test_s52_while_one_member_cannot_be_scheduled_none_of_them_is_bound(case: Case) -> None:
    """Only kube-scheduler knows of ports; to us all four fit, so three binds arrive and wait in vain."""
    blocks = {f"blocks{number}": case.node() for number in range(2)}
    port: Json = {"name": "port", "image": "none", "ports": [{"containerPort": PORT, "hostPort": PORT}]}
    for name, node in blocks.items():
        spec: Json = {"nodeSelector": {"kubernetes.io/hostname": node}, "schedulerName": names.SCHEDULER_NAME}
        spec |= {"containers": [port], "priorityClassName": "p1000"}  # kube-scheduler itself evicts nobody for m3
        case.cluster.api.post(case.pods_path, {"metadata": {"name": name}, "spec": spec})
    case.wait_bound(*blocks)
    members = [f"m{number}" for number in range(4)]
    bodies = [bare_pod(name, gang_kind("g", 4)) for name in members]
    bodies[3]["spec"]["containers"].append(port)
    with Bound(case).watching() as bound:
        for body in bodies:
            case.cluster.api.post(case.pods_path, body)
        vain = "3 pods of the 4 that it lacks were to be bound"
        case.wait(lambda: vain in case.world.operators.log(), "three binds to have waited in vain")
        assert [name for name in bound.names if name in members] == []
        for name in blocks:
            case.cluster.api.delete(f"{case.pods_path}/{name}", {"gracePeriodSeconds": 0})
        case.wait_bound(*members)
        case.wait(lambda: {*members} <= {*bound.names}, "all to be seen bound")
    assert sorted(name for name in bindings(case) if name in members) == members


def test_s57_of_two_gangs_that_each_fit_half_one_starts_whole(case: Case) -> None:
    case.node()
    case.node()
    first, second = ([f"{gang}{number}" for number in range(3)] for gang in "ab")
    for one, other in zip(first, second, strict=True):
        case.pod(one, gang_kind("a", 3))
        case.pod(other, gang_kind("b", 3))
    case.wait(lambda: len(bindings(case)) >= 3, "one gang to be bound")
    started, waits = (first, second) if bindings(case)[0] in first else (second, first)
    assert sorted(bindings(case)) == started
    assert gates(case) == {*waits}
    for name in started:
        case.delete(name)
    case.wait_bound(*waits)


def test_a_member_whose_gate_the_user_has_taken_off_does_not_start_alone(case: Case) -> None:
    case.node()
    case.pod("m0", gang_kind("g", 2))
    remove = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    case.cluster.kubectl(
        "patch", "pod", "m0", "-n", case.namespace, "--type=json", "-p", str(remove).replace("'", '"')
    )
    told = case.wait_told("m0", "GangIncomplete")
    assert "starts with 2 pods at once, and only 1 are there" in told
    case.pod("m1", gang_kind("g", 2))
    case.wait_bound("m0", "m1")


def test_s52_a_gang_evicts_for_all_of_it_and_is_bound_at_once(case: Case) -> None:
    case.node()
    case.node()
    queue = case.queue("q")
    case.run("low", Kind(PAIR, queue=queue, priority=LOW), 4)
    members = [f"m{number}" for number in range(4)]
    with Bound(case).watching() as bound:
        for name in members:
            case.pod(name, gang_kind("g", 4, queue=queue, priority=HIGH))
        case.wait_bound(*members)
        case.wait(lambda: {*members} <= {*bound.names}, "all to be seen bound")
    assert len(case.evictions()) == 4
    assert len({plan.uid for plan in case.recorder.plans if plan.namespace == case.namespace}) == 1
    assert sorted(name for name in bindings(case) if name in members) == members


def test_s52_a_gang_for_which_not_enough_may_go_evicts_nobody(case: Case) -> None:
    case.node()
    case.node()
    queue = case.queue("q")
    case.run("low", Kind(PAIR, queue=queue, priority=LOW), 3)
    case.run("peer", Kind(PAIR, queue=queue, priority=HIGH), 1)
    for number in range(4):
        case.pod(f"m{number}", gang_kind("g", 4, queue=queue, priority=HIGH))
    assert "room for 3 of 4 members" in case.wait_told("m0", "NoRoomForGang")
    assert (case.evictions(), len(case.running("low"))) == ([], 3)


def test_s53_a_gang_of_four_that_needs_two_evicts_for_two(case: Case) -> None:
    case.node(8)
    queue = case.queue("q")
    case.run("low", Kind(PAIR, queue=queue, priority=LOW), 3)
    case.run("keeps", Kind(Ask(1), queue=queue, priority=HIGH), 2)
    for number in range(4):
        case.pod(f"m{number}", gang_kind("g", 2, queue=queue, priority=HIGH))
    case.wait(lambda: len([name for name in case.waiting() if name.startswith("m")]) == 2, "two to be bound")
    assert len(case.evictions()) == 2


@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "killed"])
def test_a_member_that_is_replaced_while_victims_leave_costs_nobody_more(case: Case, killed: bool) -> None:
    """All victims are gone before the lost member's successor is there: the cards stand free, and nobody of lower
    rank gets one, at any event that is seen; nor where the operator is killed meanwhile."""
    case.node()
    case.node()
    queue = case.queue("q")
    low = case.run("low", Kind(PAIR, queue=queue, priority=LOW, linger=True), 4)
    kind = gang_kind("g", 4, queue=queue, priority=HIGH)
    members = [f"m{number}" for number in range(4)]
    with Bound(case).watching() as bound:
        uids = {name: case.pod(name, kind) for name in members}
        leaving = case.wait_leaving("low", 4)
        case.wait_phase(uids["m0"], "Draining")
        case.cluster.api.delete(f"{case.pods_path}/m2", {"gracePeriodSeconds": 0})
        if killed:
            case.world.crash()
        case.let_go(*leaving)
        case.wait(lambda: not case.terminating("low"), "the victims to be gone")
        if killed:
            case.world.revive()
        case.pod("thief", Kind(PAIR, queue=queue, priority=LOW))
        case.wait_refused("thief", "nobody is evicted for it")
        assert [case.node_of(name) for name in ("m0", "m1", "m3")] == [""] * 3
        successor = case.pod("m4", kind)
        started = ["m0", "m1", "m3", "m4"]
        case.wait_bound(*started)
        case.wait(lambda: {*started} <= {*bound.names}, "all to be seen bound")
    assert {*bound.names} == {*low, *started}
    assert sorted(case.evictions()) == leaving == low
    [plan] = {plan.uid for plan in case.recorder.plans if plan.namespace == case.namespace}
    taken = [one for status in case.recorder.statuses[plan] for one in status.get("successors", ())]
    assert {(one["lost"], one["uid"]) for one in taken} == {(uids["m2"], successor)}


def test_nobody_goes_for_a_gang_in_two_queues_and_it_starts_where_room_comes(case: Case) -> None:
    """The second queue is full at first: whatever went would be no use to its pod."""
    case.node()
    a = case.queue("a")
    borrows = {"borrowAcrossQueues": {"policy": "LowerPriority"}}
    b = case.queue("b", deserved={"cards": "2"}, capability={"cards": "2"}, preemption=borrows)
    case.run("full", Kind(PAIR, queue=b, priority=HIGH))
    case.run("low", Kind(queue=a, priority=LOW), 2)
    for name, queue in (("m0", a), ("m1", b)):
        case.pod(name, gang_kind("g", 2, Ask(1), queue=queue, priority=HIGH))
    told = case.wait_told("m0", "QueuePolicy")
    assert f"m0 in {a}" in told
    assert f"m1 in {b}" in told
    assert case.evictions() == []
    case.end_workload("low")
    case.end_workload("full")
    case.wait_bound("m0", "m1")
    assert case.evictions() == []
