"""Which queue a pod belongs to, what its queue uses, and when the queue takes no more."""

import pytest

from tests.core.preempt.queueing import cards, limit, make_queue, make_workload, running, stand
from vgpu import names
from vgpu.core.preempt.facts import NOTHING, Amounts, Limits, QueueFact, StopPolicy
from vgpu.core.preempt.limits import cards_words
from vgpu.core.preempt.queues import find_queue, may_start, over_capability, queue_name, under_guarantee
from vgpu.core.preempt.usage import UNUSED, QueueUsage
from vgpu.core.reasons import Reason, Refusal

VOLCANO, KUEUE, KAI, OURS = names.QUEUE_KEYS


@pytest.mark.parametrize(
    ("labels", "annotations", "namespace_labels", "wanted"),
    [
        ({VOLCANO: "a", OURS: "b"}, {}, {}, "a"),
        ({KUEUE: "a"}, {VOLCANO: "b"}, {}, "b"),
        ({KAI: "a"}, {KAI: "b"}, {}, "a"),
        ({VOLCANO: ""}, {OURS: "b"}, {}, "b"),
        ({OURS: "a"}, {}, {OURS: "c"}, "a"),
        ({}, {}, {OURS: "c"}, "c"),
        ({}, {}, {KUEUE: "c"}, "default"),
        ({}, {}, {}, "default"),
    ],
)
def test_a_pod_names_its_queue_by_what_it_carries_already(
    labels: dict[str, str], annotations: dict[str, str], namespace_labels: dict[str, str], wanted: str
) -> None:
    assert queue_name(labels, annotations, namespace_labels) == wanted


def test_a_queue_that_does_not_exist_is_refused_by_name() -> None:
    found = find_queue("trian", {"train": make_queue("train")})
    assert isinstance(found, Refusal)
    assert found.reason is Reason.QUEUE_NOT_FOUND
    assert "trian" in found.message
    assert "train" in found.message.replace("trian", "")


def test_the_default_queue_entitles_to_nothing_and_forbids_nothing() -> None:
    queue = QueueFact("default")
    assert over_capability(queue, cards(1000), cards(1)) is None
    assert under_guarantee(queue, NOTHING, cards(1)) is None
    assert stand([queue], make_workload("w", "default")).entitled == frozenset()


def test_usage_is_split_into_what_is_entitled_and_what_is_borrowed() -> None:
    standing = stand(
        [make_queue(deserved=1)],
        running("first", size=1, created_seconds=1),
        running("second", size=0.5, created_seconds=2),
        running("going", size=2, terminating=True),
        make_workload("waits", size=0.25, created_seconds=3),
        make_workload("planned", size=1, active=False),
        promised=["planned"],
    )
    assert standing.usage_of("q") == QueueUsage(
        used=cards(3.5),
        leaving=cards(2),
        promised=cards(1),
        entitled=cards(1),
        pending=cards(1.25),
        pending_pods=2,
    )
    assert standing.usage_of("q").borrowed == cards(2.5)
    assert standing.usage_of("q").after(cards(1), freed=cards(0.5)) == cards(3)
    assert standing.usage_of("nobody's") == UNUSED


def test_a_stopped_queue_takes_nothing_new() -> None:
    for policy in (StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN):
        refusal = may_start("q", {"q": make_queue(stop_policy=policy)}, UNUSED, cards(1))
        assert refusal is not None
        assert refusal.reason is Reason.QUEUE_STOPPED


def test_a_queue_takes_work_up_to_its_capability_and_counts_what_is_promised() -> None:
    queues = {"q": make_queue(capability=limit(4))}
    assert may_start("q", queues, QueueUsage(used=cards(3)), cards(1)) is None
    assert may_start("q", queues, QueueUsage(used=cards(3), leaving=cards(1)), cards(2)) is None
    for usage in (QueueUsage(used=cards(3.5)), QueueUsage(used=cards(2), promised=cards(1.5))):
        refusal = may_start("q", queues, usage, cards(1))
        assert refusal is not None
        assert refusal.reason is Reason.QUEUE_CAPABILITY
        assert "4.5 cards of 4" in refusal.message


def test_nobody_is_told_to_wait_who_asks_for_more_than_the_queue_may_ever_use() -> None:
    refusal = may_start("q", {"q": make_queue(capability=limit(4))}, UNUSED, cards(5))
    assert refusal is not None
    assert refusal.message.startswith("asks for 5 cards of 4 that queue q may use at most; ask for less")


def test_a_capability_below_what_runs_refuses_only_what_would_add_to_it() -> None:
    queue = make_queue(capability=Limits(cores=100))
    assert over_capability(queue, Amounts(2000, 8, 200), Amounts(250, 8, 0)) is None
    assert over_capability(queue, Amounts(2000, 8, 200), Amounts(250, 8, 1)) is not None


def test_a_guarantee_counts_in_each_dimension_that_would_be_lost() -> None:
    queue = make_queue(guarantee=Limits(cards_thousandths=1000, cores=50))
    assert under_guarantee(queue, Amounts(1000, 0, 50), Amounts(500, 1, 1)) is None
    assert under_guarantee(queue, Amounts(1000, 0, 40), Amounts(500, 1, 0)) is None
    refusal = under_guarantee(queue, Amounts(1000, 0, 40), Amounts(500, 1, 10))
    assert refusal is not None
    assert refusal.reason is Reason.QUEUE_GUARANTEE
    assert "40 cores of 50" in refusal.message


@pytest.mark.parametrize(
    ("thousandths", "wanted"),
    [(0, "0"), (250, "0.25"), (1000, "1"), (1500, "1.5"), (10_001, "10.001"), (-250, "-0.25")],
)
def test_cards_are_written_as_people_write_them(thousandths: int, wanted: str) -> None:
    assert cards_words(thousandths) == wanted
