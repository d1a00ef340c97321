"""Random lives of many plans on one small cluster, and what must hold after every event (preemption.md 4.6).

T1 no card is ever over its capacity; T2 what is held fits as soon as those who leave are gone; T3 nothing is held
for one who does not wait, but for seats of a gang that wait for a member; T4 once victims are gone and nobody
disturbs, every owner with a plan is bound, and every gang with a plan that is whole runs. They are counted from
the truth and its assignments, not with the ledger's sums. Equal seeds give equal runs.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.core.building import make_request, want
from tests.core.oracle import count_cards, may_hold
from tests.core.preempt.plan_cluster import PlanCluster, without
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.preempt.facts import OwnerKind, PlanFact
from vgpu.core.preempt.leftover import left_of
from vgpu.core.preempt.plan import PlanEnd, Progress, hold_of, key_of
from vgpu.core.preempt.reservations import without_plans
from vgpu.core.preempt.takeover import losers
from vgpu.core.recount import reservations_of
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView

REQUESTS: tuple[PodRequest, ...] = (
    make_request(want(1)),
    make_request(want(2)),
    make_request(want(1, 25, 20)),
    make_request(want(2, 25)),
    make_request(want(1, 40, 50)),
    make_request(want(1, 60)),
    make_request(want(2, 60, 100)),
    make_request(want(1, 5)),
    make_request(want(1, 30, 30, name="x"), want(1, 30, name="y")),
)


class Soak:
    """A cluster, a source of chance, and the operations that it draws from."""

    def __init__(self, seed: int, make: Callable[[], Ledger] = Ledger) -> None:
        self.random = Random(seed)
        self.cluster = PlanCluster(nodes=2, cards=3, make=make)
        self.bound = 0
        self._count = 0
        self._requests: dict[str, PodRequest] = {}
        self._left: set[str] = set()
        """Members that were bound, and seats that were given up: what was held for them is promised no more."""
        self._loose: set[str] = set()
        """Plans of which a process that has died knew that: the next one finds out that cards are lost."""

    def run(self, steps: int) -> int:
        """Let things happen and check after each; how many owners of plans were bound."""
        operations = dealt_to(self)
        for _ in range(steps):
            self.random.choice(operations)()
            self.check()
        self.come_to_rest()
        return self.bound

    # What happens.

    def low(self) -> None:
        uid = self._new("l", self.random.choice(REQUESTS))
        self.cluster.try_bind(uid, self._node())

    def thief(self) -> None:
        """Any waiting pod asks for any node, planned for or not."""
        waiting = self._uids(lambda pod: not pod.node)
        if waiting:
            self.cluster.try_bind(self.random.choice(waiting), self._node())

    def refused_bind(self) -> None:
        waiting = self._uids(lambda pod: not pod.node)
        if waiting:
            self.cluster.try_bind(self.random.choice(waiting), self._node(), refused=True)

    def high(self) -> None:
        """One pod, or two that need each other, with victims by chance."""
        if len(self.cluster.plans) >= 4:
            return
        request = self.random.choice(REQUESTS)
        owners = [self._new("h", request) for _ in range(self.random.choice((1, 1, 2)))]
        self._plan(owners, {node: self.cluster.view(node) for node in self.cluster.nodes})

    def takes_over(self) -> None:
        """A pod that outranks all owners is decided on as if nothing were held for them."""
        lower = list(self.cluster.ledger.plans.all())
        owner = self._new("hh", self.random.choice(REQUESTS))
        views = {node: without_plans(self.cluster.view(node), lower) for node in self.cluster.nodes}
        plan = self._plan([owner], views)
        lost = losers(hold_of(plan), lower, self.cluster.ledger.view) if plan else []
        assert lost is not None, "a plan made without the lower ones fits without them"
        for hold in lost:
            self.cluster.taken_over[hold.plan] = key_of(plan) if plan else ""
            self.cluster.step(self.cluster.plans[hold.plan])
            assert self.cluster.ends[hold.plan].reason in (
                PlanEnd.TAKEN_OVER,
                PlanEnd.OWNER_GONE,
                PlanEnd.OWNER_CHANGED,
                PlanEnd.OWNER_BOUND,
            )
            if self.cluster.ends[hold.plan].replan:
                left = left_of(replace(hold, plan=f"left of {hold.plan}"), self.cluster.view)
                self.cluster.ledger.plans.put(left)

    def decided_anew(self) -> None:
        """Of the owner of a plan that is over it is known what becomes of him."""
        for hold in self.cluster.ledger.plans.left()[:1]:
            self.cluster.ledger.plans.drop(hold.plan)

    def step(self) -> None:
        """A plan goes on; now and then the process dies in the middle."""
        if not self.cluster.plans:
            return
        plan = self.cluster.plans[self.random.choice(sorted(self.cluster.plans))]
        if self.random.random() < 0.2:
            self.cluster.step(plan, most=self.random.randrange(3))
            self.restart()
        else:
            self.cluster.step(plan)

    def finish(self) -> None:
        """A leaving pod ends; its controller may make another at once."""
        leaving = self._uids(lambda pod: pod.terminating)
        if leaving:
            uid = self.random.choice(leaving)
            request = self.cluster.pods[uid].request
            self.cluster.gone(uid)
            if request is not None and self.random.random() < 0.7:
                self.cluster.try_bind(self._new("again", request), self._node())

    def ends(self) -> None:
        running = self._uids(lambda pod: bool(pod.node) and not pod.terminating)
        if running:
            self.cluster.gone(self.random.choice(running))

    def owner_goes(self) -> None:
        waiting = self._uids(lambda pod: not pod.node)
        if waiting:
            self.cluster.gone(self.random.choice(waiting))

    def member_goes(self) -> None:
        """A member of a gang with a plan goes, whether it waits or is bound."""
        there = [uid for plan in self._gang_plans() for uid in plan.owner_uids if uid in self.cluster.pods]
        if there:
            self.cluster.gone(self.random.choice(there))

    def member_comes(self) -> None:
        """A gang of which too few are there gets another one."""
        for plan in self._gang_plans():
            gang = self.cluster.gang(plan)
            if gang is not None and not gang.whole:
                self._count += 1
                self.cluster.member(f"m{self._count}", plan.owner_name, self._requests[plan.owner_name])
                return

    def nomination_lapses(self) -> None:
        for uid in self._uids(lambda pod: not pod.node)[:1]:
            self.cluster.ledger.drop_nomination(uid)

    def time_passes(self) -> None:
        self.cluster.now_seconds += self.random.choice((1, 20, 100))

    def restart(self) -> None:
        """The process dies between two steps."""
        for plan in self._gang_plans():
            if any(uid not in self.cluster.pods for uid in self._left & {*plan.owner_uids}):
                self._loose.add(key_of(plan))
        self.cluster.restart()

    def looks_elsewhere(self) -> None:
        self.cluster.look_elsewhere = not self.cluster.look_elsewhere

    # What must hold.

    def check(self) -> None:
        waiting = {pod.uid for pod in self.cluster.pods.values() if not pod.node}
        self._note_left()
        for node in self.cluster.nodes:
            self._t1(node)
            self._t3(node, waiting)
            self._t2(node, waiting)

    def come_to_rest(self) -> None:
        """T4: no thief, no clock, no other room: those with a plan get their cards, once every gang is whole."""
        cluster = self.cluster
        while any((now := cluster.gang(plan)) is not None and not now.whole for plan in self._gang_plans()):
            self.member_comes()
        cluster.look_elsewhere = False
        for hold in cluster.ledger.plans.left():
            cluster.ledger.plans.drop(hold.plan)
        plans = list(cluster.plans.values())
        cluster.progress = dict.fromkeys(cluster.plans, Progress())
        gangs = [plan for plan in plans if plan.owner_kind is OwnerKind.GANG]
        whole = [plan for plan in gangs if (now := cluster.gang(plan)) is not None and now.whole]
        cluster.settle()
        self.check()
        owners = {uid for plan in plans if self._whole(plan) for uid in plan.owner_uids}
        left = sorted(uid for uid in owners if not cluster.pods[uid].node)
        assert not left, f"T4: {left} still wait"
        whole = [plan for plan in whole if not self._lost_a_bound_one(plan)]
        lacking = [plan.name for plan in whole if (now := cluster.gang(plan)) is None or now.lacks]
        assert not lacking, f"T4: {lacking} do not run"
        self.bound = sum(1 for end in cluster.ends.values() if end.reason is PlanEnd.OWNER_BOUND)

    def _t1(self, node: str) -> None:
        inventory = self.cluster.inventories[node]
        pods = [pod for pod in self.cluster.pods.values() if pod.node == node and may_hold(pod)]
        listed, _ = count_cards(inventory, [(p.uid, p.assignment.containers) for p in pods if p.assignment])
        for card in inventory.cards:
            assert not listed[card.uuid].over(card), f"T1: {card.uuid} carries {listed[card.uuid]}"

    def _t2(self, node: str, waiting: set[str]) -> None:
        plans = [plan for plan in self.cluster.plans.values() if self._holds(plan, waiting)]
        holds = {hold.plan: hold for hold in self.cluster.ledger.plans.all()}
        going = {uid for p in plans for uid, _ in holds[key_of(p)].victims} if self._all_held(plans) else set()
        inventory = self.cluster.inventories[node]
        pods = [
            p for p in self.cluster.pods.values() if p.node == node and not p.terminating and p.uid not in going
        ]
        listed, _ = count_cards(inventory, [(p.uid, p.assignment.containers) for p in pods if p.assignment])
        there = [one for one in self.cluster.view(node).reservations if one.uid not in self._left]
        held = {(one.uid, one.uuid): one for one in there}
        planned = [c.reservation for p in plans for c in p.reservations if c.node == node]
        held |= {(one.uid, one.uuid): one for one in planned if one.uid in (waiting | self._empty()) - self._left}
        for card in inventory.cards:
            use, mine = listed[card.uuid], [one for one in held.values() if one.uuid == card.uuid]
            alone = any(one.exclusive for one in mine) or any(part.alone for part in use.pods.values())
            assert not mine or not alone or len(mine) + len(use.pods) == 1, f"T2: {card.uuid}: one must be alone"
            assert not mine or use.slots + sum(one.slots for one in mine) <= card.slots, "T2: slots"
            assert not mine or use.memory_mib + sum(one.memory_mib for one in mine) <= card.memory_mib, (
                "T2: memory"
            )
            assert not mine or use.cores + sum(one.cores for one in mine) <= 100, "T2: cores"

    def _t3(self, node: str, waiting: set[str]) -> None:
        view = self.cluster.view(node)
        planned = {uid for plan in self.cluster.plans.values() for uid in plan.owner_uids}
        planned |= {uid for hold in self.cluster.ledger.plans.left() for uid in hold.uids}
        for one in view.reservations:
            waits = one.uid in waiting | self._empty()
            assert waits, f"T3: {one.uid} does not wait and {one.uuid} is held for it"
            assert one.uid in planned or self.cluster.ledger.nomination(one.uid), f"T3: no plan for {one.uid}"
        for holder in (holder for card in view.cards for holder in card.holders if holder.evicting):
            plans = [p for p in self.cluster.plans.values() if holder.uid in {victim.uid for victim in p.victims}]
            assert any(self._holds(p, waiting) for p in plans), f"T3: nobody waits for {holder.uid} to go"

    # Small things.

    def _all_held(self, plans: list[PlanFact]) -> bool:
        held = {hold.plan for hold in self.cluster.ledger.plans.all()}
        return all(key_of(plan) in held for plan in plans)

    def _whole(self, plan: PlanFact) -> bool:
        """None of its owners is gone."""
        return all(uid in self.cluster.pods for uid in plan.owner_uids)

    def _note_left(self) -> None:
        for plan in self._gang_plans():
            hold, pods = self.cluster.ledger.plans.get(key_of(plan)), self.cluster.pods
            self._left |= set() if hold is None else hold.uids - hold.kept
            self._left |= {uid for uid in plan.owner_uids if uid in pods and pods[uid].node}
            self._left |= {*plan.owner_uids} if key_of(plan) in self._loose else set()

    def _lost_a_bound_one(self, plan: PlanFact) -> bool:
        """Then the gang is decided on anew, which nobody does here."""
        members = {uid for uid, gang in self.cluster.gangs.items() if gang == plan.owner_name}
        return key_of(plan) in self._loose or not (members & self._left) <= self.cluster.pods.keys()

    def _gang_plans(self) -> list[PlanFact]:
        return [plan for plan in self.cluster.plans.values() if plan.owner_kind is OwnerKind.GANG]

    def _holds(self, plan: PlanFact, waiting: set[str]) -> bool:
        """True when it holds cards for somebody: for who waits, or for who is to come."""
        return not (waiting | self._empty()).isdisjoint(plan.owner_uids)

    def _empty(self) -> set[str]:
        """Seats of gangs with a plan whose pods are gone, or go, and that they have not given up."""
        pods = self.cluster.pods
        owners = {uid for plan in self._gang_plans() for uid in plan.owner_uids}
        kept = {uid for hold in self.cluster.ledger.plans.all() for uid in hold.kept}
        return {uid for uid in owners & kept if uid not in pods or pods[uid].terminating}

    def _plan(self, owners: list[str], views: dict[str, NodeView]) -> PlanFact | None:
        victims = [
            uid for uid in self._uids(lambda p: bool(p.node) and not p.terminating) if self.random.random() < 0.5
        ]
        views = {node: without(view, victims) for node, view in views.items()}
        members: list[tuple[str, Placement]] = []
        for uid in owners:
            node = self._node()
            request = self.cluster.pods[uid].request
            assert request is not None
            placement = place(views[node], request, uid, Policies())
            if not isinstance(placement, Placement):
                return None
            members.append((uid, placement))
            taken = reservations_of(((uid, placement),))
            views[node] = replace(views[node], reservations=(*views[node].reservations, *taken))
        self._requests[owners[0]] = self.cluster.pods[owners[0]].request or REQUESTS[0]
        return self.cluster.plan(owners[0], victims, members)

    def _new(self, prefix: str, request: PodRequest) -> str:
        self._count += 1
        return self.cluster.wait(f"{prefix}{self._count}", request).uid

    def _node(self) -> str:
        return self.random.choice(sorted(self.cluster.nodes))

    def _uids(self, which: Callable[..., bool]) -> list[str]:
        return [pod.uid for pod in self.cluster.pods.values() if which(pod)]


def dealt_to(soak: Soak) -> list[Callable[[], None]]:
    """The operations, each as often as it is to happen."""
    often = [soak.step] * 5 + [soak.finish] * 3 + [soak.low] * 3 + [soak.thief] * 4 + [soak.high] * 2
    often += [soak.cluster.bind_nominated] * 3 + [soak.refused_bind, soak.takes_over, soak.ends, soak.owner_goes]
    often += [soak.decided_anew, soak.member_goes, soak.member_comes, soak.member_comes]
    return [*often, soak.restart, soak.nomination_lapses, soak.time_passes, soak.looks_elsewhere]
