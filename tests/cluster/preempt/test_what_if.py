"""S85: the answer to "what would happen" on a real control plane: it costs no write, and it is what happens."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from devcluster.product import ROOT
from tests.cluster.preempt.objects import HIGH, Ask, Json, Kind
from tests.cluster.preempt.recorder import INVENTORIES
from tests.cluster.preempt.stage import QUEUES, Case
from vgpu import names

pytestmark = pytest.mark.cluster

QUARTER, MOST = Ask(number=4, percent=25, cores=25), Ask(number=4, percent=60, cores=60)


def two_queues(case: Case, **high: Any) -> tuple[Kind, Kind]:
    """Work that borrows, and work that is entitled to the node."""
    low = Kind(queue=case.queue("low", deserved={"cards": "0"}))
    return low, Kind(queue=case.queue("high", deserved={"cards": "4"}, **high), priority=HIGH)


def all_is_told(case: Case, low: Kind) -> bool:
    """Queue and inventory show all that runs: nothing is left to be written about it."""
    queue = case.cluster.api.get(f"{QUEUES}/{low.queue}").get("status", {})
    cards = case.cluster.api.get(f"{INVENTORIES}/{case.nodes[0]}").get("status", {}).get("gpus", [])
    holders = {holder["name"] for card in cards for holder in card.get("holders", [])}
    return queue.get("used", {}).get("cards") == "4" and holders == set(case.running("low"))


def pod_names(answer: Json, what: str) -> set[str]:
    return {one["pod"].partition("/")[2] for one in answer[what]}


def test_s85_asking_writes_nothing_and_the_plan_is_the_one_that_was_told(case: Case) -> None:
    case.node()
    low, high = two_queues(case)
    running = case.run("low", low.but(ask=QUARTER), 4)
    case.wait(lambda: all_is_told(case, low), "queue and inventory to show the four pods")
    before = case.writes()
    answers = [case.what_if("h", high.but(ask=MOST)) for _ in range(3)]
    assert case.writes() == before
    told = answers[0]
    assert (told["outcome"], told["exact"], told["rule"]) == ("Plan", True, "ReclaimAcrossQueues")
    assert all(pod_names(answer, "victims") == pod_names(told, "victims") for answer in answers)
    assert pod_names(told, "victims") | pod_names(told, "stays") == set(running)
    case.pod("h", high.but(ask=MOST))
    case.wait_bound("h")
    assert set(case.evictions()) == pod_names(told, "victims")
    assert case.cards("h") == sorted(card["uuid"] for seat in told["seats"] for card in seat["cards"])


def test_s83_s85_a_pod_that_is_to_wait_is_told_for_how_long(case: Case) -> None:
    case.node()
    low, high = two_queues(case, preemption={"waitBefore": "1h"})
    case.run("low", low, 4)
    case.pod("h", high)
    case.wait_told("h", "ExclusiveHolder")
    answer = case.ask(f"/what-if?pod={case.namespace}/h")
    assert (answer["outcome"], answer["reason"]) == ("No", "WaitBefore")
    assert 3000 < answer["untilSeconds"] <= 3600
    assert case.evictions() == []


def test_the_metrics_tell_of_the_plan(case: Case) -> None:
    """S84: counters and lost GPU seconds rise."""
    case.node(1)
    low, high = two_queues(case)
    case.run("low", low)
    before = _metrics(case)
    case.pod("h", high)
    case.wait_bound("h")
    case.wait(lambda: _metrics(case)[ENDED] == before.get(ENDED, 0) + 1, "the plan's end to be counted")
    after = _metrics(case)
    assert after[VICTIMS] == before.get(VICTIMS, 0) + 1
    assert after[ACCEPTED] == before.get(ACCEPTED, 0) + 1
    assert after["vgpu_preemption_debts"] == 1


VICTIMS = 'vgpu_preemption_victims_total{rule="ReclaimAcrossQueues"}'
ENDED = 'vgpu_preemption_plans_ended_total{reason="OwnerBound"}'
ACCEPTED = 'vgpu_preemption_evictions_total{outcome="accepted"}'


def vgpu(case: Case, *arguments: str) -> str:
    """What our command line prints."""
    command = [sys.executable, "-m", "vgpu.cli", "--kubeconfig", str(case.cluster.kubeconfig()), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _metrics(case: Case) -> dict[str, float]:
    status, text = case.world.replica.get("/metrics")
    assert status == 200
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith("vgpu_preemption_"))
    return {name: float(value) for name, _, value in lines}


def test_plans_and_queues_are_shown_to_people(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    case.run("low", low.but(linger=True))
    case.pod("h", high)
    [leaving] = case.wait_leaving("low", 1)
    case.wait_phase(case.uid("h"), "Draining")
    plans = json.loads(vgpu(case, "plans", "-n", case.namespace, "-o", "json"))
    assert [plan["spec"]["owner"]["name"] for plan in plans] == ["h"]
    assert leaving in vgpu(case, "plans", "-n", case.namespace)
    queues = json.loads(vgpu(case, "queues", "-o", "json"))
    assert {low.queue, high.queue} <= {queue["metadata"]["name"] for queue in queues}
    assert names.QUEUE_KIND in {queue["kind"] for queue in queues}
    case.let_go(leaving)
    case.wait_bound("h")
