"""How many of a gang must run: what its PodGroup or its pods say, less those that do their part without cards."""

from typing import Any

import pytest

from tests.core.building import bound_pod, holds, share
from vgpu.core.facts import Phase, PodFact
from vgpu.core.preempt.facts import Gang
from vgpu.core.preempt.gang_book import GangBook
from vgpu.core.preempt.pod_groups import GroupKind, PodGroupIs, refusal_without
from vgpu.core.reasons import Reason
from vgpu.core.terms import GroupFact, GroupName, GroupSource, PodTerms

NAME = GroupName(GroupSource.VOLCANO, "team", "g")


def book(minimum: int | None = 3) -> GangBook:
    made = GangBook()
    made.put_member("w1", NAME, None)
    made.put_group(GroupFact(NAME, minimum))
    return made


def minimum(found: GangBook) -> int:
    gang = found.terms("w1").gang
    assert isinstance(gang, Gang)
    return gang.minimum


def other(uid: str = "launcher", **fields: Any) -> PodFact:
    """A pod of the group without GPUs."""
    return PodFact(uid=uid, namespace="team", name=uid, terms=PodTerms(group=NAME), **fields)


def test_a_member_without_cards_is_one_fewer_that_must_run() -> None:
    found = book()
    assert found.put_other(other()) == ["w1"]
    assert minimum(found) == 2
    assert found.put_other(other(node="n1")) == ()
    assert found.drop_other("launcher") == ["w1"]
    assert minimum(found) == 3


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        (other(), True),
        (other(phase=Phase.SUCCEEDED), True),
        (other(phase=Phase.FAILED), False),
        (other(terminating=True), False),
        (bound_pod("done", holds(share("GPU-0")), phase=Phase.SUCCEEDED, container_running=False), True),
        (bound_pod("runs", holds(share("GPU-0"))), False),
        (bound_pod("dead", holds(share("GPU-0")), phase=Phase.FAILED, container_running=False), False),
    ],
    ids=["unbound", "over", "failed", "deleted", "cards, succeeded", "cards, runs", "cards, failed"],
)
def test_who_does_its_part_without_cards(pod: PodFact, counts: bool) -> None:
    found = book()
    named = PodFact(**{**{f: getattr(pod, f) for f in PodFact.__dataclass_fields__}, "terms": other().terms})
    found.put_other(named)
    assert minimum(found) == (2 if counts else 3)


def test_the_minimum_never_falls_below_one_and_pods_of_no_group_change_nothing() -> None:
    found = book(2)
    for number in range(5):
        found.put_other(other(f"o{number}"))
    assert minimum(found) == 1
    assert found.put_other(PodFact(uid="plain", namespace="team", name="plain")) == ()


def test_who_listens_is_told_only_of_changes() -> None:
    found, told = book(), [0]
    found.others_changed = lambda: told.append(1)
    found.put_other(other())
    found.put_other(other(node="n1"))
    found.drop_other("launcher")
    found.drop_other("launcher")
    assert sum(told) == 2


def test_a_podgroup_is_not_known_before_it_was_seen_and_is_dissolved_once_it_was_seen_to_go() -> None:
    found, key = GangBook(), NAME.key
    found.put_member("w1", NAME, None)
    assert (found.is_known(key), found.is_dissolved(key)) == (False, False)
    found.drop_group(key)
    assert (found.is_known(key), found.is_dissolved(key)) == (False, False)
    found.put_group(GroupFact(NAME, 3))
    assert (found.is_known(key), found.is_dissolved(key)) == (True, False)
    found.drop_group(key)
    assert (found.is_known(key), found.is_dissolved(key)) == (True, True)
    found.put_group(GroupFact(NAME, 3))
    assert not found.is_dissolved(key)
    found.drop_group(key)
    found.drop_member("w1")
    found.put_member("w2", NAME, None)
    assert (found.is_known(key), found.is_dissolved(key)) == (False, False)


def test_what_pods_say_by_label_needs_no_podgroup() -> None:
    found, name = GangBook(), GroupName(GroupSource.LABEL, "team", "g")
    found.put_member("w1", name, 2)
    assert (found.is_known(name.key), found.is_dissolved(name.key)) == (True, False)


def stands(found: GangBook, uid: str = "w1") -> PodGroupIs:
    gang = found.terms(uid).gang
    assert isinstance(gang, Gang)
    return gang.pod_group


def test_a_podgroup_is_missing_only_once_all_were_read_and_where_there_can_be_any() -> None:
    moved: list[str] = []
    found = GangBook(moved.extend)
    found.put_member("w1", NAME, None)
    found.put_member("k1", GroupName(GroupSource.KUBERNETES, "team", "g"), None)
    assert found.terms("w1").gang == Gang(NAME.key, 1, disruption_all=True, pod_group=PodGroupIs.UNREAD)
    found.put_kind(GroupSource.VOLCANO, GroupKind.READ)
    assert (stands(found), stands(found, "k1"), moved) == (PodGroupIs.MISSING, PodGroupIs.UNREAD, ["w1"])
    found.put_group(GroupFact(NAME, 2))
    assert found.terms("w1").gang == Gang(NAME.key, 2)
    found.drop_group(NAME.key)
    assert stands(found) is PodGroupIs.MISSING
    found.put_kind(GroupSource.VOLCANO, GroupKind.ABSENT)
    assert found.terms("w1").gang == Gang(NAME.key, 1)


def test_pods_that_say_how_many_must_run_need_no_podgroup() -> None:
    found = GangBook()
    found.put_kind(GroupSource.VOLCANO, GroupKind.READ)
    found.put_member("w1", NAME, 2)
    assert found.terms("w1").gang == Gang(NAME.key, 2)


def test_what_is_missing_is_named_with_its_namespace() -> None:
    missing, unread = (refusal_without(NAME, one) for one in (PodGroupIs.MISSING, PodGroupIs.UNREAD))
    assert missing is not None
    assert unread is not None
    assert (missing.reason, unread.reason) == (Reason.POD_GROUP_NOT_FOUND, Reason.GANG_WAITS)
    assert missing.message.startswith("there is no PodGroup g (scheduling.volcano.sh) in namespace team;")
    assert refusal_without(NAME, PodGroupIs.NO_MATTER) is None
