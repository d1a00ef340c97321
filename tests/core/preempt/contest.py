"""Queues that contest one pool of cards, played until nobody may evict anybody, or until they go in circles.

A scalar model: room is a number, so that only the question of who may evict whom is on trial. Units are single
pods or gangs: a gang starts with its minimum at once, and loses surplus pods singly or everything. Each rule can
be switched off to see whether the circles come back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.core.preempt.queueing import NOW, limit, make_queue, make_workload
from vgpu.core.preempt.amounts import sum_of
from vgpu.core.preempt.eligible import Standing, may_evict, may_preempt, refuse_victims, standing_of
from vgpu.core.preempt.facts import (
    Amounts,
    BorrowPolicy,
    Gang,
    Limits,
    QueueFact,
    ReclaimAcrossQueues,
    WithinQueue,
    Workload,
)
from vgpu.core.preempt.protection import Right
from vgpu.core.preempt.queues import may_start
from vgpu.core.preempt.usage import usage_by_queue

Unit = tuple[str, ...]
"""Uids that start or go together."""
Entitle = Callable[[dict[str, QueueFact], Sequence[Workload], Sequence[Workload]], frozenset[str]]
"""Who is entitled, given the queues, all workloads, and those that want to start now."""
MOST_EVICTIONS = 200


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be switched off. `entitle` None: the product's own walk."""

    entitle: Entitle | None = None
    hold: bool = True
    """The freed room is held for whom it was freed."""


@dataclass(slots=True)
class Contest:
    """One instance. `capacity` in thousandths of cards."""

    capacity: int
    queues: dict[str, QueueFact]
    workloads: dict[str, Workload]
    random: Random
    rules: Rules = field(default_factory=Rules)
    evictions: int = 0
    wrongs: list[str] = field(default_factory=list)
    """Promises to queues that an eviction broke, counted anew and not by the rules on trial."""

    def circles(self) -> bool:
        """Play; True when a running set came back after an eviction."""
        self._fill()
        seen = {self._running()}
        while self._evict_once():
            self._fill()
            now = self._running()
            if now in seen or self.evictions > MOST_EVICTIONS:
                return True
            seen.add(now)
        return False

    def _running(self) -> frozenset[str]:
        return frozenset(w.uid for w in self.workloads.values() if w.running)

    def _fill(self) -> None:
        """Start whatever fits idle, in any order: nothing may rest on a clever one."""
        units = list(self._waiting_units())
        self.random.shuffle(units)
        for unit in units:
            members = self._members(unit)
            added = sum_of(m.claim for m in members)
            usage = usage_by_queue(self.workloads.values())
            name = members[0].queue
            allowed = name not in usage or may_start(name, self.queues, usage[name], added) is None
            if allowed and added.cards_thousandths <= self._free():
                self._set(unit, running=True)

    def _evict_once(self) -> bool:
        units = list(self._waiting_units())
        self.random.shuffle(units)
        for unit in units:
            victims = self._victims_for(self._members(unit))
            if victims:
                self.evictions += len(victims)
                self._note_wrongs(unit, victims)
                self._set(victims, running=False)
                if self.rules.hold:
                    self._set(unit, running=True)
                return True
        return False

    def _note_wrongs(self, unit: Unit, victims: Unit) -> None:
        """What the winner's queue uses must stay under its cap, what others lose must leave their guarantee."""
        winner = self.workloads[unit[0]].queue
        for name, queue in self.queues.items():
            lost = [uid for uid in victims if self.workloads[uid].queue == name]
            kept = sum(
                w.amounts.cards_thousandths
                for w in self.workloads.values()
                if w.queue == name and ((w.running and w.uid not in lost) or w.uid in unit)
            )
            cap, floor = queue.capability.cards_thousandths, queue.guarantee.cards_thousandths
            if name == winner and cap is not None and kept > cap:
                self.wrongs.append(f"{name} uses {kept} of {cap}")
            if name != winner and lost and floor is not None and kept < floor:
                self.wrongs.append(f"{name} keeps {kept} of {floor}")
            if name != winner and lost and not queue.reclaimable:
                self.wrongs.append(f"{name} is not reclaimable and lost {lost}")

    def _victims_for(self, members: list[Workload]) -> Unit:
        """Some set of victims that makes room and is irredundant, () when there is none."""
        standing = self._standing(members)
        wanted = sum_of(m.claim for m in members)
        if any(may_preempt(standing, m, NOW) is not None for m in members):
            return ()
        units = [u for u in self._victim_units() if self._all_may_go(standing, members, u)]
        self.random.shuffle(units)
        chosen: list[Unit] = []
        for unit in units:
            if self._refused(standing, members, wanted, chosen) is None:
                break
            chosen.append(unit)
        if self._refused(standing, members, wanted, chosen) is not None:
            return ()
        for unit in list(chosen):
            others = [u for u in chosen if u != unit]
            if self._refused(standing, members, wanted, others) is None:
                chosen = others
        return tuple(uid for unit in _maximal(chosen) for uid in unit)

    def _refused(
        self, standing: Standing, members: list[Workload], wanted: Amounts, chosen: list[Unit]
    ) -> object | None:
        gone = {uid for unit in chosen for uid in unit}
        victims = [self.workloads[uid] for uid in sorted(gone)]
        if self._breaks_a_gang(gone):
            return "a gang would run below its minimum"
        if wanted.cards_thousandths > self._free() + sum_of(v.amounts for v in victims).cards_thousandths:
            return "no room"
        return refuse_victims(standing, members[0].queue, wanted, victims)

    def _breaks_a_gang(self, gone: set[str]) -> bool:
        for gang in {w.gang for w in self.workloads.values() if w.gang is not None}:
            before = [w for w in self.workloads.values() if w.gang == gang and w.running]
            left = sum(w.uid not in gone for w in before)
            if left < len(before) and 0 < left < gang.minimum:
                return True
        return False

    def _all_may_go(self, standing: Standing, members: list[Workload], unit: Unit) -> bool:
        return all(
            isinstance(may_evict(standing, member, self.workloads[uid], NOW), Right)
            for member in members
            for uid in unit
        )

    def _standing(self, members: list[Workload]) -> Standing:
        everyone = list(self.workloads.values())
        standing = standing_of(self.queues, everyone)
        if self.rules.entitle is None:
            return standing
        return replace(standing, entitled=self.rules.entitle(self.queues, everyone, members))

    def _waiting_units(self) -> Iterator[Unit]:
        for gang, members in self._groups():
            waiting = [w.uid for w in members if not w.running]
            missing = 0 if gang is None else max(0, gang.minimum - (len(members) - len(waiting)))
            oldest_first = sorted(waiting)
            if missing and len(waiting) >= missing:
                yield tuple(oldest_first[:missing])
            elif not missing:
                yield from ((uid,) for uid in oldest_first)

    def _victim_units(self) -> Iterator[Unit]:
        for gang, members in self._groups():
            on = [w.uid for w in members if w.running]
            if gang is not None and on:
                yield tuple(on)
            if gang is None or not gang.disruption_all:
                yield from ((uid,) for uid in on)

    def _groups(self) -> Iterator[tuple[Gang | None, list[Workload]]]:
        gangs: dict[str, list[Workload]] = {}
        for workload in self.workloads.values():
            if workload.gang is None:
                yield None, [workload]
            else:
                gangs.setdefault(workload.gang.key, []).append(workload)
        for members in gangs.values():
            yield members[0].gang, members

    def _members(self, unit: Unit) -> list[Workload]:
        return [self.workloads[uid] for uid in unit]

    def _free(self) -> int:
        return self.capacity - sum(w.amounts.cards_thousandths for w in self.workloads.values() if w.running)

    def _set(self, uids: Unit, *, running: bool) -> None:
        """Start on cards that may be larger than the claim says, or stop."""
        for uid in uids:
            before = self.workloads[uid]
            claim = before.claim
            real = (
                replace(claim, memory_mib=claim.memory_mib * self.random.choice((1, 1, 2))) if running else claim
            )
            self.workloads[uid] = replace(
                before, running=running, amounts=real, started_seconds=0 if running else None
            )


def _maximal(units: Sequence[Unit]) -> list[Unit]:
    """The units without those that are part of another: a whole gang and its surplus."""
    sets = [set(unit) for unit in units]
    return [unit for unit, own in zip(units, sets, strict=True) if not any(own < other for other in sets)]


def random_contest(seed: int, rules: Rules) -> Contest:
    """Two or three queues and three to nine jobs of all policies, classes and sizes."""
    random = Random(seed)
    queues = {name: _random_queue(random, name) for name in "abc"[: random.randint(2, 3)]}
    workloads = [w for i in range(random.randint(3, 9)) for w in _random_job(random, f"j{i}", list(queues))]
    capacity = random.randint(2, 8) * 1000
    return Contest(capacity, queues, {w.uid: w for w in workloads}, random, rules)


def _random_queue(random: Random, name: str) -> QueueFact:
    deserved = random.choice([0, 1, 2, 3, 4])
    guaranteed = random.choice([0, 0, min(1, deserved)])
    memory = random.choice([None, None, deserved * 32_768])
    return make_queue(
        name,
        deserved=Limits(deserved * 1000, memory),
        reclaimable=random.random() < 0.9,
        guarantee=limit(guaranteed) if guaranteed else Limits(),
        capability=limit(deserved + random.randint(0, 3)) if random.random() < 0.2 else Limits(),
        within_queue=random.choice(list(WithinQueue)),
        reclaim_across_queues=random.choice(list(ReclaimAcrossQueues)),
        borrow_across_queues=random.choice(list(BorrowPolicy)),
        borrow_max_priority=random.choice([None, 50]),
    )


def _random_job(random: Random, uid: str, queues: list[str]) -> list[Workload]:
    queue, priority = random.choice(queues), random.choice([0, 0, 10, 50, 100])
    created, size = random.randint(0, 20), random.choice([0.5, 1, 1, 2, 3, 4])
    if random.random() < 0.8:
        return [make_workload(uid, queue, size, priority=priority, created_seconds=created)]
    members = random.randint(2, 3)
    gang = Gang(uid, random.randint(1, members), random.random() < 0.3)
    return [
        make_workload(f"{uid}-{i}", queue, min(size, 1), priority=priority, created_seconds=created, gang=gang)
        for i in range(members)
    ]
