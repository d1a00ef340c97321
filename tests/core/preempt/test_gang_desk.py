"""How a gang stands while its cards are held: what it lacks, and who of it could take a seat."""

from dataclasses import replace

from tests.core.building import bound_pod, holds, make_request, pending_pod, share, want
from tests.core.preempt.roster_world import Told
from vgpu.core.facts import PodFact
from vgpu.core.placement import Placement
from vgpu.core.preempt.facts import NodeReservation
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.gang_seats import GangNow
from vgpu.core.preempt.gang_state import Rules
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.seating import Member
from vgpu.core.terms import GroupFact, GroupName, GroupSource, PodTerms
from vgpu.core.views import Reservation

NAME = GroupName(GroupSource.VOLCANO, "team", "g")
LABELLED = GroupName(GroupSource.LABEL, "team", "g")
WHOLE = make_request(want(1))


def member(uid: str, name: GroupName = NAME, minimum: int | None = None, **fields: object) -> PodFact:
    terms = PodTerms(group=name, group_minimum=minimum)
    return pending_pod(uid, WHOLE, terms=terms, unschedulable=True, **fields)


def desk_of(told: Told) -> GangDesk:
    return GangDesk(told.ledger, told.roster, Rules("", lift_gates=True))


def seats(found: GangNow | None) -> list[str]:
    assert found is not None
    return [member.uid for member in found.spare]


def test_who_waits_without_cards_could_take_a_seat_the_oldest_first() -> None:
    told = Told()
    for number, uid in enumerate(["m3", "m2", "m1"]):
        told.put_pod(member(uid, LABELLED, 2, created=f"2026-01-01T00:00:0{number}Z"))
    found = desk_of(told).now(LABELLED.key, {"m3"})
    assert found == GangNow(2, whole=True, spare=(Member("m2", WHOLE), Member("m1", WHOLE)))


def test_who_has_cards_takes_no_seat() -> None:
    told = Told()
    for uid in ("held", "sent", "free"):
        told.put_pod(member(uid, LABELLED, 2))
    card = Reservation("held", "GPU-0", 1, 1, 0, exclusive=False)
    told.ledger.plans.put(PlanHold("team/other", 1, (NodeReservation("n1", card),)))
    told.ledger.nominate("sent", "n1", Placement("n1", (holds(share("GPU-1")),), 0))
    assert seats(desk_of(told).now(LABELLED.key, ())) == ["free"]


def test_a_gang_lacks_those_who_do_not_run() -> None:
    told = Told()
    terms = PodTerms(group=LABELLED, group_minimum=3)
    told.put_pod(bound_pod("runs", holds(share("GPU-0")), request=WHOLE, terms=terms))
    told.put_pod(member("m1", LABELLED, 3))
    assert desk_of(told).now(LABELLED.key, {"m1"}) == GangNow(2, whole=False)


def test_of_whom_nobody_is_left_there_is_no_gang() -> None:
    told, desk = Told(), None
    told.put_pod(member("m1", LABELLED, 2))
    desk = desk_of(told)
    assert desk.now(LABELLED.key, ()) is not None
    told.put_pod(replace(member("m1", LABELLED, 2), terminating=True))
    assert desk.now(LABELLED.key, ()) is None
    told.drop_pod("m1")
    assert desk.now(LABELLED.key, ()) is None


def test_a_gang_whose_podgroup_is_deleted_is_none_and_one_whose_is_not_seen_yet_may_be() -> None:
    told = Told()
    told.put_pod(member("m1"))
    desk = desk_of(told)
    found = desk.now(NAME.key, ())
    assert found is not None
    assert (found.lacks, found.whole) == (None, False)
    told.put_group(GroupFact(NAME, 2))
    assert desk.now(NAME.key, {"m1"}) == GangNow(2, whole=False)
    told.drop_group(NAME.key)
    assert desk.now(NAME.key, ()) is None


def test_a_gang_without_its_podgroup_goes_on_where_its_pods_say_how_many_must_run() -> None:
    told = Told()
    told.put_pod(member("m1", NAME, 2))
    told.put_group(GroupFact(NAME, 2))
    told.drop_group(NAME.key)
    assert desk_of(told).now(NAME.key, {"m1"}) == GangNow(2, whole=False)


def test_a_gang_that_needs_one_lacks_nobody() -> None:
    told = Told()
    told.put_pod(member("m1"))
    told.put_group(GroupFact(NAME, 1))
    assert desk_of(told).now(NAME.key, {"m1"}) == GangNow(0, whole=True)
