"""Nodes without CDI: the one pod that waits gets its cards in the answer, and a wrong answer never runs (R05)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.agent.identity.bench import (
    APP,
    INIT,
    ONE,
    SIDECAR,
    Bench,
    assign,
    make_cards,
    make_pod,
    settle,
    unaccepted,
)
from tests.agent.identity.kubelet_model import Running
from tests.agent.inventory_api import inventory_api
from tests.agent.samples import HandClock
from vgpu.agent.config import NodeSettings
from vgpu.agent.identity.deferred import DeferredIdentity
from vgpu.agent.identity.matching import Entry, Ids, SlotContainer
from vgpu.agent.identity.pod_watch import PodSeen
from vgpu.agent.identity.port import AllocationRefused, ContainerAnswer, PreStartRefused
from vgpu.agent.identity.service import IdentityService, NodePaths
from vgpu.core.facts import Identity


class DeferredBench(Bench):
    """The same node with a runtime that knows no CDI. `answers` by nonce is what the containers were told."""

    answers: dict[str, ContainerAnswer]

    def restart(self) -> None:
        super().restart()
        self.answers = getattr(self, "answers", {})
        self.deferred = DeferredIdentity(self.world, self.log, self.files)
        self.deferred.cards_changed(make_cards())

    def _allocate(self, ids: Ids) -> Entry:
        [answer] = self.deferred.allocate([ids])
        self.answers[answer.env["VGPU_ALLOCATION"]] = answer
        return Entry(0, answer.env["VGPU_ALLOCATION"], ids)

    def bind(self, pod: PodSeen) -> PodSeen:
        """The operator's Binding is on the watch; kubelet has not accepted the pod yet."""
        self.show(unaccepted(pod))
        return pod

    async def begin(self, running: Running, container: str = "main") -> str:
        """kubelet starts the container: the cards that it sees."""
        await self.deferred.pre_start(running.slots[container])
        return self.answers[running.nonces[container]].env["NVIDIA_VISIBLE_DEVICES"]


def one(name: str, card: str, mib: int = 8_000) -> PodSeen:
    return make_pod(name, assign(f"uid-{name}", main=[(card, mib)]))


def missing(answer: ContainerAnswer) -> list[str]:
    return [mount.host_path for mount in answer.mounts if not Path(mount.host_path).exists()]


@pytest.fixture
def bench(tmp_path: Path) -> DeferredBench:
    return DeferredBench(tmp_path)


async def test_the_answer_itself_has_the_cards_limits_and_mounts(bench: DeferredBench) -> None:
    pod = bench.bind(one("a", "card-2"))
    running = bench.run(pod)
    assert await bench.begin(running) == "card-2"
    answer = bench.answers[running.nonces["main"]]
    assert answer.cdi_names == ()
    assert answer.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "8000m"
    assert str(bench.library) in {mount.host_path for mount in answer.mounts}
    assert missing(answer) == [], "the runtime would refuse a mount of nothing"


@pytest.mark.parametrize("seed", range(5))
async def test_pods_that_come_one_by_one_get_their_own_cards_whatever_else_happens(
    bench: DeferredBench, seed: int
) -> None:
    draw, running = Random(seed), {}
    for number in range(24):
        name, card = f"p{number}", f"card-{draw.randrange(8)}"
        pod = bench.bind(one(name, card, 100))
        running[name] = (bench.run(pod), card)
        if draw.random() < 0.3:
            bench.restart()
        again = draw.choice(list(running))
        assert await bench.begin(running[again][0]) == running[again][1]
    for admitted, card in running.values():
        assert await bench.begin(admitted) == card


CONTAINERS = (
    SlotContainer("fetch", INIT, 1),
    SlotContainer("proxy", SIDECAR, 1),
    SlotContainer("warm", INIT, 2),
    SlotContainer("web", APP, 1),
    SlotContainer("train", APP, 2),
)


async def test_every_container_of_a_pod_gets_its_own_cards(bench: DeferredBench) -> None:
    cards = {"fetch": ["card-5"], "proxy": ["card-1"], "warm": ["card-2", "card-3"], "web": ["card-4"]}
    cards["train"] = ["card-6", "card-7"]
    text = assign("uid-a", **{name: [(card, 100) for card in given] for name, given in cards.items()})
    pod = bench.bind(make_pod("a", text, CONTAINERS))
    running = bench.run(pod)
    for name, given in cards.items():
        assert await bench.begin(running, name) == ",".join(given)


async def test_two_pods_that_wait_are_both_refused_and_named(bench: DeferredBench) -> None:
    for name in ("a", "b"):
        bench.bind(one(name, "card-1"))
    with pytest.raises(AllocationRefused, match=r"more than one pod waits.*ns/a, ns/b"):
        bench.kubelet.admit("a", ONE)


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (make_pod("x", ""), "ns/x has no assignment"),
        (make_pod("x", assign("uid-other", main=[("card-1", 100)])), "was made for the pod with uid uid-other"),
        (make_pod("x", assign("uid-x", node="node-2", main=[("card-1", 100)])), "was made for node node-2"),
        (make_pod("x", assign("uid-x", main=[("card-99", 100)])), "card-99 is not on this node"),
        (make_pod("x", assign("uid-x", other=[("card-1", 100)])), "gives cards other: 1"),
    ],
    ids=["none", "another pod's", "another node's", "unknown card", "another container"],
)
async def test_a_pod_without_a_right_assignment_is_refused_with_the_reason(
    bench: DeferredBench, pod: PodSeen, want: str
) -> None:
    bench.bind(pod)
    with pytest.raises(AllocationRefused, match=want):
        bench.kubelet.admit("x", ONE)


async def test_without_the_library_nothing_that_shares_a_card_is_let_in(bench: DeferredBench) -> None:
    bench.library.unlink()
    bench.bind(one("a", "card-1"))
    with pytest.raises(AllocationRefused, match=r"libvgpu.so is not on this node"):
        bench.kubelet.admit("a", ONE)


async def test_kubelet_may_see_a_pod_first_and_is_answered_once_the_agent_sees_it(tmp_path: Path) -> None:
    bench = DeferredBench(tmp_path, clock=HandClock())
    waiting = asyncio.ensure_future(bench.deferred.ready_for([frozenset({"slot-0"})]))
    await settle()
    assert not waiting.done()
    pod = bench.bind(one("a", "card-3"))
    await waiting
    assert await bench.begin(bench.run(pod)) == "card-3"


async def test_the_wait_for_a_pod_that_never_comes_ends_with_a_refusal(bench: DeferredBench) -> None:
    await bench.deferred.ready_for([frozenset({"slot-0"})])
    with pytest.raises(AllocationRefused, match="no pod with an assignment waits"):
        bench.deferred.allocate([frozenset({"slot-0"})])


def taken_by_a_stranger(bench: DeferredBench, containers: Sequence[SlotContainer] = ONE) -> Running:
    """kubelet asks for a pod that this agent has not seen while another waits: the answer is the other's."""
    bench.bind(make_pod("meant", assign("uid-meant", main=[("card-1", 100)]), containers))
    stranger = bench.kubelet.admit("stranger", containers)
    assert stranger is not None
    return stranger


async def test_an_answer_that_another_pod_took_never_runs(bench: DeferredBench) -> None:
    stranger = taken_by_a_stranger(bench)
    with pytest.raises(PreStartRefused, match="meant for ns/meant, and kubelet gave it to another"):
        await bench.deferred.pre_start(stranger.slots["main"])
    with pytest.raises(AllocationRefused):
        bench.kubelet.admit("meant", ONE)


@pytest.mark.parametrize("fate", ["still waits", "was refused", "was deleted"])
async def test_an_answer_that_another_pods_init_container_took_never_runs(bench: DeferredBench, fate: str) -> None:
    """PodResources does not show it; what became of the pod that it was meant for does."""
    stranger = taken_by_a_stranger(bench, (SlotContainer("main", INIT, 1),))
    if fate == "was refused":
        bench.show(replace(unaccepted(bench.api["ns", "meant"]), ended=True))
    if fate == "was deleted":
        bench.delete("meant")
    with pytest.raises(PreStartRefused):
        await bench.deferred.pre_start(stranger.slots["main"])


async def test_without_the_second_look_a_stranger_would_run_with_anothers_cards(
    bench: DeferredBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the checks above can fail."""

    async def believe(self: DeferredIdentity, *given: object) -> None:
        return None

    monkeypatch.setattr(DeferredIdentity, "_make_certain", believe)
    assert await bench.begin(taken_by_a_stranger(bench)) == "card-1"


async def test_what_cannot_be_made_certain_waits_and_starts_once_it_can(bench: DeferredBench) -> None:
    running = bench.run(bench.bind(one("a", "card-3")))
    bench.kubelet_away = True
    with pytest.raises(PreStartRefused, match="not certain yet that these cards are for ns/a"):
        await bench.deferred.pre_start(running.slots["main"])
    bench.kubelet_away = False
    assert await bench.begin(running) == "card-3"
    bench.kubelet_away = bench.api_away = True
    assert await bench.begin(running) == "card-3", "known once, a restart of its container asks nobody"


async def test_a_kubelet_that_restarts_in_the_middle_of_a_pod_swaps_no_containers(bench: DeferredBench) -> None:
    """The new one asks only for what the old one had not got: here the second container, taken for the first."""
    containers = (SlotContainer("one", APP, 1), SlotContainer("two", APP, 1))
    text = assign("uid-a", one=[("card-1", 100)], two=[("card-2", 100)])
    bench.bind(make_pod("a", text, containers))
    steps = bench.kubelet.admission("a", containers)
    next(steps)
    bench.deferred.kubelet_came()
    assert list(steps) == [None]
    running = bench.kubelet.pods["a"]
    bench.show(make_pod("a", text, containers))
    for name in ("one", "two"):
        with pytest.raises(PreStartRefused):
            await bench.deferred.pre_start(running.slots[name])


@pytest.mark.parametrize("mode", Identity)
async def test_the_node_is_served_in_the_mode_that_it_publishes(tmp_path: Path, mode: Identity) -> None:
    settings = NodeSettings(identity=mode, isolation_library="")
    paths = NodePaths(tmp_path / "state", tmp_path / "kubelet.sock")
    async with inventory_api() as api:
        client = api.client()
        service = IdentityService("n1", client, settings, paths, HandClock())
        if mode is Identity.EXACT:
            [answer] = service.allocate([frozenset({"slot-0"})])
            assert answer.cdi_names
        else:
            with pytest.raises(AllocationRefused, match="no pod with an assignment waits"):
                service.allocate([frozenset({"slot-0"})])
        await client.close()
