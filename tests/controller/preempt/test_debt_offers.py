"""In which order room is offered: rank, the oldest debt, age; within what the queues take; and who rests."""

from typing import Any

from tests.controller.cluster_facts import CARD_MIB
from tests.controller.kubernetes_json import encode
from tests.controller.preempt.recovery_world import JOB, World, bare_json, plan, running, waiting
from vgpu.controller.preempt.records import record_of
from vgpu.core.facts import PodFact
from vgpu.core.nomination import nominate
from vgpu.core.placement import Policies
from vgpu.core.preempt.facts import Debt, Limits, PlanPhase, PreemptedAction, QueueFact, StopPolicy
from vgpu.core.terms import OwnerRef

OTHER = OwnerRef("uid-other", "Job", "other", "batch/v1")
THIRD = OwnerRef("uid-third", "Job", "third", "batch/v1")


def owe(world: World, owner: OwnerRef, created: int, pods: int = 1) -> None:
    debt = Debt(owner.uid, owner.kind, "team", owner.name, "default", pods=pods, api_version=owner.api_version)
    owed = plan(name=f"plan-{owner.name}-{created}", created=created, debts=(debt,), phase=PlanPhase.CLOSED)
    world.recovery.plan_changed(f"team/{owed.name}", owed)


def offered(world: World, *pods: PodFact, limit: int = 20) -> list[str]:
    views = [view for name in sorted(world.ledger.nodes()) if (view := world.ledger.view(name)) is not None]
    found = nominate(views, pods, Policies(), limit, world.recovery.offers.turns())
    return [one.pod.name for one in found]


def test_s80_room_for_one_goes_to_the_higher_class_whatever_is_owed() -> None:
    world = World()
    low, high = waiting("low", JOB, priority=1), waiting("high", OTHER, priority=2)
    world.put(low, high)
    owe(world, JOB, 100)
    assert offered(world, low, high) == ["high"]


def test_s80_of_equal_ones_the_oldest_debt_is_served_first() -> None:
    world = World("n1", "n2", "n3")
    new = waiting("new", THIRD, created_seconds=1)
    old, young = waiting("old", JOB, created_seconds=8_000), waiting("young", OTHER, created_seconds=7_000)
    world.put(new, old, young)
    owe(world, JOB, 100)
    owe(world, OTHER, 200)
    assert offered(world, new, young, old) == ["old", "young", "new"]


def test_entitled_comes_before_priority() -> None:
    world = World()
    world.roster.put_queue(QueueFact("mine", deserved=Limits(cards_thousandths=1000)))
    entitled = waiting("entitled", JOB, priority=1, queue="mine")
    strong = waiting("strong", OTHER, priority=9)
    world.put(entitled, strong)
    assert offered(world, entitled, strong) == ["entitled"]


def test_the_priority_of_a_queue_comes_before_that_of_a_class() -> None:
    world = World()
    world.roster.put_queue(QueueFact("first", priority=5))
    ours, strong = waiting("ours", JOB, priority=1, queue="first"), waiting("strong", OTHER, priority=9)
    world.put(ours, strong)
    assert offered(world, ours, strong) == ["ours"]


def test_a_stopped_queue_is_offered_nothing() -> None:
    world = World()
    world.roster.put_queue(QueueFact("held", stop_policy=StopPolicy.HOLD))
    held, other = waiting("held", JOB, priority=9, queue="held"), waiting("other", OTHER)
    lost = waiting("lost", THIRD, priority=99, queue="nowhere")
    world.put(held, other, lost)
    assert offered(world, lost, held, other) == ["other"]


def test_a_queue_is_offered_no_more_than_its_capability_leaves() -> None:
    world = World("n1", "n2", "n3")
    world.roster.put_queue(QueueFact("capped", capability=Limits(cards_thousandths=1000)))
    pods = [waiting(f"p{i}", JOB, queue="capped") for i in range(3)]
    other = waiting("other", OTHER, priority=-1)
    world.put(*pods, other)
    assert offered(world, *pods, other) == ["p0", "other"]


def test_s77_who_was_evicted_is_served_before_its_equals_but_never_before_the_next_class() -> None:
    world = World()
    often, equal = waiting("often", JOB, priority=1), waiting("equal", OTHER, priority=1, created_seconds=1)
    next_class = waiting("next", THIRD, priority=2)
    world.put(often, equal, next_class)
    for created in (100, 200, 300):
        owe(world, JOB, created)
    assert world.roster.workloads["uid-often"].evictions == 3
    assert offered(world, equal, often) == ["often"]
    assert offered(world, often, next_class) == ["next"]


def test_no_more_pods_of_an_owner_are_owed_than_it_lost() -> None:
    world = World()
    world.put(*(waiting(f"p{i}", JOB, created_seconds=i) for i in range(4)))
    owe(world, JOB, 100, pods=2)
    assert world.recovery.offers.owed() == {"uid-p2", "uid-p3"}
    assert not world.recovery.offers.owes("uid-p0")


def test_s76_backoff_grows_with_tries_and_evictions_and_ends_when_room_comes() -> None:
    world = World()
    world.roster.put_queue(QueueFact("default", backoff_base_seconds=10, backoff_max_seconds=40))
    world.put(waiting("p", JOB))
    owe(world, JOB, 100)
    owe(world, JOB, 200)
    offers = world.recovery.offers
    assert not offers.rests("uid-p")
    assert offers.failed("uid-p") == 20
    assert offers.rests("uid-p")
    offers.room_came()
    assert offers.rests("uid-p"), "at the same moment: it is what failed just now"
    world.clock.now += 1
    offers.room_came()
    assert not offers.rests("uid-p")
    assert offers.failed("uid-p") == 40
    world.clock.now += 39
    assert offers.rests("uid-p")
    world.clock.now += 1
    assert not offers.rests("uid-p")
    assert offers.failed("uid-p") is None, "at its maximum only room brings the next try"


async def test_on_preempted_fail_nothing_is_owed() -> None:
    """Its controller may create pods again: they wait like any new pod."""
    world = World()
    world.roster.put_queue(QueueFact("default", on_preempted=PreemptedAction.FAIL))
    world.put(running("old", JOB))
    world.evict(plan("uid-old"), "uid-old")
    world.put(waiting("new", JOB))
    assert world.recovery.offers.owed() == frozenset()
    assert world.end(plan("uid-old")).debts == ()


def test_an_absent_pod_has_its_place_among_those_that_wait() -> None:
    world = World()
    small = waiting("small", JOB, memory_mib=CARD_MIB, priority=-1)
    world.put(small)
    ghost = waiting("ghost", OwnerRef(), priority=5)
    assert offered(world, small, ghost) == ["ghost"]


def absent(
    world: World, name: str = "bare", made: int = 10_000, created: str = "2020-01-01", **spec: Any
) -> PodFact:
    """A bare pod was evicted by a plan of this moment."""
    pod = bare_json(name)
    pod["metadata"]["creationTimestamp"] = f"{created}T00:00:00Z"
    pod["spec"] |= spec
    uid = f"uid-{name}"
    owed = plan(uid, name=f"plan-{name}", created=made, records=((uid, record_of(encode(pod))),))
    world.recovery.plan_changed(f"team/{owed.name}", owed)
    world.recovery.start_over()
    return next(one for one in world.recovery.offers.absent() if one.uid == uid)


async def test_s80_s81_an_absent_pod_is_entitled_as_if_it_waited() -> None:
    """The class goes before what the queue is said to owe to those that are there."""
    world = World()
    world.roster.put_queue(QueueFact("default", deserved=Limits(cards_thousandths=1000)))
    low = waiting("low", JOB, priority=5)
    world.put(low)
    assert "uid-low" in world.roster.standing().entitled
    bare = absent(world, priority=10)
    assert offered(world, low, bare) == ["bare"]
    assert "uid-low" in world.roster.standing().entitled, "it takes nothing from who is there"


async def test_s80_s81_of_equal_ones_the_oldest_debt_is_served_first_also_where_the_pod_is_absent() -> None:
    world = World("n1", "n2", "n3")
    waits = waiting("waits", JOB, priority=10, created_seconds=1)
    world.put(waits)
    young = absent(world, "young", made=200, created="2020-01-01")
    old = absent(world, "old", made=100, created="2021-01-01")
    assert offered(world, waits, young, old) == ["old", "young", "waits"]


async def test_s80_s81_of_equal_ones_the_absent_pod_is_entitled_by_its_age() -> None:
    world = World()
    world.roster.put_queue(QueueFact("default", deserved=Limits(cards_thousandths=1000)))
    moment_2020 = 1_577_836_800
    waits = waiting("waits", JOB, priority=10, created_seconds=moment_2020 + 1)
    older = waiting("older", OTHER, priority=10, created_seconds=moment_2020 - 1)
    bare = absent(world, priority=10)
    world.put(waits)
    assert offered(world, waits, bare) == ["bare"]
    world.put(older)
    assert offered(world, older, waits, bare) == ["older"]


async def test_what_its_queue_deserves_counts_for_an_absent_pod_as_it_stands() -> None:
    world = World()
    rival = waiting("rival", JOB, priority=20, queue="other")
    world.roster.put_queue(QueueFact("other"))
    world.put(rival)
    bare = absent(world, priority=10)
    assert offered(world, rival, bare) == ["rival"]
    world.roster.put_queue(QueueFact("default", deserved=Limits(cards_thousandths=1000)))
    assert offered(world, rival, bare) == ["bare"]
    world.put(waiting("strong", OTHER, priority=11))
    assert offered(world, rival, bare) == ["rival"]


async def test_s77_nobody_is_aged_past_the_class_of_an_absent_pod() -> None:
    world = World()
    often = waiting("often", JOB, priority=9)
    world.put(often)
    for created in (100, 200, 300):
        owe(world, JOB, created)
    assert offered(world, often, absent(world, priority=10)) == ["bare"]


async def test_an_absent_pod_that_would_not_be_created_now_is_not_counted_on() -> None:
    world = World()
    bare, offers = absent(world), world.recovery.offers
    assert offers.absent_now() == [bare]
    offers.failed(bare.uid)
    assert offers.absent_now() == [], "it rests"
    world.clock.now += 1
    offers.room_came()
    assert offers.absent_now() == [bare]
    world.roster.put_queue(QueueFact("default", stop_policy=StopPolicy.HOLD))
    assert offers.absent_now() == []
