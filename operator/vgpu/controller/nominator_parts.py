"""What the nominator works with: what decides, where nominations go, who tells what changed.

Types only; nothing happens here.
"""

from dataclasses import dataclass, field
from typing import Protocol

from vgpu.controller.offers import Offers, OffersByAge
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.kube.objects import Key


class NominationSink(Protocol):
    """Where nominations go; the operator's writer."""

    async def nominate(self, pod: Key, node: str | None, wake: int) -> None:
        """Patch the pod's status. Raises ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading."""


class News(Protocol):
    """The consumer of the ledger's changes."""

    def poke(self) -> None:
        """Something of the ledger may have changed."""

    def drain(self) -> None:
        """Tell every listener now what has changed."""


@dataclass(frozen=True, slots=True)
class Deciders:
    """What decides: the ledger, its index, the policies, whose turn it is."""

    ledger: Ledger
    index: FitIndex
    policies: Policies
    offers: Offers = field(default_factory=OffersByAge)
