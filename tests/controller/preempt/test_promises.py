"""What is held for pods that are yet to come counts in the queue of those who are there, however many they are."""

from types import SimpleNamespace
from typing import Any, cast

from vgpu.controller.preempt.promises import Promises
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.amounts import Amounts
from vgpu.core.preempt.facts import NodeReservation
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.roster import Roster
from vgpu.core.views import Reservation

SEATS = 300


class Workloads(dict[str, Any]):
    """Counts how often it is asked for a pod."""

    asked = 0

    def __contains__(self, uid: object) -> bool:
        self.asked += 1
        return super().__contains__(uid)


def promised(workloads: Workloads) -> dict[str, Amounts]:
    """Of a gang for which whole cards are held, nobody of it there but those who are among the workloads."""
    ledger, found = Ledger(), dict[str, Amounts]()
    uids = [f"g{number:04}" for number in range(SEATS)]
    cards = tuple(NodeReservation("n1", Reservation(uid, f"GPU-{uid}", 1, 1000, 100, True)) for uid in uids)
    ledger.plans.put(PlanHold("team/plan", 1, cards, kept=frozenset(uids)))
    roster = SimpleNamespace(workloads=workloads, promise=lambda uids, to_come: found.update(to_come))
    Promises(ledger, cast(Roster, roster)).note()
    return found


def test_seats_that_are_empty_count_in_the_queue_of_a_member_that_is_there() -> None:
    there = Workloads(g0007=SimpleNamespace(queue="seventh"), g0009=SimpleNamespace(queue="ninth"))
    assert {queue: amounts.cards_thousandths for queue, amounts in promised(there).items()} == {
        "seventh": SEATS * 1000
    }


def test_a_large_gang_of_which_nobody_is_left_is_gone_through_once() -> None:
    nobody = Workloads()
    assert promised(nobody) == {}
    assert nobody.asked <= SEATS
