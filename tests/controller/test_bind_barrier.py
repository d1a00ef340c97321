"""Bindings of a gang's members are sent all together or not at all."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controller.cluster_facts import ledger_of
from tests.controller.kubernetes_json import container_json, encode
from tests.controller.pod_store import Fate, HandClock, PodStore
from vgpu import names
from vgpu.controller.binder import Binder, BinderParts
from vgpu.controller.preempt.bind_barrier import BindBarrier, pass_at_once
from vgpu.controller.translate import Translator
from vgpu.controller.wire import BindArgs
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.preempt.facts import Gang, Workload
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.gang_state import Rules
from vgpu.core.presets import PresetSettings
from vgpu.settings import OperatorSettings

WAIT_SECONDS = 8


@dataclass
class Group:
    """A roster that knows one gang."""

    ledger: Ledger
    minimum: int
    uids: tuple[str, ...] = ()

    def gang_of(self, uid: str) -> Gang | None:
        return Gang("label/team/g", self.minimum) if uid in self.uids else None

    def members(self, gang_key: str) -> tuple[str, ...]:
        return tuple(uid for uid in self.uids if self.ledger.pod(uid) is not None)

    @property
    def workloads(self) -> Mapping[str, Workload]:
        return {}


@dataclass
class Bench:
    ledger: Ledger
    store: PodStore
    clock: HandClock
    binder: Binder
    translator: Translator
    group: Group

    def add(self, *pod_names: str, member: bool = True, **metadata: Any) -> None:
        for name in pod_names:
            spec = {
                "containers": [container_json(number="1", memory="4096")],
                "schedulerName": names.SCHEDULER_NAME,
            }
            self.store.add(name, spec=spec, **metadata)
            if member:
                self.group.uids += (f"uid-{name}",)
            self.see(name)

    def see(self, name: str) -> None:
        self.ledger.put_pod(self.translator.decode_pod(encode(self.store.pods["team", name])).fact)

    def start(self, name: str, to: str = "n1") -> "asyncio.Task[str]":
        args = BindArgs.model_validate(
            {"PodName": name, "PodNamespace": "team", "PodUID": f"uid-{name}", "Node": to}
        )
        return asyncio.create_task(self.binder.bind(args))

    def booked(self) -> set[str]:
        return {booking.name for booking in self.ledger.bookings()}


@asynccontextmanager
async def bench(minimum: int = 3, *, barrier: bool = True) -> AsyncIterator[Bench]:
    ledger, store, clock = ledger_of("n1", "n2"), PodStore(), HandClock()
    translator, group = Translator(OperatorSettings(), lambda name: None), Group(ledger, minimum)
    desk = GangDesk(ledger, group, Rules(names.SCHEDULER_NAME, lift_gates=True))
    gate = BindBarrier(desk, ledger, clock, WAIT_SECONDS)
    parts = BinderParts(
        ledger=ledger,
        policies=Policies(),
        presets=PresetSettings(),
        writer=store,
        reader=store,
        decode_pod=translator.decode_pod,
        clock=clock,
        deadline_seconds=9,
        changed=lambda: None,
        barrier=gate.hold if barrier else pass_at_once,
    )
    binder = Binder(parts)
    try:
        yield Bench(ledger, store, clock, binder, translator, group)
    finally:
        gate.close()
        await binder.close()


async def test_nothing_is_posted_before_the_last_required_member_is_there() -> None:
    async with bench() as it:
        it.add("p1", "p2", "p3")
        first = [it.start("p1"), it.start("p2", "n2")]
        await it.clock.pass_seconds(3)
        assert (it.store.bindings, it.booked()) == (0, {"p1", "p2"})
        last = it.start("p3")
        await it.clock.pass_seconds(0.1)
        assert [task.result() for task in (*first, last)] == ["", "", ""]
        assert it.store.bindings == 3


async def test_when_one_does_not_come_all_fail_and_nothing_stays_booked() -> None:
    async with bench() as it:
        it.add("p1", "p2", "p3")
        tasks = [it.start("p1"), it.start("p2", "n2")]
        await it.clock.pass_seconds(WAIT_SECONDS)
        assert [task.result().split(":")[0] for task in tasks] == ["gang label/team/g"] * 2
        assert "2 pods of the 3 that it lacks were to be bound within 8 s" in tasks[0].result()
        assert (it.store.bindings, it.booked()) == (0, set())


async def test_without_the_barrier_they_would_be_bound_one_by_one() -> None:
    async with bench(barrier=False) as it:
        it.add("p1", "p2", "p3")
        it.start("p1")
        await it.clock.pass_seconds(0.1)
        assert it.store.bindings == 1


async def test_members_that_failed_together_come_together_the_next_time() -> None:
    async with bench() as it:
        it.add("p1", "p2", "p3")
        it.start("p1")
        await it.clock.pass_seconds(WAIT_SECONDS)
        tasks = [it.start(name) for name in ("p1", "p2", "p3")]
        await it.clock.pass_seconds(0.1)
        assert [task.result() for task in tasks] == [""] * 3


async def test_who_is_bound_or_on_the_way_counts() -> None:
    async with bench(minimum=2) as it:
        it.add("p1", "p2", "p3", "p4")
        tasks = [it.start("p1"), it.start("p2")]
        await it.clock.pass_seconds(0.1)
        surplus = it.start("p3")
        await it.clock.pass_seconds(0.1)
        for name in ("p1", "p2", "p3"):
            it.see(name)
        later = it.start("p4")
        await it.clock.pass_seconds(0.1)
        assert [task.result() for task in (*tasks, surplus, later)] == [""] * 4


async def test_a_member_that_is_deleted_while_it_waits_is_not_counted() -> None:
    async with bench() as it:
        it.add("p1", "p2", "p3")
        tasks = [it.start("p1"), it.start("p2")]
        await it.clock.pass_seconds(1)
        del it.store.pods["team", "p1"]
        it.ledger.drop_pod("uid-p1")
        tasks.append(it.start("p3"))
        await it.clock.pass_seconds(WAIT_SECONDS)
        assert all(task.result() for task in tasks)
        assert it.store.bindings == 0


async def test_a_node_that_vanishes_meanwhile_takes_nobody() -> None:
    async with bench() as it:
        it.add("p1", "p2", "p3")
        tasks = [it.start("p1", "n2"), it.start("p2")]
        await it.clock.pass_seconds(1)
        it.ledger.drop_node("n2", "uid-n2")
        tasks.append(it.start("p3"))
        await it.clock.pass_seconds(WAIT_SECONDS)
        assert it.store.bindings == 0
        assert all(task.result() for task in tasks)


@pytest.mark.parametrize("fate", [Fate.FORBIDDEN, Fate.FENCED], ids=str)
async def test_one_that_is_refused_after_others_were_posted_gives_its_own_cards_back_only(fate: Fate) -> None:
    async with bench() as it:
        it.add("p1", "p2", "p3")
        it.store.fates = [Fate.FINE, fate]
        tasks = [it.start(name) for name in ("p1", "p2", "p3")]
        await it.clock.pass_seconds(1)
        bound = {f"p{number}" for number, task in enumerate(tasks, 1) if not task.result()}
        assert len(bound) == 2
        assert it.booked() == bound


async def test_a_failed_attempt_does_not_count_as_on_the_way() -> None:
    async with bench(minimum=2) as it:
        it.add("p1", "p2", "p3", "p4")
        it.store.fates = [Fate.FORBIDDEN, Fate.FORBIDDEN]
        tasks = [it.start("p1"), it.start("p2")]
        await it.clock.pass_seconds(1)
        alone = it.start("p3")
        await it.clock.pass_seconds(WAIT_SECONDS)
        assert all(task.result() for task in (*tasks, alone))
        assert it.store.bindings == 0


async def test_pods_of_no_gang_do_not_wait() -> None:
    async with bench() as it:
        it.add("p1", member=False)
        task = it.start("p1")
        await it.clock.pass_seconds(0.1)
        assert (task.result(), it.store.reads) == ("", 0)


async def test_a_pod_whose_gate_is_seen_no_more_by_kube_scheduler_is_read() -> None:
    async with bench(minimum=1) as it:
        it.add("p1")
        it.store.pods["team", "p1"]["spec"]["schedulingGates"] = [{"name": names.GANG_GATE}]
        it.see("p1")
        del it.store.pods["team", "p1"]["spec"]["schedulingGates"]
        task = it.start("p1")
        await it.clock.pass_seconds(0.1)
        assert (task.result(), it.store.bindings) == ("", 1)
