"""A container starts with exactly its own cards, or not yet, and the message says why (R05, R06, R08)."""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.identity.bench import (
    APP,
    INIT,
    SIDECAR,
    Bench,
    assign,
    make_cards,
    make_pod,
    settle,
    unaccepted,
)
from tests.agent.identity.kubelet_model import Running
from tests.agent.samples import HandClock
from vgpu.agent.identity.matching import Ids, SlotContainer
from vgpu.agent.identity.pod_watch import PodSeen
from vgpu.agent.identity.port import AllocationRefused, CardsNow, PreStartRefused
from vgpu.agent.identity.prestart import NodeIdentity

MANY = (
    SlotContainer("side", SIDECAR, 1),
    SlotContainer("i1", INIT, 2),
    SlotContainer("i2", INIT, 1),
    SlotContainer("a1", APP, 1),
    SlotContainer("a2", APP, 1),
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def many(name: str, first: int) -> PodSeen:
    """A sidecar, two init and two app containers, each with shares of its own, on cards from `first` on."""
    a, b, c, d = (f"card-{first + number}" for number in range(4))
    cards = {
        "side": [(a, first + 100)],
        "i1": [(b, first + 200), (c, first + 200)],
        "i2": [(d, first + 300)],
        "a1": [(b, first + 400)],
        "a2": [(c, first + 500)],
    }
    return make_pod(name, assign(f"uid-{name}", **cards), MANY)


async def test_a_container_finds_its_cards_limits_and_nothing_else(bench: Bench) -> None:
    pod = bench.run(make_pod("p", assign("uid-p", main=[("card-3", 3000)])))
    await bench.start(pod)
    found = bench.device(pod.nonces["main"])
    assert found == {
        "NVIDIA_VISIBLE_DEVICES": "card-3",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "10",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"/tmp/vgpu/{pod.nonces['main']}.cache",
    }


@pytest.mark.parametrize("order", list(itertools.permutations(range(4), 4))[::5])
async def test_r05_two_pods_of_equal_counts_never_swap_whatever_the_order(bench: Bench, order: list[int]) -> None:
    pods = [make_pod(f"p{n}", assign(f"uid-p{n}", main=[(f"card-{n}", 1000)])) for n in range(4)]
    running = {n: bench.admit(pods[n]) for n in order}
    for n in reversed(order):
        bench.show(pods[n])
    await asyncio.gather(*(bench.start(running[n]) for n in sorted(order)))
    assert {n: bench.cards_of(running[n]) for n in order} == {n: f"card-{n}" for n in order}


async def test_the_check_of_swaps_fails_with_the_identity_step_switched_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switched off, as others do it: the first pod that is bound here and has as many cards."""

    def guess(self: NodeIdentity, ids: Ids, *_: object) -> tuple[PodSeen, dict[str, str]]:
        pending = [pod for pod in bench.watch.pods.values() if pod.uid not in bench.log.grants]
        return pending[0], {next(entry.nonce for entry in bench.log.entries if entry.ids == ids): "main"}

    monkeypatch.setattr(NodeIdentity, "_owner", guess)
    pods = [make_pod(f"p{n}", assign(f"uid-p{n}", main=[(f"card-{n}", 1000)])) for n in range(2)]
    running = {n: bench.admit(pods[n]) for n in (1, 0)}
    for pod in pods:
        bench.show(pod)
    for n in (1, 0):
        await bench.start(running[n])
    assert {n: bench.cards_of(running[n]) for n in running} == {0: "card-1", 1: "card-0"}


async def test_two_pods_at_once_of_a_sidecar_two_init_and_two_app_containers(bench: Bench) -> None:
    pods = [many("p", 0), many("q", 4)]
    running = [bench.run(pod) for pod in pods]
    for container in MANY:
        await asyncio.gather(*(bench.start(one, container.name) for one in running))
    for one, first in zip(running, (0, 4), strict=True):
        assert [bench.cards_of(one, c.name) for c in MANY] == [
            f"card-{first}",
            f"card-{first + 1},card-{first + 2}",
            f"card-{first + 3}",
            f"card-{first + 1}",
            f"card-{first + 2}",
        ]
        limits = [(bench.device(one.nonces[c.name]) or {})["CUDA_DEVICE_MEMORY_LIMIT_0"] for c in MANY]
        assert limits == [f"{first + number}m" for number in (100, 200, 300, 400, 500)]


async def test_r06_the_assigned_cards_win_whatever_slots_kubelet_chose(bench: Bench) -> None:
    eight = (SlotContainer("main", APP, 8),)
    cards = [(f"card-{n}", 500) for n in reversed(range(8))]
    pod = bench.run(make_pod("p", assign("uid-p", main=cards), eight))
    await bench.start(pod)
    assert bench.cards_of(pod) == ",".join(f"card-{n}" for n in range(8))


async def test_an_agent_killed_between_allocate_and_the_start_still_knows(bench: Bench) -> None:
    running = [bench.run(many("p", 0)), bench.run(many("q", 4))]
    bench.restart()
    bench.identity.cards_changed(make_cards())
    for one in running:
        await bench.start(one, "i1")
    assert [bench.cards_of(one, "i1") for one in running] == ["card-1,card-2", "card-5,card-6"]


async def test_a_container_that_starts_again_needs_neither_kubelet_nor_the_api_server(bench: Bench) -> None:
    seen = many("p", 0)
    pod = bench.run(seen)
    await bench.start(pod, "i1")
    for path in bench.places.cdi.iterdir():
        path.unlink()  # a reboot empties /run
    bench.restart()
    bench.identity.cards_changed(make_cards())
    bench.unsee(seen)
    bench.kubelet_away = bench.api_away = True
    for container in MANY:
        await bench.start(pod, container.name)
        assert bench.cards_of(pod, container.name)


async def test_a_start_waits_for_the_watch_and_goes_on_by_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path, clock=HandClock())
    pod = make_pod("p", assign("uid-p", main=[("card-1", 1000)]))
    running = bench.admit(pod)
    start = asyncio.create_task(bench.start(running))
    for step in (None, unaccepted(pod), replace(pod, assignment="")):
        if step is not None:
            bench.show(step)
        await settle()
        assert not start.done()
        assert bench.cards_of(running) is None
    bench.show(pod)
    await settle()
    assert start.done()
    assert bench.cards_of(running) == "card-1"


async def test_a_start_gives_up_before_kubelet_does(tmp_path: Path) -> None:
    clock = HandClock()
    bench = Bench(tmp_path, clock=clock)
    start = asyncio.create_task(bench.start(bench.admit(make_pod("p", ""))))
    for _ in range(25):
        await settle()
        clock.advance(1)
    await settle()
    assert start.done()
    assert isinstance(start.exception(), PreStartRefused)


async def refusal(bench: Bench, running: Running, container: str = "main") -> str:
    with pytest.raises(PreStartRefused) as caught:
        await bench.start(running, container)
    return str(caught.value)


GOOD = assign("uid-p", main=[("card-0", 1000)])


@pytest.mark.parametrize(
    ("assignment", "want"),
    [
        pytest.param(
            "", "ns/p has no assignment of cards: it was bound to this node by another hand", id="bound by hand"
        ),
        pytest.param("{broken", "vgpu.dev/assignment: document", id="not JSON"),
        pytest.param(
            assign("uid-q", main=[("card-0", 1)]), "made for the pod with uid uid-q", id="of another pod"
        ),
        pytest.param(
            assign("uid-p", "node-2", main=[("card-0", 1)]), "made for node node-2", id="of another node"
        ),
        pytest.param(
            assign("uid-p", main=[("card-99", 1)]), "card card-99 is not on this node", id="strange card"
        ),
        pytest.param(
            assign("uid-p", other=[("card-0", 1)]), "gives cards other: 1, its containers ask main: 1", id="name"
        ),
        pytest.param(
            assign("uid-p", main=[("card-0", 1), ("card-1", 1)]), "gives cards main: 2", id="too many cards"
        ),
        pytest.param(GOOD.replace("1000", "90000"), "card card-0 has no room", id="more than the card"),
    ],
)
async def test_a_wrong_assignment_starts_nothing_and_a_right_one_later_does(
    bench: Bench, assignment: str, want: str
) -> None:
    other = bench.run(make_pod("other", assign("uid-other", main=[("card-0", 100)])))
    await bench.start(other)
    running = bench.run(make_pod("p", assignment))
    message = await refusal(bench, running)
    assert message.startswith("ns/p")
    assert want in message
    assert bench.cards_of(running) is None
    bench.show(make_pod("p", GOOD))
    await bench.start(running)
    assert bench.cards_of(running) == "card-0"


async def test_an_assignment_altered_after_the_first_start_starts_nothing_until_it_is_put_back(
    bench: Bench,
) -> None:
    running = bench.run(make_pod("p", GOOD))
    await bench.start(running)
    bench.show(make_pod("p", GOOD.replace("card-0", "card-5")))
    assert "was altered since the pod was first let start" in await refusal(bench, running)
    assert bench.cards_of(running) == "card-0"
    bench.show(make_pod("p", GOOD))
    await bench.start(running)


async def test_a_pod_does_not_start_on_cards_that_another_still_holds(bench: Bench) -> None:
    first = make_pod("a", assign("uid-a", main=[("card-0", 60_000)]))
    await bench.start(bench.run(first))
    late = bench.run(make_pod("b", assign("uid-b", main=[("card-0", 30_000)])))
    assert "card card-0 has no room for it beside ns/a" in await refusal(bench, late)
    bench.kubelet.remove("a")
    bench.delete("a")
    await bench.start(late)
    assert bench.cards_of(late) == "card-0"


async def test_of_two_pods_that_do_not_fit_together_the_lower_uid_starts(bench: Bench) -> None:
    pods = [make_pod(name, assign(f"uid-{name}", main=[("card-0", 60_000)])) for name in "ab"]
    first, second = [bench.run(pod) for pod in pods]
    assert "has no room for it beside ns/a" in await refusal(bench, second)
    await bench.start(first)
    assert bench.cards_of(first) == "card-0"


async def test_a_pod_that_runs_goes_before_one_with_a_lower_uid(bench: Bench) -> None:
    bench.show(replace(make_pod("z", assign("uid-z", main=[("card-0", 60_000)])), started=True))
    late = bench.run(make_pod("a", assign("uid-a", main=[("card-0", 30_000)])))
    assert "beside ns/z" in await refusal(bench, late)


async def test_podresources_away_starts_nothing_new_and_is_told(bench: Bench) -> None:
    running = bench.run(make_pod("p", GOOD))
    bench.kubelet_away = True
    assert "PodResources at /sock does not answer" in await refusal(bench, running)
    bench.kubelet_away = False
    await bench.start(running)


async def test_an_api_server_away_starts_nothing_new_and_is_told(bench: Bench) -> None:
    running = bench.run(make_pod("p", GOOD))
    bench.api_away = True
    assert "ns/p cannot be read from the API server: connection refused" in await refusal(bench, running)
    bench.api_away = False
    await bench.start(running)


async def test_slots_of_a_pod_that_nobody_knows_start_nothing(bench: Bench) -> None:
    running = bench.admit(make_pod("p", GOOD))
    assert "ns/p: it is not on this node's list of pods yet" in await refusal(bench, running)
    bench.kubelet.pods.clear()
    assert "kubelet shows no pod that holds these slots yet" in await refusal(bench, running)


async def test_a_full_disk_for_cdi_files_starts_nothing_and_is_told(bench: Bench) -> None:
    running = bench.run(make_pod("p", GOOD))
    bench.places.cdi.write_text("a file in the folder's place fails every write, for root too")
    assert "ns/p: its CDI file cannot be written on this node" in await refusal(bench, running)
    bench.places.cdi.unlink()
    await bench.start(running)
    assert bench.cards_of(running) == "card-0"


async def test_a_missing_isolation_library_holds_back_shares_but_not_whole_cards(bench: Bench) -> None:
    bench.library.unlink()
    shared = bench.run(make_pod("p", GOOD))
    whole = bench.run(make_pod("w", assign("uid-w", main=[("card-1", 80_000)])))
    await bench.start(whole)
    assert bench.cards_of(whole) == "card-1"
    assert f"the isolation library {bench.library} is not on this node" in await refusal(bench, shared)
    bench.library.write_text("a library")
    await bench.start(shared)


async def test_nothing_starts_before_the_cards_were_read(bench: Bench) -> None:
    running = bench.run(make_pod("p", GOOD))
    bench.restart()
    assert "the cards of this node have not been read yet" in await refusal(bench, running)


async def test_r42_a_card_that_was_swapped_is_told_when_a_container_starts_again(bench: Bench) -> None:
    running = bench.run(make_pod("p", GOOD))
    await bench.start(running)
    swapped = replace(make_cards().cards[0], uuid="card-new")
    bench.identity.cards_changed(CardsNow((swapped, *make_cards().cards[1:]), 2))
    assert "the assigned card card-0 is not on this node" in await refusal(bench, running)


async def test_an_answer_that_cannot_be_written_down_is_refused(bench: Bench) -> None:
    bench.log.close()
    with pytest.raises(AllocationRefused, match="cannot be written down on this node"):
        bench.identity.allocate([frozenset({"slot-1"})])


class TestNameUsedAnew:
    """PodResources tells names only: a pod must never get what was assigned to another of its name."""

    OLD = make_pod("web-0", assign("uid-old", main=[("card-1", 1000)]), uid="uid-old")
    NEW = make_pod("web-0", assign("uid-new", main=[("card-2", 1000)]), uid="uid-new")

    async def test_the_watch_lags_and_shows_the_earlier_pod(self, bench: Bench) -> None:
        bench.show(self.OLD)
        running = bench.admit(self.NEW)
        bench.api["ns", "web-0"] = self.NEW
        assert "was deleted" in await refusal(bench, running)
        bench.show(self.NEW)
        await bench.start(running)
        assert bench.cards_of(running) == "card-2"

    async def test_kubelet_lags_and_still_means_the_earlier_pod(self, bench: Bench) -> None:
        earlier = bench.run(self.OLD)
        bench.delete("web-0")
        bench.show(unaccepted(self.NEW))
        assert "does not show yet that kubelet accepted it" in await refusal(bench, earlier)
        assert bench.cards_of(earlier) is None
        bench.kubelet.remove("web-0")
        later = bench.run(self.NEW)
        await bench.start(later)
        assert bench.cards_of(later) == "card-2"

    async def test_the_earlier_pod_ran_and_left_its_grant(self, bench: Bench) -> None:
        await bench.start(bench.run(self.OLD))
        bench.kubelet.remove("web-0")
        bench.delete("web-0")
        later = bench.run(self.NEW)
        await bench.start(later)
        assert bench.cards_of(later) == "card-2"


async def test_a_pod_that_kubelet_admits_anew_gets_the_same_cards_again(bench: Bench) -> None:
    """R32: kubelet lost its own record, the pod has the same uid."""
    pod = make_pod("p", GOOD)
    await bench.start(bench.run(pod))
    bench.kubelet.remove("p")
    again = bench.run(pod)
    await bench.start(again)
    assert bench.cards_of(again) == "card-0"
