"""What is kept from decision to decision changes no plan: random worlds in which each is made both ways."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from tests.core.building import make_request, want
from tests.core.preempt.decided import Decided
from tests.core.preempt.plan_cluster import PlanCluster
from vgpu.core.facts import Scheduling
from vgpu.core.preempt import asked
from vgpu.core.preempt.cluster_search import SearchCache
from vgpu.core.preempt.decision import Plan, choose, decide
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import Limits, QueueFact
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.pool import Pool, pool_for
from vgpu.core.preempt.protection import No
from vgpu.core.preempt.renewal import renewed
from vgpu.core.preempt.victims import Apart, Victims
from vgpu.core.request import PodRequest
from vgpu.core.terms import OwnerRef

QUEUES = {
    "low": QueueFact("low", guarantee=Limits(cards_thousandths=1000)),
    "high": QueueFact("high", deserved=Limits(cards_thousandths=10**6)),
}
REQUESTS = tuple(
    make_request(want(number, None if percent == 100 else percent, percent=percent if percent < 100 else None))
    for number, percent in ((1, 100), (1, 60), (2, 50), (1, 25), (3, 60), (4, 100))
)
SEEDS = range(20)
STEPS = 14
SMALL = Scheduling(cpu_millicores=500)


class Both:
    """One world, and each of its decisions made with what is kept and from nothing."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        cluster = PlanCluster(nodes=3)
        cluster.nodes = {
            name: replace(node, pods=110, cpu_millicores=4000) for name, node in cluster.nodes.items()
        }
        cluster.restart()
        self.made = Decided(cluster, queues=QUEUES)
        self.made.more["uses"] = {"n1": NodeUse(3800, 0, 4), "n2": NodeUse(1000, 0, 4)}
        for number in range(12):
            self._low(f"l{number}")
        self.cache = SearchCache()
        self.kept: tuple[DecisionWorld, Pool] | None = None
        self._count = 0

    def answers(self) -> Iterator[tuple[Plan | No, Plan | No]]:
        """The kept way, and the plain one; some plans count from then on."""
        for _ in range(STEPS):
            self._something_happens()
            uids = self._newcomers(self.random.choice([1, 1, 1, 2, 3]))
            world = self.made.world()
            pods = [world.workloads[uid] for uid in uids]
            now = self.made.cluster.now_seconds
            plain = decide(world, pods, now)
            kept = self._keep(world, uids)
            yield (choose(world, pods, kept, self.cache) if isinstance(kept, Pool) else kept), plain
            if isinstance(plain, Plan) and self.random.random() < 0.7:
                self.made.cluster.plan(uids[0], [one.uid for one in plain.victims], plain.seats)

    def _keep(self, world: DecisionWorld, uids: list[str]) -> Pool | No:
        pods = [world.workloads[uid] for uid in uids]
        pool: Pool | No | None = None
        if self.kept is not None:
            pool = renewed(self.kept[1], self.kept[0], world, pods)
        if pool is None:
            pool = pool_for(world, pods, self.made.cluster.now_seconds)
        self.kept = (world, pool) if isinstance(pool, Pool) else None
        return pool

    def _newcomers(self, count: int) -> list[str]:
        request = self.random.choice(REQUESTS)
        uids = [f"h{self._count + number}" for number in range(count)]
        self._count += count
        for uid in uids:
            self.made.marks[uid] = {"priority": 100, "queue": "high", "owner": OwnerRef("job", "Job", "job")}
            self.made.cluster.wait(uid, request)
        self.made.more["scheduling"] = dict.fromkeys(self.made.cluster.pods, SMALL)
        return uids

    def _something_happens(self) -> None:
        cluster, chance = self.made.cluster, self.random.random()
        running = sorted(uid for uid, pod in cluster.pods.items() if pod.node)
        waiting = sorted(uid for uid, pod in cluster.pods.items() if not pod.node)
        if running and chance < 0.2:
            cluster.gone(self.random.choice(running))
        elif running and chance < 0.4:
            cluster.put(replace(cluster.pods[self.random.choice(running)], terminating=True))
        elif waiting and chance < 0.6:
            cluster.gone(self.random.choice(waiting))
        elif chance < 0.7:
            self._low(f"l{len(cluster.pods)}-{chance}")

    def _low(self, uid: str) -> None:
        request: PodRequest = self.random.choice(REQUESTS)
        self.made.marks[uid] = {"priority": self.random.choice([0, 50]), "queue": "low"}
        self.made.cluster.wait(uid, request)
        if not self.made.cluster.try_bind(uid, self.random.choice(["n1", "n2", "n3"])):
            self.made.cluster.gone(uid)


def differ(kept: Plan | No, plain: Plan | No) -> bool:
    """Plans of one scale of costs, or of two, and what two refusals are about."""
    if isinstance(kept, No) or isinstance(plain, No):
        return not isinstance(kept, No) or not isinstance(plain, No) or kept.reason is not plain.reason
    return replace(kept, cost=plain.cost) != plain


def differing(seeds: range = SEEDS) -> int:
    return sum(differ(kept, plain) for seed in seeds for kept, plain in Both(seed).answers())


def test_plans_are_the_same_with_what_is_kept_and_without() -> None:
    plans = 0
    for seed in SEEDS:
        for step, (kept, plain) in enumerate(Both(seed).answers()):
            assert not differ(kept, plain), (seed, step, kept, plain)
            plans += isinstance(plain, Plan) and bool(plain.victims)
    assert plans > len(SEEDS)


@pytest.mark.soak
def test_plans_are_the_same_in_the_long_run() -> None:
    assert differing(range(1000, 1400)) == 0


def test_plans_differ_when_who_goes_for_others_is_not_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Apart.of

    def first(self: Apart, victims: Victims, going: frozenset[tuple[str, str]]) -> Victims:
        return honest(self, victims, going) if self._left is None else self._left

    monkeypatch.setattr(Apart, "of", first)
    assert differing()


def test_plans_differ_when_a_changed_view_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked.Seen, "holds", lambda self, view, units, use, owner_uid: True)
    assert differing()
