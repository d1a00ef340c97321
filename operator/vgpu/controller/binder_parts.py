"""What the binder works with: the API, as far as it is asked, and the parts that it is made of.

Types only; nothing happens here.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from vgpu.controller.clock import Clock
from vgpu.controller.preempt.bind_barrier import pass_at_once
from vgpu.controller.writes import BindingWrite
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.presets import PresetSettings
from vgpu.core.reasons import Refusal
from vgpu.kube.objects import Decoded, Key


class AssignmentWriter(Protocol):
    """The two writes that carry an assignment. Raise ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""

    async def bind(self, write: BindingWrite) -> None:
        """Bind the pod with its annotations."""

    async def assign_bound(self, pod: Key, annotations: dict[str, str]) -> None:
        """Put the annotations on a pod that is bound already."""


class PodReader(Protocol):
    """Reads one object by its API path."""

    async def get(self, path: str) -> bytes:
        """The object's JSON. Raises ApiRefused, ApiUnavailable."""


def draw_nonce() -> str:
    """16 hex digits that no other assignment has."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class BinderParts:
    """What the binder works with. `changed` is called after the ledger was changed here.

    `barrier` is awaited once a pod's cards are booked, before its binding is sent: "" = go on, else why not.
    `queue_refusal`: why the pod may not start now whatever room there is, or None.
    """

    ledger: Ledger
    policies: Policies
    presets: PresetSettings
    writer: AssignmentWriter
    reader: PodReader
    decode_pod: Callable[[bytes], Decoded[PodFact]]
    clock: Clock
    deadline_seconds: float
    changed: Callable[[], None]
    nonce: Callable[[], str] = draw_nonce
    barrier: Callable[[PodFact], Awaitable[str]] = pass_at_once
    queue_refusal: Callable[[PodFact], Refusal | None] = lambda _: None
