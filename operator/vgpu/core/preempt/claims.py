"""Room that comes by itself, and who was told to wait for it: the next one is not told the same.

Enters: placements on cards that somebody leaves who was not evicted for anybody. Leaves: a DecisionWorld in which
they are held as a plan of the claimant's rank would hold them: those who rank lower look elsewhere or evict, those
who rank higher may take the room. A claim keeps nobody off the cards when they are free: that goes by turns. It
lasts until its pods wait no more, are decided on anew, or everybody is. Mutable, with one owner.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.facts import NodeReservation, Workload
from vgpu.core.preempt.rank import Rank, rank_of
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.views import NodeView, Reservation

NO_PLAN = ""
"""The plan that a claim's hold names."""


class Claims:
    """See the module."""

    def __init__(self) -> None:
        self._of_uid: dict[str, PlanHold] = {}
        self._seen: dict[str, tuple[NodeView, list[Reservation], NodeView]] = {}

    def clear(self) -> None:
        """Everybody who waits is decided on anew."""
        self._of_uid.clear()

    def put(self, cards: tuple[NodeReservation, ...]) -> None:
        """The pods that these cards are for wait for them, and for nothing else."""
        hold = PlanHold(NO_PLAN, 0, cards)
        self.drop(hold.uids)
        self._of_uid.update(dict.fromkeys(hold.uids, hold))

    def drop(self, uids: Iterable[str]) -> None:
        """None of these pods waits for what it claimed, nor does anybody who claimed it together with it."""
        for hold in [hold for uid in uids if (hold := self._of_uid.get(uid)) is not None]:
            for uid in hold.uids:
                self._of_uid.pop(uid, None)

    def over(self, world: DecisionWorld, waits: Callable[[str], bool]) -> DecisionWorld:
        """The world with what is claimed by those who wait still. A node's view is the same object while nothing
        changes there, so that a search can tell."""
        holds = [hold for hold in dict.fromkeys(self._of_uid.values()) if all(waits(uid) for uid in hold.uids)]
        if not holds:
            return world
        claims = [(hold, rank) for hold in holds if (rank := _rank(hold, world)) is not None]
        on_node: defaultdict[str, list[Reservation]] = defaultdict(list)
        for hold, _ in claims:
            for card in hold.cards:
                on_node[card.node].append(card.reservation)
        claimed = {
            node: self._view(world.views[node], held) for node, held in on_node.items() if node in world.views
        }
        return replace(world, claims=tuple(claims), views={**world.views, **claimed})

    def _view(self, view: NodeView, held: list[Reservation]) -> NodeView:
        known = self._seen.get(view.name)
        if known is None or known[0] is not view or known[1] != held:
            made = replace(view, reservations=(*view.reservations, *held))
            known = self._seen[view.name] = view, held, made
        return known[2]


def _rank(hold: PlanHold, world: DecisionWorld) -> Rank | None:
    """As of a plan for these pods; None when one of them is not known any more."""
    owners = _known(hold.uids, world.workloads)
    if len(owners) < len(hold.uids):
        return None
    return max(rank_of(owner, world.standing.entitled) for owner in owners)


def _known(uids: Collection[str], workloads: Mapping[str, Workload]) -> Sequence[Workload]:
    return [workloads[uid] for uid in uids if uid in workloads]
