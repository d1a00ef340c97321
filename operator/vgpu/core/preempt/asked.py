"""What was asked about each node so far, so that a question about a node where nothing changed is not put anew.

Enters: nodes' views, units, what pods use; problems made of them. Leaves: the same problem for the same node.
Mutable, with one owner: keep one for each set of preemptors that may evict the same units. Nothing is decided.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.problem import NodeProblem, Unit
from vgpu.core.preempt.victims import Apart
from vgpu.core.request import PodRequest
from vgpu.core.views import NodeView

_MOST_SHELVES = 32


@dataclass(frozen=True, slots=True)
class Seen:
    """One node as it was looked at. `answer`: the problem there, or what keeps the pods off it whoever goes."""

    view: NodeView
    units: tuple[Unit, ...]
    use: NodeUse | None
    answer: NodeProblem | str
    named: frozenset[str]
    """Uids for which something on the node counts otherwise than for everybody else."""

    def holds(self, view: NodeView, units: tuple[Unit, ...], use: NodeUse | None, owner_uid: str) -> bool:
        """True when the answer is still the one, for this owner too."""
        if self.view is not view or self.units is not units or self.use is not use:
            return False
        answer = self.answer
        if isinstance(answer, str) or answer.owner_uid == owner_uid:
            return True
        return owner_uid not in self.named and answer.owner_uid not in self.named


@dataclass(slots=True)
class Shelf:
    """What was seen of the nodes, by name, with one `request` while all else that problems depend on (`given`) was
    the same. The request is always the same object, which is quicker to compare."""

    request: PodRequest
    given: Hashable
    nodes: dict[str, Seen] = field(default_factory=dict)


@dataclass(slots=True)
class Asked:
    """See the module. `apart`: which units are left."""

    apart: Apart = field(default_factory=Apart)
    _shelves: dict[PodRequest, Shelf] = field(default_factory=dict)

    def shelf(self, request: PodRequest, given: Hashable) -> Shelf:
        """What was seen with this request; nothing where all else is not as it was then."""
        known = self._shelves.get(request)
        if known is None or known.given != given:
            if len(self._shelves) >= _MOST_SHELVES:
                self._shelves.clear()
            known = self._shelves[request] = Shelf(request, given)
        return known
