"""One node without sockets: kubelet's slots, the pods that the watch and the API show, cards, and a clock."""

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.agent.identity.kubelet_model import KubeletModel, Running
from vgpu.agent.clock import Clock
from vgpu.agent.identity.allocation_log import AllocationLog
from vgpu.agent.identity.collect import Collector
from vgpu.agent.identity.contract import Rules
from vgpu.agent.identity.files import ContainerFiles, Places
from vgpu.agent.identity.lingering import LingeringBoard
from vgpu.agent.identity.matching import Entry, Ids, SlotContainer
from vgpu.agent.identity.pod_resources import PodResourcesAway, ShownPod
from vgpu.agent.identity.pod_watch import ContainerSeen, PodSeen, PodWatch
from vgpu.agent.identity.port import CardNow, CardsNow
from vgpu.agent.identity.prestart import NodeIdentity, World
from vgpu.core.request import ContainerKind
from vgpu.errors import ApiUnavailable
from vgpu.kube.objects import Key

NODE = "node-1"
APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
ONE = (SlotContainer("main", APP, 1),)


class RushClock:
    """A sleep takes no time and moves the clock by as much."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.now += seconds


def make_cards(count: int = 8) -> CardsNow:
    """card-0 ... each of 80,000 MiB and ten slots; card 3 has the device file /dev/nvidia7."""
    cards = (CardNow(f"card-{n}", n, 10, True, 80_000, 7 if n == 3 else n) for n in range(count))
    return CardsNow(tuple(cards), 1)


def assign(uid: str, node: str = NODE, **cards: Sequence[tuple[str, int]]) -> str:
    """The annotation: container -> (card, MiB) each; 80,000 MiB is a whole card."""
    rows = [
        {
            "name": name,
            "cards": [
                {"uuid": card, "memoryMiB": mib, "cores": 10 if mib < 80_000 else 0, "whole": mib >= 80_000}
                for card, mib in given
            ],
        }
        for name, given in cards.items()
    ]
    return json.dumps({"v": 1, "podUid": uid, "node": node, "nonce": "0123456789abcdef", "containers": rows})


def make_pod(name: str, assignment: str, containers: Sequence[SlotContainer] = ONE, uid: str = "") -> PodSeen:
    """A pod that kubelet has accepted."""
    seen = tuple(ContainerSeen(container) for container in containers)
    return PodSeen("ns", name, uid or f"uid-{name}", NODE, True, False, assignment, containers=seen)


class Bench:
    """Everything that an agent's identity stands on. `restart` is an agent that died and came back."""

    def __init__(self, folder: Path, slots: int = 40, clock: Clock | None = None) -> None:
        self.folder = folder
        self.clock: Clock = clock or RushClock()
        self.watch = PodWatch()
        self.watch.synced()
        self.api: dict[tuple[str, str], PodSeen] = {}
        self.api_away = self.kubelet_away = False
        self.with_processes: set[str] = set()
        self.library = folder / "hami" / "libvgpu.so"
        self.library.parent.mkdir()
        self.library.write_text("a library")
        self.kubelet = KubeletModel(slots, self._allocate, Random(7))
        self.places = Places(folder / "cdi", folder / "state", str(self.library), folder / "locks")
        self.restart()
        self.identity.cards_changed(make_cards())

    def restart(self) -> None:
        """Forget all that is not on disk."""
        self.log = AllocationLog(self.folder / "state" / "allocations.jsonl")
        self.files = ContainerFiles(self.places, Rules())
        self.world = World(NODE, self.watch, self, self, self, self.clock)
        self.lingering = LingeringBoard()
        self.identity = NodeIdentity(self.world, self.log, self.files)
        self.collector = Collector(self.world, self.log, self.files, self.lingering)

    def _allocate(self, ids: Ids) -> Entry:
        [answer] = self.identity.allocate([ids])
        return Entry(0, answer.env["VGPU_ALLOCATION"], ids)

    def show(self, pod: PodSeen) -> None:
        """The API has it, and the watch shows it."""
        self.api[pod.namespace, pod.name] = pod
        self.watch.put(pod)

    def delete(self, name: str) -> None:
        """Gone from the API and from the watch; kubelet is another matter."""
        self.unsee(self.api.pop(("ns", name)))

    def unsee(self, pod: PodSeen) -> None:
        """The watch does not show it any more."""
        self.watch.drop(Key(pod.namespace, pod.name, pod.uid))

    def run(self, pod: PodSeen) -> Running:
        """kubelet admits it, and the API shows it."""
        admitted = self.admit(pod)
        self.show(pod)
        return admitted

    def admit(self, pod: PodSeen) -> Running:
        """kubelet admits it."""
        admitted = self.kubelet.admit(pod.name, [container.slots for container in pod.containers])
        assert admitted is not None
        return admitted

    async def start(self, running: Running, container: str = "main") -> None:
        """kubelet's PreStartContainer."""
        await self.identity.pre_start(running.slots[container])

    async def shown(self) -> list[ShownPod]:
        """PodResources List."""
        await asyncio.sleep(0)
        if self.kubelet_away:
            raise PodResourcesAway("kubelet's PodResources at /sock does not answer (gone)")
        return [ShownPod("ns", pod.name, pod.shown) for pod in self.kubelet.pods.values() if pod.shown]

    def alive(self, uids: Collection[str]) -> frozenset[str]:
        """The uids of those pods that have processes."""
        return self.with_processes & frozenset(uids)

    async def read(self, namespace: str, name: str) -> PodSeen | None:
        """GET of one pod."""
        await asyncio.sleep(0)
        if self.api_away:
            raise ApiUnavailable(0, "", "connection refused")
        return self.api.get((namespace, name))

    def device(self, nonce: str) -> dict[str, str] | None:
        """The environment that the runtime would find for one answer."""
        for path in (self.folder / "cdi").glob("*.json"):
            for device in json.loads(path.read_text())["devices"]:
                if device["name"] == nonce:
                    return dict(line.split("=", 1) for line in device["containerEdits"]["env"])
        return None

    def cards_of(self, running: Running, container: str = "main") -> str | None:
        """NVIDIA_VISIBLE_DEVICES that the container would find; None: it does not start."""
        found = self.device(running.nonces[container])
        return found and found["NVIDIA_VISIBLE_DEVICES"]


def unaccepted(pod: PodSeen) -> PodSeen:
    """kubelet has not said yet that it has the pod."""
    return replace(pod, accepted=False)


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)
