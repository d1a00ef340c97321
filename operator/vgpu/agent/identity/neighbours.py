"""Who else has a claim on the cards that a pod is about to get, before that pod.

The pods of the node, the grants on disk, the pods that have a CDI file and no grant, and the processes that are
there enter; neighbours leave. A granted pod counts by its grant, whatever its annotation says since. Counted are
the pods that the API shows, and those that it shows no more, or as ended, while a process of theirs is there
(invariant I3): such a pod was deleted by force, or kubelet has not heard of it. May not live here: whether there
is room beside them.
"""

from collections.abc import Collection, Iterator, Mapping

from vgpu.agent.identity import checks
from vgpu.agent.identity.allocation_log import AllocationLog, Grant
from vgpu.agent.identity.checks import Neighbour
from vgpu.agent.identity.pod_processes import PodProcesses
from vgpu.agent.identity.pod_watch import PodSeen, PodWatch
from vgpu.api.assignment import AssignmentModel, parse_assignment
from vgpu.core.charge import Charge
from vgpu.errors import MalformedObject

Charges = Mapping[str, Charge]
Unrecorded = Mapping[str, frozenset[str] | None]
"""uid -> the cards in its CDI file; None where the file does not tell them."""
HELD_WHOLE = Charge(slots=1, memory_mib=0, cores=0, exclusive=True)
"""What a pod holds of a card when its amounts are not known any more."""


class Neighbours:
    """Of the pods of one node."""

    def __init__(
        self,
        node: str,
        pods: PodWatch,
        log: AllocationLog,
        processes: PodProcesses,
        unrecorded: Unrecorded | None = None,
    ) -> None:
        self._node = node
        self._pods = pods
        self._log = log
        self._processes = processes
        self._unrecorded = unrecorded or {}

    def before(self, pod: PodSeen, cards: Collection[str], let_start: Collection[str]) -> list[Neighbour]:
        """Those on these cards that go before it. `let_start`: uids of the pods that were let start already."""
        found = [*self._shown(pod, cards, let_start), *self._if_alive(pod, cards)]
        alive = self._processes.alive({uid for _, uid in found if uid})
        return [neighbour for neighbour, uid in found if not uid or uid in alive]

    def _shown(
        self, pod: PodSeen, cards: Collection[str], let_start: Collection[str]
    ) -> Iterator[tuple[Neighbour, str]]:
        """The pods that started or may, of the others those with a lower uid; an ended one with its uid."""
        for other in self._pods.pods.values():
            goes_before = other.started or other.uid in let_start or other.uid < pod.uid or self._is_hidden(other)
            if other.uid != pod.uid and goes_before:
                charges = self._charges(other)
                if not charges.keys().isdisjoint(cards):
                    yield Neighbour(other.path, charges), other.uid if other.ended else ""

    def _if_alive(self, pod: PodSeen, cards: Collection[str]) -> Iterator[tuple[Neighbour, str]]:
        """The pods that count as long as they have a process, each with its uid."""
        shown = {other.uid: other for other in self._pods.pods.values()}
        for uid, grant in self._log.grants.items():
            charges = {} if uid in shown else self._granted(uid)
            if not charges.keys().isdisjoint(cards):
                yield Neighbour(f"{grant.namespace}/{grant.name}", charges, uid), uid
        for uid in self._unrecorded:
            if uid == pod.uid or uid in self._log.grants or (uid in shown and self._charges(shown[uid])):
                continue
            own = self._unrecorded[uid]
            if held := {card: HELD_WHOLE for card in cards if own is None or card in own}:
                path = shown[uid].path if uid in shown else "a pod of which no record is left"
                yield Neighbour(path, held, "" if uid in shown else uid), uid

    def _is_hidden(self, pod: PodSeen) -> bool:
        """A granted pod that cannot be read: whether it started is not known."""
        return bool(pod.problem) and pod.uid in self._log.grants

    def _charges(self, pod: PodSeen) -> Charges:
        """By its grant, or its annotation before it has one; nothing where no container starts with such a one."""
        if pod.uid in self._log.grants:
            return self._granted(pod.uid)
        assignment = _readable(pod.assignment)
        if assignment is None or checks.foreign(assignment, pod.uid, self._node):
            return {}
        return checks.charges_of(assignment, {c.slots.name: c.slots.kind for c in pod.containers})

    def _granted(self, uid: str) -> Charges:
        return granted_charges(self._log.grants[uid])


def granted_charges(grant: Grant) -> Charges:
    """What a pod that was let start takes of each card; nothing where its assignment cannot be read."""
    assignment = _readable(grant.assignment)
    return checks.charges_of(assignment, {c.name: c.kind for c in grant.containers}) if assignment else {}


def _readable(assignment: str) -> AssignmentModel | None:
    """None where it cannot be read: no container ever starts with such a one."""
    try:
        return parse_assignment(assignment) if assignment else None
    except MalformedObject:
        return None
