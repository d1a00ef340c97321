"""What comes back, in which order, and when: debts, offers, backoff, broken gangs."""

from dataclasses import replace

from tests.core.building import (
    POLICIES,
    bound_pod,
    holds,
    make_ledger,
    make_node,
    make_request,
    pending_pod,
    share,
    want,
)
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.debts import OwnerNow, creditor, creditor_of, debts_of, is_owed, merged, open_debts
from vgpu.core.preempt.facts import NOTHING, Debt, PreemptedAction, QueueFact, Workload
from vgpu.core.preempt.rank import Rank, Service
from vgpu.core.preempt.recovery import (
    Attempt,
    Claim,
    claim_order,
    is_due,
    next_try_seconds,
    offer,
    released_of_broken_gang,
    tries_by_itself,
)
from vgpu.core.preempt.swaps import Swap, frozen_until, recent
from vgpu.core.terms import OwnerRef
from vgpu.core.views import NodeView

WHOLE = make_request(want(1))
JOB = OwnerRef("uid-job", "Job", "train")


def make_workload(uid: str, **fields: object) -> Workload:
    given = {"namespace": "team", "name": uid, "queue": "low", "priority": 10, "created_seconds": 0, **fields}
    return Workload(uid=uid, amounts=NOTHING, claim=NOTHING, **given)  # type: ignore[arg-type]


def view_of(ledger: Ledger) -> NodeView:
    ledger.put_node(make_node(pods=100))
    view = ledger.view("n1")
    assert view is not None
    return view


def claim(
    *uids: str, minimum: int = 1, priority: int = 0, owed: int | None = None, entitled: bool = False
) -> Claim:
    workload = make_workload(uids[0], priority=priority)
    service = Service({"low": QueueFact("low")}, {uids[0]} if entitled else set(), [priority])
    order = claim_order(service, workload, owed)
    return Claim(tuple(pending_pod(uid, WHOLE) for uid in uids), minimum, order)


def offered(*claims: Claim, cards: int = 1) -> list[str]:
    return [nomination.pod.uid for nomination in offer(claims, [view_of(make_ledger(cards=cards))], POLICIES)]


def test_s80_room_for_one_goes_to_the_higher_rank() -> None:
    assert offered(claim("a", priority=1, owed=5), claim("b", priority=2, owed=9)) == ["b"]
    assert offered(claim("a", priority=9), claim("b", priority=1, entitled=True)) == ["b"]


def test_s80_equal_ranks_are_served_by_the_oldest_debt() -> None:
    assert offered(claim("a", owed=9), claim("b", owed=5), claim("c")) == ["b"]
    assert offered(claim("a"), claim("b", owed=5), cards=2) == ["b", "a"]


def test_s67_who_may_evict_nobody_is_first_when_room_comes_by_its_rank() -> None:
    assert offered(claim("low", priority=1, owed=1), claim("never", priority=5)) == ["never"]


def test_s56_an_evicted_gang_stays_down_until_its_minimum_fits() -> None:
    gang = claim("g1", "g2", "g3", minimum=3, priority=5)
    assert offered(gang, cards=2) == []
    assert offered(gang, cards=3) == ["g1", "g2", "g3"]


def test_s56_a_gang_that_does_not_fit_leaves_the_room_to_others() -> None:
    assert offered(claim("g1", "g2", "g3", minimum=3, priority=5), claim("a"), cards=2) == ["a"]


def test_s53_the_surplus_of_a_gang_takes_only_what_is_idle() -> None:
    assert offered(claim("g1", "g2", "g3", minimum=2, priority=5), cards=2) == ["g1", "g2"]


def test_a_queue_at_its_limit_is_passed_over() -> None:
    views = [view_of(make_ledger(cards=2))]
    claims = [claim("a", priority=2), claim("b", priority=1)]
    found = offer(claims, views, POLICIES, lambda served, one: not served)
    assert [nomination.pod.uid for nomination in found] == ["a"]


def test_many_equal_claims_get_each_card_once() -> None:
    found = offer([claim(f"p{i}") for i in range(50)], [view_of(make_ledger(cards=4))], POLICIES)
    cards = [card.uuid for n in found for container in n.placement.containers for card in container.cards]
    assert sorted(cards) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_what_a_leaving_pod_still_holds_is_not_offered() -> None:
    ledger = make_ledger(bound_pod("l", holds(share("GPU-0", 24_000, whole=True)), terminating=True), cards=1)
    assert offer([claim("a")], [view_of(ledger)], POLICIES) == []


def test_s76_backoff_grows_up_to_its_maximum() -> None:
    queue = QueueFact("low", backoff_base_seconds=10, backoff_max_seconds=300)
    assert [next_try_seconds(Attempt(tries, 1000), queue) for tries in (1, 2, 3, 6, 60)] == [
        1010, 1020, 1040, 1300, 1300,
    ]  # fmt: skip


def test_s10_s76_a_capacity_event_overrides_the_backoff() -> None:
    queue, attempt = QueueFact("low"), Attempt(3, 1000)
    assert not is_due(attempt, queue, capacity_seconds=1000, now_seconds=1039)
    assert is_due(attempt, queue, capacity_seconds=1000, now_seconds=1040)
    assert is_due(attempt, queue, capacity_seconds=1001, now_seconds=1001)
    assert is_due(None, queue, capacity_seconds=0, now_seconds=0)


def test_s51_a_broken_gang_is_released_after_the_grace() -> None:
    assert released_of_broken_gang(["a", "b"], 3, 100, 60, 159) == ()
    assert released_of_broken_gang(["a", "b"], 3, 100, 60, 160) == ("a", "b")
    assert released_of_broken_gang(["a", "b", "c"], 3, 100, 60, 999) == ()


def test_a_debt_names_the_owner_how_many_pods_and_what_was_lost() -> None:
    victims = [
        make_workload("a", owner=JOB, started_seconds=100),
        make_workload("b", owner=JOB, started_seconds=100, checkpoint_seconds=180),
        make_workload("bare", started_seconds=150),
    ]
    assert debts_of(victims, {"a": Rank(entitled=False, priority=10)}, 200) == (
        Debt("uid-job", "Job", "team", "train", "low", "not entitled, priority 10", 2, 100 + 20),
        Debt("bare", "Pod", "team", "bare", "low", "", 1, 50),
    )


def test_debts_of_later_evictions_add_up() -> None:
    one = debts_of([make_workload("a", owner=JOB, started_seconds=100)], {}, 200)
    assert merged(one, one) == (replace(one[0], pods=2, lost_seconds=200),)


def test_a_debt_is_closed_when_the_replicas_are_back_or_the_owner_is_gone() -> None:
    debts = debts_of([make_workload(uid, owner=JOB, started_seconds=100) for uid in "abc"], {}, 200)
    assert open_debts(debts, {"uid-job": OwnerNow(missing_pods=2)})[0].pods == 2
    assert open_debts(debts, {"uid-job": OwnerNow(missing_pods=9)})[0].pods == 3
    assert open_debts(debts, {"uid-job": OwnerNow(missing_pods=0)}) == ()
    assert open_debts(debts, {}) == ()


def test_s78_a_pair_that_swaps_three_times_is_frozen_until_the_window_has_passed() -> None:
    swaps = [Swap("a", "b", 1000), Swap("b", "a", 1100), Swap("a", "c", 1150), Swap("a", "b", 1200)]
    assert frozen_until(swaps, "b", "a", 1200) == 1600
    assert frozen_until(swaps, "a", "b", 1600) is None
    assert frozen_until(swaps, "a", "c", 1200) is None
    assert frozen_until(swaps[:3], "a", "b", 1200) is None
    assert recent(swaps, 1700) == (swaps[2], swaps[3])


def test_s76_tries_by_themselves_end_with_the_longest_backoff() -> None:
    queue = QueueFact("low", backoff_base_seconds=10, backoff_max_seconds=300)
    assert [tries_by_itself(tries, queue) for tries in (1, 5, 6, 7, 60)] == [True, True, True, False, False]
    same = QueueFact("low", backoff_base_seconds=10, backoff_max_seconds=10)
    assert [tries_by_itself(tries, same) for tries in (1, 2)] == [True, False]


def test_a_creditor_outlives_its_pods() -> None:
    job, bare = debts_of([make_workload("a", owner=JOB), make_workload("bare")], {}, 200)
    assert creditor_of(job) == creditor("team", "b", "uid-job") == "uid-job"
    assert creditor_of(bare) == creditor("team", "bare", "") == "team/bare"


def test_a_queue_with_on_preempted_fail_is_owed_nothing() -> None:
    victim = make_workload("a", owner=JOB)
    assert is_owed(victim, QueueFact("low"))
    assert is_owed(victim, None)
    assert not is_owed(victim, QueueFact("low", on_preempted=PreemptedAction.FAIL))
