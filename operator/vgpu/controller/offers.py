"""Whose turn it is when room is offered, and who is offered some beside the pods that the extender refused.

Enters: what the nominator asks. Leaves: turns, pods to which something is owed, when one that failed rests. The
offers of a cluster without preemption are BY_AGE alone. May not live here: nodes, writes.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from vgpu.core.facts import PodFact
from vgpu.core.nomination import BY_AGE, Turns


class Offers(Protocol):
    """What the nominator asks before it offers room."""

    def turns(self) -> Turns:
        """The order of this moment."""

    def admits(self, pod: PodFact) -> bool:
        """Whether limits of its queue let this pod start now."""

    def owed(self) -> Collection[str]:
        """Uids of waiting pods to which something is owed: they are offered room whatever refused them."""

    def owes(self, uid: str) -> bool:
        """True for one of them."""

    def absent(self) -> Sequence[PodFact]:
        """Pods that are created once there is room for them; no such pod exists now."""

    def rests(self, uid: str) -> bool:
        """True while this owed or absent pod is left alone after tries that failed."""

    def failed(self, uid: str) -> float | None:
        """This owed or absent pod did not come when it was sent. Gives after how many seconds it is looked at
        again if nothing happens; None = only when room comes."""

    def room_came(self) -> None:
        """Something may fit now that did not fit before: nobody rests any longer."""

    async def create(self, pod: PodFact) -> bool:
        """There is room for this absent pod. False: it was refused, nobody of its name comes now."""


class OffersByAge:
    """Nothing is owed to anybody."""

    def turns(self) -> Turns:
        """By priority and age."""
        return BY_AGE

    def admits(self, pod: PodFact) -> bool:
        """No queue is asked."""
        return True

    def owed(self) -> Collection[str]:
        """Nobody."""
        return ()

    def owes(self, uid: str) -> bool:
        """Never."""
        return False

    def absent(self) -> Sequence[PodFact]:
        """Nobody."""
        return ()

    def rests(self, uid: str) -> bool:
        """Nobody is kept waiting."""
        return False

    def failed(self, uid: str) -> float | None:
        """Nothing follows."""
        return None

    def room_came(self) -> None:
        """Nobody rests."""

    async def create(self, pod: PodFact) -> bool:
        """Nobody is absent."""
        return False
