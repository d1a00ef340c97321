"""The standing kept from events is the one worked out from nothing."""

from dataclasses import replace
from random import Random

import pytest

from tests.core.preempt.contest import Rules, random_contest
from tests.core.preempt.queueing import cards, limit, make_queue, make_workload, running
from vgpu.core.preempt.eligible import Standing, standing_of
from vgpu.core.preempt.facts import QueueFact, StopPolicy, Workload
from vgpu.core.preempt.queue_book import QueueBook


def first_difference(seed: int) -> str:
    """Random events on the workloads of a random contest; "" when the book was right after each."""
    random = Random(seed)
    contest = random_contest(seed, Rules())
    queues = {name: _maybe_capped(random, queue) for name, queue in contest.queues.items()}
    workloads = dict(contest.workloads)
    spare = list(workloads.values())
    book, there = QueueBook(), dict[str, Workload]()
    promised: set[str] = set()
    for queue in queues.values():
        book.put_queue(queue)
    for step in range(40):
        _one_event(random, (book, there, queues, promised), spare)
        if random.random() < 0.7 and book.standing() != standing_of(queues, there.values(), promised):
            return f"seed {seed}, step {step}"
    return ""


def _maybe_capped(random: Random, queue: QueueFact) -> QueueFact:
    return replace(queue, capability=random.choice([queue.capability, limit(random.randint(0, 6))]))


def _one_event(
    random: Random,
    world: tuple[QueueBook, dict[str, Workload], dict[str, QueueFact], set[str]],
    spare: list[Workload],
) -> None:
    book, there, queues, promised = world
    workload = random.choice(spare)
    match random.randrange(6):
        case 0:
            there.pop(workload.uid, None)
            book.drop(workload.uid)
        case 1:
            promised ^= {workload.uid}
            book.promise(promised)
        case 2:
            name = random.choice(sorted(queues))
            queues[name] = replace(queues[name], stop_policy=random.choice(list(StopPolicy)))
            book.put_queue(queues[name])
        case _:
            runs = random.random() < 0.5
            changed = replace(
                there.get(workload.uid, workload),
                running=runs,
                terminating=runs and random.random() < 0.3,
                active=random.random() < 0.8,
                amounts=cards(random.randint(1, 3)),
                queue=random.choice([workload.queue] * 5 + sorted(queues) + ["gone"]),
            )
            there[workload.uid] = changed
            book.put(changed)


def test_the_book_is_right_after_every_event() -> None:
    assert [found for seed in range(150) if (found := first_difference(seed))] == []


def test_a_walk_that_is_left_out_wrongly_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueBook, "_may_move_marks", lambda *_: False)
    assert any(first_difference(seed) for seed in range(20))


def test_a_newcomer_that_is_passed_by_wrongly_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpu.core.preempt.queue_book._Page.passes_by", lambda *_: True)
    assert any(first_difference(seed) for seed in range(20))


def test_who_may_start_again_and_is_not_noticed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a queue's capability held him back."""
    monkeypatch.setattr(QueueBook, "_crowded", lambda *_: False)
    assert any(first_difference(seed) for seed in range(60))


def test_a_queue_that_goes_leaves_its_workloads_without_a_right() -> None:
    book = QueueBook()
    book.put_queue(make_queue(deserved=1))
    book.put(running("w"))
    assert book.standing().entitled == {"w"}
    book.drop_queue("q")
    standing = book.standing()
    assert standing.entitled == frozenset()
    assert standing.usage_of("q").used == standing.usage_of("q").borrowed == cards(1)


def test_an_empty_book_stands_like_nothing() -> None:
    book = QueueBook()
    book.drop("unknown")
    book.drop_queue("unknown")
    assert book.standing() == Standing()


def test_a_pod_is_charged_to_one_queue_only() -> None:
    book = QueueBook()
    book.put(make_workload("w", "a"))
    book.put(make_workload("w", "b"))
    assert set(book.standing().usage) == {"b"}


def test_what_is_held_for_pods_to_come_is_promised_in_their_queue_alone() -> None:
    book = QueueBook()
    for name in ("q", "other"):
        book.put_queue(make_queue(name, 4))
        book.put(make_workload(f"w-{name}", name))
    before = book.usage("q")
    book.promise({"w-q"}, {"q": cards(2)})
    assert (book.usage("q").promised, book.usage("other").promised) == (cards(3), cards(0))
    assert book.usage("q", without_promise="w-q").promised == cards(2)
    assert book.standing().usage_of("q").promised == cards(3)
    book.promise(())
    assert (book.usage("q"), book.standing().usage_of("q")) == (before, before)
