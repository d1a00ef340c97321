"""What was learnt about one plan never applies to another, though it has the same name."""

from typing import Any

import pytest

from tests.controller.preempt.planner_world import Api, Process, World, whole
from tests.controller.preempt.test_planner import BUDGET, fill, play
from vgpu.controller.preempt.bodies import PreemptionWrite
from vgpu.core.preempt.facts import QueueFact
from vgpu.errors import ApiUnavailable
from vgpu.kube.objects import Key


def name_all_alike(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan of one owner gets one name, and the watch shows each object, however short it lives."""
    writer: Any = process.writer
    create, delete = writer._create, writer._delete
    monkeypatch.setattr(process.preemption.book, "next_generation", lambda *_: 1)

    def created(write: PreemptionWrite) -> Any:
        made = create(write)
        process._hear_plans()
        return made

    def deleted(plan: Key) -> None:
        delete(plan)
        process._hear_plans()

    writer._create, writer._delete = created, deleted


def test_a_budget_that_refused_for_one_plan_is_asked_again_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        fill(world, 1)
        for number in range(3):
            world.low(f"k{number}", priority=100)
        process = await world.begin()
        name_all_alike(process, monkeypatch)
        world.api.raises["evict"] = [ApiUnavailable(429, "TooManyRequests", BUDGET) for _ in range(3)]
        world.high("h")
        await world.until(lambda: world.bound("uid-h"), "h to be bound", 900)
        assert world.api.evictions == ["uid-l0"]
        assert world.api.made == 2

    play(scenario)


def test_who_was_spared_for_one_plan_is_not_spared_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes the plan's object, and the next plan needs all of its victims."""

    async def scenario(world: World) -> None:
        fill(world, 2)
        process = await world.begin()
        name_all_alike(process, monkeypatch)
        book = process.preemption.book
        world.high("h", whole(2))
        await world.until(lambda: len(book.all_living()) == 1, "a plan")
        (first,) = book.all_living()
        assert len(first.victims) == 2
        name = f"{first.namespace}/{first.name}"
        book.spare(name, frozenset({"uid-l0"}))
        ((hold),) = process.ledger.plans.all()
        assert "uid-l0" not in {uid for uid, _ in hold.victims}
        world.api.plans[first.namespace, first.name]["metadata"]["uid"] = "another"
        (second,) = world.api.facts()
        book.put(second)
        ((hold),) = process.ledger.plans.all()
        assert "uid-l0" in {uid for uid, _ in hold.victims}

    play(scenario, Api(nodes={"n1": 2}, queues=[QueueFact("default", max_in_flight=0)]))
