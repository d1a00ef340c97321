"""S87: T1 to T4 hold after every event of random runs, and each of them fails with the rule off that it guards."""

from collections.abc import Callable

import pytest

from tests.core.preempt.plan_cluster import PlanCluster
from tests.core.preempt.plan_soak import Soak
from vgpu.core import search, site
from vgpu.core.fit import bases_of
from vgpu.core.ledger import Ledger
from vgpu.core.preempt import leftover, needed, situation
from vgpu.core.preempt.reservations import PlanHolds

SEEDS = 25
STEPS = 150


def first_failure(make: Callable[[], Ledger] = Ledger, seeds: int = SEEDS) -> str:
    """What the checks say to the first of the runs that fails, "" when none does."""
    for seed in range(seeds):
        try:
            Soak(seed, make).run(STEPS)
        except AssertionError as error:
            return str(error)
    return ""


def test_s87_plans_hold_their_promises_whatever_happens() -> None:
    assert sum(Soak(seed).run(STEPS) for seed in range(SEEDS)) > SEEDS


def test_s87_equal_seeds_give_equal_runs() -> None:
    one, other = Soak(7), Soak(7)
    one.run(STEPS)
    other.run(STEPS)
    assert one.cluster.evictions == other.cluster.evictions
    assert one.cluster.pods == other.cluster.pods


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_s87_plans_hold_their_promises_in_the_long_run() -> None:
    assert sum(Soak(seed).run(400) for seed in range(1000, 1300)) > 3000


def test_t1_fails_when_a_leaving_pod_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = site.is_live_gpu_pod
    monkeypatch.setattr(site, "is_live_gpu_pod", lambda pod: real(pod) and not pod.terminating)
    assert "T1" in first_failure()


def test_t2_fails_when_what_is_held_for_others_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "bases_of", lambda card, others: bases_of(card))
    assert "T2" in first_failure()


def test_t2_fails_when_a_restart_forgets_what_plans_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(cluster: PlanCluster) -> None:
        real(cluster)
        for hold in list(cluster.ledger.plans.all()):
            cluster.ledger.plans.drop(hold.plan)

    real = PlanCluster.restart
    monkeypatch.setattr(PlanCluster, "restart", forgetful)
    assert "T2" in first_failure()


def test_t2_fails_when_the_empty_seats_of_a_gang_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlanHolds, "_is_empty", lambda *given: False)
    assert "T2" in first_failure()


def test_t2_fails_when_victims_are_spared_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needed, "fits_later", lambda *given: True)
    assert "T2" in first_failure()


def test_t2_fails_when_what_others_took_over_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftover, "fits_later", lambda *given: True)
    assert "T2" in first_failure()


def test_t3_fails_when_reservations_outlive_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlanHolds, "_counts", lambda *given: True)
    assert "T3" in first_failure()


def test_t4_fails_when_nobody_takes_an_empty_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(situation, "takers", lambda *given: {})
    assert "T4" in first_failure()


def test_t4_fails_when_free_cards_are_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(situation, "fits_now", lambda *given: False)
    assert "T4" in first_failure()
