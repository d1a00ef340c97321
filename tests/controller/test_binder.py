"""A bind ends bound with its cards, or not bound without any; a booking ends only when that is known."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, inventory, ledger_of, node
from tests.controller.kubernetes_json import assignment_json, container_json, encode
from tests.controller.pod_store import Fate, HandClock, PodStore, settle
from vgpu import names
from vgpu.api.assignment import parse_assignment
from vgpu.controller.binder import Binder, BinderParts
from vgpu.controller.translate import Translator
from vgpu.controller.wire import BindArgs
from vgpu.core.facts import Identity, Plugin
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.preempt.facts import NodeReservation
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.presets import PresetSettings
from vgpu.core.views import Reservation
from vgpu.settings import OperatorSettings


@dataclass
class Bench:
    ledger: Ledger
    store: PodStore
    clock: HandClock
    binder: Binder
    translator: Translator

    def add(self, name: str = "p1", memory: str = "4096", **fields: Any) -> None:
        """A pod in the API server, and seen by the ledger."""
        spec = {"containers": [container_json(number="1", memory=memory)], **fields.pop("spec", {})}
        self.store.add(name, spec=spec, **fields)
        self.see(name)

    def see(self, name: str = "p1") -> None:
        """The watch event of the pod as it is now."""
        self.ledger.put_pod(self.translator.decode_pod(encode(self.store.pods["team", name])).fact)

    def start(self, name: str = "p1", to: str = "n1", uid: str = "") -> "asyncio.Task[str]":
        args = BindArgs.model_validate(
            {"PodName": name, "PodNamespace": "team", "PodUID": uid or f"uid-{name}", "Node": to}
        )
        return asyncio.create_task(self.binder.bind(args))

    async def bind(self, name: str = "p1", to: str = "n1", uid: str = "") -> str:
        task = self.start(name, to, uid)
        await self.clock.pass_seconds(20)
        return await task

    def on(self, name: str = "p1") -> str:
        return str(self.store.pods["team", name]["spec"].get("nodeName", ""))

    def cards(self, name: str = "p1") -> list[str]:
        text = self.store.pods["team", name]["metadata"].get("annotations", {}).get(names.ASSIGNMENT_ANNOTATION)
        return [] if text is None else [c.uuid for box in parse_assignment(text).containers for c in box.cards]

    def booked(self, name: str = "p1") -> bool:
        return self.ledger.booking(f"uid-{name}") is not None

    def free_mib(self, name: str = "n1") -> int:
        view = self.ledger.view(name)
        assert view is not None
        return sum(card.free_memory_mib for card in view.cards)


@asynccontextmanager
async def bench(*nodes: str) -> AsyncIterator[Bench]:
    ledger, store, clock = ledger_of(*(nodes or ("n1", "n2"))), PodStore(), HandClock()
    translator = Translator(OperatorSettings(), lambda name: None)
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
    )
    binder = Binder(parts)
    try:
        yield Bench(ledger, store, clock, binder, translator)
    finally:
        await binder.close()


async def test_a_bind_is_one_write_that_carries_uid_nonce_and_cards() -> None:
    async with bench() as it:
        it.add()
        assert await it.bind() == ""
        assert (it.on(), it.cards(), it.store.bindings, it.store.reads) == ("n1", ["GPU-n1-0"], 1, 0)
        assignment = parse_assignment(
            it.store.pods["team", "p1"]["metadata"]["annotations"]["vgpu.dev/assignment"]
        )
        assert (assignment.pod_uid, assignment.node, len(assignment.nonce)) == ("uid-p1", "n1", 16)


async def test_a_pod_for_which_a_plan_holds_a_card_gets_that_one() -> None:
    async with bench("n1") as it:
        it.ledger.put_inventory(inventory("n1", cards=2))
        it.add()
        held = NodeReservation("n1", Reservation("uid-p1", "GPU-n1-1", 1, 4096, 0, exclusive=False, coreless=True))
        it.ledger.plans.put(PlanHold("team/p1-1", 1, (held,)))
        assert await it.bind() == ""
        assert it.cards() == ["GPU-n1-1"]


async def test_the_booking_holds_the_cards_until_the_watch_shows_the_pod_bound() -> None:
    async with bench() as it:
        it.add()
        await it.bind()
        assert it.booked()
        assert it.free_mib() == CARD_MIB - 4096
        it.see()
        assert not it.booked()
        assert it.free_mib() == CARD_MIB - 4096


async def test_an_event_of_the_unbound_pod_does_not_end_the_booking() -> None:
    async with bench() as it:
        it.add()
        before = it.translator.decode_pod(encode(it.store.pods["team", "p1"])).fact
        await it.bind()
        it.ledger.put_pod(before)
        assert it.booked()


async def test_cards_are_checked_again_and_two_pods_never_get_the_same_room() -> None:
    async with bench() as it:
        for name in ("p1", "p2"):
            it.add(name, memory=str(CARD_MIB))
        first, second = it.start("p1"), it.start("p2")
        await it.clock.pass_seconds(1)
        answers = [await first, await second]
        assert answers.count("") == 1
        assert it.store.bindings == 1
        assert str(CARD_MIB) in next(answer for answer in answers if answer)


@pytest.mark.parametrize(
    "fates",
    [
        [Fate.UNANSWERED],
        [Fate.LOST],
        [Fate.LOST, Fate.LOST],
        [Fate.BROKEN],
        [Fate.CARRIED_OUT_BUT_503],
        [Fate.BUSY],
        [Fate.BUSY, Fate.UNANSWERED],
        [Fate.LOST, Fate.BUSY],
    ],
    ids=str,
)
async def test_an_unknown_outcome_is_read_back_and_settled_as_one_binding(fates: list[Fate]) -> None:
    async with bench() as it:
        it.add()
        it.store.fates = fates
        assert await it.bind() == ""
        assert (it.on(), it.store.bindings) == ("n1", 1)
        assert it.free_mib() == CARD_MIB - 4096


async def test_reads_that_fail_are_repeated() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.UNANSWERED]
        it.store.read_fates = [Fate.BROKEN, Fate.FORBIDDEN]
        assert await it.bind() == ""
        assert it.store.bindings == 1


async def test_a_definite_refusal_confirmed_by_a_read_ends_the_booking() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.FORBIDDEN]
        assert await it.bind() == "not allowed"
        assert not it.booked()
        assert it.store.reads == 1


async def test_a_refusal_that_no_read_confirms_keeps_the_booking() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.FORBIDDEN]
        it.store.read_fates = [Fate.BROKEN] * 100
        assert "not known after 9 s" in await it.bind()
        assert it.booked()


async def test_when_it_may_not_write_nothing_stays_booked() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.FENCED]
        assert "Lease" in await it.bind()
        assert not it.booked()


async def test_losing_the_lease_after_an_unknown_outcome_keeps_the_booking() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.LOST, *[Fate.FENCED] * 50]
        assert "not known" in await it.bind()
        assert it.booked()


async def test_a_pod_bound_by_someone_else_is_let_go() -> None:
    async with bench() as it:
        it.add()
        it.store.pods["team", "p1"]["spec"]["nodeName"] = "n2"
        assert "n2 by someone else" in await it.bind()
        assert not it.booked()


async def test_an_assignment_of_an_earlier_leader_on_the_same_node_is_not_taken_for_ours() -> None:
    async with bench() as it:
        it.add()
        document = it.store.pods["team", "p1"]
        document["spec"]["nodeName"] = "n1"
        document["metadata"]["annotations"] = {
            names.ASSIGNMENT_ANNOTATION: assignment_json("uid-p1", "n1", uuid="GPU-n1-0")
        }
        assert "n1 by someone else" in await it.bind()
        assert not it.booked()


async def test_a_binding_that_is_carried_out_late_is_found() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.DELAYED, *[Fate.LOST] * 100]
        assert "not known" in await it.bind()
        assert it.booked()
        it.store.carry_out_delayed()
        await it.clock.pass_seconds(5)
        assert it.on() == "n1"
        it.see()
        assert it.free_mib() == CARD_MIB - 4096


async def test_a_pod_that_was_deleted_or_made_anew_is_let_go() -> None:
    async with bench() as it:
        it.add("gone")
        it.add("again")
        del it.store.pods["team", "gone"]
        it.store.pods["team", "again"]["metadata"]["uid"] = "another"
        assert "gone" in await it.bind("gone")
        assert "another one" in await it.bind("again")
        assert it.free_mib() == CARD_MIB


async def test_at_the_deadline_the_answer_is_an_error_and_the_booking_stands() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.LOST] * 100
        task = it.start()
        await it.clock.pass_seconds(8.9)
        assert not task.done()
        await it.clock.pass_seconds(0.2)
        assert "not known after 9 s" in await task
        assert it.booked()


async def test_after_the_deadline_it_is_read_and_not_sent_again_until_the_scheduler_asks_again() -> None:
    """kube-scheduler has put the pod back by then: only a new bind call says that the node still suits it."""
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.LOST] * 100
        await it.bind()
        await it.clock.pass_seconds(5)
        it.store.fates = []
        await it.clock.pass_seconds(10)
        assert it.on() == ""
        assert await it.bind() == ""
        assert (it.on(), it.store.bindings) == ("n1", 1)


async def test_a_second_call_joins_the_first_and_another_node_is_refused() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.LOST] * 3
        first, second, other = it.start(), it.start(), it.start(to="n2")
        await it.clock.pass_seconds(20)
        assert [await first, await second] == ["", ""]
        assert "n1 are booked" in await other
        assert it.store.bindings == 1


async def test_a_call_after_success_but_before_the_event_is_answered_with_success() -> None:
    async with bench() as it:
        it.add()
        assert await it.bind() == ""
        assert await it.bind() == ""
        assert "n1 are booked" in await it.bind(to="n2")
        it.see()
        assert await it.bind() == ""
        assert "bound to n1 already" in await it.bind(to="n2")
        assert it.store.bindings == 1


async def test_a_watch_event_settles_what_reads_cannot() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.UNANSWERED]
        it.store.read_fates = [Fate.BROKEN] * 1000
        task = it.start()
        await it.clock.pass_seconds(1)
        it.see()
        await it.clock.pass_seconds(5)
        assert await task == ""


async def test_a_minute_after_the_last_try_a_pod_that_is_as_before_is_let_go() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.LOST] * 1000
        await it.bind()
        await it.clock.pass_seconds(30)
        assert it.booked()
        await it.clock.pass_seconds(60)
        assert not it.booked()
        it.store.fates = []
        assert await it.bind(to="n2") == ""


async def test_a_deleted_pod_frees_its_cards_at_once() -> None:
    async with bench() as it:
        it.add()
        it.store.fates = [Fate.LOST] * 1000
        task = it.start()
        await settle()
        it.ledger.drop_pod("uid-p1")
        assert it.free_mib() == CARD_MIB
        await it.clock.pass_seconds(9)
        assert "gone" in await task


async def test_a_pod_that_the_watch_has_not_shown_yet_is_read_once() -> None:
    async with bench() as it:
        it.store.add("p1", spec={"containers": [container_json(number="1", memory="4096")]})
        assert await it.bind() == ""
        assert it.cards() == ["GPU-n1-0"]
        assert it.store.reads == 1
        assert it.free_mib() == CARD_MIB - 4096


@pytest.mark.parametrize(
    ("to", "uid", "want"),
    [
        ("ghost", "", "no node ghost"),
        ("n1", "uid-other", "no pod team/p1 with uid uid-other"),
        ("inventoryonly", "", "no node"),
        ("closed", "", "no GpuNodeInventory"),
    ],
)
async def test_what_cannot_be_bound_is_said_and_nothing_is_written(to: str, uid: str, want: str) -> None:
    async with bench() as it:
        it.ledger.put_node(node("closed"))
        it.ledger.put_inventory(inventory("inventoryonly"))
        it.add()
        assert want in await it.bind(to=to, uid=uid)
        assert it.store.bindings == 0
        assert not it.booked()


@pytest.mark.parametrize(
    "fields",
    [
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"status": {"phase": "Failed"}},
        {"spec": {"schedulingGates": [{"name": "wait"}]}},
        {"spec": {"containers": [container_json(number="-1")]}},
    ],
    ids=["deleting", "ended", "gated", "refused"],
)
async def test_pods_that_are_not_to_be_bound_are_refused(fields: dict[str, Any]) -> None:
    async with bench() as it:
        it.add(**fields)
        assert await it.bind() != ""
        assert it.store.bindings == 0


async def test_a_pod_that_asks_for_zero_cards_is_bound_without_any() -> None:
    async with bench() as it:
        it.store.add("p1", spec={"containers": [container_json(number="0")]})
        it.store.fates = [Fate.LOST, Fate.UNANSWERED]
        assert await it.bind() == ""
        assert (it.on(), it.cards(), it.store.bindings) == ("n1", [], 1)


async def test_the_binding_carries_what_the_nodes_own_plugin_reads() -> None:
    async with bench() as it:
        it.ledger.put_inventory(inventory("n1", identity=Identity.DEFERRED, plugin=Plugin.HAMI))
        it.add()
        assert await it.bind() == ""
        annotations = it.store.pods["team", "p1"]["metadata"]["annotations"]
        assert annotations[names.HAMI_NODE] == "n1"
        assert "GPU-n1-0" in annotations[names.HAMI_TO_ALLOCATE]
        assert it.cards() == ["GPU-n1-0"]


async def test_a_deferred_node_takes_one_unconfirmed_pod_at_a_time_also_in_bind() -> None:
    async with bench() as it:
        it.ledger.put_inventory(inventory("n1", cards=4, identity=Identity.DEFERRED, plugin=Plugin.HAMI))
        it.add("p1")
        it.add("p2")
        assert await it.bind("p1") == ""
        assert "waits for team/p1" in await it.bind("p2")


async def test_a_placement_of_many_pods_is_never_over_booked() -> None:
    """Forty binds at once onto one card of ten slots, with writes failing in every way."""
    async with bench() as it:
        it.store.fates = [Fate.LOST, Fate.UNANSWERED, Fate.BROKEN, Fate.FORBIDDEN, Fate.BUSY, Fate.FINE] * 3
        tasks = []
        for i in range(40):
            it.add(f"p{i}", memory="1000")
            tasks.append(it.start(f"p{i}"))
        await it.clock.pass_seconds(60)
        answers = [await task for task in tasks]
        assert answers.count("") == it.store.bindings <= 10
        for i in range(40):
            it.see(f"p{i}")
        view = it.ledger.view("n1")
        assert view is not None
        assert view.used_slots == it.store.bindings
        assert not view.cards[0].overbooked


# Pods that were bound without an assignment.


def stray(it: Bench, name: str = "stray", **status: Any) -> None:
    it.add(name, spec={"nodeName": "n1"}, status=status)


async def test_a_bound_pod_that_never_ran_gets_cards_by_a_status_patch() -> None:
    async with bench() as it:
        stray(it)
        assert it.binder.consider_late("n1") == []
        assert it.free_mib() == CARD_MIB - 4096, "booked before anything is sent"
        await it.clock.pass_seconds(1)
        assert it.cards("stray") == ["GPU-n1-0"]
        it.see("stray")
        assert not it.booked("stray")
        assert it.free_mib() == CARD_MIB - 4096


async def test_events_of_the_bound_pod_without_cards_do_not_end_its_booking() -> None:
    async with bench() as it:
        stray(it)
        it.store.fates = [Fate.LOST] * 3
        it.binder.consider_late("n1")
        it.store.pods["team", "stray"]["status"]["startTime"] = "2026-01-01T00:00:00Z"
        it.see("stray")
        assert it.booked("stray")
        await it.clock.pass_seconds(30)
        assert it.cards("stray") == ["GPU-n1-0"]


async def test_a_late_assignment_without_room_is_told_and_leaves_the_pod_alone() -> None:
    async with bench() as it:
        it.ledger.put_pod(bound("old", "n1", memory_mib=CARD_MIB))
        stray(it)
        refused = it.binder.consider_late("n1")
        assert [late.pod.name for late in refused] == ["stray"]
        await it.clock.pass_seconds(1)
        assert it.cards("stray") == []


async def test_two_strays_get_what_fits_together() -> None:
    async with bench() as it:
        for name in ("a", "b"):
            it.add(name, memory=str(CARD_MIB), spec={"nodeName": "n1"})
        assert len(it.binder.consider_late("n1")) == 1
        await it.clock.pass_seconds(1)
        assert len(it.cards("a") + it.cards("b")) == 1


async def test_a_refused_late_assignment_frees_the_cards_and_rests_before_the_next_try() -> None:
    async with bench() as it:
        stray(it)
        it.store.fates = [Fate.FORBIDDEN]
        it.binder.consider_late("n1")
        await it.clock.pass_seconds(1)
        assert not it.booked("stray")
        it.binder.consider_late("n1")
        await it.clock.pass_seconds(1)
        assert it.cards("stray") == []
        await it.clock.pass_seconds(60)
        it.binder.consider_late("n1")
        await it.clock.pass_seconds(1)
        assert it.cards("stray") == ["GPU-n1-0"]


async def test_a_pod_that_ran_is_never_assigned_late() -> None:
    async with bench() as it:
        stray(it, containerStatuses=[{"state": {"running": {}}}])
        assert it.binder.consider_late("n1") == []
        await it.clock.pass_seconds(1)
        assert it.cards("stray") == []
