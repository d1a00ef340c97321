"""How long a Lease has not changed, and what its next state says."""

import json
import math
from datetime import UTC, datetime

import pytest

from vgpu import names
from vgpu.controller.lease import Candidate, LeaseRecord, LeaseView, decode_lease, held_body, released_body
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Key

ME = Candidate("me", "10.0.0.1:9443")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def record(version: str, holder: str, seconds: int = 15) -> LeaseRecord:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 3}
    meta = {"name": "l", "uid": "u", "resourceVersion": version, "annotations": {"of a person": "kept"}}
    return decode_lease(json.dumps({"metadata": meta, "spec": spec}).encode()).fact


def test_nothing_is_free_while_nothing_is_known() -> None:
    view = LeaseView(Clock())
    assert view.free_in_seconds("me", 15) == math.inf
    view.synced()
    assert view.free_in_seconds("me", 15) == 0


def test_held_lease_is_free_after_it_did_not_change_for_its_duration() -> None:
    clock = Clock()
    view = LeaseView(clock)
    view.put(record("1", "other"))
    assert view.free_in_seconds("me", 15) == 15
    clock.now += 10
    assert view.free_in_seconds("me", 15) == 5
    view.put(record("2", "other"))
    assert view.free_in_seconds("me", 15) == 15


def test_the_longer_of_stated_and_own_duration_counts() -> None:
    view = LeaseView(Clock())
    view.put(record("1", "other", seconds=30))
    assert view.free_in_seconds("me", 15) == 30
    view.put(record("2", "other", seconds=1))
    assert view.free_in_seconds("me", 15) == 15


@pytest.mark.parametrize("holder", ["", "me"])
def test_released_or_own_lease_is_free(holder: str) -> None:
    view = LeaseView(Clock())
    view.put(record("1", holder))
    assert view.free_in_seconds("me", 15) == 0
    assert not view.held_by_other("me")


def test_late_watch_event_does_not_undo_what_a_write_told() -> None:
    view = LeaseView(Clock())
    view.learn(record("10", "me"))
    view.put(record("9", "other"))
    assert not view.held_by_other("me")


def test_same_version_again_does_not_prolong() -> None:
    clock = Clock()
    view = LeaseView(clock)
    view.put(record("1", "other"))
    clock.now += 10
    view.learn(record("1", "other"))
    assert view.free_in_seconds("me", 15) == 5


def test_read_counts_even_if_its_version_went_back() -> None:
    view = LeaseView(Clock())
    view.put(record("5000", "other"))
    view.learn(record("20", "another"))
    assert view.record is not None
    assert view.record.holder == "another"


def test_deleted_lease_is_waited_out() -> None:
    view = LeaseView(Clock())
    view.put(record("1", "other"))
    view.drop(Key("n", "l", "u"))
    assert view.free_in_seconds("me", 15) == 15


def test_taking_over_counts_a_transition_and_keeps_what_others_wrote() -> None:
    body = held_body(record("7", "other"), ME, 15, NOW)
    assert body["spec"]["holderIdentity"] == "me"
    assert body["spec"]["leaseTransitions"] == 4
    assert body["metadata"]["resourceVersion"] == "7"
    assert body["metadata"]["annotations"] == {"of a person": "kept", names.LEASE_ADDRESS_ANNOTATION: ME.address}


def test_renewing_keeps_the_time_of_taking() -> None:
    mine = record("7", "me")
    assert held_body(mine, ME, 15, NOW)["spec"]["leaseTransitions"] == 3
    assert "acquireTime" not in held_body(mine, ME, 15, NOW)["spec"]


def test_released_lease_names_nobody_and_no_address() -> None:
    body = released_body(decode_lease(json.dumps(held_body(record("7", "me"), ME, 15, NOW)).encode()).fact)
    assert body["spec"]["holderIdentity"] == ""
    assert body["metadata"]["annotations"] == {"of a person": "kept"}


@pytest.mark.parametrize("raw", [b"[]", b'{"metadata":{},"spec":{"leaseDurationSeconds":"long"}}'])
def test_unreadable_lease_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedObject):
        decode_lease(raw)
