"""What was evicted comes back: debts live from the eviction until the pods are back, and no plan stays behind."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.controller.cluster_facts import pending
from tests.controller.kubernetes_json import encode
from tests.controller.preempt.recovery_world import (
    JOB,
    JOB_PATH,
    World,
    bare_json,
    job,
    plan,
    running,
    terms,
    waiting,
)
from tests.controller.virtual_time import run_virtually
from vgpu.controller.preempt.records import record_of
from vgpu.core.preempt.facts import PlanFact, PlanPhase, Victim
from vgpu.core.terms import OwnerRef
from vgpu.errors import ApiRefused, ApiUnavailable, OutcomeUnknown

BARE = OwnerRef()
BARE_PATH = "/api/v1/namespaces/team/pods/bare"


def runs(world: World, scenario: Callable[[], Awaitable[None]]) -> None:
    """The scenario beside recovery's loop, in virtual time."""

    async def both() -> None:
        loop = asyncio.ensure_future(world.recovery.run())
        try:
            await scenario()
            assert not loop.done(), "it has ended by itself"
        finally:
            loop.cancel()

    run_virtually(both())


def evicted_job(world: World, pods: int = 1) -> PlanFact:
    """Pods of the Job were evicted and the plan has ended."""
    uids = [f"uid-old{i}" for i in range(pods)]
    made = plan(*uids)
    world.recovery.plan_changed("team/plan", made)
    world.put(*(running(f"old{i}") for i in range(pods)))
    for uid in uids:
        world.evict(made, uid)
    return world.end(made)


def test_s04_a_pod_that_is_bound_again_pays_and_the_plan_goes_without_any_read() -> None:
    world = World()

    async def scenario() -> None:
        ended = evicted_job(world)
        assert [(debt.name, debt.pods, debt.lost_seconds) for debt in ended.debts] == [("train", 1, 900)]
        world.put(waiting("new"))
        assert world.recovery.offers.owed() == {"uid-new"}
        await asyncio.sleep(1000)
        assert world.api.deleted == []
        world.put(running("new", started_seconds=10_050))
        await asyncio.sleep(1)
        assert world.api.deleted == ["team/plan"]
        assert world.api.reads == []

    runs(world, scenario)


def test_s04_a_pod_that_is_bound_before_anybody_saw_it_wait_pays() -> None:
    world = World()

    async def scenario() -> None:
        evicted_job(world)
        world.ledger.put_pod(waiting("new"))
        world.put(running("new", started_seconds=10_050))
        await asyncio.sleep(1)
        assert world.api.deleted == ["team/plan"]

    runs(world, scenario)


def test_s04_three_lost_pods_are_owed_until_the_third_is_back() -> None:
    world = World("node-a", "node-b", "node-c")

    async def scenario() -> None:
        evicted_job(world, 3)
        names = ("node-a", "node-b", "node-c")
        world.put(*(waiting(f"new{i}") for i in range(3)))
        for i, node in enumerate(names):
            assert world.api.deleted == []
            world.put(running(f"new{i}", node=node))
            await asyncio.sleep(1)
        assert world.api.deleted == ["team/plan"]

    runs(world, scenario)


def test_a_plan_that_evicted_nobody_owes_nothing() -> None:
    world = World()

    async def scenario() -> None:
        made = plan("uid-old")
        world.recovery.plan_changed("team/plan", made)
        assert world.end(made).debts == ()

    runs(world, scenario)


def test_an_eviction_that_is_told_twice_or_was_told_by_another_process_counts_once() -> None:
    world = World()

    async def scenario() -> None:
        old = running("old")
        world.put(old)
        made = plan("uid-old")
        workload = world.roster.workloads["uid-old"]
        for _ in range(2):
            world.recovery.evicted(made, workload)
        assert [debt.pods for debt in world.recovery.debts(made)] == [1]
        known = replace(made, uid="uid-2", evictions_sent=frozenset({"uid-old"}))
        world.recovery.evicted(known, workload)
        assert world.recovery.debts(known) == ()

    runs(world, scenario)


def test_where_nobody_waits_the_owner_is_read_once_and_tells_that_nothing_is_owed() -> None:
    world = World()
    world.api.objects[JOB_PATH] = job(status={"conditions": [{"type": "Complete", "status": "True"}]})

    async def scenario() -> None:
        evicted_job(world)
        await asyncio.sleep(1)
        assert world.api.reads == [], "its controller has a moment"
        await asyncio.sleep(3600)
        assert world.api.reads == [JOB_PATH]
        assert world.api.deleted == ["team/plan"]

    runs(world, scenario)


def test_an_owner_that_is_gone_or_forbidden_is_owed_nothing() -> None:
    world = World()

    async def scenario() -> None:
        evicted_job(world)
        await asyncio.sleep(60)
        assert (world.api.reads, world.api.deleted) == ([JOB_PATH], ["team/plan"])

    runs(world, scenario)


def test_an_owner_whose_controller_will_create_more_is_asked_ever_more_rarely() -> None:
    world = World()
    world.api.objects[JOB_PATH] = job()

    async def scenario() -> None:
        evicted_job(world)
        await asyncio.sleep(3600)
        assert len(world.api.reads) == 8  # after 10, 20, 40 ... 1280 seconds more
        assert world.api.deleted == []
        world.put(waiting("new"))
        before = len(world.api.reads)
        await asyncio.sleep(100_000)
        assert len(world.api.reads) <= before + 1
        assert world.recovery.offers.owed() == {"uid-new"}

    runs(world, scenario)


def test_an_owner_of_a_kind_that_we_cannot_read_is_owed_as_long_as_its_pods_may_still_come() -> None:
    world = World()
    owner = OwnerRef("uid-x", "Sparkler", "x", "example.com/v1")

    async def scenario() -> None:
        made = plan("uid-old")
        world.put(running("old", owner))
        world.evict(made, "uid-old")
        world.end(made)
        await asyncio.sleep(100)
        assert world.api.deleted == []
        await asyncio.sleep(1000)
        assert (world.api.reads, world.api.deleted) == ([], ["team/plan"])

    runs(world, scenario)


def restarted(world: World, *plans: PlanFact) -> World:
    """Another process on the same objects."""
    after = World(api=world.api)
    for uid in world.roster.workloads:
        pod = world.ledger.pod(uid)
        assert pod is not None
        after.put(pod)
    for one in plans:
        after.recovery.plan_changed(f"team/{one.name}", one)
    after.recovery.start_over()
    return after


def test_debts_survive_a_restart_and_who_came_back_before_it_has_paid() -> None:
    world = World()

    async def scenario() -> None:
        ended = evicted_job(world)
        world.put(waiting("new"))
        world.recovery = restarted(world, ended).recovery
        assert world.recovery.offers.owed() == {"uid-new"}
        world.put(running("new", started_seconds=10_020))
        after = restarted(world, ended)
        assert after.recovery.offers.owed() == frozenset()
        assert after.recovery.book.take_paid() == []
        assert not after.recovery.book.owes(JOB.uid)

    runs(world, scenario)


def test_who_ran_before_the_eviction_has_paid_nothing_after_a_restart() -> None:
    world = World("node-a", "node-b")

    async def scenario() -> None:
        ended = evicted_job(world)
        world.put(running("other", node="node-b", started_seconds=9_999))
        assert restarted(world, ended).recovery.book.owes(JOB.uid)

    runs(world, scenario)


def test_a_plan_that_is_deleted_by_hand_owes_nothing_any_more() -> None:
    world = World()

    async def scenario() -> None:
        evicted_job(world)
        world.put(waiting("new"))
        world.recovery.plan_changed("team/plan", None)
        assert world.recovery.offers.owed() == frozenset()
        await asyncio.sleep(3600)
        assert world.api.deleted == []

    runs(world, scenario)


def bare_plan(world: World) -> PlanFact:
    record = record_of(encode(bare_json()))
    made = plan("uid-bare", records=(("uid-bare", record),))
    world.recovery.plan_changed("team/plan", made)
    return made


def put_bare(world: World) -> None:
    world.put(replace(running("bare", BARE), terms=terms(BARE, started_seconds=9_100, evict_opt_in=True)))


def test_s81_a_bare_pod_is_recorded_evicted_and_absent_until_it_is_created_again() -> None:
    world = World()
    world.api.objects[BARE_PATH] = bare_json()

    async def scenario() -> None:
        put_bare(world)
        records = await world.recovery.bare.records([Victim("uid-bare", "team", "bare", "node-a")])
        assert set(records) == {"uid-bare"}
        made = bare_plan(world)
        assert world.recovery.offers.absent() == []
        world.evict(made, "uid-bare")
        ended = world.end(made)
        assert [(debt.kind, debt.name) for debt in ended.debts] == [("Pod", "bare")]
        [absent] = world.recovery.offers.absent()
        assert world.recovery.offers.owes(absent.uid)
        assert await world.recovery.offers.create(absent)
        assert world.api.created[0]["metadata"]["name"] == "bare"
        assert world.recovery.offers.absent() == []
        world.put(replace(waiting("bare", BARE), uid="uid-again"))
        assert world.recovery.offers.owed() == {"uid-again"}
        world.put(replace(running("bare", BARE), uid="uid-again"))
        await asyncio.sleep(1)
        assert world.api.deleted == ["team/plan"]

    runs(world, scenario)


def test_s81_a_pod_that_somebody_deletes_after_it_was_created_again_stays_deleted() -> None:
    world = World()

    async def scenario() -> None:
        put_bare(world)
        made = bare_plan(world)
        world.evict(made, "uid-bare")
        world.end(made)
        [absent] = world.recovery.offers.absent()
        await world.recovery.offers.create(absent)
        world.put(replace(waiting("bare", BARE), uid="uid-again"))
        world.drop("uid-again")
        assert world.recovery.offers.absent() == []
        await asyncio.sleep(1)
        assert world.api.deleted == ["team/plan"]

    runs(world, scenario)


def test_s81_a_quota_that_is_in_the_way_loses_nothing() -> None:
    world = World()

    async def scenario() -> None:
        put_bare(world)
        made = bare_plan(world)
        world.evict(made, "uid-bare")
        world.end(made)
        world.api.refuse_create = ApiRefused(403, "Forbidden", "exceeded quota")
        [absent] = world.recovery.offers.absent()
        assert not await world.recovery.offers.create(absent)
        assert world.recovery.offers.absent() == [absent]
        await asyncio.sleep(100_000)
        assert world.api.deleted == []

    runs(world, scenario)


def test_s81_only_a_pod_that_was_refused_is_said_not_to_come() -> None:
    """Whoever holds room for it goes on holding it where it may have been created."""
    world = World()

    async def scenario() -> None:
        put_bare(world)
        made = bare_plan(world)
        world.evict(made, "uid-bare")
        world.end(made)
        [absent] = world.recovery.offers.absent()
        for error, may_come in ((ApiUnavailable(503, "", "busy"), False), (OutcomeUnknown("no answer"), True)):
            world.api.refuse_create = error
            assert await world.recovery.offers.create(absent) is may_come
            assert world.recovery.offers.absent() == [absent], "it is tried again"

    runs(world, scenario)


def test_s81_a_name_that_is_in_use_by_another_is_given_up() -> None:
    world = World()

    async def scenario() -> None:
        put_bare(world)
        made = bare_plan(world)
        world.evict(made, "uid-bare")
        world.end(made)
        world.api.refuse_create = ApiRefused(409, "AlreadyExists", "pods bare already exists")
        [absent] = world.recovery.offers.absent()
        assert await world.recovery.offers.create(absent)
        await asyncio.sleep(1000)
        assert world.api.deleted == ["team/plan"]

    runs(world, scenario)


def test_s81_a_recorded_pod_that_went_while_no_operator_ran_is_owed() -> None:
    """Nobody wrote down that its eviction was accepted before the crash."""
    world = World()

    async def scenario() -> None:
        made = bare_plan(world)
        world.recovery.start_over()
        assert [pod.name for pod in world.recovery.offers.absent()] == ["bare"]
        assert [debt.name for debt in world.recovery.debts(made)] == ["bare"]

    runs(world, scenario)


def test_a_recorded_pod_that_runs_after_a_crash_is_owed_nothing() -> None:
    world = World()

    async def scenario() -> None:
        put_bare(world)
        made = bare_plan(world)
        world.recovery.start_over()
        assert world.recovery.debts(made) == ()
        assert world.recovery.offers.absent() == []

    runs(world, scenario)


def test_without_the_switch_no_bare_pod_is_recorded_or_created() -> None:
    world = World(bare_pods=False)
    world.api.objects[BARE_PATH] = bare_json()

    async def scenario() -> None:
        put_bare(world)
        assert await world.recovery.bare.records([Victim("uid-bare", "team", "bare", "node-a")]) == {}
        made = bare_plan(world)
        world.evict(made, "uid-bare")
        assert world.recovery.debts(made) == ()

    runs(world, scenario)


def test_an_aborted_plan_owes_what_it_evicted_before() -> None:
    world = World()

    async def scenario() -> None:
        made = plan("uid-old0", "uid-old1", phase=PlanPhase.EVICTING)
        world.put(running("old0"), running("old1", node="node-a"))
        world.evict(made, "uid-old0")
        assert [debt.pods for debt in world.end(made).debts] == [1]

    runs(world, scenario)


def test_pods_of_nobody_who_is_owed_change_nothing() -> None:
    world = World()

    async def scenario() -> None:
        evicted_job(world)
        other = OwnerRef("uid-other", "Job", "other", "batch/v1")
        world.put(pending("stranger"), running("stranger", other))
        await asyncio.sleep(5)
        assert world.recovery.book.owes(JOB.uid)

    runs(world, scenario)
