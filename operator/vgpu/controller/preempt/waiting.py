"""Who is to be decided on: pods that wait for room that only evictions can make, in the order of service.

Enters: the ledger, the roster, gangs, who has a plan already. Leaves: pods that start together, with their place
in the order. May not live here: decisions, limits of time.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vgpu.core.ledger import Ledger
from vgpu.core.nomination import waits_for_us
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.rank import Service
from vgpu.core.preempt.roster import Roster

Preemptors = tuple[Workload, ...]
"""Pods that want to start together: a single one, or the required members of a gang."""
Order = tuple[bool, int, int, int, str]


class Gangs(Protocol):
    """What is asked about gangs."""

    def preemptors_of(self, uid: str) -> Preemptors:
        """With whom together this pod is to be decided on; () = with nobody, and not now."""

    def preemptors(self) -> Iterable[Preemptors]:
        """The required members of each gang that found no room, whether kube-scheduler has tried them or not."""


class NoGangs:
    """Every pod starts by itself."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def preemptors_of(self, uid: str) -> Preemptors:
        """The pod alone, unless it is of a gang that needs several."""
        workload = self._roster.workloads.get(uid)
        if workload is None or (workload.gang is not None and workload.gang.together):
            return ()
        return (workload,)

    def preemptors(self) -> Iterable[Preemptors]:
        """None."""
        return ()


@dataclass(frozen=True, slots=True)
class Place:
    """Pods that wait together, and their place: the smallest is served first."""

    order: Order
    pods: Preemptors

    @property
    def uids(self) -> tuple[str, ...]:
        """Of the pods."""
        return tuple(pod.uid for pod in self.pods)

    def __lt__(self, other: "Place") -> bool:
        return self.order < other.order


class Waiting:
    """Finds them. `planned_for`: uids of pods that a plan holds cards for."""

    def __init__(
        self,
        ledger: Ledger,
        roster: Roster,
        gangs: Gangs,
        scheduler_name: str,
        planned_for: Callable[[], Collection[str]],
    ) -> None:
        self._ledger = ledger
        self._roster = roster
        self._gangs = gangs
        self._scheduler_name = scheduler_name
        self._planned_for = planned_for
        self._known: tuple[int, Service] | None = None

    def all(self) -> list[Place]:
        """Everybody who waits, in no order."""
        planned, service = self._planned_for(), self._service()
        pending = (pod.uid for pod in self._ledger.pending() if pod.uid not in planned)
        singles = [uid for uid in pending if self._is_tried(uid)]
        found = [self._place(pods, planned, service) for pods in self._together(singles)]
        found += [self._place(pods, planned, service) for pods in self._gangs.preemptors()]
        kept = {place.uids: place for place in found if place is not None}
        return list(kept.values())

    def of(self, uids: Iterable[str]) -> list[Place]:
        """Those of these pods that wait now."""
        planned, service = self._planned_for(), self._service()
        pods = self._together(uid for uid in uids if self._is_tried(uid))
        found = {place.uids: place for one in pods if (place := self._place(one, planned, service)) is not None}
        return list(found.values())

    def _together(self, uids: Iterable[str]) -> list[Preemptors]:
        """With whom each of these is to be decided on; a gang that starts together is asked once for all of it."""
        asked: dict[str, str] = {}
        for uid in uids:
            known = self._roster.workloads.get(uid)
            gang = known.gang if known is not None else None
            asked.setdefault(f"gang {gang.key}" if gang is not None and gang.together else uid, uid)
        return [self._gangs.preemptors_of(uid) for uid in asked.values()]

    def singles(self, wanted: Callable[[Workload], bool]) -> list[Place]:
        """Those who wait and start by themselves, as far as they are wanted; the first to be served first."""
        planned, service, workloads = self._planned_for(), self._service(), self._roster.workloads
        known = [
            (uid, workload) for uid, workload in workloads.items() if not workload.running and wanted(workload)
        ]
        found = (self._gangs.preemptors_of(uid) for uid, _ in known if self._is_tried(uid))
        places = (self._place(pods, planned, service) for pods in found if len(pods) == 1)
        return sorted(place for place in places if place is not None)

    def order_of(self, pods: Iterable[Workload]) -> Order:
        """The place of these pods, which start together."""
        service = self._service()
        return min(service.key(pod) for pod in pods)

    def still(self, place: Place) -> Place | None:
        """The same pods as they stand now, or None when they need no decision any more."""
        workloads = self._roster.workloads
        pods = tuple(workload for uid in place.uids if (workload := workloads.get(uid)) is not None)
        if len(pods) < len(place.pods):
            return None
        if len(pods) == 1 and not self._is_tried(pods[0].uid):
            return None
        return self._place(pods, self._planned_for(), self._service())

    def _is_tried(self, uid: str) -> bool:
        pod = self._ledger.pod(uid)
        return pod is not None and waits_for_us(pod, self._scheduler_name)

    def _place(self, pods: Sequence[Workload], planned: Collection[str], service: Service) -> Place | None:
        if not pods or any(pod.uid in planned or not self._is_free(pod) for pod in pods):
            return None
        return Place(min(service.key(pod) for pod in pods), tuple(pods))

    def _is_free(self, pod: Workload) -> bool:
        """Nothing is on its way for the pod."""
        uid = pod.uid
        return (
            pod.request is not None
            and not pod.running
            and not pod.terminating
            and self._ledger.booking(uid) is None
            and self._ledger.nomination(uid) is None
        )

    def _service(self) -> Service:
        revision, entitled = self._roster.revision, self._roster.standing().entitled
        if self._known is None or self._known[0] != revision or self._known[1].entitled is not entitled:
            classes = {one.priority for one in self._roster.workloads.values()}
            self._known = revision, Service(self._roster.queues, entitled, classes)
        return self._known[1]
