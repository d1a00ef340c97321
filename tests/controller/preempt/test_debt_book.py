"""Who is owed what, from plans alone: paid oldest first, forgiven newest first, gone when all is paid."""

from dataclasses import replace

from tests.controller.preempt.recovery_world import plan
from vgpu.controller.preempt.debt_book import DebtBook
from vgpu.core.preempt.facts import Debt, PlanFact, PlanPhase


def debt(uid: str = "job", pods: int = 1) -> Debt:
    return Debt(uid, "Job", "team", uid, "low", pods=pods)


def closed(name: str, created: int, *debts: Debt) -> PlanFact:
    return plan(name=name, created=created, debts=debts, phase=PlanPhase.CLOSED)


def book_of(*plans: PlanFact) -> DebtBook:
    book = DebtBook()
    for one in plans:
        book.put(one)
    return book


def test_the_oldest_debt_is_paid_first_and_its_plan_may_go() -> None:
    book = book_of(closed("young", 200, debt()), closed("old", 100, debt()))
    assert book.owed_since("job") == 100
    assert book.take_paid() == []
    book.pay("job")
    assert book.take_paid() == ["team/old"]
    assert book.owed_since("job") == 200


def test_each_plan_tells_what_it_still_owes_to_whom() -> None:
    book = book_of(closed("young", 200, debt(pods=2)), closed("old", 100, debt(pods=3), debt("other")))
    book.pay("job", 2)
    book.settle("other")
    assert sorted((plan, one.uid, one.pods) for plan, one in book.open_by_plan()) == [
        ("team/old", "job", 1),
        ("team/young", "job", 2),
    ]


def test_a_living_plan_is_never_among_the_paid() -> None:
    book = book_of(plan(debts=(debt(),)))
    book.pay("job")
    assert book.is_paid("team/plan")
    assert book.take_paid() == []
    book.put(plan(debts=(debt(),), phase=PlanPhase.ABORTED))
    assert book.take_paid() == ["team/plan"]


def test_what_the_owner_does_not_lack_is_forgiven_the_newest_first() -> None:
    book = book_of(closed("old", 100, debt(pods=2)), closed("young", 200, debt(pods=2)))
    book.limit("job", 3)
    assert book.owed_pods("job") == 3
    book.limit("job", 1)
    assert (book.owed_pods("job"), book.owed_since("job")) == (1, 100)
    book.settle("job")
    assert not book.owes("job")


def test_more_evictions_of_one_plan_raise_its_debt_and_keep_what_was_paid() -> None:
    book = book_of(plan(debts=(debt(),)))
    book.pay("job")
    assert book.put(plan(debts=(debt(pods=3),))) == {"job"}
    assert book.owed_pods("job") == 2
    assert book.put(plan(debts=(debt(pods=3),))) == frozenset()


def test_after_a_restart_pods_that_run_since_then_have_paid() -> None:
    plans = closed("old", 100, debt()), closed("young", 200, debt())
    for moments, left in ([(50,), 2], [(150,), 1], [(150, 160), 1], [(250,), 1], [(250, 260), 0]):
        book = book_of(*plans)
        book.paid_since("job", moments)
        assert book.owed_pods("job") == left, moments


def test_evictions_are_counted_by_plan_and_remembered_after_the_debt_is_paid() -> None:
    book = book_of(closed("one", 100, debt()), replace(closed("two", 200, debt()), uid="uid-two"))
    assert book.evictions("job") == 2
    book.put(closed("one", 100, debt()))
    book.drop("team/one")
    assert book.evictions("job") == 2


def test_a_dropped_plan_owes_nothing() -> None:
    book = book_of(closed("one", 100, debt()))
    book.drop("team/one")
    assert (book.creditors(), book.owed_since("job"), book.debt("job")) == ([], None, None)


def test_a_plan_of_the_same_name_is_another_one_by_its_uid() -> None:
    book = book_of(closed("one", 100, debt("job")))
    book.put(replace(closed("one", 300, debt("other")), uid="uid-next"))
    assert book.creditors() == ["other"]
