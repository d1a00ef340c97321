"""kubelet's device manager as far as identity depends on it: who gets which slots in which order.

Admission of one pod calls Allocate per container, init containers first; a plain init container's slots are handed
out again to the later containers of its pod before fresh ones; PodResources shows all but plain init containers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from vgpu.agent.identity.matching import Entry, Ids, SlotContainer
from vgpu.core.request import ContainerKind


@dataclass
class Running:
    """A pod that kubelet holds slots for: per container the slots and the nonce that truly is its own."""

    name: str
    containers: Sequence[SlotContainer]
    slots: dict[str, Ids] = field(default_factory=dict)
    nonces: dict[str, str] = field(default_factory=dict)

    @property
    def held(self) -> Ids:
        return frozenset[str]().union(*self.slots.values())

    @property
    def shown(self) -> dict[str, Ids]:
        steady = {c.name for c in self.containers if c.kind is not ContainerKind.INIT}
        return {name: ids for name, ids in self.slots.items() if name in steady}


class KubeletModel:
    """One node. `answer` is the plugin's Allocate."""

    def __init__(self, slots: int, answer: Callable[[Ids], Entry], random: Random) -> None:
        self.free = {f"slot-{number}" for number in range(slots)}
        self.pods: dict[str, Running] = {}
        self.admitting: dict[str, Running] = {}
        self._answer = answer
        self._random = random

    def admit(self, name: str, containers: Sequence[SlotContainer]) -> Running | None:
        """Admit a pod; None when slots run out on the way: the answers given so far stay unused."""
        steps = self.admission(name, containers)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    def admission(self, name: str, containers: Sequence[SlotContainer], *, forgetful: bool = False):  # type: ignore[no-untyped-def]  # a generator with one step a container
        """Like admit, one container a step; `forgetful`: kubelet restarts in between, so no slot is handed on."""
        pod = self.admitting[name] = Running(name, containers)
        reusable: set[str] = set()
        for container in containers:
            got = set(self._random.sample(sorted(reusable), min(container.number, len(reusable))))
            missing = container.number - len(got)
            if missing > len(self.free):
                self.free |= pod.held
                del self.admitting[name]
                return None
            fresh = set(self._random.sample(sorted(self.free), missing))
            self.free -= fresh
            entry = self._answer(frozenset(got | fresh))
            pod.slots[container.name], pod.nonces[container.name] = entry.ids, entry.nonce
            reusable = reusable | entry.ids if container.kind is ContainerKind.INIT else reusable - entry.ids
            if forgetful:
                reusable = set()
            yield
        self.pods[name] = self.admitting.pop(name)
        return pod

    def remove(self, name: str) -> None:
        self.free |= self.pods.pop(name).held
