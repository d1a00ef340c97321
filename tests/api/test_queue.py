"""GpuQueue and GpuPreemption as a reader sees them."""

import json
from typing import Any

import pytest

from vgpu.api.preemption import Phase, parse_preemption
from vgpu.api.queue import ReclaimAcrossQueues, StopPolicy, WithinQueue, duration_seconds, parse_queue
from vgpu.errors import MalformedObject

OWNER = {"kind": "Pod", "name": "train-1", "uids": ["uid-1"]}
RESERVATION = {"uid": "uid-1", "node": "n", "card": "GPU-1", "slots": 1, "memoryMiB": 1000, "cores": 10}
PLAN = {"owner": OWNER, "reservations": [RESERVATION], "rule": "LowerPriority", "exact": True}


def make_text(**spec: Any) -> str:
    """A JSON document with this spec."""
    return json.dumps({"metadata": {"name": "default"}, "spec": spec})


def test_an_empty_queue_has_the_stated_defaults() -> None:
    spec = parse_queue(make_text()).spec
    assert spec.priority == 0
    assert spec.reclaimable is True
    assert spec.deserved.cards_thousandths is None
    assert spec.preemption.within_queue is WithinQueue.LOWER_PRIORITY
    assert spec.preemption.reclaim_across_queues is ReclaimAcrossQueues.ANY
    assert spec.preemption.max_in_flight is None
    assert duration_seconds(spec.preemption.stuck_timeout) == 60
    assert duration_seconds(spec.preemption.hold_timeout) == 300
    assert duration_seconds(spec.on_preempted.backoff.base) == 10
    assert spec.stop_policy is StopPolicy.NONE


@pytest.mark.parametrize(
    ("cards", "want"),
    [("4", 4000), (4, 4000), ("250m", 250), ("0.5", 500), ("1.125", 1125), ("0", 0), (0, 0)],
    ids=str,
)
def test_cards_are_counted_in_thousandths(cards: Any, want: int) -> None:
    assert parse_queue(make_text(deserved={"cards": cards})).spec.deserved.cards_thousandths == want


def test_a_duration_in_words_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(MalformedObject, match=r"preempt: .* such as 90s, 5m or 1h30m"):
        parse_queue(make_text(preemption={"minRuntime": {"preempt": "5 minutes"}}))


@pytest.mark.parametrize(
    ("text", "want"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1h0m1s", 3601), ("0s", 0)], ids=str
)
def test_durations_are_read_in_seconds(text: str, want: int) -> None:
    assert duration_seconds(text) == want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"deserved": {"cards": "-1"}}, "spec.deserved.cards: "),
        ({"deserved": {"cards": "4Gi"}}, "spec.deserved.cards: "),
        ({"deserved": {"cards": 1.5}}, "spec.deserved.cards: "),
        ({"deserved": {"cards": True}}, "spec.deserved.cards: "),
        ({"deserved": {"memoryMiB": -1}}, "spec.deserved.memoryMiB: "),
        ({"priority": 2**31}, "spec.priority: "),
        ({"preemption": {"waitBefore": "soon"}}, "spec.preemption.waitBefore: "),
        ({"preemption": {"maxInFlight": 0}}, "spec.preemption.maxInFlight: "),
        ({"stopPolicy": "Halt"}, "spec.stopPolicy: "),
    ],
    ids=str,
)
def test_a_wrong_field_of_a_queue_is_named(spec: dict[str, Any], want: str) -> None:
    with pytest.raises(MalformedObject) as refused:
        parse_queue(make_text(**spec))
    assert want in str(refused.value)


def test_a_plan_is_read_with_unknown_fields_in_it() -> None:
    plan = parse_preemption(make_text(**PLAN, later=1))
    assert plan.spec.reservations[0].memory_mib == 1000
    assert plan.status is None
    with_status = json.loads(make_text(**PLAN)) | {"status": {"phase": "Draining", "evictionsSent": ["uid-9"]}}
    status = parse_preemption(json.dumps(with_status)).status
    assert status is not None
    assert status.phase is Phase.DRAINING
    assert status.evictions_sent == ("uid-9",)


def test_a_plan_without_an_owner_is_refused() -> None:
    with pytest.raises(MalformedObject, match=r"spec\.owner: Field required"):
        parse_preemption(make_text(**{key: value for key, value in PLAN.items() if key != "owner"}))
