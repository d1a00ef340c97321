"""An owner learns from plans that came to nothing, and rests where they do so again and again."""

from vgpu.controller.preempt.lessons import (
    FIRST_REST_SECONDS,
    FREE_TRIES,
    KEPT_SECONDS,
    LONGEST_REST_SECONDS,
    Lessons,
)
from vgpu.core.preempt.decision_world import NOTHING_LEARNT
from vgpu.core.preempt.plan import End, PlanEnd

REFUSED = End(PlanEnd.DISRUPTION_BUDGET, "", replan=True, avoid_victims=frozenset({"v"}))
LOST = End(PlanEnd.LOST_OTHER, "", replan=True, avoid_nodes=frozenset({"n"}))


def there(_: str) -> bool:
    return True


def test_what_was_refused_is_left_alone_for_a_while() -> None:
    lessons = Lessons()
    lessons.note(["h"], REFUSED, 100)
    lessons.note(["h"], LOST, 100)
    avoid = lessons.avoid(["h"], 101, there)
    assert avoid.victims == {"v"}
    assert avoid.nodes == {"n"}
    assert lessons.wakes_at(["h"], 101) == 100 + KEPT_SECONDS
    assert lessons.avoid(["h"], 100 + KEPT_SECONDS, there) == NOTHING_LEARNT
    assert lessons.avoid(["other"], 101, there) == NOTHING_LEARNT


def test_a_victim_that_is_gone_and_a_budget_that_changed_are_no_obstacle() -> None:
    lessons = Lessons()
    lessons.note(["h"], REFUSED, 100)
    assert lessons.avoid(["h"], 101, lambda uid: False).victims == set()
    lessons.forgive_victims()
    assert lessons.avoid(["h"], 101, there) == NOTHING_LEARNT


def test_who_fails_again_and_again_rests_longer_each_time() -> None:
    lessons, rests = Lessons(), []
    for _ in range(FREE_TRIES + 8):
        lessons.note(["h"], LOST, 100)
        rests.append((lessons.rests_until(["h"], 100) or 100) - 100)
    assert rests[:FREE_TRIES] == [0] * FREE_TRIES
    assert rests[FREE_TRIES : FREE_TRIES + 3] == [FIRST_REST_SECONDS << doubled for doubled in range(3)]
    assert rests[-1] == LONGEST_REST_SECONDS


def test_an_end_that_nobody_is_to_try_again_costs_a_rest_at_once_and_an_innocent_one_none() -> None:
    lessons = Lessons()
    lessons.note(["h"], End(PlanEnd.TAKEN_OVER, "", replan=True), 100)
    assert lessons.rests_until(["h"], 100) is None
    lessons.note(["h"], End(PlanEnd.BIND_FAILED, ""), 100)
    assert lessons.rests_until(["h"], 100) == 100 + FIRST_REST_SECONDS
    lessons.forget("h")
    assert lessons.rests_until(["h"], 100) is None
