"""Turns workloads that may be evicted into units of eviction: single pods, surplus members, whole gangs.

Enters: the workloads that one preemptor may evict, all workloads of their gangs, disruption budgets, what queues
must keep. Leaves: Victims, the units of each node and the allowances that bind them together. By whose right a
workload may go has been decided before; which units do go is the search's business.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpu.core.preempt.cost import Cost, CostScale, low_part, tie_of
from vgpu.core.preempt.facts import Amounts, DisruptionBudget, Gang, Workload
from vgpu.core.preempt.problem import Allowance, Unit


@dataclass(frozen=True, slots=True)
class DisruptionFact:
    """One PodDisruptionBudget: the pods it covers, and how many of them may still be disturbed (accepted evictions
    of ours that its status does not show yet are taken off by the caller; those that are only planned are not)."""

    key: str
    allowed: int
    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Terms:
    """What every unit is measured by. `keeps`: per queue what it must not lose more than, by dimension: see
    guarantee_keys."""

    scale: CostScale
    now_seconds: int
    disruptions: tuple[DisruptionFact, ...] = ()
    budget: DisruptionBudget = DisruptionBudget.RESPECT
    keeps: tuple[Allowance, ...] = ()


@dataclass(frozen=True, slots=True)
class Victims:
    """Units by node, and what binds units of all nodes. `unfit`: eligible pods that no unit holds, with why."""

    units: Mapping[str, tuple[Unit, ...]]
    allowances: tuple[Allowance, ...]
    unfit: Mapping[str, str]

    def on(self, node: str) -> tuple[Unit, ...]:
        """The node's units, always the same object, so that a search can tell that nothing changed."""
        return self.units.get(node, ())

    def apart_from(self, going: Collection[tuple[str, str]]) -> "Victims":
        """Without these (uid, node), who go already for someone else; what they draw of allowances is drawn."""
        if not going:
            return self
        uids = frozenset(uid for uid, _ in going)
        drawn: Counter[str] = Counter()
        for uid, node in going:
            drawn.update(dict(next((unit.uses for unit in self.on(node) if unit.uids == (uid,)), ())))
        nodes = {node for _, node in going if node in self.units}
        if any(unit.whole and not uids.isdisjoint(unit.uids) for node in nodes for unit in self.units[node]):
            nodes = set(self.units)
        left = {**self.units, **{node: _without(self.units[node], uids) for node in nodes}}
        allowances = tuple(
            replace(one, allowed=one.allowed - drawn[one.key]) if drawn[one.key] else one
            for one in self.allowances
        )
        return Victims(left, allowances, self.unfit)


@dataclass(slots=True)
class Apart:
    """Victims apart from those who go for others, kept from decision to decision: mostly one plan was added.
    `going_on`: uids of those who go, by node."""

    going_on: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _all: Victims | None = None
    _left: Victims | None = None
    _going: frozenset[tuple[str, str]] = frozenset()

    def of(self, victims: Victims, going: frozenset[tuple[str, str]]) -> Victims:
        """What apart_from gives."""
        if self._left is None or victims is not self._all or not going >= self._going:
            self._all, self._left, self._going = victims, victims, frozenset()
            self.going_on.clear()
        more = going - self._going
        for uid, node in more:
            self.going_on[node].add(uid)
        self._left, self._going = self._left.apart_from(more), going
        return self._left


def victims_of(eligible: Iterable[Workload], everyone: Iterable[Workload], terms: Terms) -> Victims:
    """The units that these running workloads make up. `everyone` holds at least all members of their gangs.

    Of a gang with r members running and a minimum of m, at most r - m may go singly, or all of them together;
    with disruptionMode All only together. Never is it left with fewer than its minimum.
    """
    maker = _Maker(terms)
    candidates = {w.uid: w for w in eligible if w.node is not None and maker.is_fit(w)}
    gangs: dict[str, list[Workload]] = defaultdict(list)
    for workload in everyone:
        if workload.gang is not None and workload.running and not workload.terminating:
            gangs[workload.gang.key].append(workload)
    for workload in candidates.values():
        if workload.gang is None:
            maker.add_single(workload, broken=1)
    for key in sorted({w.gang.key for w in candidates.values() if w.gang is not None}):
        maker.add_gang(gangs[key], candidates)
    by_node = {
        node: tuple(sorted(units, key=lambda unit: (unit.cost, unit.key))) for node, units in maker.units.items()
    }
    return Victims(by_node, (*maker.allowances(), *terms.keeps), maker.unfit)


def _without(units: tuple[Unit, ...], uids: frozenset[str]) -> tuple[Unit, ...]:
    stay = tuple(unit for unit in units if uids.isdisjoint(unit.uids))
    return stay if len(stay) < len(units) else units


def lost_work(workload: Workload, now_seconds: int) -> int:
    """Thousandths of cards x seconds since its last checkpoint, or its start."""
    since = workload.started_seconds if workload.started_seconds is not None else now_seconds
    if workload.checkpoint_seconds is not None:
        since = max(since, workload.checkpoint_seconds)
    return workload.amounts.cards_thousandths * max(0, now_seconds - since)


def guarantee_keys(queue: str, amounts: Amounts) -> tuple[tuple[str, int], ...]:
    """(key of the allowance, amount) of each dimension in which the queue would lose something."""
    dimensions = (
        ("cards", amounts.cards_thousandths),
        ("memory", amounts.memory_mib),
        ("cores", amounts.cores),
    )
    return tuple((f"guarantee {name} of {queue}", amount) for name, amount in dimensions if amount > 0)


class _Maker:
    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.units: dict[str, list[Unit]] = defaultdict(list)
        self.unfit: dict[str, str] = {}
        self._surplus: list[Allowance] = []
        self._budgets: dict[str, list[str]] = defaultdict(list)
        self._kept = {allowance.key for allowance in terms.keeps}
        self._high_parts: dict[tuple[int, int], int] = {}
        for disruption in terms.disruptions:
            for uid in disruption.uids:
                self._budgets[uid].append(disruption.key)

    def is_fit(self, workload: Workload) -> bool:
        """False for a pod that the Eviction API would refuse whatever we do."""
        if len(self._budgets.get(workload.uid, ())) > 1:
            self.unfit[workload.uid] = "it is under several disruption budgets, which the Eviction API refuses"
            return False
        return True

    def add_single(self, workload: Workload, *, broken: int, gang: str = "", also: str = "") -> None:
        """One pod of its own. `also`: the key of a further allowance that it draws one pod of."""
        uid, node = workload.uid, workload.node
        assert node is not None
        cost = self._packed(workload, broken)
        uses = self._uses([workload]) if self._kept or uid in self._budgets else ()
        if also:
            uses = (*uses, (also, 1))
        slots = 0 if workload.request is None else workload.request.slots
        self.units[node].append(Unit(uid, (uid,), frozenset((uid,)), slots, cost, gang, uses=uses))

    def add_gang(self, running: Sequence[Workload], candidates: Mapping[str, Workload]) -> None:
        """Its surplus members singly, and all of it together; together only where each member may go."""
        members = sorted(running, key=lambda w: w.uid)
        gang = members[0].gang if members else None
        if gang is None:
            return
        surplus = len(members) - gang.minimum
        if surplus > 0 and not gang.disruption_all:
            key = f"surplus of {gang.key}"
            self._surplus.append(Allowance(key, surplus))
            for member in members:
                if member.uid in candidates:
                    self.add_single(member, broken=0, gang=gang.key, also=key)
        spared = [member.pod for member in members if member.uid not in candidates]
        if not spared:
            self._add_whole(gang, members)
        elif surplus <= 0 or gang.disruption_all:
            why = f"its gang {gang.key} goes only as a whole, and {spared[0]} may not go"
            self.unfit.update({member.uid: why for member in members if member.uid in candidates})

    def allowances(self) -> tuple[Allowance, ...]:
        """What binds the units: surpluses and disruption budgets."""
        penalty = self.terms.scale.violation if self.terms.budget is DisruptionBudget.BEST_EFFORT else None
        budgets = (Allowance(fact.key, fact.allowed, penalty) for fact in self.terms.disruptions)
        return (*self._surplus, *budgets)

    def _add_whole(self, gang: Gang, members: Sequence[Workload]) -> None:
        broken = self.terms.scale.pack(Cost(pods_by_class=(0,) * len(self.terms.scale.classes), broken=1))
        cost = broken + sum(self._packed(member, broken=0) for member in members)
        uids = tuple(member.uid for member in members)
        uses = self._uses(members)
        by_node: dict[str, list[Workload]] = defaultdict(list)
        for member in members:
            if member.node is not None:
                by_node[member.node].append(member)
        for node, here in by_node.items():
            mine = frozenset(member.uid for member in here)
            unit = Unit(f"gang {gang.key}", uids, mine, _slots(here), cost, gang.key, whole=True, uses=uses)
            self.units[node].append(unit)

    def _packed(self, workload: Workload, broken: int) -> int:
        """Its cost as a number; what pods of one class have in common is packed once."""
        high = self._high_parts.get((workload.priority, broken))
        if high is None:
            of_class = self.terms.scale.one_of(workload.priority)
            high = self.terms.scale.pack(Cost(pods_by_class=of_class, broken=broken, pods=1))
            self._high_parts[workload.priority, broken] = high
        now, freed = self.terms.now_seconds, max(0, workload.amounts.cards_thousandths)
        started = workload.started_seconds
        age = 0 if started is None else max(0, now - started)
        return high + low_part(max(0, lost_work(workload, now)), freed, age, tie_of(workload.uid))

    def _uses(self, workloads: Iterable[Workload]) -> tuple[tuple[str, int], ...]:
        used: dict[str, int] = defaultdict(int)
        for workload in workloads:
            for key in self._budgets.get(workload.uid, ()):
                used[key] += 1
            for key, amount in guarantee_keys(workload.queue, workload.amounts):
                if key in self._kept:
                    used[key] += amount
        return tuple(used.items())


def _slots(workloads: Iterable[Workload]) -> int:
    return sum(workload.request.slots for workload in workloads if workload.request is not None)
