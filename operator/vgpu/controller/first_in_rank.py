"""Holds what was just freed for those first in rank, before anybody else is answered.

What frees capacity wakes every waiting pod, and kube-scheduler asks about them in an order of its own: by priority
and by when each was put aside, not by what its queue deserves or what is owed to it. So before a pod is answered,
whatever it could take of what was freed since is held for those that come before it. The writes that wake them
follow when their time comes.

Enters: the pod that is asked about, what was freed, who waits. Leaves: nominations held in the ledger, for the
nominator to write. May not live here: whose turn it is, limits per pod, writes.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile

from vgpu.controller.answered import AnsweredPods
from vgpu.controller.held import Held
from vgpu.core.facts import PodFact
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.nomination import Nomination, Turns

NODES = 64
"""So many freed nodes that the pod could take are looked at before its answer."""
MOST = 20
"""Nominations held before one answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """`asking` is asked about; `freed` are nodes where something may fit since; `waiting` may take it as well,
    those among them that are created once there is room."""

    asking: PodFact
    freed: Set[str]
    waiting: Sequence[PodFact]
    turns: Turns


class FirstInRank:
    """See the module."""

    def __init__(self, ledger: Ledger, index: FitIndex, answered: AnsweredPods, held: Held) -> None:
        self._ledger = ledger
        self._index = index
        self._answered = answered
        self._held = held
        self._looked_at: set[str] = set()
        self._unsent: dict[str, Nomination] = {}

    def freed(self, nodes: Iterable[str]) -> None:
        """Something more is free there."""
        self._looked_at.difference_update(nodes)

    def not_looked_at(self, freed: Set[str]) -> Set[str]:
        """Those of the freed nodes that nobody has had his turn on."""
        return freed - self._looked_at

    def hold(self, question: Question) -> bool:
        """Hold for those before `asking`, and for those after it what it leaves; not for those after a pod whose
        preferences kube-scheduler has to weigh. True when anything is held."""
        asking = question.asking
        names = self._could_take(asking, question.freed)
        views = [view for name in names if (view := self._ledger.view(name)) is not None]
        if not views:
            return False
        candidates = [*question.waiting, asking]
        found = self._answered.nominate(views, candidates, MOST, question.turns, asking.uid)
        for_all = len(found) < MOST
        if asking.scheduling.soft_preferences:
            before = list(takewhile(lambda chosen: chosen.pod.uid != asking.uid, found))
            found, for_all = before, for_all and len(before) == len(found)
        if for_all:
            self._looked_at.update(names)
        held = [self._hold(chosen) for chosen in found if chosen.pod.uid != asking.uid]
        return any(held)

    def take_unsent(self) -> list[Nomination]:
        """What is held still and was not written, in turn."""
        unsent, self._unsent = self._unsent, {}
        return [chosen for uid, chosen in unsent.items() if self._ledger.nomination(uid) is not None]

    def sent(self, uid: str) -> None:
        """It is written to, on another occasion maybe."""
        self._unsent.pop(uid, None)

    def clear(self) -> None:
        """This process does not lead any more."""
        self._looked_at.clear()
        self._unsent.clear()

    def _could_take(self, asking: PodFact, freed: Set[str]) -> list[str]:
        if asking.request is None:
            return []
        return self._index.verdicts(asking.request, asking.uid, freed).best(NODES, freed)

    def _hold(self, chosen: Nomination) -> bool:
        if not self._held.hold(chosen.pod, chosen.placement):
            return False
        self._unsent[chosen.pod.uid] = chosen
        return True
