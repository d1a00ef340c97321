"""Gangs start as a whole: cards are held for all that a gang lacks, its members are sent once, and rest else."""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.controller.cluster_facts import CARD_MIB, bound, inventory, node, pending
from tests.controller.virtual_time import run_virtually
from vgpu import names
from vgpu.controller.consumer import Consumer
from vgpu.controller.fence import Fence
from vgpu.controller.preempt.broken_gangs import BrokenGangs, BrokenParts
from vgpu.controller.preempt.gang_rooms import GangRooms, RoomParts
from vgpu.controller.preempt.gang_sender import GangSender
from vgpu.controller.preempt.gangs import GangParts, Gangs
from vgpu.controller.preempt.promises import Promises
from vgpu.core.facts import Phase, PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import BY_AGE, best_placement
from vgpu.core.placement import Placement, Policies
from vgpu.core.preempt.facts import Limits, NodeReservation, QueueFact
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.gang_offer import offers_in_pieces
from vgpu.core.preempt.gang_state import GangState, Rules
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.roster import Roster
from vgpu.core.preempt.spots import PIECE
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.recount import reservations_of
from vgpu.core.terms import GroupName, GroupSource, PodTerms
from vgpu.errors import ApiRefused, ApiUnavailable
from vgpu.kube.objects import Key

HOLD_SECONDS = 300
GATE = names.GANG_GATE


@dataclass
class Sink:
    """What was written, in order; `errors` are raised by the next gate removals."""

    written: list[tuple[str, str | None]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    async def nominate(self, pod: Key, node: str | None, wake: int) -> None:
        self.written.append((pod.name, node))

    async def remove_gate(self, pod: Key, gate: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.written.append((pod.name, gate))


def member(name: str, gang: str = "g", minimum: int = 2, *gates: str, **fields: Any) -> PodFact:
    terms = PodTerms(
        group=GroupName(GroupSource.LABEL, "team", gang), group_minimum=minimum, gates=frozenset(gates)
    )
    given = {"created": "2026-01-01T00:00:00Z", "unschedulable": not gates, **fields}
    return pending(name, given.pop("memory_mib", CARD_MIB), terms=terms, gated=bool(gates), **given)


def runs(pod: PodFact, node_name: str, card: int) -> PodFact:
    """The member, bound to one card."""
    seen = bound(pod.name, node_name, card, CARD_MIB)
    return replace(seen, terms=pod.terms and replace(pod.terms, gates=frozenset()), created=pod.created)


@dataclass
class Bench:
    ledger: Ledger
    roster: Roster
    desk: GangDesk
    gangs: Gangs
    sink: Sink
    consumer: Consumer
    evicted: list[str]
    told: list[tuple[str, Reason]]
    short: list[int]
    lacks: dict[str, Refusal]

    async def see(self, *pods: PodFact) -> None:
        for pod in pods:
            self.ledger.put_pod(pod)
            self.roster.put_pod(pod)
        await self.settle()

    async def lose(self, *pod_names: str) -> None:
        for name in pod_names:
            self.ledger.drop_pod(f"uid-{name}")
            self.roster.drop_pod(f"uid-{name}")
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            self.consumer.drain()
            await asyncio.sleep(0.01)

    def sent(self) -> dict[str, list[str | None]]:
        """What was written about each pod since the last question."""
        found: dict[str, list[str | None]] = {}
        for name, what in self.sink.written:
            found.setdefault(name, []).append(what)
        self.sink.written.clear()
        return found

    def held(self) -> dict[str, set[str]]:
        """Uids for which each hold keeps cards."""
        return {hold.plan: set(hold.uids) for hold in self.ledger.plans.all()}

    def refusal(self, name: str) -> Reason | None:
        pod = self.ledger.find_pod("team", name)
        assert pod is not None
        found = self.desk.refusal(pod)
        return found.reason if found is not None else None


@asynccontextmanager
async def bench(
    *cards: int, queue: QueueFact | None = None, lift_gates: bool = True, absent: Sequence[PodFact] = ()
) -> AsyncIterator[Bench]:
    """Nodes n0, n1... with so many cards each."""
    now = asyncio.get_running_loop().time
    ledger, fence, sink = Ledger(), Fence(10, 4, lambda: 0.0), Sink()
    fence.renewed(0.0)
    roster = Roster(ledger, names.SCHEDULER_NAME)
    roster.put_queue(queue or QueueFact("default"))
    for number, count in enumerate(cards):
        ledger.put_node(node(f"n{number}"))
        ledger.put_inventory(inventory(f"n{number}", count))
        roster.cards_changed(f"n{number}")
    desk = GangDesk(ledger, roster, Rules(names.SCHEDULER_NAME, lift_gates=lift_gates))
    consumer = Consumer(ledger, 0)
    evicted: list[str] = []
    told: list[tuple[str, Reason]] = []
    short: list[int] = []
    lacks: dict[str, Refusal] = {}

    def lacking(pod: PodFact, refusal: Refusal | None) -> None:
        lacks.pop(pod.name, None)
        if refusal is not None:
            lacks[pod.name] = refusal

    broken = BrokenGangs(
        BrokenParts(
            desk=desk,
            hold_seconds=lambda pod: HOLD_SECONDS,
            evict=lambda pod, key, why: evicted.append(pod.name),
            tell=lambda pod, reason, text: told.append((pod.name, reason)),
            leading=lambda: True,
        )
    )
    index = FitIndex(ledger, Policies())
    looked_at = RoomParts(
        ledger, index, Policies(), roster, lambda: BY_AGE, names.SCHEDULER_NAME, 16, lambda: absent
    )
    rooms = GangRooms(looked_at)
    gangs = Gangs(
        GangParts(
            ledger=ledger,
            desk=desk,
            rooms=rooms,
            sender=GangSender(sink, lambda uid: ledger.pod(uid) is not None),
            broken=broken,
            fence=fence,
            hold_seconds=lambda pod: HOLD_SECONDS,
            short=lambda: short.append(int(now())),
            held=Promises(ledger, roster).note,
            poke=consumer.poke,
            lacking=lacking,
        )
    )
    consumer.add(gangs)
    consumer.drain()
    tasks = [asyncio.ensure_future(work) for work in (gangs.run(), gangs.expire(), broken.run(), consumer.run())]
    try:
        yield Bench(ledger, roster, desk, gangs, sink, consumer, evicted, told, short, lacks)
    finally:
        assert not any(task.done() for task in tasks), "one has ended by itself"
        for task in tasks:
            task.cancel()


def test_s52_a_gang_is_sent_when_all_of_it_is_there_and_fits() -> None:
    async def story() -> None:
        async with bench(1, 1) as it:
            await it.see(member("a1"))
            assert (it.sent(), it.refusal("a1")) == ({}, Reason.GANG_INCOMPLETE)
            await it.see(member("a2"))
            assert {name: len(what) for name, what in it.sent().items()} == {"a1": 1, "a2": 1}
            assert it.held() == {"gang team/g": {"uid-a1", "uid-a2"}}
            assert (it.refusal("a1"), it.refusal("a2")) == (None, None)

    run_virtually(story())


def test_gates_are_lifted_after_the_nomination_and_only_when_all_fit() -> None:
    async def story() -> None:
        async with bench(1) as it:
            await it.see(member("a1", "g", 2, GATE), member("a2", "g", 2, GATE))
            assert (it.sent(), bool(it.short)) == ({}, True)
            it.ledger.put_inventory(inventory("n0", 2))
            await it.settle()
            assert it.sent() == {"a1": ["n0", GATE], "a2": ["n0", GATE]}

    run_virtually(story())


def test_without_the_right_to_lift_gates_a_gated_gang_is_left_alone() -> None:
    async def story() -> None:
        async with bench(4, lift_gates=False) as it:
            await it.see(member("a1", "g", 2, GATE), member("a2", "g", 2, GATE))
            assert (it.sent(), it.held()) == ({}, {})

    run_virtually(story())


def test_a_gate_that_could_not_be_lifted_is_tried_again_and_a_refused_one_is_not() -> None:
    async def story() -> None:
        async with bench(4) as it:
            it.sink.errors = [ApiUnavailable(503, "", "away")] * 5
            await it.see(member("a1", "g", 2, GATE), member("a2", "g", 2, GATE))
            assert it.sent() == {"a1": ["n0"], "a2": ["n0"]}
            await asyncio.sleep(10)
            assert it.sent() == {"a1": [GATE], "a2": [GATE]}
        async with bench(4) as it:
            it.sink.errors = [ApiRefused(403, "Forbidden", "no")] * 10
            await it.see(member("a1", "g", 2, GATE), member("a2", "g", 2, GATE))
            it.sent()
            await asyncio.sleep(HOLD_SECONDS - 10)
            assert it.sent() == {}

    run_virtually(story())


def test_s57_two_gangs_that_could_each_hold_half_and_one_gets_all() -> None:
    async def story() -> None:
        async with bench(2, 1) as it:
            gang_a = [member(f"a{n}", "a", 2, created=f"2026-01-01T00:00:0{n}Z") for n in range(2)]
            gang_b = [member(f"b{n}", "b", 2, created=f"2026-01-01T00:00:1{n}Z") for n in range(2)]
            await it.see(gang_a[0], gang_b[0], gang_b[1], gang_a[1])
            assert sorted(it.sent()) == ["a0", "a1"]
            assert (it.refusal("a0"), it.refusal("b0")) == (None, Reason.GANG_WAITS)
            await it.see(runs(gang_a[0], "n0", 0), runs(gang_a[1], "n0", 1))
            assert (it.sent(), it.held()) == ({}, {})
            await it.lose("a0", "a1")
            assert sorted(it.sent()) == ["b0", "b1"]

    run_virtually(story())


def test_s81_a_pod_that_is_to_be_created_takes_its_place_before_a_gang_of_lower_rank() -> None:
    async def story(priority: int, sent: bool) -> None:
        absent = pending("absent", CARD_MIB, priority=priority)
        async with bench(1, 1, absent=[absent]) as it:
            await it.see(member("a1"), member("a2"))
            assert bool(it.sent()) is sent

    run_virtually(story(priority=1, sent=False))
    run_virtually(story(priority=-1, sent=True))


def test_s53_surplus_members_wait_for_the_start_and_then_come_alone() -> None:
    async def story() -> None:
        async with bench(2) as it:
            pods = [member(f"a{n}", created=f"2026-01-01T00:00:0{n}Z") for n in range(3)]
            await it.see(*pods)
            assert sorted(it.sent()) == ["a0", "a1"]
            assert it.refusal("a2") is Reason.GANG_WAITS
            await it.see(runs(pods[0], "n0", 0), runs(pods[1], "n0", 1))
            assert (it.sent(), it.refusal("a2")) == ({"a2": [None]}, None)
            await it.see(pods[2], replace(pods[2], unschedulable_message="0/1 nodes"))
            assert it.sent() == {}

    run_virtually(story())


def test_s54_a_hold_ends_whole_and_its_gang_rests_until_something_happens() -> None:
    async def story() -> None:
        async with bench(2, 1) as it:
            pods = [member(f"a{n}") for n in range(2)]
            await it.see(*pods)
            assert it.held() != {}
            it.sent()
            await asyncio.sleep(HOLD_SECONDS + 1)
            await it.settle()
            assert (it.held(), it.sent(), it.refusal("a0")) == ({}, {}, Reason.GANG_WAITS)
            await asyncio.sleep(10 * HOLD_SECONDS)
            assert (it.held(), it.sent()) == ({}, {})
            it.ledger.put_inventory(inventory("n1", 2))
            await it.settle()
            assert sorted(it.sent()) == ["a0", "a1"]

    run_virtually(story())


def test_nothing_is_written_while_nothing_changes() -> None:
    async def story() -> None:
        async with bench(1) as it:
            await it.see(member("a1"), member("a2"))
            before = len(it.short)
            await asyncio.sleep(100_000)
            assert (it.sent(), len(it.short)) == ({}, before)

    run_virtually(story())


def test_a_queue_that_takes_half_of_it_takes_none_of_it() -> None:
    async def story() -> None:
        async with bench(4, queue=QueueFact("default", capability=Limits(1000))) as it:
            await it.see(member("a1"), member("a2"))
            assert (it.sent(), it.held(), it.refusal("a1")) == ({}, {}, Reason.GANG_WAITS)

    run_virtually(story())


def test_a_gang_that_finds_no_room_is_what_the_planner_decides_on() -> None:
    async def story() -> None:
        async with bench(1) as it:
            await it.see(*(member(f"a{n}", created=f"2026-01-01T00:00:0{n}Z") for n in range(3)))
            assert [[pod.uid for pod in pods] for pods in it.desk.preemptors()] == [["uid-a0", "uid-a1"]]
            assert [pod.uid for pod in it.desk.preemptors_of("uid-a2")] == ["uid-a0", "uid-a1"]
            assert it.short
        async with bench(2) as it:
            await it.see(*(member(f"a{n}") for n in range(2)))
            assert (list(it.desk.preemptors()), it.desk.preemptors_of("uid-a0")) == ([], ())

    run_virtually(story())


def test_what_a_plan_nominated_is_let_in_and_what_it_only_holds_is_not() -> None:
    async def story() -> None:
        async with bench(2) as it:
            pods = [member(f"a{n}", "g", 2, GATE) for n in range(2)]
            placements: list[tuple[PodFact, Placement]] = []
            for number, pod in enumerate(pods):
                view = it.ledger.view("n0")
                assert view is not None
                cards = view.cards[number : number + 1]
                found = best_placement([replace(view, cards=cards)], pod, Policies())
                assert found is not None
                placements.append((pod, found))
            cards = tuple(
                NodeReservation("n0", one)
                for pod, found in placements
                for one in reservations_of(((pod.uid, found),))
            )
            it.ledger.plans.put(PlanHold("team/plan", 1, cards))
            await it.see(*pods)
            assert (it.sent(), it.refusal("a0")) == ({}, Reason.GANG_WAITS)
            for pod, found in placements:
                it.ledger.nominate(pod.uid, "n0", found)
            await it.settle()
            assert (it.sent(), it.refusal("a0")) == ({"a0": [GATE], "a1": [GATE]}, None)
            it.ledger.plans.drop("team/plan")
            assert it.refusal("a0") is Reason.GANG_WAITS

    run_virtually(story())


async def one_is_lost(it: Bench) -> None:
    """Two of three run on, and another pod has the room of the third."""
    pods = [member(f"a{n}", "g", 3) for n in range(3)]
    await it.see(*(runs(pod, "n0", number) for number, pod in enumerate(pods)))
    await it.see(bound("other", "n0", 2, CARD_MIB))
    await it.lose("a2")
    await it.see(member("b2", "g", 3))


def test_s51_a_gang_below_its_minimum_is_told_and_goes_after_the_hold_time() -> None:
    async def story() -> None:
        async with bench(3) as it:
            await one_is_lost(it)
            assert set(it.told) == {(name, Reason.GANG_PARTIAL) for name in ("a0", "a1", "b2")}
            await asyncio.sleep(HOLD_SECONDS - 10)
            assert it.evicted == []
            await asyncio.sleep(20)
            assert it.evicted == ["a0", "a1"]

    run_virtually(story())


def test_a_gang_below_its_minimum_has_the_hold_time_that_its_queue_grants_by_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with bench(3) as it:
            await one_is_lost(it)
            monkeypatch.setitem(globals(), "HOLD_SECONDS", 3 * HOLD_SECONDS)
            await asyncio.sleep(HOLD_SECONDS - 10)
            assert it.evicted == []
            await asyncio.sleep(20)
            assert it.evicted == ["a0", "a1"]

    run_virtually(story())


def test_s51_a_gang_that_is_completed_in_time_goes_on() -> None:
    async def story() -> None:
        async with bench(3) as it:
            pods = [member(f"a{n}", "g", 3) for n in range(3)]
            await it.see(*(runs(pod, "n0", number) for number, pod in enumerate(pods)))
            await it.lose("a2")
            await it.see(member("b2", "g", 3))
            assert it.sent() == {"b2": ["n0"]}
            await it.see(runs(member("b2", "g", 3), "n0", 2))
            await asyncio.sleep(2 * HOLD_SECONDS)
            assert (it.evicted, it.held()) == ([], {})

    run_virtually(story())


def test_a_launcher_without_cards_counts_and_what_has_succeeded_is_not_missed() -> None:
    async def story() -> None:
        async with bench(2) as it:
            it.roster.gangs.others_changed = it.gangs.rules_changed
            await it.see(member("a0", "g", 3), member("a1", "g", 3))
            assert (it.sent(), it.refusal("a0")) == ({}, Reason.GANG_INCOMPLETE)
            launcher = replace(member("launcher", "g", 3), wants_gpus=False, request=None)
            await it.see(launcher)
            assert sorted(it.sent()) == ["a0", "a1"]
            pods = [runs(member(f"a{n}", "g", 3), "n0", n) for n in range(2)]
            await it.see(*pods)
            await it.see(replace(pods[1], phase=Phase.SUCCEEDED, container_running=False))
            await it.see(member("late", "g", 3))
            assert (it.told, it.refusal("late")) == ([], None)

    run_virtually(story())


def test_a_new_leader_sends_gangs_that_fit() -> None:
    async def story() -> None:
        async with bench(2) as it:
            await it.see(member("a1"), member("a2"))
            it.sent()
            it.gangs.start_over()
            await it.settle()
            assert sorted(it.sent()) == ["a1", "a2"]

    run_virtually(story())


def test_what_came_between_look_and_hold_is_not_held_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with bench(2) as it:
            look = GangRooms.find
            taker = bound("x", "n0", 1, CARD_MIB)

            async def slowly(self: GangRooms, states: Sequence[GangState]) -> Any:
                found = await look(self, states)
                if found[0]:
                    it.ledger.put_pod(taker)
                    it.roster.put_pod(taker)
                return found

            monkeypatch.setattr(GangRooms, "find", slowly)
            await it.see(member("a1"), member("a2"))
            assert (it.sent(), it.held(), it.refusal("a1")) == ({}, {}, Reason.GANG_WAITS)
            monkeypatch.undo()
            await it.lose("x")
            assert it.held() == {"gang team/g": {"uid-a1", "uid-a2"}}

    run_virtually(story())


def test_room_for_a_large_gang_is_looked_for_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their turn meanwhile."""
    pieces: list[int] = []
    work = offers_in_pieces

    def counting(*args: Any) -> Generator[None, None, Any]:
        pieces.append(0)
        found = work(*args)
        while True:
            try:
                next(found)
            except StopIteration as done:
                return done.value
            pieces[-1] += 1
            yield

    async def story() -> None:
        async with bench(*[8] * 20) as it:
            monkeypatch.setattr("vgpu.controller.preempt.gang_rooms.offers_in_pieces", counting)
            await it.see(*(member(f"a{number}", "g", 160) for number in range(160)))
            assert len(it.held()["gang team/g"]) == 160

    run_virtually(story())
    assert max(pieces) >= 160 // PIECE
