"""A plan as an object: nothing is lost on the way there and back, and one plan is one object."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpu.api.conditions import ConditionStatus
from vgpu.api.preemption import ENDED
from vgpu.controller.preempt.bodies import (
    MOST_NAMED,
    PreemptionWrite,
    ended_condition,
    names_for_people,
    partial_condition,
    preemption_body,
    preemption_name,
    preemption_status,
)
from vgpu.controller.preempt.creating import create_or_take
from vgpu.controller.translate.preemption import decode_preemption
from vgpu.core.facts import AssignedCard, AssignedContainer
from vgpu.core.placement import Placement
from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.decision import Plan
from vgpu.core.preempt.facts import Debt, OwnerKind, PlanFact, PlanPhase, Victim
from vgpu.core.preempt.plan import End, PlanEnd
from vgpu.core.request import ContainerKind
from vgpu.core.terms import GroupName, GroupSource
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject, OutcomeUnknown

CREATED = "2026-01-01T12:00:00Z"
CREATED_SECONDS = 1767268800
CARDS = st.lists(
    st.builds(
        AssignedCard,
        uuid=st.sampled_from(["GPU-0", "GPU-1", "MIG-GPU-2/1/0"]),
        memory_mib=st.integers(1, 81920),
        cores=st.integers(0, 100),
        whole=st.booleans(),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda card: card.uuid,
)


def seat(uid: str, cards: list[AssignedCard], node: str = "n1") -> tuple[str, Placement]:
    """A pod on these cards."""
    return uid, Placement(node, (AssignedContainer("main", ContainerKind.APP, tuple(cards)),), 5)


def make_plan(*seats: tuple[str, Placement], victims: int = 1, rule: str = "LowerPriority") -> Plan:
    """A plan for these seats; one pod on a quarter of a card where none are named."""
    named = tuple(Victim(f"uid-l{n}", "low", f"l{n}", "n1") for n in range(victims))
    quarter = AssignedCard("GPU-0", 8192, 0, whole=False)
    return Plan(seats or (seat("uid-h", [quarter]),), named, rule, True, Cost(), {})


def make_write(plan: Plan | None = None, **changes: Any) -> PreemptionWrite:
    """The write of a plan for the pod `h` unless `changes` say otherwise."""
    fields: dict[str, Any] = {
        "namespace": "high",
        "owner_kind": OwnerKind.POD,
        "owner_name": "h",
        "owner_uids": ("uid-h",),
        "generation": 1,
        **changes,
    }
    return PreemptionWrite(plan=plan or make_plan(), **fields)


def stored(body: dict[str, Any], **changes: Any) -> bytes:
    """The object as the API server would give it back."""
    metadata = {**body["metadata"], "uid": "uid-plan", "resourceVersion": "7", "creationTimestamp": CREATED}
    return json.dumps({**body, "metadata": metadata, **changes}).encode()


def read_back(write: PreemptionWrite, **changes: Any) -> PlanFact:
    return decode_preemption(stored(preemption_body(write), **changes)).fact


def test_what_goes_only_together_is_read_back_from_the_object() -> None:
    plan = replace(make_plan(victims=3), units={"uid-l0": "gang low/g", "uid-l1": "gang low/g"})
    assert [victim.unit for victim in read_back(make_write(plan)).victims] == ["gang low/g", "gang low/g", ""]


@given(CARDS, CARDS, st.integers(0, 8), st.booleans())
def test_a_plan_comes_back_as_it_was_decided(
    first: list[AssignedCard], second: list[AssignedCard], victims: int, gang: bool
) -> None:
    seats = [seat("uid-h0", first), seat("uid-h1", second, "n2")][: 1 + gang]
    plan = make_plan(*seats, victims=victims)
    kind = OwnerKind.GANG if gang else OwnerKind.POD
    uids = tuple(uid for uid, _ in seats)
    fact = read_back(make_write(plan, owner_kind=kind, owner_uids=uids, generation=3))
    assert fact.reservations == plan.reservations
    assert fact.victims == plan.victims
    assert (fact.rule, fact.exact) == (plan.rule, plan.exact)
    assert (fact.owner_kind, fact.owner_name, fact.owner_uids) == (kind, "h", uids)
    assert (fact.namespace, fact.uid, fact.generation) == ("high", "uid-plan", 3)
    assert fact.created_seconds == CREATED_SECONDS
    assert (fact.phase, fact.evictions_sent, fact.debts) == (PlanPhase.PLANNED, frozenset(), ())


def test_a_status_comes_back_as_it_was_told() -> None:
    debt = Debt("uid-rs", "ReplicaSet", "low", "train", "q", "entitled, priority 5", pods=2, lost_seconds=90)
    end = End(PlanEnd.HOLD_EXPIRED, "too late")
    status = preemption_status(
        PlanPhase.ABORTED,
        waits_for="low/l0",
        evictions_sent={"b", "a"},
        debts=[debt],
        conditions=[ended_condition(end, CREATED_SECONDS)],
    )
    [condition] = status["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == (ENDED, "HoldExpired", "too late")
    assert condition["lastTransitionTime"] == CREATED
    fact = read_back(make_write(), status=status)
    assert (fact.phase, fact.evictions_sent, fact.debts) == (PlanPhase.ABORTED, frozenset("ab"), (debt,))


def test_a_gang_that_is_bound_in_part_comes_back_as_it_was_told() -> None:
    partial = partial_condition("1 of the 2 pods", CREATED_SECONDS)
    assert (partial.type, partial.reason, partial.last_transition_time) == ("Partial", "GangPartial", CREATED)
    end = ended_condition(End(PlanEnd.HOLD_EXPIRED, "too late"), CREATED_SECONDS)
    told = [(partial,), (end,), (partial.model_copy(update={"status": ConditionStatus.FALSE}),)]
    facts = [read_back(make_write(), status=preemption_status(PlanPhase.DRAINING, conditions=one)) for one in told]
    assert [fact.partial for fact in facts] == ["1 of the 2 pods", "", ""]


def test_a_plans_object_names_its_nodes_for_people() -> None:
    quarter = [AssignedCard("GPU-0", 8192, 0, whole=False)]
    plan = make_plan(seat("uid-a", quarter, "n2"), seat("uid-b", quarter), seat("uid-c", quarter, "n2"))
    assert preemption_body(make_write(plan))["spec"]["nodeNames"] == "n1, n2"


def test_a_plan_of_more_pods_than_an_object_names_is_malformed_and_says_so() -> None:
    assert preemption_body(make_write(make_plan(victims=4096)))
    with pytest.raises(MalformedObject, match=r"victims: .*4096.*4097"):
        preemption_body(make_write(make_plan(victims=4097)))


def test_words_for_people_never_keep_a_status_from_being_written() -> None:
    """Whom it waits for may bear the longest names, and an API server's reason for a failing eviction be any."""
    end = ended_condition(End(PlanEnd.NODE_CLOSED, "n" * 50_000), CREATED_SECONDS)
    status = preemption_status(PlanPhase.ABORTED, waits_for="w" * 5000, conditions=[end])
    assert len(status["waitsFor"]) == 1024
    assert len(status["conditions"][0]["message"]) == 32768
    assert status["waitsFor"].endswith("w ...")
    assert read_back(make_write(), status=status).phase is PlanPhase.ABORTED


def test_a_status_always_tells_the_phase() -> None:
    """The first phase is the default, which a model leaves out."""
    assert preemption_status(PlanPhase.PLANNED) == {"phase": "Planned"}


def test_equal_status_is_equal_whatever_the_order() -> None:
    one, other = (preemption_status(PlanPhase.DRAINING, evictions_sent=uids) for uids in ("abc", "cba"))
    assert one == other


def test_the_same_plan_has_the_same_name_and_no_other_plan_has_it() -> None:
    name = make_write().name
    assert make_write(make_plan(victims=3)).name == name
    others = [
        make_write(generation=2),
        make_write(owner_uids=("uid-of-a-pod-of-the-same-name",)),
        make_write(owner_name="h2"),
        make_write(owner_kind=OwnerKind.GANG),
    ]
    assert len({name, *(write.name for write in others)}) == 1 + len(others)


def test_a_gang_is_named_by_its_key_whichever_members_are_seen() -> None:
    def name(key: str, *uids: str) -> str:
        return preemption_name(OwnerKind.GANG, key, uids, 1)

    assert name("label/ns/g", "a", "b") == name("label/ns/g", "b", "c")
    assert name("label/ns/g", "a") != name("volcano/ns/g", "a")
    assert len({name(GroupName(source, "ns", "g").key, "a") for source in GroupSource}) == len(GroupSource)


@pytest.mark.parametrize(
    ("owner", "want"),
    [
        ("train-1", "train-1-"),
        ("label/ns/My_Gang.v2", "my-gang-v2-"),
        ("ns/My_Gang.v2", "my-gang-v2-"),
        ("ns/ring (Volcano PodGroup)", "ring-"),
        ("ns/___", ""),
        ("x" * 253, "x" * 200 + "-"),
    ],
)
def test_a_name_begins_with_its_owner_and_is_one(owner: str, want: str) -> None:
    name = preemption_name(OwnerKind.GANG, owner, ("a",), 12)
    assert name.startswith(want)
    assert "podgroup" not in name
    assert len(name) <= 253
    assert name.endswith("-12")
    assert name.replace("-", "").isalnum()


def test_people_are_told_the_first_victims_and_how_many_more() -> None:
    assert names_for_people([]) == ""
    assert names_for_people(["a/1", "a/2"]) == "a/1, a/2"
    assert names_for_people(f"a/{n}" for n in range(MOST_NAMED + 3)).endswith(f"a/{MOST_NAMED - 1} and 3 more")
    longest = ["n" * 63 + "/" + "p" * 253] * 9
    assert names_for_people(longest) == f"{longest[0]} and 8 more"


BODY = preemption_body(make_write())
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no spec": ({"spec": None}, "GpuPreemption: spec"),
    "no reservation": ({"spec": {**BODY["spec"], "reservations": []}}, "spec.reservations"),
    "a victim without uid": (
        {"spec": {**BODY["spec"], "victims": [{"namespace": "n", "name": "p", "node": "n1"}]}},
        "spec.victims[0].uid",
    ),
    "an unknown phase": ({"status": {"phase": "Waiting"}}, "status.phase"),
    "no creation time": ({"metadata": {"name": "p", "namespace": "n", "uid": "u"}}, "metadata.creationTimestamp"),
    "a time without a zone": (
        {"metadata": {"name": "p", "creationTimestamp": "2026-01-01T12:00:00"}},
        "metadata.creationTimestamp must be a moment",
    ),
}


@pytest.mark.parametrize(("changes", "want"), BAD.values(), ids=BAD.keys())
def test_an_object_that_cannot_be_read_names_its_fault(changes: dict[str, Any], want: str) -> None:
    with pytest.raises(MalformedObject) as fault:
        decode_preemption(stored(BODY, **changes))
    assert want in str(fault.value)


class Api:
    """Creates one object per name; `fault` is raised after, or in place of, the next creation."""

    def __init__(self, fault: Exception | None = None, *, carried_out: bool = True) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.fault, self.carried_out = fault, carried_out

    async def create_preemption(self, write: PreemptionWrite) -> bytes:
        key = (write.namespace, write.name)
        if key in self.objects:
            raise ApiRefused(409, "AlreadyExists", "exists")
        if self.fault is None or self.carried_out:
            self.objects[key] = stored(preemption_body(write))
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        return self.objects[key]

    async def read(self, namespace: str, name: str) -> bytes:
        if (namespace, name) not in self.objects:
            raise ApiRefused(404, "NotFound", "no such object")
        return self.objects[namespace, name]


async def test_a_lost_answer_makes_one_object() -> None:
    api = Api(OutcomeUnknown("time-out"))
    taken = await create_or_take(api, api.read, make_write())
    again = await create_or_take(api, api.read, make_write())
    assert taken == again
    assert len(api.objects) == 1


async def test_what_was_not_carried_out_may_be_asked_again() -> None:
    api = Api(OutcomeUnknown("time-out"), carried_out=False)
    with pytest.raises(OutcomeUnknown):
        await create_or_take(api, api.read, make_write())
    assert (await create_or_take(api, api.read, make_write())).fact.owner_name == "h"
    assert len(api.objects) == 1


async def test_another_leaders_plan_is_taken_as_it_is() -> None:
    api = Api()
    first = await create_or_take(api, api.read, make_write(make_plan(victims=1)))
    second = await create_or_take(api, api.read, make_write(make_plan(victims=2)))
    assert second == first
    assert len(second.fact.victims) == 1


@pytest.mark.parametrize("fault", [ApiRefused(403, "Forbidden", "no"), ApiUnavailable(503, "", "later")], ids=str)
async def test_other_answers_are_the_callers(fault: Exception) -> None:
    api = Api(fault, carried_out=False)
    with pytest.raises(type(fault)):
        await create_or_take(api, api.read, make_write())
    assert not api.objects
