"""Who of a gang must start together, who may start alone, and who runs in vain."""

from typing import Any

import pytest

from tests.core.building import bound_pod, holds, pending_pod, share
from vgpu import names
from vgpu.core.facts import Phase, PodFact
from vgpu.core.preempt.facts import Gang
from vgpu.core.preempt.gang_state import GangState, Rules, gang_state, in_vain, starts_with, why_not_alone
from vgpu.core.preempt.pod_groups import PodGroupIs
from vgpu.core.reasons import Reason
from vgpu.core.terms import GroupName, GroupSource, PodTerms

RULES = Rules(names.SCHEDULER_NAME, lift_gates=True)
GANG = Gang("label/team/g", 4)


def member(uid: str, *gates: str, **fields: Any) -> PodFact:
    given = {"scheduler_name": names.SCHEDULER_NAME, "created": f"2026-01-01T00:00:0{uid[-1]}Z", **fields}
    return pending_pod(uid, gated=bool(gates), terms=PodTerms(gates=frozenset(gates)), **given)


def runs(uid: str, **fields: Any) -> PodFact:
    return bound_pod(uid, holds(share("GPU-0")), **fields)


def state(*pods: PodFact, gang: Gang = GANG, booked: tuple[str, ...] = (), rules: Rules = RULES) -> GangState:
    return gang_state(gang, pods, booked, rules)


def uids(pods: tuple[PodFact, ...]) -> list[str]:
    return [pod.uid for pod in pods]


def test_s53_the_oldest_are_required_and_the_others_are_surplus() -> None:
    found = state(*(member(f"p{number}") for number in (3, 1, 4, 2)), gang=Gang("g", 2))
    assert (found.missing, found.complete, uids(found.required)) == (2, True, ["p1", "p2"])


def test_s52_nobody_is_required_of_an_incomplete_gang() -> None:
    found = state(*(member(f"p{number}") for number in range(3)))
    assert (found.complete, found.required) == (False, ())


def test_members_that_run_are_not_missing_any_more() -> None:
    found = state(runs("r1"), runs("r2"), member("p1"), member("p2"), member("p3"))
    assert (found.missing, uids(found.required)) == (2, ["p1", "p2"])


def test_a_gang_that_runs_lets_every_further_member_come_alone() -> None:
    found = state(*(runs(f"r{number}") for number in range(4)), member("p1"))
    assert found.runs
    assert why_not_alone(found, (), "p1") is None


def test_a_group_of_one_holds_nobody_back() -> None:
    found = state(member("p1"), gang=Gang("g", 1))
    assert (found.runs, why_not_alone(found, (), "p1")) == (True, None)


def test_members_that_fail_or_are_being_deleted_are_missing() -> None:
    assert state(*(runs(f"r{n}") for n in range(3)), runs("dead", phase=Phase.FAILED)).missing == 1
    assert state(*(runs(f"r{n}") for n in range(3)), runs("goes", terminating=True)).missing == 1


@pytest.mark.parametrize(
    ("pod", "rules", "starts"),
    [
        (member("p1", names.GANG_GATE), RULES, True),
        (member("p1", names.GANG_GATE), Rules(names.SCHEDULER_NAME, lift_gates=False), False),
        (member("p1", names.GANG_GATE, "example.com/quota"), RULES, False),
        (member("p1", "example.com/quota"), RULES, False),
        (member("p1", scheduler_name="default-scheduler"), RULES, False),
        (member("p1", terminating=True), RULES, False),
        (member("p1"), Rules(names.SCHEDULER_NAME, lift_gates=False), True),
    ],
    ids=["our gate", "our gate stays", "two gates", "another's gate", "another scheduler", "deleted", "no gate"],
)
def test_who_may_start(pod: PodFact, rules: Rules, starts: bool) -> None:
    assert bool(state(pod, gang=Gang("g", 2), rules=rules).waiting) is starts


def test_a_member_alone_is_refused_by_name() -> None:
    short = why_not_alone(state(member("p1"), member("p2"), member("p3", "x")), (), "p1")
    assert short is not None
    assert short.reason is Reason.GANG_INCOMPLETE
    assert "4 pods at once, and only 2 are there, 1 of its pods are held back" in short.message
    waits = why_not_alone(state(*(member(f"p{n}") for n in range(4))), (), "p1", room=3)
    assert waits is not None
    assert (waits.reason, waits.message.endswith("room for 3 of the 4 that it lacks")) == (Reason.GANG_WAITS, True)
    stopped = why_not_alone(state(*(member(f"p{n}") for n in range(4))), (), "p1", room=-1)
    assert stopped is not None
    assert stopped.message.endswith("its queue does not let the 4 start that it lacks")


def test_s57_half_a_gang_that_was_sent_lets_nobody_in() -> None:
    found = state(*(member(f"p{n}") for n in range(5)))
    half, enough = {"p0", "p1"}, {"p0", "p1", "p2", "p3"}
    assert not starts_with(found, half)
    assert why_not_alone(found, half, "p0") is not None
    assert why_not_alone(found, enough, "p0") is None
    surplus = why_not_alone(found, enough, "p4")
    assert surplus is not None
    assert surplus.reason is Reason.GANG_WAITS


def test_s51_what_is_bound_of_a_broken_gang_goes_after_the_grace_and_not_before() -> None:
    broken = state(runs("r1"), runs("r2"), member("p1"))
    assert broken.partial
    assert in_vain(broken, 100, 60, 159) == ()
    assert uids(in_vain(broken, 100, 60, 160)) == ["r1", "r2"]


def test_a_gang_is_not_broken_while_bindings_are_under_way_or_nobody_would_complete_it() -> None:
    assert not state(runs("r1"), member("p1"), member("p2"), booked=("p1",)).partial
    assert in_vain(state(runs("r1"), runs("r2")), 0, 60, 1000) == ()
    assert not state(member("p1")).partial


@pytest.mark.parametrize(
    ("is_", "reason"),
    [(PodGroupIs.MISSING, Reason.POD_GROUP_NOT_FOUND), (PodGroupIs.UNREAD, Reason.GANG_WAITS)],
)
def test_nobody_starts_whose_podgroup_is_not_there_however_many_there_are(is_: PodGroupIs, reason: Reason) -> None:
    terms = PodTerms(group=GroupName(GroupSource.VOLCANO, "team", "g"))
    pods = [pending_pod(f"p{n}", scheduler_name=names.SCHEDULER_NAME, terms=terms) for n in range(3)]
    found = state(*pods, gang=Gang("g", 1, pod_group=is_))
    assert (found.runs, found.complete, found.required, starts_with(found, ["p0", "p1"])) == (
        False,
        False,
        (),
        False,
    )
    refusal = why_not_alone(found, ["p0"], "p0")
    assert refusal is not None
    assert (refusal.reason, "PodGroup g" in refusal.message) == (reason, True)
    assert not state(runs("r1"), *pods, gang=Gang("g", 1, pod_group=is_)).partial
