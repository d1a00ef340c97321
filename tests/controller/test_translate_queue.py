"""GpuQueue -> QueueFact."""

import json
from dataclasses import fields
from typing import Any

from vgpu.api.queue import parse_queue
from vgpu.controller.translate.queue import queue_fact
from vgpu.core.preempt.facts import (
    BorrowPolicy,
    DisruptionBudget,
    Limits,
    PreemptedAction,
    QueueFact,
    ReclaimAcrossQueues,
    StopPolicy,
    WithinQueue,
)

EVERYTHING: dict[str, Any] = {
    "priority": 7,
    "guarantee": {"cards": "500m"},
    "deserved": {"cards": 4, "memoryMiB": 100},
    "capability": {"cards": "8.5", "memoryMiB": 200, "cores": 300},
    "reclaimable": False,
    "preemption": {
        "withinQueue": "Never",
        "reclaimAcrossQueues": "LowerPriority",
        "borrowAcrossQueues": {"policy": "LowerPriority", "maxPriorityThreshold": 50},
        "minRuntime": {"preempt": "5m", "reclaim": "1h"},
        "waitBefore": "30s",
        "disruptionBudget": "BestEffort",
        "maxInFlight": 3,
        "stuckTimeout": "2m",
        "holdTimeout": "1h1m1s",
    },
    "onPreempted": {"action": "Fail", "backoff": {"base": "1s", "max": "2s"}},
    "stopPolicy": "Hold",
}
WANTED = QueueFact(
    name="q",
    priority=7,
    guarantee=Limits(500),
    deserved=Limits(4000, 100),
    capability=Limits(8500, 200, 300),
    reclaimable=False,
    within_queue=WithinQueue.NEVER,
    reclaim_across_queues=ReclaimAcrossQueues.LOWER_PRIORITY,
    borrow_across_queues=BorrowPolicy.LOWER_PRIORITY,
    borrow_max_priority=50,
    min_runtime_preempt_seconds=300,
    min_runtime_reclaim_seconds=3600,
    wait_before_seconds=30,
    disruption_budget=DisruptionBudget.BEST_EFFORT,
    max_in_flight=3,
    stuck_timeout_seconds=120,
    hold_timeout_seconds=3661,
    on_preempted=PreemptedAction.FAIL,
    backoff_base_seconds=1,
    backoff_max_seconds=2,
    stop_policy=StopPolicy.HOLD,
)


def translated(spec: dict[str, Any]) -> QueueFact:
    return queue_fact(parse_queue(json.dumps({"metadata": {"name": "q"}, "spec": spec})))


def test_every_field_of_a_queue_is_translated() -> None:
    """And each differs from its default, so that none can be forgotten."""
    assert translated(EVERYTHING) == WANTED
    assert [f.name for f in fields(WANTED) if getattr(WANTED, f.name) == getattr(QueueFact("other"), f.name)] == []


def test_the_defaults_of_object_and_fact_are_the_same() -> None:
    assert translated({}) == QueueFact("q")
