"""What the kubelet side asks of identity, and the values that cross.

Values and one protocol only: no gRPC, no files, no Kubernetes. A "no" to kubelet is one of the two exceptions,
because gRPC knows no other way to say it; their text is what people read in the pod's events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vgpu.core.facts import CardMode
from vgpu.errors import VgpuError


class AllocationRefused(VgpuError):
    """Allocate cannot be answered; kubelet fails the pod for good (UnexpectedAdmissionError)."""


class PreStartRefused(VgpuError):
    """The container may not start now; kubelet shows the message in the pod's event and tries again."""


@dataclass(frozen=True, slots=True)
class CardNow:
    """One card as the reader sees it now. `index` is NVML's order, which is the order of the PCI bus."""

    uuid: str
    index: int
    slots: int
    healthy: bool
    memory_mib: int
    minor: int | None = None
    mode: CardMode = CardMode.SHARED


@dataclass(frozen=True, slots=True)
class CardsNow:
    """All cards of the node. `generation` grows with each change that the reader tells."""

    cards: tuple[CardNow, ...] = ()
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount from the node into a container."""

    host_path: str
    container_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerAnswer:
    """What Allocate says of one container."""

    cdi_names: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


class Identity(Protocol):
    """Tells which cards a container gets."""

    async def ready_for(self, requests: Sequence[frozenset[str]]) -> None:
        """Wait, seconds at most, until these can be answered; return at once where an answer needs nothing."""

    def allocate(self, requests: Sequence[frozenset[str]]) -> list[ContainerAnswer]:
        """One answer for each set of slot ids, at once: no API call, no waiting. Raises AllocationRefused."""

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Make ready what the container with these slot ids needs to start. Raises PreStartRefused."""

    def kubelet_came(self) -> None:
        """A kubelet begins to listen: it may have restarted in the middle of a pod's admission."""

    def cards_changed(self, cards: CardsNow) -> None:
        """These are the node's cards from now on."""
