"""S76-S85: who was evicted comes back, in which order, and what everyone is told."""

import pytest

from tests.cluster.preempt.objects import HIGH, LOW, MIDDLE, Ask, Kind
from tests.cluster.preempt.stage import Case

pytestmark = pytest.mark.cluster


def two_queues(case: Case, cards: int = 4) -> tuple[Kind, Kind]:
    """Victims of a queue that deserves nothing, and preemptors of one that deserves everything."""
    low, high = case.queue("low"), case.queue("high", deserved={"cards": str(cards)})
    return Kind(queue=low, priority=LOW), Kind(queue=high, priority=HIGH)


def test_s76_who_was_evicted_again_and_again_returns_as_soon_as_there_is_room(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    case.run("low", low)
    for number in range(3):
        case.pod(f"h{number}", high)
        case.wait_bound(f"h{number}")
        case.delete(f"h{number}")
        case.wait_running("low", 1)
    assert len(case.evictions()) == 3


def test_s80_room_for_one_of_two_goes_to_the_higher_class(case: Case) -> None:
    case.node(2)
    low, high = two_queues(case)
    case.run("low", low)
    case.run("middle", low.but(priority=MIDDLE))
    case.pod("h", high.but(ask=Ask(number=2)))
    case.wait_bound("h")
    case.pod("one", high)
    case.delete("h")
    case.wait_bound("one")
    case.wait_running("middle", 1)
    assert case.running("low") == {}


def test_s81_a_bare_pod_is_not_evicted(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    case.pod("bare", low)
    case.wait_bound("bare")
    case.pod("h", high)
    case.wait_told("h", "NeverAVictim")
    assert case.evictions() == []


def test_s82_a_job_that_ignores_disruptions_does_not_count_the_eviction(case: Case) -> None:
    """Its limit is 0: one failure that counted would end it."""
    case.node(1)
    low, high = two_queues(case)
    case.start_job("train", low, backoff_limit=0)
    case.wait(lambda: len(case.running()) == 1, "the Job's pod to run")
    case.pod("h", high)
    case.wait_bound("h")
    assert len(case.evictions()) == 1
    case.delete("h")
    case.wait(lambda: any(name.startswith("train-") for name in case.running()), "the Job's next pod to run")


def test_s84_victim_and_preemptor_are_told_of_each_other_and_by_which_rule(case: Case) -> None:
    case.node(1)
    low, high = two_queues(case)
    [victim] = case.run("low", low)
    case.pod("h", high)
    case.wait_bound("h")
    case.wait(lambda: about(case, victim) != "", "the victim's event")
    case.wait(lambda: victim in about(case, "h"), "the preemptor's event to name the victim")
    assert f"{case.namespace}/h" in about(case, victim)
    assert "ReclaimAcrossQueues" in about(case, victim)
    assert "ReclaimAcrossQueues" in about(case, "h")


def about(case: Case, name: str) -> str:
    """What our events say about a pod of this name, whether it still is or not."""
    found = (event for event in case.events() if event["involvedObject"]["name"] == name)
    return "\n".join(f"{event['reason']}: {event['message']}" for event in found)


def beside_what_is_shown(case: Case) -> list[str]:
    """What was written, without the statuses that tell a little later what runs."""
    shown = ("patch gpuqueues/status", "patch gpunodeinventories/status")
    return [write for write in case.writes() if not write.startswith(shown)]


def test_s26_s85_what_if_names_the_plan_that_is_then_carried_out_and_writes_nothing(case: Case) -> None:
    case.node()
    low, high = two_queues(case)
    case.run("low", low.but(ask=Ask(number=4, percent=25, cores=25)), 4)
    big = high.but(ask=Ask(number=4, percent=60, cores=60))
    before = beside_what_is_shown(case)
    first, second = case.what_if("h", big), case.what_if("h", big)
    assert beside_what_is_shown(case) == before
    foretold = {victim["pod"].partition("/")[2] for victim in first["victims"]}
    assert len(foretold) == 3
    assert (first["seats"], first["exact"], foretold) == (
        second["seats"],
        second["exact"],
        {victim["pod"].partition("/")[2] for victim in second["victims"]},
    )
    case.pod("h", big)
    case.wait_bound("h")
    assert set(case.evictions()) == foretold
    assert case.cards("h") == sorted(card["uuid"] for seat in first["seats"] for card in seat["cards"])
